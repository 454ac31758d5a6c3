//! The handle and its pool.

use std::sync::Arc;
use std::time::Duration;

use cenote::{Db, Kind, Result};
use cenote_testkit::proxy::Network;
use tokio::sync::Barrier;

use super::{counts, insert, numbers, shop};
use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::{dsn, is_gone, quiet, session_id, soon, until};

/// D-pg-016, D-pg-026a, D-pg-026b, D-pg-s007
#[tokio::test]
async fn an_error_is_seen_by_its_own_task_and_by_no_other() -> Result<()> {
    let db = shop(1).await;
    let inner = db.clone();
    let fails = cenote::spawn(async move {
        let error = inner.exec("DELETE FROM missing", ()).await.unwrap_err();
        assert_eq!(error.sql_state(), Some("42P01"));
        assert!(error.message().contains("missing"), "{error}");
        assert_eq!(inner.last_sql_state(), "42P01");
        assert_eq!(inner.last_error().unwrap().sql_state(), Some("42P01"));
        session_id(&inner.outside()).await
    });
    let pid = soon("the task ends", fails).await.unwrap();
    let inner = db.clone();
    let other = cenote::spawn(async move {
        assert_eq!(inner.last_sql_state(), "00000");
        let same = session_id(&inner).await;
        assert_eq!(inner.last_sql_state(), "00000");
        same
    });
    assert_eq!(soon("the task ends", other).await.unwrap(), pid);
    Ok(())
}

/// D-pg-017
#[tokio::test]
async fn wrong_credentials_fail_the_first_query() {
    let db = Db::builder(&dsn())
        .user("nobody")
        .password("wrong")
        .max(2)
        .open()
        .await
        .unwrap();
    let inner = db.clone();
    let task = cenote::spawn(async move { inner.query("SELECT 1", ()).await });
    let error = soon("the task ends", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.sql_state().is_some(), "{error}");
    quiet(&db).await;
    assert_eq!(counts(&db), (0, 0, 0));
}

/// D-pg-019
#[tokio::test]
async fn one_task_uses_one_connection_again_and_again() -> Result<()> {
    let db = shop(3).await;
    cenote::scope(async {
        for n in 1..=3_i64 {
            let found: i64 = db.query_as_one("SELECT ?::int8", (n,)).await?;
            assert_eq!(found, n);
            assert_eq!(counts(&db), (1, 1, 0));
        }
        Ok(())
    })
    .await
}

/// D-pg-020
#[tokio::test]
async fn task_finishes_its_query_after_the_others_dropped_the_handle() -> Result<()> {
    let db = shop(2).await;
    let inner = db.clone();
    let admin = Db::open(&dsn()).await?;
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let task = cenote::spawn(async move {
        let statement = inner.prepare("SELECT pg_backend_pid()::int8").await?;
        tell.send(()).unwrap();
        may_go_on.await.unwrap();
        statement.query_as::<i64>(()).await
    });
    told.await.unwrap();
    drop(db);
    go_on.send(()).unwrap();
    let pid = soon("the task ends", task).await.unwrap()?[0];
    // Closed with the last handle.
    is_gone(&admin, pid).await;
    Ok(())
}

/// D-pg-021
#[tokio::test]
async fn twenty_tasks_share_five_connections() -> Result<()> {
    let db = shop(5).await;
    let all = Arc::new(Barrier::new(5));
    let tasks: Vec<_> = (1..=20_i64)
        .map(|n| {
            let (db, all) = (db.clone(), Arc::clone(&all));
            cenote::spawn(async move {
                let _pinned = db.pin().await?;
                // Five at a time: so there are five connections.
                all.wait().await;
                db.query_as_one::<i64>("SELECT ?::int8", (n,)).await
            })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        sum += soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!((sum, db.status().total), (210, 5));
    Ok(())
}

/// D-pg-022
#[tokio::test]
async fn twelve_connections_at_once_all_come_back() -> Result<()> {
    let db = shop(12).await;
    let all = Arc::new(Barrier::new(12));
    let tasks: Vec<_> = (0..12)
        .map(|_| {
            let (db, all) = (db.clone(), Arc::clone(&all));
            cenote::spawn(async move {
                let _pinned = db.pin().await?;
                all.wait().await;
                db.ping().await
            })
        })
        .collect();
    for task in tasks {
        soon("the task ends", task).await.unwrap()?;
    }
    assert_eq!(counts(&db), (12, 12, 0));
    Ok(())
}

/// D-pg-023a, D-pg-023b, D-pg-023c
#[tokio::test]
async fn healthy_connections_survive_checks_and_the_handle_may_drop() -> Result<()> {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::builder(&dsn_through(&proxy))
        .min(2)
        .max(5)
        .healthcheck_interval(Duration::from_millis(100))
        .open()
        .await?;
    assert_eq!(db.status().total, 2);
    let first = session_id(&db).await;
    assert!(first > 0);
    // Nobody but the checks sends anything now.
    let carried = || proxy.traffic().to_server + proxy.traffic().to_client;
    let before = carried();
    until("all have been checked, twice", async || {
        carried() > before + 40
    })
    .await;
    assert_eq!(db.status().total, 2);
    assert_eq!(proxy.traffic().accepted, 2, "none was replaced");
    drop(db);
    Ok(())
}

/// D-pg-024
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_tasks_that_write_lose_no_row() -> Result<()> {
    let db = shop(5).await;
    let tasks: Vec<_> = (1..=30)
        .map(|n| {
            let db = db.clone();
            cenote::spawn(async move { insert(&db, n).await.map(drop) })
        })
        .collect();
    for task in tasks {
        soon("the task ends", task).await.unwrap()?;
    }
    let stored = numbers(&db).await;
    assert_eq!((stored.len(), stored.iter().sum::<i64>()), (30, 465));
    Ok(())
}

/// A default that the server refuses later can be taken back.
#[tokio::test]
async fn h24_default_that_is_refused_later_can_be_unset() -> Result<()> {
    let db = shop(2).await;
    let admin = Db::open(&dsn()).await?;
    let role = format!("h24_{}", std::process::id());
    admin.exec(&format!("CREATE ROLE {role}"), ()).await?;
    let dropped = db.set_default("role", role.as_str()).await;
    admin.exec(&format!("DROP ROLE {role}"), ()).await?;
    dropped?;
    // All that are left have the role, or cannot get it.
    let one = db.connection().await;
    let two = db.connection().await;
    assert!(one.is_err() || two.is_err());
    drop((one, two));
    db.unset_default("role");
    insert(&db, 1).await?;
    let (one, two) = (db.connection().await?, db.connection().await?);
    drop((one, two));
    assert_eq!(numbers(&db).await, [1]);
    Ok(())
}
