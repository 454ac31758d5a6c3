//! Programs that treat shared reads badly: they shut the runtime down, close the handle, forget futures and move them.

use std::mem::ManuallyDrop;
use std::task::Poll;
use std::time::Duration;

use cenote::pool::{BreakerState, ConsecutiveFailures};
use cenote::{Db, Kind};
use cenote_testkit::poll::{Hand, poll_once};

use super::rules::stream_of_reads;
use super::{
    ECHO, begin, begin_in_lane, finish, finish_all, open, open_with, prove, read, take_all,
};
use crate::servers::{PATIENCE, dsn, quiet, soon, until};

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// The reads outlive the runtime that drives their connection.
#[test]
fn reads_survive_the_shutdown_of_the_runtime_of_their_lane() {
    let (one, other) = (runtime(), runtime());
    let (db, _clock) = one.block_on(open(2));
    let mut reads = one.block_on(async {
        prove(&db, ECHO).await;
        begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await
    });
    drop(one);
    other.block_on(async {
        for (n, result) in (0..).zip(soon("all reads", finish_all(&mut reads)).await) {
            assert_eq!(result.unwrap(), n);
        }
        drop(reads);
        quiet(&db).await;
    });
}

/// 32 reads are in flight, and 20 wait.
#[tokio::test]
async fn close_answers_or_refuses_each_read_of_a_full_lane() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let mut held = take_all(&db).await;
    let mut reads = begin((0..52).map(|n| read(&db, ECHO, n)).collect());
    held.pop();
    // The first read opens the lane, and 31 others fill it.
    while db.holders().iter().all(|holder| holder.shared_by < 32) {
        for read in &mut reads {
            assert!(read.poll().is_pending());
        }
        tokio::task::yield_now().await;
    }
    let mut closing = Hand::new(Box::pin(db.close()));
    let _ = closing.poll();
    let results = soon("all reads", finish_all(&mut reads)).await;
    let (mut answered, mut refused) = (0, 0);
    for (n, result) in (0..).zip(results) {
        match result {
            Ok(answer) => {
                assert_eq!(answer, n);
                answered += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::Closed, "{error:?}");
                refused += 1;
            }
        }
    }
    assert_eq!((answered, refused), (32, 20));
    drop((reads, closing));
    let drained = soon("the connection is gone", db.close_and_drain(PATIENCE));
    drained.await.unwrap();
}

/// A read waits in the pool's queue, and is then neither polled nor dropped.
#[tokio::test]
async fn forgotten_read_in_the_queue_delays_nobody_for_long() {
    let (db, clock) = open(1).await;
    prove(&db, ECHO).await;
    let held = take_all(&db).await;
    let mut forgotten = ManuallyDrop::new(read(&db, ECHO, 0));
    assert!(poll_once(forgotten.as_mut()).is_pending());
    let mut reads = begin((1..5).map(|n| read(&db, ECHO, n)).collect());
    drop(held);
    // The pool revokes what it has reserved for the forgotten read.
    let mut left: Vec<_> = (1..).zip(&mut reads).collect();
    until("all reads are answered", async || {
        clock.advance(Duration::from_millis(10));
        left.retain_mut(|(n, read)| match read.poll() {
            Poll::Ready(answer) => {
                assert_eq!(answer.unwrap(), *n);
                false
            }
            Poll::Pending => true,
        });
        left.is_empty()
    })
    .await;
    // It still counts as a read that could share, so a lane is not closed for the transaction before it is a second old.
    let mut reading = stream_of_reads(&db);
    until("reads share connections", async || db.shared_reads() > 50).await;
    let run = db.transaction(async || db.query_scalar_one::<i32>(ECHO, (7,)).await);
    let mut run = Hand::new(Box::pin(run));
    assert!(run.poll().is_pending());
    clock.advance(Duration::from_millis(1001));
    assert_eq!(soon("a transaction", finish(&mut run)).await.unwrap(), 7);
    reading.shutdown().await;
}

#[allow(
    clippy::disallowed_methods,
    reason = "another task is what this is about"
)]
#[tokio::test]
async fn read_that_moves_to_another_task_is_woken_there() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let held = take_all(&db).await;
    let handle: &'static Db = Box::leak(Box::new(db.clone()));
    let mut reads: Vec<_> = (0..6).map(|n| read(handle, ECHO, n)).collect();
    for read in &mut reads {
        assert!(poll_once(read.as_mut()).is_pending());
    }
    drop(held);
    // Once more in this task, so that they are in a lane.
    for read in &mut reads {
        let _ = poll_once(read.as_mut());
    }
    for (n, read) in (0..).zip(reads) {
        let answer = tokio::spawn(read).await.unwrap();
        assert_eq!(answer.unwrap(), n);
    }
    assert!(db.shared_reads() > 1);
}

/// The breaker opens while reads are in flight: they are answered, and the connection does not stay shared.
#[tokio::test]
async fn open_breaker_ends_lanes_and_fails_no_read_in_flight() {
    let breaker = |builder: cenote::Builder| builder.breaker(ConsecutiveFailures::new(1000));
    let (db, _) = open_with(1, &dsn(), breaker).await;
    prove(&db, ECHO).await;
    let mut reads = begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await;
    let pool = db.pool().unwrap();
    pool.open_breaker();
    for (n, result) in (0..).zip(soon("all reads", finish_all(&mut reads)).await) {
        assert_eq!(result.unwrap(), n);
    }
    drop(reads);
    quiet(&db).await;
    let refused = read(&db, ECHO, 1).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unavailable, "{refused:?}");
    assert_eq!(pool.breaker(), BreakerState::Open);
    pool.close_breaker();
    let mut again = Hand::new(read(&db, ECHO, 2));
    assert_eq!(soon("a read", finish(&mut again)).await.unwrap(), 2);
}

/// Reads of one runtime that wait hold up none of another one, whose lane has room.
#[test]
fn waiting_reads_of_another_runtime_block_no_lane() {
    let (one, other) = (runtime(), runtime());
    let (db, _clock) = one.block_on(open(1));
    let mut reads = one.block_on(async {
        prove(&db, ECHO).await;
        begin_in_lane(&db, (0..2).map(|n| read(&db, ECHO, n)).collect()).await
    });
    let mut waiting = Hand::new(read(&db, ECHO, 9));
    other.block_on(async { assert!(waiting.poll().is_pending()) });
    one.block_on(async {
        reads.extend(begin(vec![read(&db, ECHO, 2)]));
        assert_eq!(db.holders()[0].shared_by, 3, "it has joined at once");
        for (n, result) in (0..).zip(soon("all reads", finish_all(&mut reads)).await) {
            assert_eq!(result.unwrap(), n);
        }
    });
    // The connection depends on it, and nobody drives it any more.
    drop((reads, one));
    let answer = other.block_on(soon("the read of the other runtime", finish(&mut waiting)));
    assert_eq!(answer.unwrap(), 9);
}
