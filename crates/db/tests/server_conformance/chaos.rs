//! Mixed loads, cancelled tasks and cut connections: what holds whatever the interleaving.
//!
//! The table has five rows at first; transactions only add rows. Every attempt ends in one bucket.

use std::time::Duration;

use cenote::{Builder, Db, Result};
use cenote_testkit::proxy::{Network, OnConnect, Proxy};
use tokio::task::JoinHandle;

use crate::servers::network::{choppy, dsn_through, narrow, proxy_with};
use crate::servers::{assert_whole, quiet, sleep, soon, until};

use super::shop_at;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    Ok,
    Cancelled,
    Failed,
}

pub(super) type Task = JoinHandle<Result<()>>;

pub(super) async fn bucket(task: Task) -> Bucket {
    match soon("every task ends", task).await {
        Ok(Ok(())) => Bucket::Ok,
        Ok(Err(error)) => {
            // A cut wire, a refused one, and nothing else.
            let expected = error.is_connection_lost() || error.kind() == cenote::Kind::Connect;
            assert!(expected, "{error:?}");
            Bucket::Failed
        }
        Err(error) => {
            assert!(error.is_cancelled(), "{error}");
            Bucket::Cancelled
        }
    }
}

pub(super) async fn all_ok(tasks: Vec<Task>) {
    for task in tasks {
        soon("every task ends", task).await.unwrap().unwrap();
    }
}

/// A network, and five rows behind it.
pub(super) async fn chaos(max: usize, network: Network) -> (Db, Proxy) {
    let proxy = proxy_with(Network::ideal()).await;
    let db = shop_at(&dsn_through(&proxy), |builder| {
        builder.max(max).cleanup_timeout(Duration::from_secs(1))
    })
    .await;
    let maker = Builder::from_config(db.config().clone())
        .min(0)
        .open()
        .await
        .unwrap();
    let rows = (1..=5_i64).map(|n| (n,));
    maker
        .exec_many("INSERT INTO t (n) VALUES (?)", rows)
        .await
        .unwrap();
    maker.close().await.unwrap();
    proxy.set(network);
    (db, proxy)
}

pub(super) fn latency(milliseconds: u64) -> Network {
    Network {
        delay: Duration::from_millis(milliseconds),
        ..Network::ideal()
    }
}

/// A task that reads the five rows that are always there.
pub(super) fn reads(db: &Db) -> Task {
    let db = db.clone();
    cenote::spawn(async move {
        let sql = "SELECT n FROM t WHERE id <= 5 ORDER BY id";
        let rows: Vec<i64> = db.query_as(sql, ()).await?;
        assert_eq!(rows, [1, 2, 3, 4, 5]);
        Ok(())
    })
}

/// A task with a transaction: begin, a prepared insert, reading it back, commit.
pub(super) fn writes(db: &Db, n: i64) -> Task {
    let db = db.clone();
    cenote::spawn(async move {
        let tx = db.begin().await?;
        let insert = db
            .prepare("INSERT INTO t (n) VALUES (?) RETURNING id")
            .await?;
        let id: Vec<i64> = insert.query_as((n,)).await?;
        let sql = "SELECT n FROM t WHERE id = ?";
        let found: i64 = db.query_as_one(sql, (id[0],)).await?;
        assert_eq!(found, n);
        tx.commit().await
    })
}

/// A task with a query that takes a while.
pub(super) fn is_slow(db: &Db) -> Task {
    let db = db.clone();
    cenote::spawn(async move { db.query(&sleep(0.3), ()).await.map(drop) })
}

/// What transactions have added.
async fn added(db: &Db) -> Vec<i64> {
    let sql = "SELECT n FROM t WHERE id > 5 ORDER BY n";
    db.query_as(sql, ()).await.unwrap()
}

/// Nothing is left of it: all connections are back, all rows whole, and no lock is held.
pub(super) async fn assert_sound(db: &Db) {
    assert_whole(db).await;
    let max = i64::try_from(db.status().max).unwrap();
    all_ok((1000..1000 + max).map(|n| writes(db, n)).collect()).await;
    all_ok((0..max).map(|_| reads(db)).collect()).await;
}

/// All of these tasks have a connection in use, or some are done already.
pub(super) async fn all_busy(db: &Db, tasks: &[Task]) {
    until("all have begun", async || {
        let is_done = tasks.iter().any(Task::is_finished);
        is_done || db.status().active >= tasks.len()
    })
    .await;
}

