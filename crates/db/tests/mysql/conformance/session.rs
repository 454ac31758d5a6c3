//! Raw transactions and session state: pinned in a coroutine, taken back after it, refused outside
//! of one.

use cenote::{Db, Error, Kind, Result};

use super::{insert, numbers, shop};
use crate::servers::{quiet, session_id, soon};

/// Runs these in a task of their own, one after the other.
async fn in_a_task(db: &Db, statements: &[&'static str]) -> Result<i64> {
    let (db, statements) = (db.clone(), statements.to_vec());
    let task = cenote::spawn(async move {
        for sql in statements {
            db.exec(sql, ()).await?;
        }
        Ok::<_, Error>(session_id(&db).await)
    });
    soon("the task ends", task).await.unwrap()
}

async fn in_transaction(db: &Db) -> Result<i64> {
    db.query_as_one("SELECT @@in_transaction", ()).await
}

/// D-core-025a
#[tokio::test]
async fn a_transaction_begun_by_raw_sql_pins_its_connection() -> Result<()> {
    let db = shop(2).await;
    for begin in ["BEGIN", "/* x */ START TRANSACTION", "SET autocommit = 0"] {
        cenote::scope(async {
            db.exec(begin, ()).await?;
            let id = session_id(&db).await;
            insert(&db, 1).await?;
            for _ in 0..3 {
                assert_eq!(session_id(&db).await, id);
                assert_eq!(in_transaction(&db).await?, 1);
            }
            assert!(db.in_transaction());
            assert_eq!(numbers(&db).await, [1]);
            assert_eq!(numbers(&db.outside()).await, [0_i64; 0]);
            db.exec("ROLLBACK", ()).await?;
            assert!(!db.in_transaction());
            Ok::<(), Error>(())
        })
        .await?;
        assert_eq!(numbers(&db).await, [0_i64; 0]);
    }
    Ok(())
}

/// D-core-025b
#[tokio::test]
async fn a_raw_transaction_reaches_no_other_task() -> Result<()> {
    let db = shop(1).await;
    for begin in [
        "BEGIN",
        "START TRANSACTION",
        "SET autocommit = 0",
        "# x\nBEGIN",
    ] {
        in_a_task(&db, &[begin, "INSERT INTO t (n) VALUES (1)"]).await?;
        cenote::scope(async {
            assert!(!db.in_transaction());
            assert_eq!(in_transaction(&db).await?, 0, "{begin}");
            assert_eq!(numbers(&db).await, [0_i64; 0], "{begin}");
            Ok::<(), Error>(())
        })
        .await?;
    }
    Ok(())
}

/// The twins of D-core-025a and D-core-026f outside of any coroutine.
#[tokio::test]
async fn raw_transactions_and_session_state_need_a_coroutine() {
    let db = shop(1).await;
    for sql in ["BEGIN", "BEGIN; INSERT INTO t (n) VALUES (1)"] {
        let error = db.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::LeftTransaction, "{sql}: {error}");
        quiet(&db).await;
        assert_eq!(numbers(&db).await, [0_i64; 0]);
    }
    for sql in [
        "SET @x = 1",
        "USE mysql",
        "DO GET_LOCK('x', 0)",
        "SET NAMES latin1",
    ] {
        let error = db.exec(sql, ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::LeftSession, "{sql}: {error}");
    }
}

