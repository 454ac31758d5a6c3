//! Statements that take too long, calls that are dropped, and a driver that does not let go.

use std::time::Duration;

use cenote::{Db, Kind, Violation};
use cenote_testkit::poll::drop_after;

use crate::servers::{assert_whole, quiet, soon};
use crate::sources::{own_schema, postgres_dsn, sqlite_dsn};

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT max(i) FROM n";

async fn created(db: &Db) -> u64 {
    quiet(db).await;
    db.pool().expect("it has one").counters().created
}

#[tokio::test]
async fn the_limit_of_the_driver_ends_a_statement() {
    let db = Db::builder(&postgres_dsn())
        .option("query_timeout", "1s")
        .max(1)
        .open()
        .await
        .unwrap();
    let sleep = db.exec("SELECT pg_catalog.pg_sleep(60)", ());
    let error = soon("it is ended", sleep).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Cancelled), "{error:?}");
    assert_whole(&db).await;
}

#[tokio::test]
async fn statement_timeout_cancels_and_the_connection_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        (sqlite_dsn(&folder.path().join("a.db")), ENDLESS),
        (postgres_dsn(), "SELECT pg_catalog.pg_sleep(60)"),
    ];
    for (dsn, endless) in sources {
        let db = Db::builder(&dsn)
            .max(1)
            .statement_timeout(Duration::from_millis(500))
            .open()
            .await
            .unwrap();
        for _ in 0..3 {
            let error = soon("it is ended", db.exec(endless, ())).await.unwrap_err();
            assert_eq!(error.kind(), Kind::StatementTimeout, "{error:?}");
            let seven: i64 = db.query_as_one("SELECT 7", ()).await.unwrap();
            assert_eq!(seven, 7);
        }
        assert_eq!(created(&db).await, 1, "it was settled, not replaced");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_meets_the_end_of_its_statement_hits_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let counting = |to: u32| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {to})
             SELECT max(i) FROM n"
        )
    };
    let sleeping = |time: &str| format!("SELECT 7 FROM pg_catalog.pg_sleep({time})");
    // What is dropped takes about as long as a call may take to end by itself; what comes after it
    // on the same connection takes longer.
    let sources = [
        (
            sqlite_dsn(&folder.path().join("a.db")),
            [counting(40_000), counting(100_000)],
        ),
        (postgres_dsn(), [sleeping("0.011"), sleeping("0.03")]),
    ];
    for (dsn, [dropped, next]) in sources {
        let db = Db::builder(&dsn).max(1).open().await.unwrap();
        for polls in 0..80 {
            drop_after(1 + polls % 2, db.exec(&dropped, ())).await;
            db.exec(&next, ()).await.unwrap();
        }
        assert_eq!(created(&db).await, 1, "it was settled each time");
    }
}

#[tokio::test]
async fn driver_that_hangs_is_abandoned_and_its_place_is_free() {
    let db = Db::builder(&postgres_dsn())
        .option("cancel", "off")
        .max(1)
        .statement_timeout(Duration::from_millis(500))
        .cleanup_timeout(Duration::from_millis(100))
        .open()
        .await
        .unwrap();
    let late = db.exec("SELECT pg_catalog.pg_sleep(30)", ()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout);
    // Long before the statement has ended.
    let seven = db.query_as_one::<i64>("SELECT 7", ());
    let seven = tokio::time::timeout(Duration::from_secs(15), seven).await;
    assert_eq!(seven.unwrap().unwrap(), 7);
    assert_eq!(created(&db).await, 2, "another took its place");
}

#[tokio::test]
async fn a_transaction_that_is_dropped_at_any_await_is_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        sqlite_dsn(&folder.path().join("a.db")),
        own_schema(&postgres_dsn()).await,
    ];
    for dsn in sources {
        let db = Db::builder(&dsn).max(2).open().await.unwrap();
        db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
        for polls in 0..60 {
            let both = db.transaction(async || {
                db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
                db.exec("INSERT INTO t VALUES (?)", (2,)).await?;
                Ok(())
            });
            let done = drop_after(polls, both).await;
            quiet(&db).await;
            let rows: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap();
            assert!(rows.is_empty() || rows == [1, 2], "{rows:?} after {polls}");
            assert!(done.is_none() || rows == [1, 2], "{rows:?}");
            db.exec("DELETE FROM t", ()).await.unwrap();
            if done.is_some() {
                break;
            }
        }
    }
}
