//! Reads after writes, with a replica that is late all the time and stands still at times.

use super::{FOREVER, Pair, is_replica, read, write};
use crate::servers::replicas;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_the_writes_of_their_coroutine() {
    let pair = Pair::start(&["recovery_min_apply_delay=20ms"]).await;
    replicas::reads_see_the_writes(&pair).await;
}

#[tokio::test]
async fn read_waits_for_the_replica_that_is_late() {
    let pair = Pair::start(&["recovery_min_apply_delay=100ms"]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    cenote::scope(async {
        for n in 1..=3 {
            write(&db, 1).await;
            assert_eq!(read(&db, 1).await, (n, true));
        }
    })
    .await;
}

#[tokio::test]
async fn read_behind_a_paused_replica_goes_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        // Nothing was written in this coroutine.
        assert!(read(&db, 1).await.1);
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    // Another coroutine needs nothing of this one.
    assert_eq!(cenote::scope(read(&db, 1)).await, (0, true));
}

#[tokio::test]
async fn replica_that_lags_too_far_gets_no_reads() {
    replicas::lagging_replica_gets_no_reads(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn spawned_coroutine_begins_with_its_parents_writes() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        write(&db, 1).await;
        let child = db.clone();
        let child = cenote::spawn(async move { read(&child, 1).await });
        assert_eq!(child.await.unwrap(), (1, false));
    })
    .await;
    assert!(is_replica(&db.reading()).await);
}

#[tokio::test]
async fn coroutine_sees_what_was_written_after_it_was_made() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        let child = cenote::scope(read(&db, 1));
        let hosted = cenote::Coroutine::new();
        write(&db, 1).await;
        assert_eq!(child.await, (1, false));
        hosted.enter(|| assert!(db.position().is_some()));
    })
    .await;
}

#[tokio::test]
async fn coroutine_sees_the_writes_of_one_that_it_awaits() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        cenote::scope(write(&db, 1)).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn writer_sees_what_another_coroutine_commits_for_it() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        write(&db, 1).await;
        cenote::spawn(tx.commit()).await.unwrap().unwrap();
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn read_sees_a_write_whose_plan_was_stale() {
    let pair = Pair::start(&[]).await;
    // With one connection, which has the plan.
    let db = pair.open_with(|builder| builder.max(1)).await;
    let write = async || {
        let sql = "UPDATE t SET n = n + 1 WHERE id = ? RETURNING *";
        db.query(sql, (1_i64,)).await.unwrap();
    };
    cenote::scope(async {
        for _ in 0..3 {
            write().await;
        }
        // The plan has other columns now, and the replica lacks nothing.
        let add = "ALTER TABLE t ADD COLUMN added int8";
        pair.at_primary.exec(add, ()).await.unwrap();
        pair.catch_up().await;
        pair.pause().await;
        write().await;
        assert_eq!(read(&db, 1).await, (4, false));
    })
    .await;
}

/// Writes so many bytes that the server cannot end it before they are read.
const LARGE: &str = "INSERT INTO t SELECT 1000 + id, id FROM generate_series(1, 20000) id RETURNING repeat('x', 1000)";

/// Writes beside a stream that writes, and reads after its end.
async fn write_beside_a_stream(copies: bool) {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let end_of_writing = async |pair: &Pair| {
        write(&db, 1).await;
        // It has not committed yet.
        assert_eq!(read(&db, 1).await, (1, false));
        pair.catch_up().await;
        pair.pause().await;
    };
    cenote::scope(async {
        if copies {
            let sql = format!("COPY ({LARGE}) TO STDOUT");
            let mut copy = db.copy_out(&sql).await.unwrap();
            end_of_writing(&pair).await;
            while copy.try_next().await.unwrap().is_some() {}
        } else {
            let mut rows = db.stream(LARGE, ()).await.unwrap();
            end_of_writing(&pair).await;
            while rows.try_next().await.unwrap().is_some() {}
        }
        let sql = "SELECT count(*), pg_is_in_recovery() FROM t";
        let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
        assert_eq!(seen, (20_100, false));
        pair.resume().await;
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (2, true));
    })
    .await;
}

#[tokio::test]
async fn write_beside_a_stream_does_not_cover_it() {
    write_beside_a_stream(false).await;
}

#[tokio::test]
async fn write_beside_a_copy_of_rows_does_not_cover_it() {
    write_beside_a_stream(true).await;
}
