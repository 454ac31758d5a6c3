//! Batches of statements: typed results, refusals, transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cenote::{CallOptions, Db, Error, Executor, Kind, Result};
use serde::Deserialize;

use crate::log::Log;

async fn open() -> Db {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Only a number that is not used twice.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dsn = format!("sqlite:file:batches-{number}?mode=memory&cache=shared");
    let db = Db::builder(&dsn).max(1).open().await.unwrap();
    let sql = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL)";
    db.exec(sql, ()).await.unwrap();
    db.exec("INSERT INTO item VALUES (1, 'pen'), (2, 'ink')", ())
        .await
        .unwrap();
    db
}

async fn count(db: &Db) -> i64 {
    let count = db.query_scalar_one("SELECT count(*) FROM item", ());
    count.await.unwrap()
}

const ALL: &str = "SELECT id, name FROM item ORDER BY id";
const ONE: &str = "SELECT id, name FROM item WHERE id = ?";
const ADD: &str = "INSERT INTO item VALUES (?, ?)";

#[derive(Debug, Deserialize, PartialEq)]
struct Item {
    id: i64,
    name: String,
}

#[tokio::test]
async fn every_method_of_a_batch_reads_as_its_call_does() {
    let db = open().await;
    let mut batch = db.batch();
    assert!(batch.is_empty());
    let exec = batch.exec(ADD, (3, "cap"));
    let query = batch.query(ALL, ());
    let one = batch.query_one(ONE, (1,));
    let opt = batch.query_opt(ONE, (7,));
    let structs = batch.query_as::<Item>(ALL, ());
    let pair = batch.query_as_one::<(i64, String)>(ONE, (2,));
    let no_item = batch.query_as_opt::<Item>(ONE, (7,));
    let names = batch.query_scalar::<String>("SELECT name FROM item ORDER BY id", ());
    let value = batch.query_scalar_one::<i64>("SELECT count(*) FROM item", ());
    let no_value = batch.query_scalar_opt::<i64>(
        "SELECT id FROM item WHERE id = :id",
        cenote::named! { id: 7 },
    );
    assert_eq!(batch.len(), 10);
    let mut results = batch.run().await.unwrap();
    results.check().unwrap();
    assert_eq!(results.take(value).unwrap(), 3);
    assert_eq!(results.take(no_value).unwrap(), None);
    assert_eq!(results.take(exec).unwrap().rows_affected, 1);
    assert_eq!(results.take(query).unwrap().len(), 3);
    assert_eq!(
        results.take(one).unwrap().get::<String>("name").unwrap(),
        "pen"
    );
    assert!(results.take(opt).unwrap().is_none());
    let structs = results.take(structs).unwrap();
    let (id, name) = (3, "cap".to_owned());
    assert_eq!(structs.last(), Some(&Item { id, name }));
    assert_eq!(results.take(pair).unwrap(), (2, "ink".to_owned()));
    assert_eq!(results.take(no_item).unwrap(), None);
    assert_eq!(results.take(names).unwrap(), ["pen", "ink", "cap"]);
    assert!(results.into_outcomes().is_empty(), "all were taken");
}

#[tokio::test]
async fn rows_that_do_not_fit_are_an_error_that_names_the_text() {
    let db = open().await;
    let mut batch = db.batch();
    let many = batch.query_one(ALL, ());
    let none = batch.query_one(ONE, (7,));
    let text = batch.query_scalar_one::<i64>("SELECT name FROM item WHERE id = 1", ());
    let mut results = batch.run().await.unwrap();
    for (kind, error) in [
        (Kind::TooManyRows, results.take(many).unwrap_err()),
        (Kind::NoRows, results.take(none).unwrap_err()),
        (Kind::Type, results.take(text).unwrap_err()),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.call_site().is_some(), "{error:?}");
    }
}

#[tokio::test]
async fn outside_of_a_transaction_an_error_is_of_one_statement() {
    let db = open().await;
    let mut batch = db.batch();
    let first = batch.exec(ADD, (3, "cap"));
    let twice = batch.exec(ADD, (1, "pen"));
    let last = batch.exec(ADD, (4, "nib"));
    let mut results = batch.run().await.unwrap();
    assert!(results.check().unwrap_err().is_unique_violation());
    assert_eq!(results.take(first).unwrap().rows_affected, 1);
    assert!(results.take(twice).unwrap_err().is_unique_violation());
    results.check().unwrap();
    assert_eq!(results.take(last).unwrap().rows_affected, 1);
    assert_eq!(count(&db).await, 4);
}

