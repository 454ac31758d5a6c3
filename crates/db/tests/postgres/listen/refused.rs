//! What cannot be listened to, and LISTEN as a statement.

use std::time::Duration;

use cenote::{Db, Error, Kind};

use super::support::*;
use crate::servers::{assert_whole, dsn, free_port, required_variable, soon};

async fn refused(db: &Db) -> Error {
    let error = soon("it is refused", db.listen(["news"]).into_future())
        .await
        .unwrap_err();
    nothing_listens(db).await;
    assert!(error.call_site().is_some(), "{error:?}");
    error
}

#[tokio::test]
async fn pgbouncer_is_refused_with_what_to_do() {
    let db = Db::builder(&required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER"))
        .statement_cache(0)
        .max(2)
        .open()
        .await
        .unwrap();
    let error = refused(&db).await;
    assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
    for word in ["PgBouncer", "LISTEN", "address"] {
        assert!(error.message().contains(word), "{error}");
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn other_databases_are_refused() {
    let db = Db::open("sqlite::memory:").await;
    let db = match db {
        Ok(db) => db,
        // A private database needs an unpooled handle.
        Err(_) => Db::builder("sqlite::memory:")
            .unpooled()
            .open()
            .await
            .unwrap(),
    };
    let error = refused(&db).await;
    assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
    assert!(error.message().contains("PostgreSQL"), "{error}");
    // There LISTEN is a word as any other.
    let error = cenote::scope(async { db.exec("LISTEN x", ()).await })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Database, "{error:?}");
}

#[tokio::test]
async fn servers_reason_is_given_to_those_who_wait_only() {
    let standby = Db::open(&required_variable("CENOTE_TEST_POSTGRES_STANDBY"))
        .await
        .unwrap();
    let error = refused(&standby).await;
    assert_eq!(error.sql_state(), Some("25006"), "{error:?}");

    let wrong = dsn().replace("cenote-secret", "wrong");
    let error = refused(&Db::open(&wrong).await.unwrap()).await;
    assert_eq!(error.sql_state(), Some("28P01"), "{error:?}");

    let nowhere = format!("pgsql:host=127.0.0.1;port={};user=cenote", free_port());
    let error = refused(&Db::open(&nowhere).await.unwrap()).await;
    assert_eq!(error.kind(), Kind::Connect, "{error:?}");
}

#[tokio::test]
async fn listen_ends_with_the_acquire_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let db = Db::builder(&format!("pgsql:host=127.0.0.1;port={port};sslmode=disable"))
        .user("cenote")
        .acquire_timeout(Duration::from_millis(50))
        .open()
        .await
        .unwrap();
    let error = refused(&db).await;
    assert_eq!(error.kind(), Kind::Timeout, "{error:?}");
    assert!(error.message().contains("acquire_timeout"), "{error}");
}

#[tokio::test]
async fn listen_as_a_statement_names_what_to_use() {
    let db = open().await;
    let check = |error: Error| {
        assert_eq!(error.kind(), Kind::Unsupported, "{error:?}");
        assert!(error.message().contains("Db::listen"), "{error}");
    };
    let texts = [
        "LISTEN news",
        "listen \"News\" ;",
        "UNLISTEN *",
        "UNLISTEN news",
        "/* x */ LISTEN news",
        "SELECT 1; LISTEN news",
        "LISTEN a; LISTEN b",
    ];
    for text in texts {
        check(db.exec(text, ()).await.unwrap_err());
        check(db.query(text, ()).await.unwrap_err());
        cenote::scope(async {
            check(db.exec(text, ()).await.unwrap_err());
            check(db.run_all(text, ()).await.unwrap_err());
        })
        .await;
        let connection = db.connection().await.unwrap();
        check(connection.exec(text, ()).await.unwrap_err());
    }
    cenote::scope(async {
        check(db.prepare("LISTEN news").await.unwrap_err());
        check(db.stream("LISTEN news", ()).await.unwrap_err());
        check(db.exec_many("LISTEN news", [()]).await.unwrap_err());
    })
    .await;
    let hooked = Db::builder(&dsn())
        .on_connect(async |connection: &mut cenote::PooledConnection| {
            connection.exec("SET x.y = 'z'; LISTEN news").await
        })
        .open()
        .await
        .unwrap();
    check(hooked.ping().await.unwrap_err());
    assert_whole(&db).await;
}

#[tokio::test]
async fn notify_and_names_with_listen_stay_statements() {
    let db = open().await;
    let fine = [
        "NOTIFY news",
        "NOTIFY news, 'LISTEN'",
        "SELECT pg_notify('news', 'UNLISTEN *')",
        "SELECT 1 AS listen -- LISTEN news",
        "SELECT 1; NOTIFY news",
    ];
    for text in fine {
        db.exec(text, ()).await.unwrap();
    }
}
