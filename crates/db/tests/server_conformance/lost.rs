//! Connections that are killed, and queries that are dropped.

use std::time::Duration;

use cenote::{Db, Error, Result};

use crate::servers::{
    MAKE, assert_whole, dsn, is_running, kill, lock_all, quiet, session_id, sleep, soon, until,
};

use super::{insert, numbers, shop};

/// D-my-016a, D-my-016b; D-pg-027a, D-pg-027b, D-pg-027c
#[tokio::test]
async fn a_connection_that_was_killed_while_idle_is_replaced() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(1).await;
    let killed = session_id(&db).await;
    kill(&admin, killed).await;
    // It fails for a reason, or not at all; the dead connection is gone either way.
    if let Err(error) = insert(&db, 1).await {
        assert!(error.is_connection_lost(), "{error:?}");
        quiet(&db).await;
        assert_eq!(db.status().total, 0);
    }
    let inner = db.clone();
    let next = cenote::spawn(async move { session_id(&inner).await });
    assert_ne!(soon("the task ends", next).await.unwrap(), killed);
    assert_whole(&db).await;
    Ok(())
}

/// D-my-020; D-pg-031a, D-pg-031b
#[tokio::test]
async fn after_a_dropped_query_the_same_task_continues() -> Result<()> {
    let db = shop(2).await;
    let inner = db.clone();
    let task = cenote::spawn(async move {
        let slow = sleep(600.0);
        let slow = inner.query(&slow, ());
        let dropped = tokio::time::timeout(Duration::from_millis(50), slow).await;
        assert!(dropped.is_err(), "it takes longer than that");
        for n in 1..=5_i64 {
            let found: i64 = inner.query_as_one("SELECT CAST(? AS INT)", (n,)).await?;
            assert_eq!(found, n);
        }
        Ok::<(), Error>(())
    });
    soon("the task ends", task).await.unwrap()?;
    assert_whole(&db).await;
    Ok(())
}

/// D-my-019a, D-my-019b; D-pg-030a, D-pg-030b
#[tokio::test]
async fn a_task_cancelled_in_a_transaction_leaves_nothing_of_it() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(1).await;
    let inner = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        insert(&inner, 1).await?;
        tell.send(session_id(&inner).await).unwrap();
        inner.query(&sleep(600.0), ()).await?;
        tx.commit().await
    });
    let victim = told.await.unwrap();
    is_running(&admin, victim, &sleep(600.0)).await;
    task.abort();
    quiet(&db).await;
    assert!(db.status().total <= usize::from(MAKE.settles));
    let inner = db.clone();
    let next = cenote::spawn(async move {
        assert_eq!(numbers(&inner).await, [0_i64; 0]);
        let tx = inner.begin().await?;
        insert(&inner, 2).await?;
        tx.commit().await
    });
    soon("the task ends", next).await.unwrap()?;
    assert_eq!(numbers(&db).await, [2]);
    until("no lock of it is left", async || {
        lock_all(&db).await.is_ok()
    })
    .await;
    assert_whole(&db).await;
    Ok(())
}
