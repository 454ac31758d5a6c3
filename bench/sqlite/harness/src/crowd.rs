//! Many tasks that write at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Failure, Session};
use crate::reads::read;
use crate::{Ids, report};

/// What every task does again and again.
#[derive(Clone, Copy)]
enum Deed {
    /// One row changed, by itself.
    Write,
    /// Two rows changed in a transaction.
    Transfer,
    /// One row read, beside those who write.
    Read,
}

impl Deed {
    async fn done(self, session: &mut impl Session, ids: &mut Ids) -> Result<(), Failure> {
        match self {
            Deed::Write => session.write(ids.next()).await,
            Deed::Transfer => session.transfer(ids.next(), ids.next()).await,
            Deed::Read => {
                read(session, ids).await;
                Ok(())
            }
        }
    }
}

/// So often everybody could have had a turn, before one that had none counts as left out.
const TURNS: usize = 5;

/// The phases of a measurement.
const WARMING: u8 = 0;
const COUNTED: u8 = 1;
const OVER: u8 = 2;

/// What all tasks look at.
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

    /// Counts for so long, and longer if the disk is slow. Blocks.
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

/// What one task has to tell.
struct Tally {
    done: u64,
    slowest: Duration,
    failures: Vec<String>,
}

pub(crate) async fn writes<E: Engine>(engine: &E, writers: usize, time: Duration) {
    crowd(engine, writers, time, Deed::Write).await;
}

pub(crate) async fn transfers<E: Engine>(engine: &E, writers: usize, time: Duration) {
    crowd(engine, writers, time, Deed::Transfer).await;
}

/// One task reads while the others write, which in WAL are not in its way.
pub(crate) async fn reads_beside<E: Engine>(engine: &E, writers: usize, time: Duration) {
    let watch = Arc::new(Watch::new());
    let reader = engine.reader().await;
    let reading = one(reader, Ids::new(4), Deed::Read, Arc::clone(&watch));
    let reading = tokio::spawn(reading);
    let writing = crowd_watched(engine, writers, time, Deed::Transfer, watch);
    let took = writing.await;
    let tally = reading.await.expect("the reader does not panic");
    report("reads", per_second(tally.done, took));
    report("slowest_read_us", tally.slowest.as_micros());
}

async fn crowd<E: Engine>(engine: &E, writers: usize, time: Duration, deed: Deed) {
    crowd_watched(engine, writers, time, deed, Arc::new(Watch::new())).await;
}

fn per_second(done: u64, took: Duration) -> u128 {
    u128::from(done) * 1_000_000_000 / took.as_nanos()
}

/// Says how long was counted.
async fn crowd_watched<E: Engine>(
    engine: &E,
    writers: usize,
    time: Duration,
    deed: Deed,
    watch: Arc<Watch>,
) -> Duration {
    let mut tasks = Vec::with_capacity(writers);
    for seed in (10..).take(writers) {
        let session = engine.writer().await;
        let ids = Ids::new(seed);
        tasks.push(tokio::spawn(one(session, ids, deed, Arc::clone(&watch))));
    }
    // On a thread of its own: an engine may keep the runtime's from their timers.
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

/// Counts what ended while it counts; errors at any time.
async fn one(mut session: impl Session, mut ids: Ids, deed: Deed, watch: Arc<Watch>) -> Tally {
    let mut tally = Tally {
        done: 0,
        slowest: Duration::ZERO,
        failures: Vec::new(),
    };
    loop {
        let began = Instant::now();
        let result = deed.done(&mut session, &mut ids).await;
        match watch.phase.load(Ordering::Relaxed) {
            WARMING => {}
            COUNTED => {
                tally.done += u64::from(result.is_ok());
                if !matches!(deed, Deed::Read) {
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