/// D-core-026a, D-core-026b, D-core-026c, D-core-026d, D-core-026e, D-core-026f
#[tokio::test]
async fn session_changes_are_visible_to_their_task_only() -> Result<()> {
    let db = shop(1).await;
    let mode: String = db.query_as_one("SELECT @@sql_mode", ()).await?;
    let inner = db.clone();
    let touches = cenote::spawn(async move {
        inner.exec("SET @x = 7", ()).await?;
        let id = session_id(&inner).await;
        inner.exec("SET sql_mode = ''", ()).await?;
        inner.exec("CREATE TEMPORARY TABLE own (n INT)", ()).await?;
        inner.exec("INSERT INTO own VALUES (1)", ()).await?;
        inner.exec("INSERT INTO own VALUES (2)", ()).await?;
        let count: i64 = inner.query_as_one("SELECT COUNT(*) FROM own", ()).await?;
        assert_eq!(count, 2);
        let lock = "SELECT GET_LOCK(CONCAT('lock ', DATABASE()), 0)";
        assert_eq!(inner.query_as_one::<i64>(lock, ()).await?, 1);
        assert_eq!(inner.query_as_one::<i64>("SELECT @x", ()).await?, 7);
        assert_eq!(
            session_id(&inner).await,
            id,
            "it is pinned from the first on"
        );
        Ok::<_, Error>(id)
    });
    let id = soon("the task ends", touches).await.unwrap()?;
    let inner = db.clone();
    let next = cenote::spawn(async move {
        assert_eq!(session_id(&inner).await, id, "cleaned, and not replaced");
        let x: Option<i64> = inner.query_as_one("SELECT @x", ()).await?;
        assert_eq!(x, None);
        let now: String = inner.query_as_one("SELECT @@sql_mode", ()).await?;
        assert_eq!(now, mode);
        let gone = inner.query("SELECT * FROM own", ()).await.unwrap_err();
        assert_eq!(gone.code(), Some(1146));
        let free = "SELECT IS_FREE_LOCK(CONCAT('lock ', DATABASE()))";
        assert_eq!(inner.query_as_one::<i64>(free, ()).await?, 1);
        Ok::<(), Error>(())
    });
    soon("the task ends", next).await.unwrap()
}

/// D-core-027a, D-core-027b, D-core-027c
#[tokio::test]
async fn reset_restores_the_database_and_character_set_of_the_dsn() -> Result<()> {
    let db = shop(1).await;
    let ask = "SELECT CONCAT_WS(' ', DATABASE(), @@character_set_client, \
               @@character_set_results, @@collation_connection)";
    let before: String = db.query_as_one(ask, ()).await?;
    assert!(before.contains(" utf8mb4 utf8mb4 "), "{before}");
    let id = in_a_task(&db, &["SET @x = 7", "USE mysql", "SET NAMES utf8mb3"]).await?;
    assert_eq!(session_id(&db).await, id, "the same connection");
    assert_eq!(db.query_as_one::<String>(ask, ()).await?, before);
    assert_eq!(db.query_as_one::<Option<i64>>("SELECT @x", ()).await?, None);
    Ok(())
}

/// D-core-028a, D-core-028b, D-core-028e
#[tokio::test]
async fn session_state_is_seen_through_every_disguise() -> Result<()> {
    let db = shop(1).await;
    db.exec(
        "CREATE PROCEDURE takes_a_lock() BEGIN DO GET_LOCK(CONCAT('p ', DATABASE()), 0); END",
        (),
    )
    .await?;
    db.exec(
        "CREATE FUNCTION takes_one() RETURNS INT RETURN GET_LOCK(CONCAT('p ', DATABASE()), 0)",
        (),
    )
    .await?;
    for sql in [
        "SET @x = 1",
        "/* SELECT */ SET @x = 1",
        "-- SELECT\nSET @x = 1",
        "# SELECT\nSET @x = 1",
        "/*!50000 SET @x = 1 */",
        "/*M!100000 SET @x = 1 */",
        "SELECT 1; SET @x = 1",
        "SELECT 1 INTO @x",
        "SELECT @x := 1",
        "DO GET_LOCK(CONCAT('p ', DATABASE()), 0)",
        "CALL takes_a_lock()",
        "SELECT takes_one()",
        "UPDATE t SET n = takes_one()",
    ] {
        in_a_task(&db, &["INSERT INTO t (n) VALUES (1)", sql]).await?;
        cenote::scope(async {
            let x: Option<i64> = db.query_as_one("SELECT @x", ()).await?;
            assert_eq!(x, None, "{sql}");
            let free = "SELECT IS_FREE_LOCK(CONCAT('p ', DATABASE()))";
            assert_eq!(db.query_as_one::<i64>(free, ()).await?, 1, "{sql}");
            Ok::<(), Error>(())
        })
        .await?;
    }
    assert_eq!(db.status().total, 1);
    Ok(())
}

/// What leaves the session alone costs no reset: the statements that are kept stay.
#[tokio::test]
async fn an_unchanged_session_is_not_reset() -> Result<()> {
    let db = shop(1).await;
    for n in 1..=3 {
        insert(&db, n).await?;
    }
    in_a_task(
        &db,
        &["INSERT INTO t (n) VALUES (4)", "DELETE FROM t WHERE n = 4"],
    )
    .await?;
    insert(&db, 5).await?;
    let row = db
        .query_one("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'", ())
        .await?;
    assert_eq!(row.get::<String>(1)?, "1");
    Ok(())
}
