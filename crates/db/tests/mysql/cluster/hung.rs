//! Calls on a host that hangs while another one is promoted.

#![allow(clippy::disallowed_methods, reason = "idle times are measured")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote::{Db, Kind};
use tokio::sync::Barrier;

use super::host::{Host, Is, WRITE, write_on_all};
use super::{of, to_write};
use crate::servers::{soon, until};

/// A primary, a standby, and a handle that has seen both.
async fn cluster(max: usize) -> (Host, Host, Db) {
    let (old, new) = (
        Host::start(Is::Primary).await,
        Host::start(Is::STANDBY).await,
    );
    let dsn = to_write(&[old.port(), new.port()]);
    let db = Db::builder(&dsn).max(max).open().await.unwrap();
    db.exec(WRITE, ()).await.unwrap();
    until("both are known", async || {
        db.hosts().iter().all(|host| host.role.is_some())
    })
    .await;
    (old, new, db)
}

#[tokio::test]
async fn calls_of_a_primary_that_hangs_are_cut_and_not_repeated() {
    let (old, new, db) = cluster(3).await;
    write_on_all(&db).await;
    let steps = Arc::new(Barrier::new(4));
    let hangs = async |steps: &Barrier| {
        steps.wait().await;
        steps.wait().await;
    };
    let (caller, at) = (db.clone(), Arc::clone(&steps));
    let single = cenote::spawn(async move {
        hangs(&at).await;
        caller.exec(WRITE, ()).await
    });
    let (caller, at) = (db.clone(), Arc::clone(&steps));
    let inside = cenote::spawn(async move {
        let run = caller.transaction(async || {
            caller.exec(WRITE, ()).await?;
            hangs(&at).await;
            caller.exec(WRITE, ()).await
        });
        run.await
    });
    let (caller, at) = (db.clone(), Arc::clone(&steps));
    let commit = cenote::spawn(async move {
        let tx = caller.begin().await.unwrap();
        tx.exec(WRITE, ()).await.unwrap();
        hangs(&at).await;
        tx.commit().await
    });
    steps.wait().await;
    old.hangs(true);
    let arrived = old.arrived();
    steps.wait().await;
    until("they wait", async || old.arrived() == arrived + 2).await;
    new.becomes(Is::Primary);
    let lost = soon("it is cut", single).await.unwrap().unwrap_err();
    assert_eq!(lost.kind(), Kind::ConnectionLost);
    let message = lost.to_string();
    assert!(message.contains("another host has become"), "{message}");
    let lost = soon("it is cut", inside).await.unwrap().unwrap_err();
    assert!(lost.is_connection_lost(), "{lost:?}");
    let lost = soon("it is cut", commit).await.unwrap().unwrap_err();
    assert_eq!(lost.kind(), Kind::OutcomeUnknown);
    assert_eq!((new.arrived(), old.arrived()), (0, arrived + 2));
    db.exec(WRITE, ()).await.unwrap();
    let arrived = old.arrived();
    // It wakes up, and believes that it is the primary.
    old.hangs(false);
    let asked = old.asked();
    until("it is asked again", async || old.asked() > asked + 1).await;
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!((new.arrived(), old.arrived()), (2, arrived));
    assert_eq!(db.hosts()[0].connections, 0);
}

#[tokio::test]
async fn write_that_waits_for_the_ping_is_repeated_elsewhere() {
    let (old, new, db) = cluster(1).await;
    // After this time, a call begins with a ping.
    let idle = Instant::now();
    until("it was idle", async || {
        idle.elapsed() > Duration::from_millis(600)
    })
    .await;
    old.hangs(true);
    let before = old.arrived();
    let write = cenote::spawn({
        let db = db.clone();
        async move { db.exec(WRITE, ()).await }
    });
    until("it is under way", async || db.status().active == 1).await;
    new.becomes(Is::Primary);
    // The server cannot have run it.
    soon("it is written", write).await.unwrap().unwrap();
    assert_eq!((old.arrived(), new.writes()), (before, 1));
}

#[tokio::test]
async fn host_that_hangs_and_comes_back_is_used_again() {
    let (host, _standby, db) = cluster(1).await;
    let (caller, arrived) = (db.clone(), host.arrived());
    host.hangs(true);
    let call = cenote::spawn(async move { caller.exec(WRITE, ()).await });
    until("it waits", async || host.arrived() > arrived).await;
    until("its silence is noticed", async || db.hosts()[0].is_silent).await;
    // Silence alone ends nothing: nobody else was promoted.
    host.hangs(false);
    soon("it is answered", call).await.unwrap().unwrap();
    db.exec(WRITE, ()).await.unwrap();
    assert_eq!((db.counters().created, db.hosts()[0].retired), (1, 0));
}

#[tokio::test]
async fn node_that_hangs_keeps_only_the_calls_on_it() {
    let (hung, other) = (Host::start(Is::SYNCED).await, Host::start(Is::SYNCED).await);
    let dsn = of(&[hung.port(), other.port()], "load_balance_hosts=random");
    let db = Db::builder(&dsn)
        .max(2)
        .statement_timeout(Duration::from_millis(500))
        .cleanup_timeout(Duration::from_millis(500))
        .open()
        .await
        .unwrap();
    let (one, two) = (db.connection().await, db.connection().await);
    one.unwrap().exec(WRITE, ()).await.unwrap();
    two.unwrap().exec(WRITE, ()).await.unwrap();
    assert_eq!((hung.writes(), other.writes()), (1, 1));
    hung.hangs(true);
    let mut late = 0;
    while other.writes() < 20 {
        if let Err(error) = soon("it ends", db.exec(WRITE, ())).await {
            assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
            late += 1;
        }
    }
    assert!(late <= 1, "{late}");
    assert_eq!(db.hosts()[0].retired, 0);
}

#[tokio::test]
async fn host_that_hangs_from_the_start_delays_nobody() {
    let (silent, host) = (
        Host::start(Is::Primary).await,
        Host::start(Is::Primary).await,
    );
    silent.hangs(true);
    // Far below the three seconds that an address has.
    let db = Db::builder(&to_write(&[silent.port(), host.port()]))
        .acquire_timeout(Duration::from_secs(2))
        .open()
        .await
        .unwrap();
    db.exec(WRITE, ()).await.unwrap();
    until("its silence is noticed", async || db.hosts()[0].is_silent).await;
    assert_eq!((silent.arrived(), host.writes()), (0, 1));
}
