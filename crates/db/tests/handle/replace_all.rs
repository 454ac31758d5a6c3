//! Replacing all connections: the new one first, and never at the price of a working one.

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
    db.replace_all();
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
        db.replace_all();
        settled_inside().await;
        db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
        assert!(!fake.log().iter().any(|line| line == "close 1"));
        Ok(())
    })
    .await?;
    settled(&db).await;
    let log = fake.take_log();
    let at = |wanted: &str| log.iter().position(|line| line == wanted);
    assert!(at("connect 2").is_some(), "{log:?}");
    assert!(at("connect 2") < at("close 1"), "{log:?}");
    assert!(at("commit 1") < at("close 1"), "{log:?}");
    Ok(())
}

async fn settled_inside() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn connections_of_the_new_generation_are_left_alone() -> Result<()> {
    let fake = Fake::new();
    let db = opened(&fake, 1).await;
    db.replace_all();
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

/// A database with one connection, on a runtime whose clock stands still.
fn with_one(max: usize) -> (Fake, Db, ManualRuntime) {
    let (fake, runtime) = (Fake::new(), ManualRuntime::new());
    let builder = fake.builder().max(max).runtime(runtime.clone());
    let db = runtime.finish(builder.open()).unwrap();
    runtime.finish(db.ping()).unwrap();
    fake.take_log();
    (fake, db, runtime)
}

fn is_closed(fake: &Fake, connection: usize) -> bool {
    let closed = format!("close {connection}");
    fake.log().contains(&closed)
}

/// Every idle connection was in the hands of its replacement, so that calls had to connect, too.
#[test]
fn h28_calls_are_served_while_connects_are_refused() {
    let (fake, db, runtime) = with_one(3);
    fake.refuse_connect(6);
    db.replace_all();
    for _ in 0..20 {
        runtime.run();
        runtime
            .finish(db.exec("INSERT INTO t VALUES (?)", (1,)))
            .unwrap();
        runtime.finish(db.transaction(async || Ok(()))).unwrap();
        runtime.advance(Duration::from_millis(10));
    }
    assert!(!is_closed(&fake, 1), "{:?}", fake.log());
    // Refused six times, with growing pauses: 3.1 to 6.3 s in all.
    runtime.advance(Duration::from_millis(1000));
    runtime.run();
    assert!(!is_closed(&fake, 1), "{:?}", fake.log());
    for _ in 0..60 {
        runtime.advance(Duration::from_millis(100));
        runtime.run();
    }
    assert!(is_closed(&fake, 1), "{:?}", fake.log());
    runtime.finish(db.ping()).unwrap();
    assert_eq!((db.status().total, db.status().idle), (1, 1));
}

/// Each call waited for half of the cleanup time.
#[test]
fn h28_no_call_waits_while_connects_hang() {
    let (fake, db, runtime) = with_one(1);
    fake.hold("connect");
    db.replace_all();
    runtime.run();
    for _ in 0..10 {
        // The clock stands still: nobody can wait.
        runtime
            .finish(db.exec("INSERT INTO t VALUES (?)", (1,)))
            .unwrap();
    }
    assert!(!is_closed(&fake, 1), "{:?}", fake.log());
    // The connect runs out of time, and the next attempt succeeds.
    for _ in 0..12 {
        runtime.advance(Duration::from_secs(1));
        runtime.run();
    }
    assert!(is_closed(&fake, 1), "{:?}", fake.log());
    assert_eq!((db.status().total, db.status().idle), (1, 1));
}

#[tokio::test]
async fn a_private_database_in_memory_is_not_emptied() -> Result<()> {
    let db = Db::builder("sqlite::memory:").unpooled().open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    db.exec("INSERT INTO t VALUES (?)", (1,)).await?;
    db.replace_all();
    let n: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
    assert_eq!(n, 1);
    Ok(())
}
