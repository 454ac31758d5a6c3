//! Reads that leave a lane, or end it: slow ones, cancelled ones, lost ones.

use std::time::Duration;

use cenote::{Connection, Db};

use super::{ECHO, begin_in_lane, finish, open_with, prove, read};
use crate::servers::{client, dsn, is_running, kill, quiet, soon, until};

const COUNT: &str = "SELECT count(*)::int4 FROM t WHERE n >= ?";

/// A handle with a table of its own, and one that locks it.
async fn open(max: usize) -> (Db, super::Clock, Db) {
    let dsn = client::own_schema(&dsn()).await;
    let (db, clock) = open_with(max, &dsn, |builder| builder).await;
    db.exec("CREATE TABLE t (n int4)", ()).await.unwrap();
    let other = Db::open(&dsn).await.unwrap();
    prove(&db, ECHO).await;
    prove(&db, COUNT).await;
    (db, clock, other)
}

/// Locks the table in a transaction.
async fn lock(other: &Db) -> Connection {
    let tx = other.connection().await.unwrap();
    tx.exec("BEGIN", ()).await.unwrap();
    tx.exec("LOCK TABLE t IN ACCESS EXCLUSIVE MODE", ())
        .await
        .unwrap();
    tx
}

/// Waits until a read waits for a lock, and returns its backend.
async fn blocked(other: &Db) -> i64 {
    let sql = "SELECT pid::int8 FROM pg_locks WHERE NOT granted AND relation = 't'::regclass";
    let mut found = None;
    until("a read waits for the lock", async || {
        found = other.query_scalar_opt::<i64>(sql, ()).await.unwrap();
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// A transaction holds a lock that the oldest read in the lane waits for, and its task then reads behind that one.
#[tokio::test]
async fn reads_behind_a_blocked_one_leave_after_ten_ms() {
    let (db, clock, other) = open(2).await;
    let tx = lock(&other).await;
    let reads = vec![read(&db, COUNT, 0), read(&db, ECHO, 1), read(&db, ECHO, 2)];
    let mut reads = begin_in_lane(&db, reads).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    blocked(&observer).await;
    assert!(reads[1].poll().is_pending(), "it waits behind the first");
    let before = db.timings();
    clock.advance(Duration::from_millis(11));
    // Without this, the transaction would wait for itself.
    assert_eq!(
        soon("a read that has left", finish(&mut reads[1]))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        soon("a read that has left", finish(&mut reads[2]))
            .await
            .unwrap(),
        2
    );
    assert!(reads[0].poll().is_pending(), "it waits for the lock");
    tx.exec("ROLLBACK", ()).await.unwrap();
    assert_eq!(
        soon("the first read", finish(&mut reads[0])).await.unwrap(),
        0
    );
    quiet(&db).await;
    let after = db.timings();
    assert_eq!(after.statements.count() - before.statements.count(), 3);
    assert_eq!(
        after.failed_statements.count(),
        before.failed_statements.count(),
        "a read that has left has not failed"
    );
}

/// The oldest read takes 8 ms, and the one behind it as well: nobody has to leave.
#[tokio::test]
async fn lane_that_makes_progress_sends_nobody_away() {
    let (db, clock, other) = open(2).await;
    let next = "SELECT count(*)::int4 FROM u WHERE n >= ?";
    db.exec("CREATE TABLE u (n int4)", ()).await.unwrap();
    prove(&db, next).await;
    let (first, second) = (lock(&other).await, other.connection().await.unwrap());
    second
        .exec("BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE", ())
        .await
        .unwrap();
    let before = db.shared_reads();
    let reads = vec![read(&db, COUNT, 0), read(&db, next, 0), read(&db, ECHO, 2)];
    let mut reads = begin_in_lane(&db, reads).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    blocked(&observer).await;
    clock.advance(Duration::from_millis(8));
    first.exec("ROLLBACK", ()).await.unwrap();
    soon("the first read", finish(&mut reads[0])).await.unwrap();
    clock.advance(Duration::from_millis(8));
    assert!(reads[2].poll().is_pending());
    second.exec("ROLLBACK", ()).await.unwrap();
    soon("the second read", finish(&mut reads[1]))
        .await
        .unwrap();
    let third = soon("the third read", finish(&mut reads[2])).await;
    assert_eq!(third.unwrap(), 2);
    drop(reads);
    quiet(&db).await;
    assert_eq!(db.shared_reads(), before + 3, "none ran elsewhere");
}

async fn other_dsn(other: &Db) -> String {
    let schema: String = other
        .query_scalar_one("SELECT current_schema()", ())
        .await
        .unwrap();
    crate::servers::dsn_with(&format!("search_path={schema}"))
}

#[tokio::test]
async fn slow_text_is_barred_from_lanes() {
    let (db, clock, other) = open(2).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    for _ in 0..4 {
        let tx = lock(&other).await;
        let mut reads = begin_in_lane(&db, vec![read(&db, COUNT, 0), read(&db, ECHO, 1)]).await;
        blocked(&observer).await;
        clock.advance(Duration::from_millis(6));
        tx.exec("ROLLBACK", ()).await.unwrap();
        for read in &mut reads {
            soon("a read", finish(read)).await.unwrap();
        }
        drop(reads);
        quiet(&db).await;
    }
    let before = db.shared_reads();
    let all = super::together(&db, (0..6).map(|_| read(&db, COUNT, 0)).collect()).await;
    all.into_iter()
        .for_each(|result| assert_eq!(result.unwrap(), 0));
    assert_eq!(db.shared_reads(), before);
}

#[tokio::test]
async fn blocked_read_that_is_dropped_alone_is_cancelled() {
    let (db, clock, other) = open(2).await;
    let tx = lock(&other).await;
    let mut reads = begin_in_lane(&db, vec![read(&db, COUNT, 0), read(&db, ECHO, 1)]).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    let pid = blocked(&observer).await;
    clock.advance(Duration::from_millis(11));
    soon("the second read", finish(&mut reads[1]))
        .await
        .unwrap();
    drop(reads);
    // The lock is still held, so only a cancel ends the read.
    soon("the connection is back", quiet(&db)).await;
    assert_eq!(db.status().total, 2);
    let alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?::int4";
    assert_eq!(
        observer
            .query_scalar_one::<i64>(alive, (pid,))
            .await
            .unwrap(),
        1
    );
    tx.exec("ROLLBACK", ()).await.unwrap();
}

#[tokio::test]
async fn drop_of_a_read_cancels_no_other_one() {
    let (db, _, other) = open(1).await;
    let tx = lock(&other).await;
    let mut reads = begin_in_lane(&db, vec![read(&db, COUNT, 0), read(&db, ECHO, 1)]).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    let pid = blocked(&observer).await;
    drop(reads.pop());
    // A cancel would be sent within 2 ms. Several round trips take longer.
    for _ in 0..50 {
        is_running(&observer, pid, "SELECT count").await;
        tokio::task::yield_now().await;
    }
    tx.exec("ROLLBACK", ()).await.unwrap();
    assert_eq!(
        soon("the first read", finish(&mut reads[0])).await.unwrap(),
        0
    );
}

#[tokio::test]
async fn lost_lane_fails_its_oldest_read_only() {
    let (db, _, other) = open(1).await;
    let tx = lock(&other).await;
    let reads = vec![read(&db, COUNT, 0), read(&db, ECHO, 1), read(&db, ECHO, 2)];
    let mut reads = begin_in_lane(&db, reads).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    let pid = blocked(&observer).await;
    kill(&observer, pid).await;
    let lost = soon("the first read", finish(&mut reads[0]))
        .await
        .unwrap_err();
    crate::servers::assert_killed(&lost);
    for (n, read) in (1..).zip(&mut reads[1..]) {
        assert_eq!(soon("a read", finish(read)).await.unwrap(), n);
    }
    tx.exec("ROLLBACK", ()).await.unwrap();
}

#[tokio::test]
async fn time_limit_ends_the_wait_of_one_read() {
    let dsn = client::own_schema(&dsn()).await;
    let limit = Duration::from_millis(5);
    let (db, clock) = open_with(2, &dsn, |builder| builder.statement_timeout(limit)).await;
    db.exec("CREATE TABLE t (n int4)", ()).await.unwrap();
    let other = Db::open(&dsn).await.unwrap();
    prove(&db, ECHO).await;
    prove(&db, COUNT).await;
    let tx = lock(&other).await;
    let mut reads = begin_in_lane(&db, vec![read(&db, COUNT, 0), read(&db, ECHO, 1)]).await;
    let observer = Db::open(&other_dsn(&other).await).await.unwrap();
    blocked(&observer).await;
    clock.advance(Duration::from_millis(6));
    for read in &mut reads {
        let late = soon("a read", finish(read)).await.unwrap_err();
        assert_eq!(late.kind(), cenote::Kind::StatementTimeout);
    }
    drop(reads);
    soon("the connection is back", quiet(&db)).await;
    tx.exec("ROLLBACK", ()).await.unwrap();
}