/// Adds three items, the second of which is there already.
async fn add_three(on: Executor<'_>) -> Result<Vec<Result<cenote::Outcome>>> {
    let mut batch = on.batch();
    batch.exec(ADD, (3, "cap"));
    batch.exec(ADD, (1, "pen"));
    batch.exec(ADD, (4, "nib"));
    Ok(batch.run().await?.into_outcomes())
}

fn assert_stopped(results: &[Result<cenote::Outcome>]) {
    assert_eq!(results[0].as_ref().unwrap().rows_affected, 1);
    assert!(results[1].as_ref().unwrap_err().is_unique_violation());
    let error = results[2].as_ref().unwrap_err();
    assert_eq!(error.kind(), Kind::NotRun, "{error}");
    let cause = std::error::Error::source(error).unwrap();
    let cause: &Error = cause.downcast_ref().unwrap();
    assert!(cause.is_unique_violation(), "{cause}");
}

#[tokio::test]
async fn in_a_transaction_nothing_runs_behind_an_error() {
    let db = open().await;
    db.transaction(async || {
        let results = add_three((&db).into()).await?;
        assert_stopped(&results);
        assert!(db.in_transaction());
        Err::<(), _>(Error::other("undone"))
    })
    .await
    .unwrap_err();
    assert_eq!(count(&db).await, 2);

    // In a savepoint, by a guard, and in a transaction that a text began.
    db.transaction(async || {
        db.transaction(async || {
            assert_stopped(&add_three((&db).into()).await?);
            Err::<(), _>(Error::other("undone"))
        })
        .await
        .unwrap_err();
        db.exec(ADD, (5, "pad")).await.map(drop)
    })
    .await
    .unwrap();
    assert_eq!(count(&db).await, 3);
    let mut connection = db.connection().await.unwrap();
    let tx = connection.begin().await.unwrap();
    assert_stopped(&add_three((&tx).into()).await.unwrap());
    tx.rollback().await.unwrap();
    drop(connection);
    cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        assert_stopped(&add_three((&db).into()).await.unwrap());
        db.exec("ROLLBACK", ()).await.unwrap();
    })
    .await;
    assert_eq!(count(&db).await, 3);
}

#[tokio::test]
async fn statements_of_a_batch_commit_with_their_transaction() {
    let db = open().await;
    db.transaction(async || {
        let mut batch = db.batch();
        batch.exec(ADD, (3, "cap"));
        batch.exec(ADD, (4, "nib"));
        let seen = batch.query_scalar_one::<i64>("SELECT count(*) FROM item", ());
        let mut results = batch.run().await?;
        assert_eq!(results.take(seen)?, 4);
        results.check()
    })
    .await
    .unwrap();
    assert_eq!(count(&db).await, 4);
}

#[tokio::test]
async fn control_of_session_and_transaction_is_refused() {
    let db = open().await;
    cenote::scope(async {
        for sql in [
            "BEGIN",
            "COMMIT",
            "SAVEPOINT a",
            "PRAGMA cache_size = 77",
            "CREATE TEMP TABLE scratch (n)",
            "ATTACH ':memory:' AS other",
            "INSERT INTO item VALUES (4, 'nib'); SELECT 1",
        ] {
            let mut batch = db.batch();
            batch.exec(ADD, (3, "cap"));
            batch.exec(sql, ());
            let error = batch.run().await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{sql}: {error}");
            assert!(error.call_site().is_some(), "{error:?}");
        }
        assert!(db.peek().is_none(), "nothing is pinned");
    })
    .await;
    assert_eq!(count(&db).await, 2, "nothing has run");
}

#[tokio::test]
async fn wrong_parameters_fail_the_batch_before_it_is_sent() {
    let db = open().await;
    let mut batch = db.batch();
    batch.exec(ADD, (3, "cap"));
    batch.exec(ADD, (4,));
    let error = batch.run().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters, "{error}");
    assert_eq!(count(&db).await, 2, "nothing has run");
}

