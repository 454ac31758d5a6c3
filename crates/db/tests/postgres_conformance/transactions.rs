//! Transactions of tasks.

use cenote::{Db, Error, Result};
use tokio::sync::Barrier;

use crate::servers::{dsn, quiet, soon};
use crate::{insert, numbers, shop};

/// D-pg-007, D-pg-s004
#[tokio::test]
async fn of_two_transactions_only_the_committed_one_stays() -> Result<()> {
    let db = shop(3).await;
    for (n, commits) in [(1, true), (2, false)] {
        let db = db.clone();
        let task = cenote::spawn(async move {
            let tx = db.begin().await?;
            insert(&db, n).await?;
            assert!(db.in_transaction());
            match commits {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
            assert!(!db.in_transaction());
            Ok::<(), Error>(())
        });
        soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}

/// D-pg-008, D-pg-025
#[tokio::test]
async fn a_task_that_ends_in_a_transaction_leaves_everything_as_it_was() -> Result<()> {
    let db = shop(2).await;
    insert(&db, 1).await?;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        inner.exec("UPDATE t SET n = 99", ()).await?;
        insert(&inner, 2).await?;
        std::mem::forget(tx);
        Ok::<(), Error>(())
    });
    soon("the task ends", task).await.unwrap()?;
    assert_eq!(numbers(&db).await, [1]);
    quiet(&db).await;
    let admin = Db::open(&dsn()).await?;
    let sql = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON l.relation = c.oid \
               WHERE c.relname = 't' AND mode = 'RowExclusiveLock' AND l.pid <> pg_backend_pid() \
               AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = ?::regclass)";
    let table: String = db
        .query_as_one("SELECT current_schema() || '.t'", ())
        .await?;
    let held: i64 = admin.query_as_one(sql, (&*table,)).await?;
    assert_eq!(held, 0);
    Ok(())
}

/// D-pg-015
#[tokio::test]
async fn a_transaction_keeps_its_connection_when_its_statements_go() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        let tx = db.begin().await?;
        let one = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let two = db.prepare("INSERT INTO t (n) VALUES (? + 1)").await?;
        one.exec((1,)).await?;
        two.exec((1,)).await?;
        drop((one, two));
        assert_eq!(db.status().idle, 0);
        insert(&db, 3).await?;
        tx.commit().await?;
        assert_eq!(db.status().idle, 1);
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [1, 2, 3]);
    Ok(())
}

/// D-pg-018c
#[tokio::test]
async fn a_statement_prepared_before_a_transaction_runs_in_it() -> Result<()> {
    let db = shop(2).await;
    cenote::scope(async {
        let statement = db.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let tx = db.begin().await?;
        statement.exec((5,)).await?;
        assert_eq!(
            numbers(&db.outside()).await,
            [0_i64; 0],
            "not before the commit"
        );
        tx.commit().await
    })
    .await?;
    assert_eq!(numbers(&db).await, [5]);
    Ok(())
}

/// D-pg-014
#[tokio::test]
async fn two_tasks_at_once_each_stay_on_their_own_connection() -> Result<()> {
    let db = shop(3).await;
    let both = std::sync::Arc::new(Barrier::new(2));
    let tasks: Vec<_> = (1..=2)
        .map(|n| {
            let (db, both) = (db.clone(), both.clone());
            cenote::spawn(async move {
                let pid = "SELECT pg_backend_pid()::int8";
                let first = db.prepare(pid).await?;
                let mine: Vec<i64> = first.query_as(()).await?;
                both.wait().await;
                let second = db.prepare("SELECT pg_backend_pid()::int8 + 0").await?;
                drop(first);
                let still: Vec<i64> = second.query_as(()).await?;
                assert_eq!(mine, still);
                insert(&db, n).await?;
                both.wait().await;
                Ok::<_, Error>(mine[0])
            })
        })
        .collect();
    let mut pids = Vec::new();
    for task in tasks {
        pids.push(soon("the task ends", task).await.unwrap()?);
    }
    assert_ne!(pids[0], pids[1]);
    assert_eq!(numbers(&db).await, [1, 2]);
    Ok(())
}
