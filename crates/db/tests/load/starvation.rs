//! Ten thousand tasks on all threads, without a connection in their hands: nobody starves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use cenote::{Db, Result};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::figures::{Latencies, MEGABYTE, alone, growth, length, memory};
use crate::servers::{dsn, eager, quiet};

const TASKS: usize = 10_000;
const CONNECTIONS: usize = 10;

/// As a request would: some calls alone, some in a transaction.
async fn work(db: &Db, turn: u32) -> Result<()> {
    if turn.is_multiple_of(4) {
        db.transaction(async || {
            db.query("SELECT ?::int8", (1,)).await?;
            db.query("SELECT ?::int8", (2,)).await?;
            Ok(())
        })
        .await
    } else {
        db.query("SELECT ?::int8", (3,)).await.map(drop)
    }
}

async fn live(db: Db, until: Instant, turns: Arc<AtomicU32>) -> Vec<Duration> {
    let mut times = Vec::new();
    while Instant::now() < until {
        let came = Instant::now();
        let turn = turns.fetch_add(1, Relaxed);
        work(&db, turn).await.unwrap();
        times.push(came.elapsed());
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_thousand_tasks_none_starves_and_memory_stays_flat() {
    let _alone = alone().await;
    let length = length(Duration::from_secs(6));
    let db = Db::builder(&dsn())
        .max(CONNECTIONS)
        .acquire_timeout(None)
        .open()
        .await
        .unwrap();
    let until = Instant::now() + length;
    let turns: Vec<Arc<AtomicU32>> = std::iter::repeat_with(Arc::default).take(TASKS).collect();
    let mut tasks = JoinSet::new();
    for turn in &turns {
        tasks.spawn(live(db.clone(), until, Arc::clone(turn)));
    }
    tokio::time::sleep_until(until - length / 2).await;
    let before = memory();
    tokio::time::sleep_until(until).await;
    let after = memory();
    let mut times = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        times.extend(ended.unwrap());
    }
    let turns: Vec<u32> = turns.iter().map(|turns| turns.load(Relaxed)).collect();
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    // A transaction takes longer than a call, but each waits for its place once. Reads that share connections wait for no transaction,
    // so the three between two transactions may make a difference.
    let apart = if eager::is_asked_for() { 2 + 3 } else { 2 };
    assert!(
        *least > 0 && most - least <= apart,
        "{least} to {most} turns"
    );
    let grown = growth(before, after);
    assert!(grown < 16 * MEGABYTE, "{} MB more", grown / MEGABYTE);
    quiet(&db).await;
    let latencies = Latencies::new(times);
    println!(
        "{TASKS} tasks on {CONNECTIONS} connections and 2 threads for {length:?}: {least} to {most} \
         turns each, {} KB more memory; {latencies}",
        grown / 1024
    );
}