#[tokio::test]
async fn batch_has_a_limit_of_statements_and_of_bytes() {
    let db = open().await;
    let mut batch = db.batch();
    for _ in 0..1024 {
        batch.query("SELECT 1", ());
    }
    assert_eq!(batch.run().await.unwrap().into_outcomes().len(), 1024);
    let mut batch = db.batch();
    for _ in 0..1025 {
        batch.query("SELECT 1", ());
    }
    assert_eq!(batch.run().await.unwrap_err().kind(), Kind::Parameters);
    let large = "x".repeat(9 * 1024 * 1024);
    let mut batch = db.batch();
    batch.exec(ADD, (3, &large));
    batch.exec(ADD, (4, &large));
    assert_eq!(batch.run().await.unwrap_err().kind(), Kind::Parameters);
    assert_eq!(count(&db).await, 2, "nothing has run");
}

#[tokio::test]
async fn an_empty_batch_takes_no_connection() {
    let db = open().await;
    let connection = db.connection().await.unwrap();
    let results = db.batch().run().await.unwrap();
    assert!(results.into_outcomes().is_empty());
    drop(connection);
}

#[tokio::test]
async fn an_entry_of_another_batch_is_refused() {
    let db = open().await;
    let (mut one, mut two) = (db.batch(), db.batch());
    let _ = one.query_scalar_one::<i64>("SELECT 1", ());
    let other = two.query_scalar_one::<i64>("SELECT 2", ());
    let mut results = one.run().await.unwrap();
    assert_eq!(results.take(other).unwrap_err().kind(), Kind::Parameters);
    let _ = two.run().await.unwrap();
}

#[tokio::test]
async fn batch_works_with_options_and_lists() {
    let db = open().await;
    let tagged = db.with(CallOptions::new().tag("shop").no_cache());
    let mut batch = tagged.batch();
    let some = batch.query(
        "SELECT id FROM item WHERE id IN (?)",
        (cenote::list([1, 2, 3]),),
    );
    let mut results = batch.run().await.unwrap();
    assert_eq!(results.take(some).unwrap().len(), 2);
}

#[tokio::test]
async fn last_error_is_the_first_of_the_batch() {
    let db = open().await;
    cenote::scope(async {
        let mut batch = db.batch();
        batch.exec(ADD, (1, "pen"));
        batch.query("SELECT * FROM missing", ());
        let _ = batch.run().await.unwrap();
        assert!(db.last_error().unwrap().is_unique_violation());
        let mut batch = db.batch();
        batch.query("SELECT 1", ());
        let _ = batch.run().await.unwrap();
        assert!(db.last_error().is_none());
    })
    .await;
}

#[tokio::test]
async fn batch_with_a_failed_statement_is_measured_as_failed() {
    let db = open().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let listener = db.on_statement(move |event| {
        let violates = event.error.is_some_and(Error::is_unique_violation);
        hears.lock().unwrap().push(violates);
    });
    for (id, fails) in [(3, false), (1, true)] {
        let log = Log::new();
        let before = db.timings();
        let mut batch = db.batch();
        batch.exec(ADD, (id, "cap"));
        batch.query(ALL, ());
        assert_eq!(batch.run().await.unwrap().check().is_err(), fails);
        let after = db.timings();
        let failed = after.failed_statements.count() - before.failed_statements.count();
        let succeeded = after.statements.count() - before.statements.count();
        assert_eq!((failed, succeeded), (u64::from(fails), u64::from(!fails)));
        assert_eq!(heard.lock().unwrap().pop(), Some(fails));
        let outcome = if fails { "failed" } else { "ok" };
        assert_eq!(log.take_spans()[0].field("cenote.outcome"), outcome);
    }
    drop(listener);
}

#[tokio::test]
async fn batch_that_is_too_large_is_refused_without_a_span() {
    let db = open().await;
    let log = Log::new();
    let large = format!("SELECT '{}'", "x".repeat(9 * 1024 * 1024));
    for (text, count) in [("SELECT 1", 1025), (&*large, 2)] {
        let mut batch = db.batch();
        for _ in 0..count {
            batch.query(text, ());
        }
        assert_eq!(batch.run().await.unwrap_err().kind(), Kind::Parameters);
    }
    assert!(log.take_spans().is_empty());
}
