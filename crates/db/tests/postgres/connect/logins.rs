//! Who is let in.

use std::time::Duration;

use cenote::{CredentialProvider, Credentials, Db, Kind};

use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{
    assert_whole, dsn, dsn_with, free_port, port, quiet, refused, sockets, soon, unique,
};

/// A user for each way to log in, and the password.
const USERS: [(&str, &str); 5] = [
    ("trusted", ""),
    ("plain", "plain-secret"),
    ("hashed", "hashed-secret"),
    ("scram", "scram-secret"),
    ("odd", "ö d'd;\"=\\%@:/#"),
];

fn at(host: &str) -> String {
    format!("pgsql:host={host};port={};dbname=cenote", port())
}

#[tokio::test]
async fn every_kind_of_password_lets_its_user_in_by_every_way() {
    let ways = [
        (at("127.0.0.1"), "sslmode=disable"),
        (at("127.0.0.1"), "sslmode=require"),
        (at("localhost"), "sslmode=prefer"),
        (at(&sockets()), "sslmode=prefer"),
    ];
    for (way, mode) in ways {
        for (user, password) in USERS {
            let db = Db::builder(&format!("{way};{mode}"))
                .user(user)
                .password(password)
                .open()
                .await
                .unwrap();
            let sql = "SELECT current_user::text";
            let found: String = soon("it logs in", db.query_as_one(sql, ())).await.unwrap();
            assert_eq!(found, user, "{way};{mode}");
        }
    }
}

#[tokio::test]
async fn a_password_of_odd_letters_can_stand_in_any_form_of_dsn() {
    let port = port();
    let forms = [
        format!(
            r#"pgsql:host=127.0.0.1;port={port};dbname=cenote;user=odd;password='ö d\'d;"=\\%@:/#'"#
        ),
        format!("postgres://odd:%C3%B6%20d'd;%22=%5C%25%40%3A%2F%23@127.0.0.1:{port}/cenote"),
    ];
    for form in forms {
        let db = Db::open(&form).await.unwrap();
        db.ping().await.unwrap();
        assert!(!format!("{db:?}").contains("d'd"), "{db:?}");
    }
}

#[tokio::test]
async fn wrong_password_is_an_error_with_its_sqlstate_and_no_password() {
    for (user, _) in &USERS[1..] {
        let dsn = format!("{};user={user};password=sesame-0815", at("127.0.0.1"));
        let error = refused(&dsn).await;
        assert_eq!(error.kind(), Kind::Connect, "{user}: {error}");
        assert_eq!(error.sql_state(), Some("28P01"), "{user}: {error}");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("sesame-0815"), "{shown}");
        assert!(shown.contains(&format!("127.0.0.1:{}", port())), "{shown}");
    }
}

#[tokio::test]
async fn missing_password_is_an_error_that_says_where_it_was_sought() {
    let error = refused(&format!("{};user=scram", at("127.0.0.1"))).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("PGPASSWORD"), "{error}");
}

