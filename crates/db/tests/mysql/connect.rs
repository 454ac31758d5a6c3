//! Who may come in, which way, and what is said to the others.

use cenote::{Db, Kind, Result};

use crate::servers::own::OwnServer;
use crate::servers::{
    dsn, dsn_with, free_port, port, refused, refused_by, required_variable, tls_file, unix_dsn,
};

/// The cipher of the connection; empty for one in the clear.
async fn cipher(dsn: &str) -> Result<String> {
    let db = Db::open(dsn).await?;
    let row = db
        .query_one("SHOW SESSION STATUS LIKE 'Ssl_cipher'", ())
        .await?;
    row.get(1)
}

#[tokio::test]
async fn all_three_ways_to_write_a_dsn_lead_to_the_server() {
    let port = port();
    for dsn in [
        format!(
            "mysql:host=127.0.0.1;port={port};dbname=cenote;user=cenote;password=cenote-secret"
        ),
        format!(
            "mariadb:host=127.0.0.1;port={port};dbname=cenote;charset=utf8mb4;username=cenote;pwd=cenote-secret"
        ),
        format!("mysql://cenote:cenote-secret@127.0.0.1:{port}/cenote"),
        format!("mariadb://cenote:cenote-secret@localhost:{port}/cenote?sslmode=disable"),
        unix_dsn(),
    ] {
        let db = Db::open(&dsn).await.unwrap();
        let name: String = db.query_as_one("SELECT DATABASE()", ()).await.unwrap();
        assert_eq!(name, "cenote", "{dsn}");
    }
}

