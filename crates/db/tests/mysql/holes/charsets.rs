//! Character sets in which the server reads a text otherwise than it is read here, or rows would be misread.

use cenote::{Db, Error, Kind, PooledConnection};

use crate::servers::client::with_option;
use crate::servers::own::OwnServer;
use crate::servers::{dsn, own_tables};

#[track_caller]
fn assert_refused(error: &Error, why: &str) {
    assert_eq!(error.kind(), Kind::Config, "{why}: {error:?}");
    assert!(error.message().contains("utf8mb4"), "{why}: {error}");
}

/// What changes the character set of texts or of rows, in the text or behind it.
const CHANGES: &[&str] = &[
    "SET NAMES gbk",
    "SET NAMES sjis",
    "SET NAMES cp932",
    "SET NAMES big5",
    "SET NAMES latin1",
    "SET NAMES ascii",
    "set\tnames /* */ gbk",
    "SET CHARACTER SET gbk",
    "SET CHARSET big5",
    "SET character_set_client = cp932",
    "SET @@session.character_set_client = gbk",
    "SET @x = 1, character_set_results = latin1",
    "SET character_set_results = NULL",
    "EXECUTE IMMEDIATE 'SET NA' 'MES gbk'",
    "BEGIN NOT ATOMIC SET NAMES gbk; END",
    "SELECT 1; SET NAMES gbk",
];

/// What changes the character set of rows where no text tells so. A routine keeps that of texts to itself.
const HIDDEN: &[&str] = &[
    "CALL p()",
    "CALL p",
    "SELECT f()",
    "SET @x = f()",
    "INSERT INTO t VALUES (f())",
    "INSERT INTO watched VALUES (1)",
];

async fn with_routines() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    for sql in [
        "CREATE TABLE t (a TEXT)",
        "CREATE TABLE watched (a TEXT)",
        "CREATE TRIGGER w AFTER INSERT ON watched FOR EACH ROW SET @@character_set_results = latin1",
        "CREATE PROCEDURE p() BEGIN SET NAMES gbk; END",
        "CREATE FUNCTION f() RETURNS INT BEGIN SET @@character_set_results = latin1; RETURN 1; END",
    ] {
        db.exec(sql, ()).await.unwrap();
    }
    db
}

#[tokio::test]
async fn h16_nothing_is_run_in_a_charset_that_is_misread() {
    let db = with_routines().await;
    // In GBK the last byte of the euro sign and the backslash are one character: the quote ends the string.
    let hidden = "SELECT '€\\'; SET @leak = 1; -- '";
    for change in CHANGES {
        cenote::scope(async {
            db.exec("INSERT INTO t VALUES (?)", ("é",)).await.unwrap();
            db.exec(change, ())
                .await
                .unwrap_or_else(|error| panic!("{change}: {error}"));
            assert_refused(&db.query(hidden, ()).await.unwrap_err(), change);
            let kept = db.exec("INSERT INTO t VALUES (?)", ("é",)).await;
            assert_refused(&kept.unwrap_err(), change);
            assert_refused(&db.stream(hidden, ()).await.map(drop).unwrap_err(), change);
            assert_refused(&db.prepare("SELECT 1").await.map(drop).unwrap_err(), change);
        })
        .await;
        let (leak, client): (Option<i64>, String) = db
            .query_as_one("SELECT @leak, @@character_set_client", ())
            .await
            .unwrap();
        assert_eq!((leak, &*client), (None, "utf8mb4"), "{change}");
        let wrong = "SELECT COUNT(*) FROM t WHERE a NOT IN ('é', '1')";
        let wrong: i64 = db.query_as_one(wrong, ()).await.unwrap();
        assert_eq!(wrong, 0, "{change}");
    }
}

#[tokio::test]
async fn h16_rows_in_a_charset_that_is_misread_are_an_error() {
    let db = with_routines().await;
    for change in HIDDEN {
        cenote::scope(async {
            // The trigger is not seen, so that the connection has to be kept otherwise.
            db.exec("SET @x = 1", ()).await.unwrap();
            db.exec("SELECT a FROM t WHERE a <> ?", ("",))
                .await
                .unwrap();
            db.exec(change, ()).await.unwrap();
            // What is sent is read as it is here.
            let insert = "INSERT INTO t VALUES ('€\\'; SET @leak = 1; -- ')";
            db.exec(insert, ()).await.unwrap();
            db.exec("INSERT INTO t VALUES (?)", ("é",)).await.unwrap();
            let leak: Option<i64> = db.query_as_one("SELECT @leak", ()).await.unwrap();
            assert_eq!(leak, None, "{change}");
            let texts = db.query("SELECT a FROM t", ()).await;
            assert_refused(&texts.expect_err(change), change);
            let texts = db.query("SELECT a FROM t WHERE a <> ?", ("",)).await;
            assert_refused(&texts.expect_err(change), change);
            // Numbers are what they are.
            let one: i64 = db.query_as_one("SELECT 1", ()).await.unwrap();
            assert_eq!(one, 1);
        })
        .await;
        let read: String = db
            .query_as_one("SELECT a FROM t WHERE a = ? LIMIT 1", ("é",))
            .await
            .unwrap();
        assert_eq!(read, "é", "{change}");
    }
}

