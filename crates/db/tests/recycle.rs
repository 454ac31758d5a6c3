//! Replacing all connections: the new one first, and never at the price of a working one.
#![allow(clippy::unwrap_used)] // A test may.

use std::time::Duration;

use cenote::{Db, Result};
use cenote_testkit::{Fake, ManualRuntime};

async fn opened(fake: &Fake, connections: usize) -> Db {
    let db = fake.builder().max(3).open().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..connections {
        held.push(db.connection().await.unwrap());
    }
    drop(held);
    fake.take_log();
    db
}

/// Lets what runs in the background come to its end.
async fn settled(db: &Db) {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(db.status().active, 0);
}

#[tokio::test]
async fn an_idle_connection_is_replaced_by_opening_the_new_one_first() {
    let fake = Fake::new();
    let db = opened(&fake, 2).await;
    db.recycle();
    settled(&db).await;
    let log = fake.take_log();
    for old in [1, 2] {
        let closed = log.iter().position(|line| *line == format!("close {old}"));
        let closed = closed.unwrap_or_else(|| panic!("{old} was not closed: {log:?}"));
        let opened = log[..closed]
            .iter()
            .filter(|line| line.starts_with("connect"));
        let closed_before = log[..closed]
            .iter()
            .filter(|line| line.starts_with("close"));
        assert!(opened.count() > closed_before.count(), "{log:?}");
    }
    assert_eq!((db.status().total, db.status().idle), (2, 2));
}

#[tokio::test]
async fn a_connection_in_use_is_replaced_when_it_comes_back() -> Result<()> {
    let fake = Fake::new();
    let db = opened(&fake, 1).await;
    db.transaction(async || {
        db.recycle();
        settled_inside().await;
        db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
        assert!(!fake.log().iter().any(|line| line == "close 1"));
        Ok(())
    })
    .await?;
    settled(&db).await;
    let log = fake.take_log();
    let at = |wanted: &str| log.iter().position(|line| line == wanted);
    assert!(at("commit 1") < at("connect 2"), "{log:?}");
    assert!(
        at("connect 2").is_some() && at("connect 2") < at("close 1"),
        "{log:?}"
    );
    Ok(())
}

async fn settled_inside() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_replaced_stays_and_is_tried_again() -> Result<()> {
    let fake = Fake::new();
    let db = opened(&fake, 1).await;
    // When it is looked at, and when it goes back.
    fake.refuse_connect(2);
    db.recycle();
    settled(&db).await;
    assert!(!fake.log().iter().any(|line| line == "close 1"));
    assert_eq!(db.status().idle, 1);
    db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
    settled(&db).await;
    assert!(
        fake.log().iter().any(|line| line == "close 1"),
        "{:?}",
        fake.log()
    );
    Ok(())
}

#[tokio::test]
async fn connections_of_the_new_generation_are_left_alone() -> Result<()> {
    let fake = Fake::new();
    let db = opened(&fake, 1).await;
    db.recycle();
    settled(&db).await;
    fake.take_log();
    db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
    settled(&db).await;
    let log = fake.take_log();
    assert!(
        !log.iter().any(|line| line.starts_with("connect")),
        "{log:?}"
    );
    Ok(())
}

#[test]
fn a_connection_whose_replacement_hangs_stays() {
    let runtime = ManualRuntime::new();
    let fake = Fake::new();
    let builder = fake.builder().max(1).runtime(runtime.clone());
    let db = runtime.finish(builder.open()).unwrap();
    runtime.finish(db.ping()).unwrap();
    // When it is looked at, and when it goes back.
    fake.hold("connect");
    fake.hold("connect");
    db.recycle();
    // Longer than both attempts, and longer than cleaning up may take.
    for _ in 0..30 {
        runtime.advance(Duration::from_secs(1));
        runtime.run();
    }
    let log = fake.take_log();
    assert!(
        !log.iter().any(|line| line == "close 1" || line == "drop 1"),
        "{log:?}"
    );
    assert_eq!((db.status().total, db.status().idle), (1, 1));
    // Its next use tries again.
    runtime.finish(db.ping()).unwrap();
    let log = fake.take_log();
    assert!(log.iter().any(|line| line == "close 1"), "{log:?}");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_private_database_in_memory_is_not_emptied() -> Result<()> {
    let db = Db::builder("sqlite::memory:").unpooled().open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
    db.recycle();
    let n: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
    assert_eq!(n, 1);
    Ok(())
}
