//! Transactions by their options: `run`, `try_run`, `retry` and `begin`.

use std::cell::Cell;

use cenote::driver::DatabaseError;
use cenote::{Db, Error, Kind, Result, TransactionOptions, scope};

/// An error type of an application, which does not show what it was made from.
#[derive(Debug, PartialEq)]
enum Failure {
    SoldOut,
    Database,
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Failure::Database
    }
}

async fn stock(name: &str) -> Db {
    let dsn = format!("sqlite:file:transaction_options-{name}?mode=memory&cache=shared");
    let db = Db::open(&dsn).await.unwrap();
    db.exec("CREATE TABLE stock (n INTEGER CHECK (n >= 0))", ())
        .await
        .unwrap();
    db.exec("INSERT INTO stock VALUES (1)", ()).await.unwrap();
    db
}

async fn left(db: &Db) -> i64 {
    db.query_as_one("SELECT n FROM stock", ()).await.unwrap()
}

async fn sell(db: &Db) -> Result<(), Failure> {
    match db.exec("UPDATE stock SET n = n - 1", ()).await {
        Err(error) if error.is_check_violation() => Err(Failure::SoldOut),
        done => Ok(done.map(drop)?),
    }
}

#[tokio::test]
async fn try_run_returns_the_error_type_of_the_caller() {
    let db = stock("try_run").await;
    let options = db.transaction_options();
    assert_eq!(options.try_run(async || sell(&db).await).await, Ok(()));
    assert_eq!(
        db.try_transaction(async || sell(&db).await).await,
        Err(Failure::SoldOut)
    );
    let refused = options.read_only().try_run(async || sell(&db).await).await;
    assert_eq!(refused, Err(Failure::Database));
    assert_eq!(left(&db).await, 0);
}

#[tokio::test]
async fn options_without_a_db_are_a_value_to_keep() {
    let db = stock("value").await;
    let read_only = TransactionOptions::new().read_only();
    for _ in 0..2 {
        let seen = read_only.on(&db).run(async || Ok(left(&db).await)).await;
        assert_eq!(seen.unwrap(), 1);
    }
    let refused = read_only
        .on(&db)
        .run(async || db.exec("DELETE FROM stock", ()).await)
        .await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Database);
}

#[tokio::test]
async fn options_begin_guards_on_a_db_and_on_a_connection() -> Result<()> {
    let db = stock("begin").await;
    scope(async {
        let tx = db.transaction_options().read_only().begin().await?;
        assert!(db.exec("DELETE FROM stock", ()).await.is_err());
        tx.rollback().await
    })
    .await?;
    let mut connection = db.connection().await?;
    let tx = connection.transaction_options().read_only().begin().await?;
    assert!(tx.exec("DELETE FROM stock", ()).await.is_err());
    tx.rollback().await?;
    assert_eq!(left(&db).await, 1);
    Ok(())
}

#[tokio::test]
async fn deferrable_is_refused_where_there_is_no_such_thing() {
    let db = stock("deferrable").await;
    let options = db.transaction_options().deferrable();
    let refused = options.run(async || Ok(())).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
}

fn clash() -> Error {
    Error::database(DatabaseError::new("could not serialize").with_sql_state("40001"))
}

#[tokio::test]
async fn retry_repeats_three_times_by_default() {
    let db = stock("retries").await;
    for (options, wanted) in [
        (db.transaction_options(), 4),
        (db.transaction_options().retries(0), 1),
        (db.transaction_options().retries(1).begin_lazily(), 2),
    ] {
        let runs = Cell::new(0);
        let runs = &runs;
        let failed = options.retry(async move || {
            runs.set(runs.get() + 1);
            Err::<(), _>(clash())
        });
        assert!(failed.await.unwrap_err().is_retryable());
        assert_eq!(runs.get(), wanted);
    }
}

#[tokio::test]
async fn retry_does_not_repeat_a_decision_of_the_caller() {
    let db = stock("decision").await;
    let runs = Cell::new(0);
    let (runs, db) = (&runs, &db);
    let refused = db.transaction_options().retry(async move || {
        runs.set(runs.get() + 1);
        sell(db).await?;
        sell(db).await
    });
    assert_eq!(refused.await, Err(Failure::SoldOut));
    assert_eq!((runs.get(), left(db).await), (1, 1));
}
