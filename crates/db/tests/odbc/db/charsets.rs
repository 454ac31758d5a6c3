//! Character sets in which a database reads a text otherwise than it is read here.

use cenote::{Db, Error, Kind};

use super::{mariadb, postgres};
use crate::sources::mariadb_dsn;

#[track_caller]
fn assert_refused<T>(done: Result<T, Error>, why: &str) {
    let Err(error) = done else {
        panic!("{why}: it ran");
    };
    assert_eq!(error.kind(), Kind::Config, "{why}: {error:?}");
    assert!(error.message().contains("misread"), "{why}: {error}");
}

#[tokio::test]
async fn h16_odbc_a_mariadb_source_has_to_speak_utf8() {
    for charset in ["gbk", "sjis", "big5", "latin1"] {
        let dsn = mariadb_dsn().replace("CHARSET=utf8mb4", &format!("CHARSET={charset}"));
        let db = Db::open(&dsn).await.unwrap();
        assert_refused(db.exec("SELECT 1", ()).await, charset);
    }
    for charset in ["CHARSET=utf8", "CHARSET=utf8mb4"] {
        let dsn = mariadb_dsn().replace("CHARSET=utf8mb4", charset);
        let db = Db::open(&dsn).await.unwrap();
        let read: String = db.query_as_one("SELECT 'é'", ()).await.unwrap();
        assert_eq!(read, "é", "{charset}");
    }
}

#[tokio::test]
async fn h16_odbc_nothing_is_run_where_mariadb_misreads() {
    for dialect in ["mysql", "ansi"] {
        let db = mariadb(|builder| builder.max(1).option("dialect", dialect)).await;
        let procedure = "CREATE PROCEDURE p() BEGIN SET NAMES gbk; END";
        db.exec(procedure, ()).await.unwrap();
        for change in [
            // The driver itself refuses SET NAMES.
            "SET CHARACTER SET big5",
            "SET character_set_client = sjis",
            "SET @@session.character_set_client = gbk",
            "SET @x = 1, character_set_results = latin1",
            "CALL p()",
        ] {
            cenote::scope(async {
                db.exec("SELECT 'é' FROM DUAL WHERE 1 > ?", (0,))
                    .await
                    .unwrap();
                db.exec(change, ()).await.unwrap();
                assert_refused(
                    db.exec("SELECT '€\\'; SET @leak = 1; -- '", ()).await,
                    change,
                );
                assert_refused(
                    db.exec("SELECT 'é' FROM DUAL WHERE 1 > ?", (0,)).await,
                    change,
                );
                assert_refused(db.stream("SELECT 'é'", ()).await.map(drop), change);
                assert_refused(db.prepare("SELECT 'é'").await.map(drop), change);
            })
            .await;
            let read: String = db.query_as_one("SELECT 'é'", ()).await.unwrap();
            assert_eq!(read, "é", "{change}");
        }
    }
    let db = mariadb(|builder| builder.max(1).option("dialect", "mysql")).await;
    cenote::scope(async {
        db.exec("SET sql_mode = 'NO_BACKSLASH_ESCAPES'", ())
            .await
            .unwrap();
        assert_refused(
            db.exec("SELECT '\\'; SET @leak = 1; -- '", ()).await,
            "sql_mode",
        );
    })
    .await;
}

#[tokio::test]
async fn h16_odbc_nothing_is_run_where_postgres_misreads() {
    for dialect in ["postgres", "ansi"] {
        let source = postgres(|builder| builder.max(1).option("dialect", dialect)).await;
        let db = source.db;
        for change in [
            "SET client_encoding TO 'SJIS'",
            "SET NAMES 'LATIN1'",
            "SELECT set_config('client_encoding', 'GBK', false)",
        ] {
            cenote::scope(async {
                db.query(change, ()).await.unwrap();
                assert_refused(db.query("SELECT 'é'", ()).await, change);
            })
            .await;
            let read: String = db.query_as_one("SELECT 'é'", ()).await.unwrap();
            assert_eq!(read, "é", "{change}");
        }
        let local = db
            .transaction(async || {
                db.exec("SET LOCAL client_encoding TO 'LATIN1'", ()).await?;
                db.exec("SELECT 'é'", ()).await
            })
            .await;
        assert_refused(local, "SET LOCAL");
        let read: String = db.query_as_one("SELECT 'é'", ()).await.unwrap();
        assert_eq!(read, "é");
    }
}
