//! What only SQLite has: triggers, pragmas, and polls by hand.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use cenote::Kind;

use crate::support::{TestDatabase, files, forty, has_table, history, numbers};

#[tokio::test]
async fn triggers_and_pragmas_run() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let migrations = files(&[
        (
            "V1__trigger.sql",
            "CREATE TABLE a (n INTEGER); CREATE TABLE b (n INTEGER);
             CREATE TRIGGER copy AFTER INSERT ON a BEGIN
                 INSERT INTO b VALUES (new.n); INSERT INTO b VALUES (new.n + 1);
             END;
             INSERT INTO a VALUES (1);",
        ),
        (
            "V2__rebuild.sql",
            "-- cenote: no-transaction
             PRAGMA foreign_keys = OFF;
             BEGIN; ALTER TABLE b ADD m INTEGER; COMMIT;
             PRAGMA foreign_keys = ON;",
        ),
    ]);
    db.migrate(&migrations).await.unwrap();
    assert_eq!(numbers(&db, "SELECT n FROM b ORDER BY n").await, [1, 2]);
    assert!(has_table(&db, "(SELECT m FROM b)").await);
    assert_eq!(history(&db).await, [1, 2]);
}

#[tokio::test]
async fn a_migration_cannot_end_its_transaction() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let commits = files(&[(
        "V1__a.sql",
        "CREATE TABLE a (n);\nCOMMIT;\nCREATE TABLE b (n)",
    )]);
    let error = db.migrate(&commits).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Migration);
    let says = "V1__a.sql, statement 2 of 3, line 2: COMMIT";
    assert!(error.message().starts_with(says), "{error}");
    assert!(!has_table(&db, "a").await);
    let leaves = "-- cenote: no-transaction\nBEGIN; CREATE TABLE a (n)";
    let error = db
        .migrate(&files(&[("V1__a.sql", leaves)]))
        .await
        .unwrap_err();
    assert!(
        error.message().contains("leaves a transaction open"),
        "{error}"
    );
    drop(db);
    let db = database.open().await;
    assert!(!has_table(&db, "a").await);
    assert_eq!(history(&db).await, [0_i64; 0]);
}

#[tokio::test]
async fn without_a_transaction_the_error_names_what_stays() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let sql =
        "-- cenote: no-transaction\nCREATE TABLE a (n);\nCREATE TABLE b (n);\nVACUUM nowhere;";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    let message = error.message();
    assert!(message.contains("statement 3 of 3, line 4"), "{message}");
    assert!(
        message.contains("statements 1 to 2 have taken effect"),
        "{message}"
    );
    assert!(has_table(&db, "b").await);
}

#[tokio::test]
async fn placeholders_in_a_file_are_an_error_that_names_it() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let sql = "CREATE TABLE a (n);\nINSERT INTO a VALUES (?)";
    let error = db.migrate(&files(&[("V1__a.sql", sql)])).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Migration);
    assert!(
        error.message().contains("V1__a.sql failed at statement 2"),
        "{error}"
    );
}

#[tokio::test]
async fn the_history_can_be_in_another_table() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let migrations = files(&[("V20240504090241__a.sql", "CREATE TABLE a (n)")]);
    let migrations = migrations.table("schema_history").unwrap();
    db.migrate(&migrations).await.unwrap();
    let versions = numbers(&db, "SELECT version FROM schema_history").await;
    assert_eq!(versions, [20_240_504_090_241]);
    assert!(db.migrate(&migrations).await.unwrap().applied.is_empty());
}

/// Dropped after any number of polls: each migration is applied and recorded, or neither.
#[tokio::test]
async fn dropped_at_any_poll_nothing_is_half_applied() {
    let database = TestDatabase::sqlite();
    let migrations = forty();
    let mut seen = Vec::new();
    for polls in 1.. {
        let db = database.open().await;
        let finished = {
            let mut run = pin!(db.migrate(&migrations));
            let mut cx = Context::from_waker(Waker::noop());
            let mut finished = false;
            for _ in 0..polls {
                if run.as_mut().poll(&mut cx).is_ready() {
                    finished = true;
                    break;
                }
                tokio::task::yield_now().await;
            }
            finished
        };
        db.close_and_drain(std::time::Duration::from_secs(20))
            .await
            .unwrap();
        let db = database.open().await;
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 't[0-9]*'";
        let tables = numbers(&db, tables).await[0];
        if has_table(&db, "refinery_schema_history").await {
            let applied = history(&db).await;
            assert_eq!(i64::try_from(applied.len()).unwrap(), tables);
            if tables > 0 {
                let log = numbers(&db, "SELECT n FROM log ORDER BY n").await;
                assert_eq!(log, applied);
            }
            seen.push(tables);
        } else {
            assert_eq!(tables, 0);
        }
        if finished {
            break;
        }
    }
    assert_eq!(seen.last(), Some(&40));
    let between = seen
        .iter()
        .filter(|tables| (1..40).contains(*tables))
        .count();
    assert!(between > 0, "it was dropped in the middle, too: {seen:?}");
}

#[tokio::test]
async fn a_time_out_around_it_leaves_the_database_usable() {
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    let endless =
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n) SELECT count(*) FROM n";
    let sql = format!("CREATE TABLE half (n);\n{endless}");
    let migrations = files(&[("V1__endless.sql", &sql)]);
    let limit = std::time::Duration::from_millis(200);
    let limited = tokio::time::timeout(limit, db.migrate(&migrations)).await;
    assert!(limited.is_err());
    let fixed = files(&[("V1__fixed.sql", "CREATE TABLE whole (n)")]);
    db.migrate(&fixed).await.unwrap();
    assert!(!has_table(&db, "half").await);
}

/// The future can be spawned.
#[test]
fn the_futures_are_send() {
    fn is_send<T: Send>(_: impl FnOnce(&'static cenote::Db) -> T) {}
    let migrations: &'static _ = Box::leak(Box::new(forty()));
    is_send(|db| db.migrate(migrations));
    is_send(|db| migrations.status(db));
}

#[tokio::test]
async fn statement_that_refuses_transactions_names_the_remedy() {
    let place = TestDatabase::sqlite();
    let db = place.open().await;
    let error = db
        .migrate(&files(&[("V1__a.sql", "VACUUM")]))
        .await
        .unwrap_err();
    let remedy = "file of its own with `-- cenote: no-transaction` at the top";
    assert!(error.message().contains(remedy), "{error}");
}
