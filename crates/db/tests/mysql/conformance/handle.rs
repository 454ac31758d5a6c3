//! The handle and its pool.

use std::sync::Arc;
use std::time::Duration;

use cenote::{Db, Error, Kind, Result};
use tokio::sync::Barrier;

use super::{counts, insert, numbers, shop, shop_with};
use crate::servers::{dsn, is_gone, quiet, session_id, soon, threads_where, until};

/// D-core-001, D-my-024a, D-my-024b
#[tokio::test]
async fn the_settings_of_the_pool_can_be_read_back() {
    let interval = Duration::from_secs(7);
    let db = shop_with(|builder| builder.min(2).max(7).healthcheck_interval(interval)).await;
    let config = db.config();
    assert_eq!((config.min, config.max), (2, 7));
    assert_eq!(config.healthcheck_interval, Some(interval));
    assert_eq!((db.status().min, db.status().max), (2, 7));
}

/// D-core-002, D-my-024c, D-my-006b
#[tokio::test]
async fn unpooled_handle_has_no_pool_and_one_connection() -> Result<()> {
    let db = shop_with(|builder| builder.unpooled()).await;
    assert!(db.pool().is_none());
    let outside = session_id(&db).await;
    let inner = db.clone();
    let task = cenote::spawn(async move { session_id(&inner).await });
    assert_eq!(soon("the task ends", task).await.unwrap(), outside);
    Ok(())
}

/// D-core-018a, D-core-018b
#[tokio::test]
async fn wrong_credentials_fail_the_first_query() {
    let db = Db::builder(&dsn())
        .password("wrong")
        .max(2)
        .open()
        .await
        .unwrap();
    let inner = db.clone();
    let task = cenote::spawn(async move { inner.query("SELECT 1", ()).await });
    let error = soon("the task ends", task).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Connect, Some(1045)));
    assert_eq!(error.sql_state(), Some("28000"));
    quiet(&db).await;
    assert_eq!(counts(&db), (0, 0, 0));
}

/// D-core-023
#[tokio::test]
async fn a_task_may_end_in_a_transaction_while_the_handle_goes() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(1).await;
    let inner = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = cenote::spawn(async move {
        let tx = inner.begin().await?;
        insert(&inner, 1).await?;
        tell.send(session_id(&inner).await).unwrap();
        std::mem::forget(tx);
        Ok::<(), Error>(())
    });
    let id = told.await.unwrap();
    drop(db);
    soon("the task ends", task).await.unwrap()?;
    is_gone(&admin, id).await;
    Ok(())
}

/// D-core-024a, D-core-024b
#[tokio::test]
async fn default_reaches_existing_connections_and_later_ones() -> Result<()> {
    let db = shop_with(|builder| builder.min(2).max(4)).await;
    db.set_default("autocommit", 0).await?;
    let on: i64 = db.query_as_one("SELECT @@autocommit", ()).await?;
    assert_eq!(on, 0, "read back from the handle");
    let all = [
        db.connection().await?,
        db.connection().await?,
        db.connection().await?,
        db.connection().await?,
    ];
    assert_eq!(db.status().total, 4);
    for connection in &all {
        let on: i64 = connection.query_as_one("SELECT @@autocommit", ()).await?;
        assert_eq!(on, 0);
    }
    Ok(())
}

/// Nothing in the text tells that it does.
#[tokio::test]
async fn read_that_opens_a_transaction_outside_coroutines_is_an_error() -> Result<()> {
    let db = shop_with(|builder| builder.max(1)).await;
    db.exec("CREATE OR REPLACE TABLE opened (n INT)", ())
        .await?;
    db.set_default("autocommit", 0).await?;
    let left = db.query("SELECT n FROM opened", ()).await.unwrap_err();
    assert_eq!(left.kind(), cenote::Kind::LeftTransaction);
    assert_eq!((db.status().total, db.status().idle), (1, 1));
    Ok(())
}

/// D-my-010a, D-my-010b
#[tokio::test]
async fn connections_of_ended_tasks_are_gone_from_the_server() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let tasks: Vec<_> = (0..5)
        .map(|n| {
            cenote::spawn(async move {
                let db = Db::builder(&dsn()).unpooled().open().await?;
                db.exec("CREATE TEMPORARY TABLE own (n INT)", ()).await?;
                db.exec("INSERT INTO own VALUES (1), (2), (3)", ()).await?;
                let count: i64 = db.query_as_one("SELECT COUNT(*) FROM own", ()).await?;
                assert_eq!(count, 3);
                let id = session_id(&db).await;
                if n % 2 == 0 {
                    db.close().await?;
                }
                Ok::<_, Error>(id)
            })
        })
        .collect();
    for task in tasks {
        let id = soon("the task ends", task).await.unwrap()?;
        is_gone(&admin, id).await;
    }
    Ok(())
}

/// D-my-003, D-my-006a, D-my-013
#[tokio::test]
async fn tasks_with_their_own_handles_have_their_own_connections() -> Result<()> {
    let all = Arc::new(Barrier::new(3));
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let all = Arc::clone(&all);
            cenote::spawn(async move {
                let db = Db::builder(&dsn()).unpooled().open().await?;
                let id = session_id(&db).await;
                all.wait().await;
                Ok::<_, Error>(id)
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(soon("the task ends", task).await.unwrap()?);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    Ok(())
}

/// D-my-011
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_inserting_tasks_and_a_counting_one_do_not_interfere() -> Result<()> {
    let db = shop(3).await;
    db.exec_many("INSERT INTO t (n) VALUES (?)", (1..=5_i64).map(|n| (n,)))
        .await?;
    let writes = |n: i64| {
        let db = db.clone();
        cenote::spawn(async move { insert(&db, n).await.map(drop) })
    };
    let inner = db.clone();
    let counts = cenote::spawn(async move { Ok::<_, Error>(numbers(&inner).await.len()) });
    let tasks = [writes(6), writes(7)];
    let seen = soon("the task ends", counts).await.unwrap()?;
    assert!((5..=7).contains(&seen));
    for task in tasks {
        soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!(numbers(&db).await, [1, 2, 3, 4, 5, 6, 7]);
    Ok(())
}

/// Not a row of the list: what a closed handle leaves on the server.
#[tokio::test]
async fn a_closed_handle_leaves_no_connection_on_the_server() -> Result<()> {
    let admin = Db::open(&dsn()).await?;
    let db = shop(4).await;
    let name: String = db.query_as_one("SELECT DATABASE()", ()).await?;
    let held = [db.connection().await?, db.connection().await?];
    for connection in &held {
        connection.query("SELECT 1", ()).await?;
    }
    drop(held);
    soon("it closes", db.close()).await?;
    until("they are gone", async || {
        threads_where(&admin, &format!("DB = '{name}'")).await == 0
    })
    .await;
    Ok(())
}