#[tokio::test]
async fn credentials_of_the_builder_come_before_those_of_the_dsn() {
    let db = Db::builder(&dsn())
        .user("odd")
        .password("ö d;\"=\\%@:/#")
        .open()
        .await
        .unwrap();
    let user: String = db.query_as_one("SELECT CURRENT_USER()", ()).await.unwrap();
    assert_eq!(user, "odd@%");
    let mut url = format!(
        "mysql://odd:%C3%B6%20d;%22=%5C%25%40%3A%2F%23@127.0.0.1:{}",
        port()
    );
    url += "/cenote";
    Db::open(&url).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn wrong_password_user_or_database_is_reported_with_its_code() {
    for (name, value, code, word) in [
        ("password", "wrong-secret", 1045, "denied"),
        ("user", "stranger", 1045, "denied"),
        ("dbname", "no_such_database", 1049, "no_such_database"),
    ] {
        let builder = Db::builder(&dsn());
        let builder = match name {
            "password" => builder.password(value),
            "user" => builder.user(value),
            _ => builder.option(name, value),
        };
        let error = refused_by(builder).await;
        assert_eq!(
            (error.kind(), error.code()),
            (Kind::Connect, Some(code)),
            "{name}"
        );
        assert!(error.message().contains(word), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}

#[tokio::test]
async fn an_absent_server_is_reported_with_its_address() {
    let port = free_port();
    let error = refused(&format!("mysql:host=127.0.0.1;port={port};user=a")).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(
        error.message().contains(&format!("127.0.0.1:{port}")),
        "{error}"
    );
    assert!(
        error.message().contains("is the server running there?"),
        "{error}"
    );
    let error = refused("mysql:unix_socket=/nowhere/at.all;user=a").await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("/nowhere/at.all"), "{error}");
    let error = refused("mysql:host=no-such-host.invalid;user=a").await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    let error = refused("mysql:host=127.0.0.1").await;
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("no user configured"), "{error}");
}

#[tokio::test]
async fn of_several_servers_the_first_that_is_there_is_taken() {
    let dsn = format!(
        "mysql:host=127.0.0.1,localhost;port={},{};dbname=cenote;user=cenote;password=cenote-secret",
        free_port(),
        port()
    );
    Db::open(&dsn).await.unwrap().ping().await.unwrap();
    // A refused login is an answer: nobody else is asked.
    let error = refused_by(Db::builder(&dsn).password("wrong")).await;
    assert_eq!(error.code(), Some(1045));
}

#[tokio::test]
async fn tls_is_preferred_and_can_be_asked_for_or_done_without() {
    assert_ne!(cipher(&dsn()).await.unwrap(), "");
    assert_ne!(cipher(&dsn_with("sslmode=require")).await.unwrap(), "");
    assert_eq!(cipher(&dsn_with("sslmode=disable")).await.unwrap(), "");
    assert_eq!(cipher(&unix_dsn()).await.unwrap(), "");
    assert_eq!(
        cipher(&(unix_dsn() + ";sslmode=verify-full"))
            .await
            .unwrap(),
        ""
    );
    let only = |mode: &str| {
        let dsn = dsn_with(&format!("sslmode={mode}"));
        Db::builder(&dsn).user("tls_only").password("tls-secret")
    };
    only("prefer").open().await.unwrap().ping().await.unwrap();
    let error = refused_by(only("disable")).await;
    assert_eq!(error.code(), Some(1045));
}

#[tokio::test]
async fn server_without_tls_is_used_if_preferred_but_not_if_required() {
    let server = OwnServer::start(&[]).await;
    let dsn = |mode: &str| format!("{}={mode}", server.dsn().replace("=disable", ""));
    assert_eq!(cipher(&dsn("prefer")).await.unwrap(), "");
    for mode in ["require", "verify-full"] {
        let error = refused(&dsn(mode)).await;
        assert_eq!(error.kind(), Kind::Connect);
        assert!(error.message().contains("does not offer TLS"), "{error}");
    }
}

#[tokio::test]
async fn certificates_are_checked_as_sslmode_says() {
    let (ca, stranger) = (tls_file("ca.crt"), tls_file("stranger.crt"));
    let by_name = dsn().replace("127.0.0.1", "localhost");
    for (dsn, options, is_fine) in [
        (
            &by_name,
            format!("sslmode=verify-full;sslrootcert={ca}"),
            true,
        ),
        (
            &by_name,
            format!("sslmode=verify-full;sslrootcert={stranger}"),
            false,
        ),
        (&by_name, "sslmode=verify-full".to_owned(), false),
        (&by_name, format!("sslmode=require;sslrootcert={ca}"), true),
        (
            &by_name,
            format!("sslmode=require;sslrootcert={stranger}"),
            false,
        ),
        // To name a certificate is to ask for it.
        (&by_name, format!("sslrootcert={ca}"), true),
        (&by_name, format!("sslrootcert={stranger}"), false),
        // The certificate is for the name, and not for the address.
        (
            &dsn(),
            format!("sslmode=verify-full;sslrootcert={ca}"),
            false,
        ),
    ] {
        let dsn = format!("{dsn};{options}");
        match is_fine {
            true => assert_ne!(cipher(&dsn).await.unwrap(), "", "{dsn}"),
            false => {
                let error = refused(&dsn).await;
                assert_eq!(error.kind(), Kind::Connect, "{dsn}");
                assert!(error.message().contains("TLS"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_compressed_connection_carries_the_same() {
    let db = Db::open(&dsn_with("compress=1")).await.unwrap();
    let long = "x".repeat(100_000);
    let got: String = db.query_as_one("SELECT ?", (&*long,)).await.unwrap();
    assert_eq!(got, long);
    let row = db
        .query_one("SHOW SESSION STATUS LIKE 'Compression'", ())
        .await
        .unwrap();
    assert_eq!(row.get::<String>(1).unwrap(), "ON");
}

#[tokio::test]
async fn senseless_options_are_refused_before_anything_is_opened() {
    for (options, word) in [
        ("sslmode=perhaps", "verify-full"),
        ("sslmode=verify-ca", "mysql_async cannot do"),
        ("charset=latin1", "utf8mb4"),
        ("prot=3306", "port"),
        ("sslcert=/a", "sslkey"),
        ("local_infile=here", "folder"),
        ("unix_socket=/x", "host"),
        ("set.a b=1", "setting"),
        ("found_rows=perhaps", "found_rows"),
    ] {
        let error = Db::open(&format!("mysql:host=db;{options}"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{options}");
        assert!(error.message().contains(word), "{options}: {error}");
    }
}

#[tokio::test]
async fn server_that_reads_quotes_differently_needs_a_matching_dsn() {
    let mode = "STRICT_TRANS_TABLES,ANSI_QUOTES,NO_BACKSLASH_ESCAPES";
    let server = OwnServer::start(&[&format!("sql-mode={mode}")]).await;
    let error = refused(&server.dsn()).await;
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("sql_mode=ANSI_QUOTES"), "{error}");
    let db = Db::open(&format!("{};sql_mode={mode}", server.dsn()))
        .await
        .unwrap();
    let got: (String, i64) = db
        .query_as_one("SELECT 'a\\', ? AS \":n\"", (7,))
        .await
        .unwrap();
    assert_eq!(got, ("a\\".to_owned(), 7));
}

#[tokio::test]
async fn nothing_that_is_shown_holds_the_password() {
    let db = Db::open(&dsn()).await.unwrap();
    let connection = db.connection().await.unwrap();
    connection.query("SELECT 1", ()).await.unwrap();
    assert!(required_variable("CENOTE_TEST_MARIADB").contains("cenote-secret"));
    for shown in [
        format!("{db:?}"),
        format!("{connection:?}"),
        format!("{:?}", db.pool()),
    ] {
        assert!(!shown.contains("cenote-secret"), "{shown}");
    }
    let mut link = db.pool().unwrap().acquire().await.unwrap();
    let shown = format!("{:?}", link.driver()) + &format!("{:?}", &*link);
    assert!(
        shown.contains("MysqlConnection") && !shown.contains("cenote-secret"),
        "{shown}"
    );
}