#[tokio::test]
async fn h16_found_rows_are_those_of_the_last_statement() {
    let db = with_routines().await;
    db.exec("INSERT INTO t VALUES ('a'), ('b'), ('c')", ())
        .await
        .unwrap();
    cenote::scope(async {
        let sql = "SELECT SQL_CALC_FOUND_ROWS a FROM t WHERE a IN ('a', 'b', 'c') LIMIT 1";
        db.query(sql, ()).await.unwrap();
        let found: i64 = db.query_as_one("SELECT FOUND_ROWS()", ()).await.unwrap();
        assert_eq!(found, 3);
    })
    .await;
}

#[tokio::test]
async fn h16_a_streamed_change_is_noticed() {
    let db = with_routines().await;
    for change in CHANGES.iter().filter(|change| !change.contains("; SET")) {
        let own = db.connection().await.unwrap();
        drop(own.stream(change, ()).await.unwrap());
        let after = own.query("SELECT 'é'", ()).await;
        assert_refused(&after.expect_err(change), change);
    }
}

#[tokio::test]
async fn h16_a_transaction_in_a_misread_charset_fails() {
    let db = with_routines().await;
    let outcome = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES ('1')", ()).await?;
            db.exec("SET NAMES gbk", ()).await?;
            db.exec("SELECT '€\\'; COMMIT; START TRANSACTION; -- '", ())
                .await
        })
        .await;
    assert_refused(&outcome.unwrap_err(), "in a transaction");
    let rows: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn h16_a_connection_in_an_unsafe_charset_is_refused() {
    for (variable, charset) in [
        ("character_set_client", "gbk"),
        ("character_set_client", "latin1"),
        ("character_set_results", "sjis"),
    ] {
        let dsn = with_option(&dsn(), &format!("set.{variable}"), charset);
        let db = Db::open(&dsn).await.unwrap();
        let error = db.exec("SELECT 1", ()).await.unwrap_err();
        assert_refused(&error, charset);
        assert!(error.message().contains(variable), "{error}");
        // A default, and a hook.
        let db = Db::open(&crate::servers::dsn()).await.unwrap();
        let refused = db.set_default(variable, charset).await.unwrap_err();
        assert_refused(&refused, charset);
        db.exec("SELECT 1", ()).await.unwrap();
        let hooked = Db::builder(&crate::servers::dsn())
            .on_connect(async |conn: &mut PooledConnection| conn.exec("SET NAMES gbk").await);
        let db = hooked.open().await.unwrap();
        assert_refused(&db.exec("SELECT 1", ()).await.unwrap_err(), charset);
    }
}

#[tokio::test]
async fn h16_what_the_server_has_set_is_replaced() {
    let server = OwnServer::start(&[
        "init-connect=SET NAMES gbk",
        "character-set-server=gbk",
        "skip-character-set-client-handshake",
    ])
    .await;
    let dsn = with_option(
        &with_option(&server.dsn(), "user", "plain"),
        "password",
        "plain-secret",
    );
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    for _ in 0..2 {
        let sql = "SELECT CONCAT_WS(' ', @@character_set_client, @@character_set_results, '€\\'; SET @leak = 1; -- ')";
        let read: String = db.query_as_one(sql, ()).await.unwrap();
        assert_eq!(read, "utf8mb4 utf8mb4 €'; SET @leak = 1; -- ");
        cenote::scope(async { db.exec("SET @x = 1", ()).await.unwrap() }).await;
    }
}

#[tokio::test]
async fn h16_utf8mb3_is_read_as_it_is_here() {
    let db = with_routines().await;
    cenote::scope(async {
        db.exec("SET NAMES utf8mb3", ()).await.unwrap();
        let read: String = db.query_as_one("SELECT '€\\'é'", ()).await.unwrap();
        assert_eq!(read, "€'é");
    })
    .await;
}
