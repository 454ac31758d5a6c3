//! Statements that were taken for something else.

use cenote::{Db, Kind};

use crate::servers::client::with_option;
use crate::servers::{dsn, own_tables};

/// Compound statements outside of routines, each of which gives one row with a 3 in it.
const COMPOUND: &[&str] = &[
    "BEGIN NOT ATOMIC SELECT 3; END",
    "begin not atomic declare n int default 3; select n; end;",
    "/* why */ BEGIN NOT ATOMIC IF 1 THEN SELECT 3; END IF; END",
    "IF 1 THEN SELECT 3; ELSE SELECT 4; END IF",
    "IF (SELECT IF(1, 1, 0)) THEN SELECT CASE WHEN 1 THEN 3 END; END IF",
    "CASE 1 WHEN 1 THEN SELECT 3; ELSE SELECT 4; END CASE",
    "WHILE @done IS NULL DO SELECT 3; SET @done = 1; END WHILE",
    "BEGIN NOT ATOMIC again: LOOP SELECT 3; LEAVE again; END LOOP again; END",
    "REPEAT SELECT 3; UNTIL 1 END REPEAT",
    "FOR i IN 3..3 DO SELECT i; END FOR",
    "BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 3; END; SELECT * FROM missing; END",
    "BEGIN NOT ATOMIC SELECT 1; SELECT 3; SET @x = 1; END",
];

#[tokio::test]
async fn h0e_compound_statements_give_their_rows() {
    let db = own_tables(|builder| builder.max(1)).await;
    for sql in COMPOUND {
        let rows: Vec<i64> = db.query_as(sql, ()).await.unwrap();
        assert_eq!(rows, [3], "{sql}");
    }
    // What they set is not there for the next task.
    let left: Option<i64> = db.query_as_one("SELECT @x", ()).await.unwrap();
    assert_eq!(left, None);
}

#[tokio::test]
async fn h0e_blocks_of_oracles_kind_give_their_rows() {
    let dsn = with_option(&dsn(), "sql_mode", "ORACLE");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    for sql in [
        "BEGIN SELECT 3; END",
        "BEGIN IF 1 THEN SELECT 3; END IF; END;",
        "DECLARE a INT := 3; BEGIN SELECT a; END",
    ] {
        let rows: Vec<i64> = db
            .query_as(sql, ())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(rows, [3], "{sql}");
    }
}

#[tokio::test]
async fn h0e_a_script_after_a_compound_statement_is_a_script() {
    let db = own_tables(|builder| builder.max(1)).await;
    let script = "BEGIN NOT ATOMIC SELECT 3; END; CREATE TABLE t (a INT); INSERT INTO t VALUES (1)";
    db.exec(script, ()).await.unwrap();
    let script = "IF 1 THEN SELECT 3; END IF; SELECT a FROM t";
    let rows: Vec<i64> = db.query_as(script, ()).await.unwrap();
    assert_eq!(rows, [1], "the last statement counts");
}

#[tokio::test]
async fn h0e_a_compound_statement_cannot_commit_unseen() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
    for sql in [
        "BEGIN NOT ATOMIC COMMIT; START TRANSACTION; END",
        "IF 1 THEN COMMIT; START TRANSACTION; END IF",
        "REPEAT COMMIT; START TRANSACTION; UNTIL 1 END REPEAT",
        "BEGIN NOT ATOMIC EXECUTE IMMEDIATE 'COMMIT'; EXECUTE IMMEDIATE 'BEGIN'; END",
    ] {
        let outcome = db
            .transaction(async || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                let _ = db.exec(sql, ()).await;
                db.exec("INSERT INTO t VALUES (2)", ()).await
            })
            .await;
        let error = outcome.expect_err(sql);
        assert!(
            matches!(error.kind(), Kind::TransactionLost | Kind::TransactionEnded),
            "{sql}: {error:?}"
        );
        let after: i64 = db
            .query_as_one("SELECT COUNT(*) FROM t WHERE a = 2", ())
            .await
            .unwrap();
        assert_eq!(after, 0, "{sql}");
    }
}

/// What is of no use unless the session is kept.
const FOR_THE_SESSION: &[&str] = &[
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION READ ONLY",
    "SET SESSION TRANSACTION READ ONLY",
    "SET ROLE NONE",
    "SET NAMES utf8mb4",
    "HANDLER t OPEN",
    "HANDLER t READ FIRST",
    "FLUSH TABLES WITH READ LOCK",
    "FLUSH TABLES t WITH READ LOCK",
    "FLUSH LOCAL TABLES t FOR EXPORT",
    "LOCK TABLES t READ",
    "LOCK TABLE t WRITE",
    "UNLOCK TABLES",
    "BACKUP LOCK t",
    "BACKUP STAGE START",
    "SELECT 1 INTO @x",
    "SELECT 1 INTO /* */ @`x`",
    "SELECT a INTO @x FROM t LIMIT 1",
    "WITH c AS (SELECT 1 AS n) SELECT n INTO @x FROM c",
    "DO @x := 1",
    "DO GET_LOCK('h0e', 0)",
    "SELECT GET_LOCK('h0e', 0)",
    "GET DIAGNOSTICS @n = NUMBER",
    "USE mysql",
    "XA START 'h0e'",
    "PREPARE s FROM 'SELECT 1'",
    "DEALLOCATE PREPARE s",
    "CREATE TEMPORARY TABLE u (a INT)",
    "DROP TEMPORARY TABLE IF EXISTS u",
];

#[tokio::test]
async fn h0e_what_only_changes_the_session_is_refused() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
    for sql in FOR_THE_SESSION {
        let error = db.exec(sql, ()).await.expect_err(sql);
        assert_eq!(error.kind(), Kind::LeftSession, "{sql}: {error}");
    }
    // These do something that stays.
    for sql in [
        "FLUSH TABLES",
        "FLUSH TABLES t",
        "SET GLOBAL innodb_lock_wait_timeout = 50",
        "SET STATEMENT max_statement_time = 10 FOR SELECT 1",
        "XA RECOVER",
        "EXECUTE IMMEDIATE 'INSERT INTO t VALUES (1)'",
    ] {
        db.exec(sql, ())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[tokio::test]
async fn h0e_in_a_coroutine_it_stays_until_the_end() {
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (a INT)", ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (7)", ()).await.unwrap();
    cenote::scope(async {
        db.exec("SELECT a INTO @x FROM t", ()).await.unwrap();
        let kept: i64 = db.query_as_one("SELECT @x", ()).await.unwrap();
        assert_eq!(kept, 7);
        db.exec("HANDLER t OPEN", ()).await.unwrap();
        let read: i64 = db.query_as_one("HANDLER t READ FIRST", ()).await.unwrap();
        assert_eq!(read, 7);
        db.exec("SET TRANSACTION READ ONLY", ()).await.unwrap();
        db.exec("START TRANSACTION", ()).await.unwrap();
        let error = db.exec("INSERT INTO t VALUES (8)", ()).await.unwrap_err();
        assert_eq!(error.code(), Some(1792), "{error}");
        db.exec("ROLLBACK", ()).await.unwrap();
    })
    .await;
    db.exec("INSERT INTO t VALUES (9)", ()).await.unwrap();
}
