//! Reads of several tasks on one connection.

mod attacks;
mod clock;
mod leaving;
mod rules;
mod scripted;
mod sharing;

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use cenote::pool::Lease;
use cenote::{Builder, ConnectionManager, Db, Result};
use cenote_testkit::poll::Hand;

use self::clock::Clock;
use crate::servers::{dsn, soon};

/// A read that returns its parameter.
const ECHO: &str = "SELECT ?::int4";

/// A read with an error of its own for zero.
const DIVIDE: &str = "SELECT 12 / ?::int4";

/// A handle that shares its connections, by a clock that the test moves.
async fn open(max: usize) -> (Db, Clock) {
    open_with(max, &dsn(), |builder| builder).await
}

async fn open_with(
    max: usize,
    dsn: &str,
    describe: impl FnOnce(Builder) -> Builder,
) -> (Db, Clock) {
    let clock = Clock::new();
    let builder = Db::builder(dsn).max(max).share_connections(true);
    let db = describe(builder).runtime(clock.clone()).open().await;
    (db.unwrap(), clock)
}

/// Runs a text until it is proven to be short. The clock stands still, so that every run is.
async fn prove(db: &Db, sql: &str) {
    for _ in 0..16 {
        db.query(sql, (1,)).await.unwrap();
    }
}

type Reading<'a> = Pin<Box<dyn Future<Output = Result<i32>> + Send + 'a>>;

fn read<'a>(db: &'a Db, sql: &'a str, n: i32) -> Reading<'a> {
    Box::pin(db.query_scalar_one(sql, (n,)))
}

/// Takes all connections.
async fn take_all(db: &Db) -> Vec<Lease<'_, ConnectionManager>> {
    let mut held = Vec::new();
    for _ in 0..db.status().max {
        let lease = soon("a connection", db.pool().unwrap().acquire()).await;
        held.push(lease.unwrap());
    }
    held
}

fn begin<'a>(reads: Vec<Reading<'a>>) -> Vec<Hand<Reading<'a>>> {
    let mut reads: Vec<_> = reads.into_iter().map(Hand::new).collect();
    for read in &mut reads {
        assert!(read.poll().is_pending(), "no connection is idle");
    }
    reads
}

/// Begins reads while all connections are taken, and then releases the connections.
async fn begin_together<'a>(db: &'a Db, reads: Vec<Reading<'a>>) -> Vec<Hand<Reading<'a>>> {
    let held = take_all(db).await;
    let reads = begin(reads);
    drop(held);
    reads
}

/// Begins reads in one lane. None is answered yet: the drainer runs when the test waits.
async fn begin_in_lane<'a>(db: &'a Db, reads: Vec<Reading<'a>>) -> Vec<Hand<Reading<'a>>> {
    let mut held = take_all(db).await;
    let mut reads = begin(reads);
    held.pop();
    soon("all are in one lane", async {
        while db
            .holders()
            .iter()
            .all(|holder| holder.shared_by < reads.len())
        {
            tokio::task::yield_now().await;
            for read in &mut reads {
                assert!(read.poll().is_pending());
            }
        }
    })
    .await;
    reads
}

/// Polls calls whenever the executor has run the other tasks, until all are answered.
async fn finish_all<F: Future>(calls: &mut [Hand<F>]) -> Vec<F::Output> {
    let mut results: Vec<_> = calls.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        for (call, result) in calls.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(done) = call.poll()
            {
                *result = Some(done);
            }
        }
        tokio::task::yield_now().await;
    }
    results.into_iter().flatten().collect()
}

/// Runs reads that wait for one connection.
async fn together<'a>(db: &'a Db, reads: Vec<Reading<'a>>) -> Vec<Result<i32>> {
    let mut reads = begin_together(db, reads).await;
    soon("all reads", finish_all(&mut reads)).await
}

/// Polls a call whenever the executor has run the other tasks.
async fn finish<F: Future>(call: &mut Hand<F>) -> F::Output {
    loop {
        if let Poll::Ready(output) = call.poll() {
            return output;
        }
        tokio::task::yield_now().await;
    }
}
