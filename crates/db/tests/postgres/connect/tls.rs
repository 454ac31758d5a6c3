//! TLS, by libpq's words.

use cenote::{Db, Error, Kind};
use cenote_testkit::proxy::Network;

use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::own::OwnServer;
use crate::servers::scripted::{Client, Scripted};
use crate::servers::{
    WHO, dsn_with, is_running, own_tables, port, quiet, refused, second_port, session_id, soon,
    standby_port, tls_file,
};

/// Whether the session of this DSN is encrypted, as the server sees it.
async fn is_encrypted(dsn: &str) -> Result<bool, Error> {
    let db = Db::builder(dsn).max(1).open().await?;
    let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    soon("it connects", db.query_as_one(sql, ())).await
}

fn user(name: &str, password: &str, mode: &str) -> String {
    format!(
        "pgsql:host=127.0.0.1;port={};dbname=cenote;user={name};password={password};sslmode={mode}",
        port()
    )
}

#[tokio::test]
async fn every_sslmode_means_what_it_means_to_libpq() {
    let ca = format!(";sslrootcert={}", tls_file("ca.crt"));
    for (mode, either, tls_only, no_tls) in [
        ("disable", Some(false), None, Some(false)),
        ("allow", Some(false), Some(true), Some(false)),
        ("prefer", Some(true), Some(true), Some(false)),
        ("require", Some(true), Some(true), None),
        ("verify-ca", Some(true), Some(true), None),
        ("verify-full", Some(true), Some(true), None),
    ] {
        for (name, password, expected) in [
            ("cenote", "cenote-secret", either),
            ("tls_only", "tls-secret", tls_only),
            ("no_tls", "open-secret", no_tls),
        ] {
            let dsn = user(name, password, mode) + &ca;
            let found = is_encrypted(&dsn).await;
            match expected {
                Some(encrypted) => assert_eq!(found.unwrap(), encrypted, "{name} {mode}"),
                None => {
                    let error = found.unwrap_err();
                    assert_eq!(error.sql_state(), Some("28000"), "{name} {mode}: {error}");
                    assert_eq!(error.kind(), Kind::Connect);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_not_tried_again_without_tls() {
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&seen);
    // Speaks no TLS, refuses every login: each is a connection of its own.
    let server = Scripted::new(move |mut client: Client| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            client.read_startup().await;
            client.send(b"N").await;
            client.read_startup().await;
            let said = b"SFATAL\0VFATAL\0C28P01\0Mwrong password\0\0";
            client
                .send(&crate::servers::scripted::message(b'E', said))
                .await;
        }
    })
    .await;
    let dsn = server.dsn().replace("sslmode=disable", "sslmode=prefer");
    let error = refused(&dsn).await;
    assert_eq!(error.sql_state(), Some("28P01"), "{error}");
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_needed() {
    let standby = format!("pgsql:host=127.0.0.1;port={};{WHO}", standby_port());
    for mode in ["require", "verify-ca", "verify-full"] {
        let dsn = format!(
            "{standby};sslmode={mode};sslrootcert={}",
            tls_file("ca.crt")
        );
        let error = refused(&dsn).await;
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        assert!(error.message().contains("does not offer TLS"), "{error}");
    }
    for mode in ["disable", "allow", "prefer"] {
        let dsn = format!("{standby};sslmode={mode}");
        assert!(!is_encrypted(&dsn).await.unwrap());
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_not_trusted() {
    let stranger = tls_file("stranger.crt");
    // As in libpq: `require` checks as well, once there is a root certificate.
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = refused(&dsn_with(&format!("sslmode={mode};sslrootcert={stranger}"))).await;
        assert_eq!(
            (error.kind(), error.sql_state()),
            (Kind::Connect, None),
            "{error}"
        );
        assert!(error.message().contains("not trusted"), "{mode}: {error}");
        assert!(error.message().contains("sslrootcert"), "{mode}: {error}");
    }
    // And `prefer` goes on without.
    let dsn = dsn_with(&format!("sslmode=prefer;sslrootcert={stranger}"));
    assert!(!is_encrypted(&dsn).await.unwrap());
}

#[tokio::test]
async fn require_without_a_root_certificate_checks_nothing() {
    let nowhere = dsn_with("sslmode=require;sslrootcert=/no/such/file");
    assert!(is_encrypted(&nowhere).await.unwrap());
}

#[tokio::test]
async fn only_verify_full_looks_at_the_name() {
    let ca = tls_file("ca.crt");
    let second = format!(
        "pgsql:host=127.0.0.1;port={};{WHO};sslrootcert={ca}",
        second_port()
    );
    assert!(
        is_encrypted(&format!("{second};sslmode=verify-ca"))
            .await
            .unwrap()
    );
    let error = refused(&format!("{second};sslmode=verify-full")).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("not for 127.0.0.1"), "{error}");
    assert!(error.message().contains("verify-ca"), "{error}");

    // The name that was asked for counts, and not the address it was looked up as.
    let by_name = format!(
        "pgsql:host=elsewhere.example;hostaddr=127.0.0.1;port={};{WHO};sslrootcert={ca};\
         sslmode=verify-full",
        second_port()
    );
    assert!(is_encrypted(&by_name).await.unwrap());
    let by_name = dsn_with(&format!("sslrootcert={ca};sslmode=verify-full"));
    let by_name = by_name.replace("host=127.0.0.1", "host=localhost");
    assert!(is_encrypted(&by_name).await.unwrap());
}

#[tokio::test]
async fn a_certificate_that_signed_itself_can_be_trusted_itself() {
    let server = OwnServer::start(&[
        "ssl=on",
        &format!("ssl_cert_file={}", tls_file("itself.crt")),
        &format!("ssl_key_file={}", tls_file("itself.key")),
    ])
    .await;
    let dsn = server.dsn().replace(";sslmode=disable", "");
    let itself = tls_file("itself.crt");
    for mode in ["require", "verify-ca", "verify-full"] {
        let trusting = format!("{dsn};sslmode={mode};sslrootcert={itself}");
        assert!(is_encrypted(&trusting).await.unwrap(), "{mode}");
        let error = refused(&format!(
            "{dsn};sslmode={mode};sslrootcert={}",
            tls_file("ca.crt")
        ))
        .await;
        assert!(error.message().contains("not trusted"), "{mode}: {error}");
    }
    let by_another_name = dsn.replace("host=127.0.0.1", "host=other.example;hostaddr=127.0.0.1");
    let trusting = format!("{by_another_name};sslmode=verify-full;sslrootcert={itself}");
    let error = refused(&trusting).await;
    assert!(error.message().contains("not for other.example"), "{error}");
}

#[tokio::test]
async fn unusable_root_certificate_is_an_error_that_names_the_file() {
    for (file, part) in [
        ("/no/such/file", "does not exist"),
        ("/etc/hostname", "contains no certificate"),
    ] {
        let dsn = dsn_with(&format!("sslmode=verify-ca;sslrootcert={file}"));
        let error = refused(&dsn).await;
        assert_eq!(error.kind(), Kind::Config, "{error}");
        assert!(error.message().contains(file), "{error}");
        assert!(error.message().contains(part), "{error}");
    }
}

#[tokio::test]
async fn bytes_sent_before_tls_are_not_taken_for_bytes_inside_it() {
    let server = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        // In one piece: nobody can have answered a greeting that was not sent yet.
        client.send(b"SE\0\0\0\x20SERROR\0C00000\0Mhello\0\0").await;
        client.fall_silent().await;
    })
    .await;
    let dsn = server.dsn().replace("sslmode=disable", "sslmode=require");
    let error = refused(&dsn).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("unencrypted bytes"), "{error}");
}

