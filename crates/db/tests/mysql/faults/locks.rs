//! Transactions that are in each other's way.

use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Db, Error, Kind, Violation};
use tokio::sync::Barrier;

use crate::servers::{assert_whole, own_tables, soon};

async fn accounts(max: usize) -> Db {
    let db =
        own_tables(|builder| builder.max(max).option("set.innodb_lock_wait_timeout", "1")).await;
    db.exec("CREATE TABLE a (id INT PRIMARY KEY, n INT)", ())
        .await
        .unwrap();
    db.exec("INSERT INTO a VALUES (1, 0), (2, 0)", ())
        .await
        .unwrap();
    db
}

async fn raise(db: &Db, id: i64) -> Result<(), Error> {
    db.exec("UPDATE a SET n = n + 1 WHERE id = ?", (id,))
        .await
        .map(drop)
}

async fn sum(db: &Db) -> i64 {
    db.query_as_one("SELECT CAST(SUM(n) AS SIGNED) FROM a", ())
        .await
        .unwrap()
}

#[tokio::test]
async fn unavailable_lock_fails_one_statement_and_is_retryable() {
    let db = accounts(2).await;
    let mut holder = db.connection().await.unwrap();
    let tx = holder.begin().await.unwrap();
    tx.exec("UPDATE a SET n = 1 WHERE id = 1", ())
        .await
        .unwrap();
    let outcome: Result<(), Error> = db
        .transaction(async || {
            raise(&db, 2).await?;
            let error = raise(&db, 1).await.unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::Database, Some(1205)));
            assert_eq!(error.violation(), Some(Violation::Locked));
            assert!(error.is_retryable());
            // Only the statement was undone: the server says that the transaction goes on.
            assert!(db.in_transaction());
            raise(&db, 2).await
        })
        .await;
    outcome.unwrap();
    tx.rollback().await.unwrap();
    drop(holder);
    assert_eq!(sum(&db).await, 2);
    assert_whole(&db).await;
}

#[tokio::test]
async fn deadlock_costs_one_transaction_and_that_one_is_retryable() {
    let db = accounts(2).await;
    let both = Barrier::new(2);
    let cross = async |first: i64, second: i64| {
        db.transaction(async || {
            raise(&db, first).await?;
            both.wait().await;
            let crossed = raise(&db, second).await;
            if let Err(error) = &crossed {
                assert_eq!(error.code(), Some(1213), "{error}");
                assert!(error.is_retryable());
                // The server has rolled everything back: nothing runs outside of it.
                let error = raise(&db, first).await.unwrap_err();
                assert_eq!(error.kind(), Kind::TransactionLost, "{error}");
            }
            crossed
        })
        .await
    };
    let (one, other) = soon("one of them gives way", async {
        tokio::join!(cross(1, 2), cross(2, 1))
    })
    .await;
    let failed: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].is_retryable(), "{:?}", failed[0]);
    assert_eq!(failed[0].violation(), Some(Violation::Deadlock));
    assert_eq!(sum(&db).await, 2);
    assert_whole(&db).await;
}

#[tokio::test]
async fn transactions_that_are_tried_again_after_deadlocks_all_commit() {
    let db = accounts(8).await;
    let deadlocks = AtomicUsize::new(0);
    let both = Barrier::new(2);
    let cross = async |first: i64, second: i64| {
        let mut is_first_try = true;
        loop {
            let done = db
                .transaction(async || {
                    raise(&db, first).await?;
                    if std::mem::take(&mut is_first_try) {
                        both.wait().await;
                    }
                    raise(&db, second).await
                })
                .await;
            match done {
                Ok(()) => return,
                Err(error) if error.is_retryable() => {
                    deadlocks.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    soon("both come through", async {
        tokio::join!(cross(1, 2), cross(2, 1))
    })
    .await;
    assert!(deadlocks.into_inner() >= 1);
    assert_eq!(sum(&db).await, 4);
    // The layer's own way to do the same.
    let done = cenote::TransactionOptions::default()
        .on(&db)
        .retry(async || {
            raise(&db, 1).await?;
            raise(&db, 2).await
        })
        .await;
    done.unwrap();
    assert_eq!(sum(&db).await, 6);
    assert_whole(&db).await;
}

#[tokio::test]
async fn statement_that_commits_implicitly_loses_the_transaction() {
    let db = accounts(2).await;
    for ddl in [
        "CREATE TABLE b (n INT)",
        "TRUNCATE TABLE b",
        "ALTER TABLE b ADD m INT",
        "RENAME TABLE b TO c",
        "DROP TABLE c",
        // It fails, and has committed before.
        "CREATE TABLE a (n INT)",
    ] {
        let before = sum(&db).await;
        let error = db
            .transaction(async || {
                raise(&db, 1).await?;
                let _ = db.exec(ddl, ()).await;
                let error = raise(&db, 2).await.unwrap_err();
                assert_eq!(error.kind(), Kind::TransactionLost, "{ddl}: {error}");
                Ok(())
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionLost, "{ddl}: {error}");
        assert_eq!(
            sum(&db).await,
            before + 1,
            "{ddl} has committed what was before it"
        );
    }
    assert_whole(&db).await;
}
