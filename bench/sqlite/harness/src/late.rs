//! How long the other tasks of the runtime have to wait.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine::{Engine, Session, sql};
use crate::reads::read;
use crate::{Ids, report};

const PERIOD: Duration = Duration::from_millis(1);
const SCAN: Duration = Duration::from_millis(200);
/// The approximate time of reading a row.
const READ: Duration = Duration::from_micros(4);
/// The time limit of every measurement.
const PATIENCE: Duration = Duration::from_secs(5);
/// Consecutive reads beside a task that always wants to run.
const READS: usize = 10_000;

/// A timer of 1 ms, while one task reads rows and another has a scan of 200 ms: first with a
/// statement that has been quick a hundred times, then with one that has never been run before.
pub(crate) async fn timer<E: Engine>(engine: &E) {
    let mut scanner = engine.reader().await;
    let limit = limit_for(&mut scanner, SCAN).await;
    let mut reader = engine.reader().await;
    let mut ids = Ids::new(2);
    for _ in 0..1_000 {
        read(&mut reader, &mut ids).await;
    }

    let over = Arc::new(AtomicBool::new(false));
    let ticking = tokio::spawn(worst_lateness(Arc::clone(&over)));
    let reads = Arc::new(AtomicU64::new(0));
    let (stop, count) = (Arc::clone(&over), Arc::clone(&reads));
    let reading = tokio::spawn(async move {
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
            read(&mut reader, &mut ids).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The timer and the reader have to run before the scan begins.
    tokio::time::sleep(20 * PERIOD).await;
    let before = reads.load(Ordering::Relaxed);
    let began = Instant::now();
    scanner.scan(sql::SCAN, limit).await;
    scanner.scan(&format!("{} -- new", sql::SCAN), limit).await;
    let took = began.elapsed();
    let meanwhile = reads.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);

    let worst = ticking.await.expect("the timer does not panic");
    reading.await.expect("the reader does not panic");
    report("late_us", worst.as_micros());
    report("scans_ms", took.as_millis());
    report("reads_meanwhile", meanwhile);
}

/// The same timer without a database, beside a task as busy as a reader and a thread as busy as a scan. Delays
/// here come from the machine.
pub(crate) async fn timer_without() {
    let over = Arc::new(AtomicBool::new(false));
    let ticking = tokio::spawn(worst_lateness(Arc::clone(&over)));
    let stop = Arc::clone(&over);
    let reading = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            as_busy_as_a_read().await;
        }
    });
    let scanning = tokio::task::spawn_blocking(|| spin_for(2 * SCAN));
    scanning.await.expect("it does not panic");
    over.store(true, Ordering::Relaxed);
    let worst = ticking.await.expect("the timer does not panic");
    reading.await.expect("it does not panic");
    report("late_us", worst.as_micros());
}

async fn as_busy_as_a_read() {
    spin_for(READ);
    tokio::task::yield_now().await;
}

fn spin_for(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        spin_loop();
    }
}

async fn worst_lateness(over: Arc<AtomicBool>) -> Duration {
    let mut worst = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let due = Instant::now() + PERIOD;
        tokio::time::sleep_until(due.into()).await;
        worst = worst.max(due.elapsed());
    }
    worst
}

/// Returns how many accounts a scan of this length has to visit. The statement has run quickly many times
/// afterwards.
async fn limit_for(session: &mut impl Session, time: Duration) -> i64 {
    const PROBE: i64 = 40;
    for _ in 0..100 {
        session.scan(sql::SCAN, 1).await;
    }
    let began = Instant::now();
    session.scan(sql::SCAN, PROBE).await;
    // Limited, so that one wrong reading of the clock does not cause a scan of hours.
    let times = time.as_micros() / began.elapsed().as_micros().max(1);
    PROBE * i64::try_from(times.clamp(1, 200)).expect("it is at most 200")
}

/// 10,000 consecutive reads in one task, beside a task that always wants to run.
pub(crate) async fn gap<E: Engine>(engine: &E) {
    let mut session = engine.reader().await;
    let mut ids = Ids::new(3);
    for _ in 0..1_000 {
        read(&mut session, &mut ids).await;
    }
    beside(async move {
        for _ in 0..READS {
            read(&mut session, &mut ids).await;
        }
    })
    .await;
}

/// The same without a database: the delays of the machine.
pub(crate) async fn gap_without() {
    beside(async {
        for _ in 0..READS {
            as_busy_as_a_read().await;
        }
    })
    .await;
}

/// Reports the longest time between two polls of a task that always wants to run, beside other work: in wall time,
/// and in the thread's CPU time.
async fn beside(work: impl Future<Output = ()> + Send + 'static) {
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let competing = tokio::spawn(async move {
        let (mut worst, mut worst_run) = (Duration::ZERO, Duration::ZERO);
        let mut turns = 0_u64;
        let mut last = (Instant::now(), thread_time());
        while !stop.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
            let now = (Instant::now(), thread_time());
            worst = worst.max(now.0 - last.0);
            worst_run = worst_run.max(now.1.saturating_sub(last.1));
            last = now;
            turns += 1;
        }
        (worst, worst_run, turns)
    });
    // The task has to have been polled once.
    tokio::task::yield_now().await;
    let worked = tokio::spawn(async move {
        work.await;
        over.store(true, Ordering::Relaxed);
    });
    let (worst, worst_run, turns) = competing.await.expect("it does not panic");
    worked.await.expect("nothing in it panics");
    report("gap_us", worst.as_micros());
    report("gap_run_us", worst_run.as_micros());
    report("turns", turns);
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    let run = clock_gettime(ClockId::ThreadCPUTime);
    run.try_into()
        .expect("no thread has run for less than no time")
}