#[tokio::test]
async fn invalid_answer_to_the_tls_request_is_an_error() {
    for answer in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"E\0\0\0\x10",
        b"",
    ] {
        let answer = answer.to_vec();
        let server = Scripted::new(move |mut client: Client| {
            let answer = answer.clone();
            async move {
                client.read_startup().await;
                client.send(&answer).await;
            }
        })
        .await;
        let dsn = server.dsn().replace("sslmode=disable", "sslmode=require");
        let error = refused(&dsn).await;
        assert_eq!(
            (error.kind(), error.sql_state()),
            (Kind::Connect, None),
            "{error}"
        );
    }
}

#[tokio::test]
async fn required_channel_binding_needs_tls_and_scram() {
    let bound = "sslmode=require;channel_binding=require";
    assert!(is_encrypted(&dsn_with(bound)).await.unwrap());
    // This one's certificate is signed with SHA-384, and so that is the hash.
    let second = format!("pgsql:host=127.0.0.1;port={};{WHO};{bound}", second_port());
    assert!(is_encrypted(&second).await.unwrap());

    for dsn in [
        dsn_with("sslmode=disable;channel_binding=require"),
        user("hashed", "hashed-secret", "require") + ";channel_binding=require",
        user("plain", "plain-secret", "require") + ";channel_binding=require",
        user("trusted", "x", "require") + ";channel_binding=require",
    ] {
        let error = refused(&dsn).await;
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        assert!(
            error.message().contains("channel_binding=require"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_through_tls_as_well() {
    let proxy = proxy_with(Network::ideal()).await;
    let dsn = dsn_through(&proxy).replace("sslmode=disable", "sslmode=require");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    let admin = Db::open(&dsn_with("")).await.unwrap();
    let before = session_id(&db).await;
    let caller = db.clone();
    let task = cenote::spawn(async move { caller.query("SELECT pg_sleep(600)", ()).await });
    is_running(&admin, before, "SELECT pg_sleep(600)").await;
    task.abort();
    quiet(&db).await;
    assert_eq!(session_id(&db).await, before, "cancelled, and fit for use");
    // One connection for the session, one at least for the cancel: nobody says anything in the
    // clear but that TLS is wanted.
    let greetings = proxy.greetings();
    assert!(greetings.len() >= 2, "{greetings:?}");
    for greeting in greetings {
        assert_eq!(greeting, [0, 0, 0, 8, 4, 210, 22, 47]);
    }
}

#[tokio::test]
async fn much_goes_through_tls_in_both_directions_at_once() {
    let db = own_tables(|builder| builder.max(1).option("sslmode", "require")).await;
    db.exec("CREATE TABLE t (id int8, filler text)", ())
        .await
        .unwrap();
    // Many times the size of the buffers between the two: a client that only writes or only reads
    // would wait for ever.
    let filler = "x".repeat(20_000);
    let rows: Vec<_> = (0..1_000_i64).map(|id| (id, &*filler)).collect();
    let sql = "INSERT INTO t VALUES (?, ?)";
    let inserted = soon("it is written", db.exec_many(sql, rows))
        .await
        .unwrap();
    assert_eq!(inserted.rows_affected, 1_000);
    let sql = "SELECT id, filler FROM t ORDER BY id";
    let mut stream = db.stream(sql, ()).await.unwrap();
    let mut seen = 0;
    while let Some(row) = soon("a row comes", stream.try_next()).await.unwrap() {
        assert_eq!(row.get::<i64>(0).unwrap(), seen);
        assert_eq!(row.get::<&str>(1).unwrap().len(), 20_000);
        seen += 1;
    }
    assert_eq!(seen, 1_000);
}
