//! The search for a host: its order, and what ends it.

#![allow(
    clippy::disallowed_methods,
    reason = "servers of a test take their time, and deadlines are measured"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cenote::pool::{BreakerState, ConsecutiveFailures};
use cenote::{Db, Kind};
use tokio::sync::Notify;

use super::{of, to_write};
use crate::servers::scripted::{Client, Scripted, error};
use crate::servers::{soon, until};

const WRITE: &str = "UPDATE t SET a = 1";

/// Longer than a host may take before the next one is tried beside it.
const SLOW: Duration = Duration::from_millis(600);

fn tell(sql: &str, is_standby: bool) -> Option<String> {
    if sql.contains("pg_is_in_recovery") {
        return Some(if is_standby { "t" } else { "f" }.to_owned());
    }
    if sql.starts_with("SHOW") {
        return Some("off".to_owned());
    }
    let is_asked = sql.contains("pg_control_system") && !is_standby;
    is_asked.then(|| "77 00000001".to_owned())
}

/// A host that lets everybody in, and counts the writes.
async fn host(is_standby: bool, delay: Duration) -> (Scripted, Arc<AtomicU32>) {
    let writes = Arc::new(AtomicU32::new(0));
    let all = Arc::clone(&writes);
    let server = Scripted::new(move |mut client: Client| {
        let writes = Arc::clone(&all);
        async move {
            tokio::time::sleep(delay).await;
            let standby = if is_standby { "on" } else { "off" };
            let settings = [
                ("in_hot_standby", standby),
                ("default_transaction_read_only", "off"),
            ];
            client.let_in_with(&settings).await;
            let count = |sql: &str| {
                if sql == WRITE {
                    writes.fetch_add(1, Ordering::Relaxed);
                }
                None
            };
            let told = |sql: &str| tell(sql, is_standby);
            client.converse_and_tell(count, told).await;
        }
    });
    (server.await, writes)
}

#[tokio::test]
async fn refused_login_leaves_the_hosts_that_are_being_tried() {
    let (slow, writes) = host(false, SLOW).await;
    let refusing = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        client.send(&error("28P01")).await;
    })
    .await;
    let db = Db::open(&to_write(&[slow.port(), refusing.port()]))
        .await
        .unwrap();
    soon("it writes", db.exec(WRITE, ())).await.unwrap();
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    // It counts when they have failed, and no further host is tried.
    let (third, _) = host(false, Duration::ZERO).await;
    let gone = Scripted::new(|_| tokio::time::sleep(SLOW)).await;
    let dsn = to_write(&[gone.port(), refusing.port(), third.port()]);
    let db = Db::open(&dsn).await.unwrap();
    let error = soon("it fails", db.exec(WRITE, ())).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("28P01"), "{error}");
}

#[tokio::test]
async fn slow_first_host_is_taken_where_every_role_fits() {
    for (options, first_is_standby) in [("", false), ("target_session_attrs=prefer-standby", true)]
    {
        let (slow, writes) = host(first_is_standby, SLOW).await;
        let (second, others) = host(true, Duration::ZERO).await;
        let db = Db::open(&of(&[slow.port(), second.port()], options))
            .await
            .unwrap();
        soon("it writes", db.exec(WRITE, ())).await.unwrap();
        let writes = [writes, others].map(|writes| writes.load(Ordering::Relaxed));
        assert_eq!(writes, [1, 0], "{options}");
    }
}

#[tokio::test]
async fn standby_beside_a_host_that_hangs_is_no_failure() {
    let hangs = Scripted::new(|mut client: Client| async move { client.fall_silent().await }).await;
    let (standby, _) = host(true, Duration::ZERO).await;
    let deadline = Duration::from_secs(3);
    let db = Db::builder(&to_write(&[hangs.port(), standby.port()]))
        .connect_timeout(Duration::from_secs(1))
        .acquire_timeout(deadline)
        .breaker(ConsecutiveFailures::new(1))
        .open()
        .await
        .unwrap();
    let begun = Instant::now();
    let error = soon("it ends", db.exec(WRITE, ())).await.unwrap_err();
    assert!(begun.elapsed() >= deadline, "before its deadline: {error}");
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains("no host fits"), "{error}");
    assert_eq!(db.pool().unwrap().breaker(), BreakerState::Closed);
    // A host that hangs alone is a failure.
    let db = Db::builder(&to_write(&[hangs.port(), hangs.port()]))
        .connect_timeout(Duration::from_millis(300))
        .acquire_timeout(deadline)
        .breaker(ConsecutiveFailures::new(1))
        .open()
        .await
        .unwrap();
    let error = soon("it ends", db.exec(WRITE, ())).await.unwrap_err();
    assert!(error.message().contains("connect_timeout"), "{error}");
    assert_eq!(db.pool().unwrap().breaker(), BreakerState::Open);
}

#[tokio::test]
async fn probe_that_contradicts_new_connections_is_reopened() {
    // The name is the primary's for the first sessions, and a standby's for those that come later. Both live.
    let is_moved = Arc::new(AtomicU32::new(0));
    let all = Arc::clone(&is_moved);
    let name = Scripted::new(move |mut client: Client| {
        let is_standby = all.load(Ordering::Relaxed) == 1;
        async move {
            let standby = if is_standby { "on" } else { "off" };
            let settings = [
                ("in_hot_standby", standby),
                ("default_transaction_read_only", "off"),
            ];
            client.let_in_with(&settings).await;
            let told = |sql: &str| tell(sql, is_standby);
            client.converse_and_tell(|_| None, told).await;
        }
    })
    .await;
    let asked = Arc::new((AtomicU32::new(0), Notify::new()));
    let counted = Arc::clone(&asked);
    let other = Scripted::new(move |mut client: Client| {
        let asked = Arc::clone(&counted);
        async move {
            let settings = [
                ("in_hot_standby", "off"),
                ("default_transaction_read_only", "off"),
            ];
            client.let_in_with(&settings).await;
            let told = |sql: &str| {
                if sql.contains("pg_is_in_recovery") {
                    asked.0.fetch_add(1, Ordering::Relaxed);
                }
                tell(sql, false)
            };
            client.converse_and_tell(|_| None, told).await;
        }
    })
    .await;
    let options = "target_session_attrs=standby";
    let db = Db::open(&of(&[name.port(), other.port()], options))
        .await
        .unwrap();
    let first = async {
        until("the probe is open", async || db.hosts()[0].role.is_some()).await;
        is_moved.store(1, Ordering::Relaxed);
    };
    let (done, ()) = soon("it reads", async {
        tokio::join!(db.exec("SELECT 1", ()), first)
    })
    .await;
    done.unwrap();
    let before = asked.0.load(Ordering::Relaxed);
    // Each host is asked as often.
    until("it is asked again", async || {
        asked.0.load(Ordering::Relaxed) > before + 4
    })
    .await;
    db.exec("SELECT 1", ()).await.unwrap();
    assert_eq!((db.counters().created, db.hosts()[0].retired), (1, 0));
}
