//! One client, one server, and a bad network between them.

use std::time::Duration;

use cenote::Db;
use cenote_testkit::proxy::Network;

use crate::servers::network::{choppy, narrow};
use crate::servers::{dsn, is_running, lock_all, quiet, session_id, sleep, soon, until};

use super::chaos::{
    Bucket, all_busy, all_ok, assert_sound, bucket, chaos, is_slow, latency, reads, writes,
};

/// F-040, F-041, F-042, F-043, F-051
#[tokio::test]
async fn five_rows_come_through_any_weather() {
    let all_at_once = Network {
        delay: Duration::from_millis(3),
        bandwidth: Some(128 * 1024),
        slice: Some(13),
        ..Network::ideal()
    };
    for network in [
        Network::ideal(),
        latency(1),
        latency(5),
        latency(20),
        narrow(64 * 1024),
        choppy(1),
        choppy(64),
        choppy(512),
        all_at_once,
    ] {
        let (db, proxy) = chaos(1, network).await;
        all_ok(vec![reads(&db)]).await;
        all_ok(vec![reads(&db)]).await;
        assert!(proxy.traffic().to_client > 0);
    }
}

/// F-044
#[tokio::test]
async fn a_reset_in_the_middle_of_a_query_is_one_clean_failure() {
    let (db, proxy) = chaos(1, Network::ideal()).await;
    let admin = Db::open(&dsn()).await.unwrap();
    let process = session_id(&db).await;
    let inner = db.clone();
    let slow = cenote::spawn(async move { inner.query(&sleep(600.0), ()).await.map(drop) });
    is_running(&admin, process, &sleep(600.0)).await;
    proxy.reset();
    assert_eq!(bucket(slow).await, Bucket::Failed);
    assert_sound(&db).await;
}

/// F-045
#[tokio::test]
async fn a_query_that_is_dropped_at_any_time_leaves_nothing_behind() {
    let (db, _proxy) = chaos(1, latency(1)).await;
    for milliseconds in [0, 1, 5, 50, 250, 900] {
        let slow = is_slow(&db);
        let abort = slow.abort_handle();
        let waited = tokio::time::timeout(Duration::from_millis(milliseconds), slow).await;
        match waited {
            Ok(ended) => assert!(ended.unwrap().is_ok()),
            Err(_) => abort.abort(),
        }
        let next: i64 = soon("the next one runs", db.query_as_one("SELECT 7", ()))
            .await
            .unwrap();
        assert_eq!(next, 7, "and gets its own answer");
    }
    assert_sound(&db).await;
}

/// F-046, F-047
#[tokio::test]
async fn tasks_that_share_a_handle_all_get_their_rows() {
    for (max, tasks, network) in [(4, 4, Network::ideal()), (3, 3, latency(5))] {
        let (db, _proxy) = chaos(max, network).await;
        all_ok((0..tasks).map(|_| reads(&db)).collect()).await;
        quiet(&db).await;
        assert!(db.status().total <= max);
    }
}

/// F-048
#[tokio::test]
async fn every_task_ends_and_the_handle_closes_after_a_server_hang_up() {
    let (db, proxy) = chaos(4, latency(2)).await;
    let tasks = vec![reads(&db), is_slow(&db), is_slow(&db)];
    all_busy(&db, &tasks).await;
    proxy.reset();
    for task in tasks {
        assert_ne!(bucket(task).await, Bucket::Cancelled);
    }
    soon("it closes", db.close()).await.unwrap();
    // A connection that a background check holds is closed when the check ends.
    until("no connection is left", async || db.status().total == 0).await;
}

/// F-049
#[tokio::test]
async fn a_transaction_under_latency_commits() {
    let (db, _proxy) = chaos(1, latency(5)).await;
    all_ok(vec![writes(&db, 1)]).await;
    assert_sound(&db).await;
}

/// F-050
#[tokio::test]
async fn reset_inside_a_transaction_rolls_it_back_and_frees_its_place() {
    let (db, proxy) = chaos(2, Network::ideal()).await;
    let inner = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let transaction = cenote::spawn(async move {
        let tx = inner.begin().await?;
        tx.exec("INSERT INTO t (n) VALUES (77)", ()).await?;
        tell.send(()).unwrap();
        may_go_on.await.unwrap();
        tx.exec("INSERT INTO t (n) VALUES (78)", ()).await?;
        tx.commit().await
    });
    told.await.unwrap();
    let tasks = [transaction, is_slow(&db)];
    all_busy(&db, &tasks).await;
    let [transaction, slow] = tasks;
    proxy.reset();
    go_on.send(()).unwrap();
    assert_eq!(bucket(transaction).await, Bucket::Failed);
    assert_ne!(bucket(slow).await, Bucket::Cancelled);
    quiet(&db).await;
    let sql = "SELECT count(*) FROM t WHERE n > 70";
    let left: i64 = db.query_as_one(sql, ()).await.unwrap();
    assert_eq!(left, 0);
    until("no lock of it is left", async || {
        lock_all(&db).await.is_ok()
    })
    .await;
    assert_sound(&db).await;
}
