//! Many tasks that write at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Failure, Session};
use crate::reads::read;
use crate::{Ids, report};

/// The operation that every task repeats.
#[derive(Clone, Copy)]
enum Operation {
    /// Changes one row.
    Write,
    /// Changes two rows in a transaction.
    Transfer,
    /// Reads one row while other tasks write.
    Read,
}

impl Operation {
    async fn done(self, session: &mut impl Session, ids: &mut Ids) -> Result<(), Failure> {
        match self {
            Operation::Write => session.write(ids.next()).await,
            Operation::Transfer => session.transfer(ids.next(), ids.next()).await,
            Operation::Read => {
                read(session, ids).await;
                Ok(())
            }
        }
    }
}

/// A task counts as starved if it had no turn while every task could have had this many.
const TURNS: usize = 5;

/// The phases of a measurement.
const WARMING: u8 = 0;
const COUNTED: u8 = 1;
const OVER: u8 = 2;

/// What all tasks share.
struct Watch {
    phase: AtomicU8,
    done: AtomicUsize,
}

impl Watch {
    fn new() -> Self {
        Watch {
            phase: AtomicU8::new(WARMING),
            done: AtomicUsize::new(0),
        }
    }

    /// Counts for this time, or longer if the disk is slow. Blocks.
    fn run(&self, writers: usize, time: Duration) -> Duration {
        std::thread::sleep(time / 4);
        self.phase.store(COUNTED, Ordering::Relaxed);
        let began = Instant::now();
        std::thread::sleep(time);
        let enough = || self.done.load(Ordering::Relaxed) >= TURNS * writers;
        while !enough() && began.elapsed() < 10 * time {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.phase.store(OVER, Ordering::Relaxed);
        began.elapsed()
    }
}

/// The result of one task.
struct Tally {
    done: u64,
    slowest: Duration,
    failures: Vec<String>,
}

pub(crate) async fn writes<E: Engine>(engine: &E, writers: usize, time: Duration) {
    crowd(engine, writers, time, Operation::Write).await;
}

pub(crate) async fn transfers<E: Engine>(engine: &E, writers: usize, time: Duration) {
    crowd(engine, writers, time, Operation::Transfer).await;
}

/// One task reads while the others write; in WAL mode writers do not block it.
pub(crate) async fn reads_beside<E: Engine>(engine: &E, writers: usize, time: Duration) {
    let watch = Arc::new(Watch::new());
    let reader = engine.reader().await;
    let reading = one(reader, Ids::new(4), Operation::Read, Arc::clone(&watch));
    let reading = tokio::spawn(reading);
    let writing = crowd_watched(engine, writers, time, Operation::Transfer, watch);
    let took = writing.await;
    let tally = reading.await.expect("the reader does not panic");
    report("reads", per_second(tally.done, took));
    report("slowest_read_us", tally.slowest.as_micros());
}

async fn crowd<E: Engine>(engine: &E, writers: usize, time: Duration, operation: Operation) {
    crowd_watched(engine, writers, time, operation, Arc::new(Watch::new())).await;
}

fn per_second(done: u64, took: Duration) -> u128 {
    u128::from(done) * 1_000_000_000 / took.as_nanos()
}

/// Returns how long was counted.
async fn crowd_watched<E: Engine>(
    engine: &E,
    writers: usize,
    time: Duration,
    operation: Operation,
    watch: Arc<Watch>,
) -> Duration {
    let mut tasks = Vec::with_capacity(writers);
    for seed in (10..).take(writers) {
        let session = engine.writer().await;
        let ids = Ids::new(seed);
        tasks.push(tokio::spawn(one(
            session,
            ids,
            operation,
            Arc::clone(&watch),
        )));
    }
    // On a thread of its own: an engine may block the runtime's threads and so their timers.
    let clock = tokio::task::spawn_blocking(move || watch.run(writers, time));
    let took = clock.await.expect("the clock does not panic");
    let mut tallies = Vec::with_capacity(writers);
    for task in tasks {
        tallies.push(task.await.expect("no writer panics"));
    }

    let done: u64 = tallies.iter().map(|tally| tally.done).sum();
    let slowest = tallies.iter().map(|tally| tally.slowest).max();
    let failures: Vec<&String> = tallies.iter().flat_map(|tally| &tally.failures).collect();
    if let Some(first) = failures.first() {
        eprintln!("first of {} errors: {first}", failures.len());
    }
    report("per_second", per_second(done, took));
    report("errors", failures.len());
    report(
        "starved",
        tallies.iter().filter(|tally| tally.done == 0).count(),
    );
    report("slowest_ms", slowest.unwrap_or_default().as_millis());
    took
}

/// Counts the operations that end in the counting phase, and errors in all phases.
async fn one(
    mut session: impl Session,
    mut ids: Ids,
    operation: Operation,
    watch: Arc<Watch>,
) -> Tally {
    let mut tally = Tally {
        done: 0,
        slowest: Duration::ZERO,
        failures: Vec::new(),
    };
    loop {
        let began = Instant::now();
        let result = operation.done(&mut session, &mut ids).await;
        match watch.phase.load(Ordering::Relaxed) {
            WARMING => {}
            COUNTED => {
                tally.done += u64::from(result.is_ok());
                if !matches!(operation, Operation::Read) {
                    watch.done.fetch_add(1, Ordering::Relaxed);
                }
                tally.slowest = tally.slowest.max(began.elapsed());
            }
            _ => {
                tally
                    .failures
                    .extend(result.err().map(|error| error.to_string()));
                return tally;
            }
        }
        tally
            .failures
            .extend(result.err().map(|error| error.to_string()));
    }
}
