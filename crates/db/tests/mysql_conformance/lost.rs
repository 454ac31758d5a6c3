//! Connections that are killed, and queries that are dropped.

use std::time::Duration;

use cenote::{Db, Error, Kind, Result};

use crate::servers::{assert_whole, dsn, is_gone, is_running, kill, quiet, soon, thread};
use crate::{counts, insert, numbers, shop};

/// D-my-009, D-my-015
#[tokio::test]
async fn a_task_that_is_cancelled_in_a_query_ends_at_once_and_its_connection_with_it() -> Result<()>
{
    let admin = Db::open(&dsn()).await?;
    let db = shop(2).await;
    let victim = thread(&db).await;
    let inner = db.clone();
    let task = cenote::spawn(async move { inner.query("SELECT SLEEP(600)", ()).await });
    is_running(&admin, victim, "SELECT SLEEP(600)").await;
    task.abort();
    let ended = soon("the wait is over", task).await.unwrap_err();
    assert!(ended.is_cancelled());
    quiet(&db).await;
    assert_eq!(counts(&db), (0, 0, 0), "the cancelled connection is gone");
    is_gone(&admin, victim).await;
    insert(&db, 1).await?;
    assert_whole(&db).await;
    Ok(())
}

/// D-my-016a, D-my-016b
#[tokio::test]
async fn a_connection_that_was_killed_while_idle_is_replaced() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(1).await;
    let killed = thread(&db).await;
    kill(&admin, killed).await;
    // It fails for a reason, or not at all; the dead connection is gone either way.
    if let Err(error) = insert(&db, 1).await {
        assert!(error.is_connection_lost(), "{error:?}");
        quiet(&db).await;
        assert_eq!(db.status().total, 0);
    }
    let inner = db.clone();
    let next = cenote::spawn(async move { thread(&inner).await });
    assert_ne!(soon("the task ends", next).await.unwrap(), killed);
    assert_whole(&db).await;
    Ok(())
}

/// D-my-019a, D-my-019b
#[tokio::test]
async fn a_task_cancelled_in_a_transaction_leaves_nothing_of_it() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(1).await;
    let inner = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        insert(&inner, 1).await?;
        tell.send(thread(&inner).await).unwrap();
        inner.query("SELECT SLEEP(600)", ()).await?;
        tx.commit().await
    });
    let victim = told.await.unwrap();
    is_running(&admin, victim, "SELECT SLEEP(600)").await;
    task.abort();
    quiet(&db).await;
    assert_eq!(db.status().total, 0);
    let inner = db.clone();
    let next = cenote::spawn(async move {
        assert_eq!(numbers(&inner).await, [0_i64; 0]);
        let tx = inner.begin().await?;
        insert(&inner, 2).await?;
        tx.commit().await
    });
    soon("the task ends", next).await.unwrap()?;
    assert_eq!(numbers(&db).await, [2]);
    assert_whole(&db).await;
    Ok(())
}

/// D-my-020
#[tokio::test]
async fn after_a_dropped_query_the_same_task_goes_on() -> Result<()> {
    let db = shop(2).await;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let slow = inner.query("SELECT SLEEP(600)", ());
        let dropped = tokio::time::timeout(Duration::from_millis(50), slow).await;
        assert!(dropped.is_err(), "it takes longer than that");
        for n in 1..=5_i64 {
            let found: i64 = inner.query_as_one("SELECT ?", (n,)).await?;
            assert_eq!(found, n);
        }
        Ok::<(), Error>(())
    });
    soon("the task ends", task).await.unwrap()?;
    assert_whole(&db).await;
    Ok(())
}

/// D-my-021a, D-my-021b
#[tokio::test]
async fn a_transaction_whose_connection_was_killed_fails_closed() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(2).await;
    cenote::scope(async {
        let tx = db.begin().await?;
        insert(&db, 1).await?;
        kill(&admin, thread(&db).await).await;
        let first = insert(&db, 2).await.unwrap_err();
        assert!(first.is_connection_lost(), "{first:?}");
        for _ in 0..2 {
            let next = insert(&db, 3).await.unwrap_err();
            assert_eq!(next.kind(), Kind::TransactionLost, "{next:?}");
        }
        let ended = tx.commit().await.unwrap_err();
        assert!(ended.is_connection_lost(), "{ended:?}");
        // It is over now: the task goes on, and knows it.
        insert(&db, 4).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&db).await, [4], "nothing ran outside of it");
    assert_whole(&db).await;
    Ok(())
}
