//! The handle and its pool.

use std::sync::Arc;

use cenote::pool::Pool;
use cenote::{ConnectionManager, Db, Error, Kind, Result};
use tokio::sync::Barrier;

use crate::servers::{dsn, session_id, sleep, soon};

use super::{shop, shop_with};

/// D-core-003; D-pg-005
#[tokio::test]
async fn the_handle_shows_the_universal_pool() {
    let db = shop_with(|builder| builder.min(1).max(5)).await;
    let pool: &Pool<ConnectionManager> = db.pool().unwrap();
    assert_eq!((pool.status().max, pool.status().idle), (5, 1));
}

/// D-core-004a, D-core-004b, D-core-004c; D-pg-006
#[tokio::test]
async fn tasks_at_once_have_connections_of_their_own() -> Result<()> {
    let db = shop(3).await;
    assert_eq!(db.status().total, 0);
    let both = Arc::new(Barrier::new(2));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (db, both) = (db.clone(), Arc::clone(&both));
            cenote::spawn(async move {
                let _pinned = db.pin().await?;
                let mine = session_id(&db).await;
                both.wait().await;
                Ok::<_, Error>(mine)
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(soon("the task ends", task).await.unwrap()?);
    }
    assert_ne!(ids[0], ids[1]);
    assert_eq!(db.status().total, 2);
    Ok(())
}

/// D-core-008; D-pg-010
#[tokio::test]
async fn persistent_and_pooled_is_refused_naming_both() {
    let refused = Db::builder(&dsn()).persistent(true).open().await;
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let message = error.message();
    assert!(
        message.contains("persistent") && message.contains("pool"),
        "{message}"
    );
}

/// D-my-023; D-pg-032
#[tokio::test]
async fn ten_slow_tasks_never_use_more_than_three_connections() {
    let db = shop(3).await;
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let db = db.clone();
            cenote::spawn(async move { db.query(&sleep(0.05), ()).await.map(drop) })
        })
        .collect();
    let all_done = async {
        for task in tasks {
            soon("the task ends", task).await.unwrap().unwrap();
        }
    };
    let mut all_done = std::pin::pin!(all_done);
    let mut most = 0;
    loop {
        tokio::select! {
            () = &mut all_done => break,
            () = tokio::task::yield_now() => most = most.max(db.status().total),
        }
    }
    assert_eq!((most, db.status().total), (3, 3));
}