/// F-020
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_transactions_all_commit() {
    let (db, _proxy) = chaos(4, Network::ideal()).await;
    all_ok((1..=4).map(|n| writes(&db, n)).collect()).await;
    assert_eq!(added(&db).await, [1, 2, 3, 4]);
    assert_sound(&db).await;
}

/// F-021
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_a_writer_sees_what_is_always_there() {
    let (db, _proxy) = chaos(2, Network::ideal()).await;
    for n in 1..=10 {
        all_ok(vec![writes(&db, n), reads(&db)]).await;
    }
    assert_eq!(added(&db).await.len(), 10);
}

/// F-022
#[tokio::test]
async fn a_mixed_load_under_latency_all_succeeds() {
    let (db, _proxy) = chaos(3, latency(5)).await;
    all_ok(vec![reads(&db), writes(&db, 1), is_slow(&db)]).await;
    assert_sound(&db).await;
}

/// F-023
#[tokio::test]
async fn transactions_under_latency_commit() {
    let (db, _proxy) = chaos(3, latency(5)).await;
    all_ok((1..=3).map(|n| writes(&db, n)).collect()).await;
    assert_eq!(added(&db).await, [1, 2, 3]);
}

/// F-025
#[tokio::test]
async fn of_three_transactions_the_two_that_are_not_cancelled_commit() {
    for milliseconds in [0, 2, 10] {
        let (db, _proxy) = chaos(4, latency(2)).await;
        let (one, two, three) = (writes(&db, 1), writes(&db, 2), writes(&db, 3));
        let pause = tokio::time::timeout(
            Duration::from_millis(milliseconds),
            std::future::pending::<()>(),
        );
        assert!(pause.await.is_err());
        two.abort();
        let buckets = [bucket(one).await, bucket(two).await, bucket(three).await];
        assert_eq!((buckets[0], buckets[2]), (Bucket::Ok, Bucket::Ok));
        quiet(&db).await;
        let added = added(&db).await;
        match buckets[1] {
            Bucket::Ok => assert_eq!(added, [1, 2, 3]),
            // Dropped while it committed, it may have.
            _ => assert!(added == [1, 3] || added == [1, 2, 3], "{added:?}"),
        }
        assert_sound(&db).await;
    }
}

/// F-026
#[tokio::test]
async fn whatever_a_reset_hits_ends_in_one_bucket() {
    let (db, proxy) = chaos(3, latency(1)).await;
    let tasks = vec![writes(&db, 1), reads(&db), is_slow(&db)];
    all_busy(&db, &tasks).await;
    proxy.reset();
    for task in tasks {
        let ended = bucket(task).await;
        assert_ne!(ended, Bucket::Cancelled);
    }
    assert_sound(&db).await;
}

/// F-027
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_a_small_pool_loses_nothing() {
    let (db, _proxy) = chaos(4, Network::ideal()).await;
    let mut tasks: Vec<_> = (1..=3).map(|n| writes(&db, n)).collect();
    tasks.extend((0..3).map(|_| reads(&db)));
    all_ok(tasks).await;
    assert_eq!(added(&db).await, [1, 2, 3]);
    assert!(db.status().total <= 4);
}

/// F-028
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_and_a_reader_bear_any_weather() {
    for network in [latency(3), narrow(128 * 1024), choppy(7)] {
        let (db, _proxy) = chaos(3, network).await;
        all_ok(vec![writes(&db, 1), reads(&db)]).await;
        assert_eq!(added(&db).await, [1]);
    }
}

/// F-029
#[tokio::test]
async fn a_reset_of_a_full_pool_is_survived() {
    let (db, proxy) = chaos(4, latency(3)).await;
    for round in 0..5 {
        let tasks = vec![
            writes(&db, round),
            writes(&db, round),
            reads(&db),
            reads(&db),
        ];
        all_busy(&db, &tasks).await;
        proxy.reset();
        for task in tasks {
            assert_ne!(bucket(task).await, Bucket::Cancelled);
        }
    }
    assert_sound(&db).await;
}

/// F-031
#[tokio::test]
async fn more_tasks_than_places_under_permanent_resets_fail_in_turn() {
    let (db, proxy) = chaos(2, Network::ideal()).await;
    proxy.on_connect(OnConnect::Reset);
    proxy.reset();
    let tasks: Vec<_> = (0..8).map(|_| reads(&db)).collect();
    for task in tasks {
        assert_eq!(bucket(task).await, Bucket::Failed);
    }
    proxy.heal();
    assert_sound(&db).await;
}