#[tokio::test]
async fn unknown_database_or_user_is_reported_with_its_sqlstate() {
    let error = refused(&dsn().replace("dbname=cenote", "dbname=nowhere")).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("3D000"))
    );
    assert!(error.message().contains("nowhere"), "{error}");

    let error = refused(&format!("{};user=nobody;password=x", at("127.0.0.1"))).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("28000"))
    );
    assert!(error.message().contains("nobody"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_names_it() {
    let port = free_port();
    let error = refused(&format!("pgsql:host=127.0.0.1;port={port};user=a")).await;
    assert_eq!((error.kind(), error.sql_state()), (Kind::Connect, None));
    let message = error.message();
    assert!(message.contains(&format!("127.0.0.1:{port}")), "{message}");
    assert!(
        message.contains("is the server running there?"),
        "{message}"
    );

    let error = refused("pgsql:host=/no/such/folder;user=a").await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(
        error.message().contains("/no/such/folder/.s.PGSQL.5432"),
        "{error}"
    );

    let error = refused("pgsql:host=no-such-host.invalid;user=a").await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("cannot be looked up"), "{error}");
}

#[tokio::test]
async fn silent_server_fails_the_connect_when_its_time_is_over() {
    let silent =
        Scripted::new(|mut client: Client| async move { client.fall_silent().await }).await;
    let db = Db::builder(&silent.dsn())
        .connect_timeout(Duration::from_millis(80))
        .max(2)
        .open()
        .await
        .unwrap();
    let error = soon("the connect ends", db.ping()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    quiet(&db).await;
    assert_eq!(db.status().total, 0);

    // By the DSN's own limit, which is for each server.
    let error = refused(&format!("{};connect_timeout=80ms", silent.dsn())).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(error.message().contains("80ms"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_costs_the_pool_nothing_but_the_try() {
    let rotating = std::sync::Arc::new(std::sync::Mutex::new("wrong"));
    let current = std::sync::Arc::clone(&rotating);
    let provider = CredentialProvider::new(move || {
        let password = *current.lock().unwrap();
        async move { Ok::<_, std::io::Error>(Credentials::new("scram", password)) }
    });
    let db = Db::builder(&at("127.0.0.1"))
        .credentials(provider)
        .max(3)
        .open()
        .await
        .unwrap();
    let error = db.ping().await.unwrap_err();
    assert_eq!(error.sql_state(), Some("28P01"), "{error}");
    *rotating.lock().unwrap() = "scram-secret";
    assert_whole(&db).await;
}

#[tokio::test]
async fn what_a_dsn_sets_reaches_every_session() {
    let name = unique("tests");
    let options = format!(
        "application_name={name};search_path='pg_catalog, information_schema';\
         options='-c geqo=off';set.work_mem=1234kB;set.cenote.tests=yes;keepalives_idle=30"
    );
    let db = Db::builder(&dsn_with(&options))
        .max(2)
        .open()
        .await
        .unwrap();
    let one = db.connection().await.unwrap();
    let two = db.connection().await.unwrap();
    for connection in [one, two] {
        for (setting, value) in [
            ("application_name", name.as_str()),
            ("search_path", "pg_catalog, information_schema"),
            ("geqo", "off"),
            ("work_mem", "1234kB"),
            ("cenote.tests", "yes"),
            ("client_encoding", "UTF8"),
        ] {
            let sql = "SELECT current_setting(?)";
            let found: String = connection.query_as_one(sql, (setting,)).await.unwrap();
            assert_eq!(found, value, "{setting}");
        }
    }
}

#[tokio::test]
async fn setting_refused_by_the_server_is_reported_with_its_sqlstate() {
    let error = refused(&dsn_with("set.work_mem=lots")).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("22023"))
    );
    assert!(error.message().contains("work_mem"), "{error}");
}

#[tokio::test]
async fn too_many_connections_are_reported_with_their_sqlstate() {
    let database = unique("crowded");
    let admin = Db::open(&dsn()).await.unwrap();
    for sql in [
        format!("CREATE DATABASE {database} CONNECTION LIMIT 0"),
        format!("GRANT CONNECT ON DATABASE {database} TO PUBLIC"),
    ] {
        admin.exec(&sql, ()).await.unwrap();
    }
    let crowded = at("127.0.0.1").replace("dbname=cenote", &format!("dbname={database}"));
    let error = refused(&format!("{crowded};user=scram;password=scram-secret")).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("53300"))
    );
}

#[tokio::test]
async fn h33_only_required_kinds_of_login_are_answered() {
    for (user, password, method) in [
        ("trusted", "", "none"),
        ("plain", "plain-secret", "password"),
        ("hashed", "hashed-secret", "md5"),
        ("scram", "scram-secret", "scram-sha-256"),
    ] {
        for list in [
            "none",
            "password",
            "md5",
            "scram-sha-256",
            "md5,scram-sha-256",
            "!password",
            "!none,!md5",
            "gss",
            "",
        ] {
            let is_named = list
                .split(',')
                .any(|it| it.trim_start_matches('!') == method);
            let is_allowed = list.is_empty() || is_named != list.starts_with('!');
            let db = Db::builder(&at("127.0.0.1"))
                .user(user)
                .password(password)
                .option("require_auth", list)
                .open()
                .await
                .unwrap();
            match soon("it is let in or not", db.ping()).await {
                Ok(()) => assert!(is_allowed, "{user}: {list}"),
                Err(error) => {
                    assert!(!is_allowed, "{user}: {list}: {error}");
                    assert_eq!(error.kind(), Kind::Connect);
                    assert!(error.message().contains("require_auth"), "{error}");
                    assert!(error.message().contains(method), "{error}");
                }
            }
        }
    }
    let wrong = Db::open(&format!("{};require_auth=scram", dsn())).await;
    assert_eq!(wrong.unwrap_err().kind(), Kind::Config);
}

/// An impostor is sent nothing that is derived from the password.
#[tokio::test]
async fn h33_a_server_that_asks_otherwise_is_sent_no_password() {
    let clear: &[u8] = &3_i32.to_be_bytes();
    let md5: &[u8] = &[0, 0, 0, 5, 1, 2, 3, 4];
    for (asks, list) in [
        (clear, "scram-sha-256"),
        (clear, "!password"),
        (md5, "scram-sha-256"),
        (md5, "!md5,!password"),
    ] {
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let asks = asks.to_vec();
        let server = Scripted::new(move |mut client: Client| {
            let (told, asks) = (told.clone(), asks.clone());
            async move {
                client.read_startup().await;
                client.send(&message(b'R', &asks)).await;
                let _ = told.send(client.read().await);
            }
        })
        .await;
        let dsn = format!("{};require_auth={list}", server.dsn());
        let db = Db::builder(&dsn).password("secret").open().await.unwrap();
        let error = soon("it is refused", db.ping()).await.unwrap_err();
        assert!(error.message().contains("require_auth"), "{error}");
        let heard = soon("the client goes", hears.recv()).await.unwrap();
        assert_eq!(heard, None, "nothing is sent");
    }
}
