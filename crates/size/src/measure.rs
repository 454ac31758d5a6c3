//! One measurement: clients execute the workload through a pool of one size, for a moment to warm up and then for the
//! window that counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cenote::pool::Histogram;
use cenote::{Db, Kind, Result};
use fastrand::Rng;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until, timeout};

use crate::cpu::Cpu;
use crate::limit::{Activity, Evidence};
use crate::scheduled::Scheduled;
use crate::server::{Counters, Dialect};
use crate::session::explained;
use crate::words;
use crate::workload::{Drawn, Operation, Workload};

/// How often pool and server are looked at.
const LOOK: Duration = Duration::from_millis(25);
const LOOK_AT_SERVER: Duration = Duration::from_millis(100);
/// How long opening all connections may take.
const OPENING: Duration = Duration::from_secs(5);
/// So many looks in a row that show no need for more connections are enough.
const ENOUGH_LOOKS: usize = 10;
/// How long running statements may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// Percentiles of durations, in milliseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Times {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Times {
    fn of(histogram: &Histogram) -> Self {
        let at = |share| histogram.quantile(share).as_secs_f64() * 1_000.0;
        Times {
            p50: at(0.5),
            p99: at(0.99),
        }
    }
}

/// What was measured with one size of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The maximum number of connections.
    pub size: usize,
    /// Operations a second.
    pub throughput: f64,
    /// Operations that failed.
    pub failed: u64,
    /// Operations that succeeded.
    pub done: u64,
    /// How long statements took in the database.
    pub statement: Times,
    /// How long calls waited for a connection.
    pub wait: Times,
    /// How many connections were in use on average.
    pub busy: f64,
    /// How many calls waited for a connection on average.
    pub waiting: f64,
    /// What was seen of processors and server.
    pub evidence: Evidence,
    /// Transactions (PostgreSQL) or statements (MySQL) a second, as the server counted them.
    pub server_work: Option<f64>,
    /// Blocks a second that the server read from its disk.
    pub server_reads: Option<f64>,
    /// The last error.
    pub error: Option<String>,
}

/// The result of one measurement.
#[derive(Debug)]
pub(crate) enum Measured {
    Sample(Box<Sample>),
    /// The server accepts no more connections than these.
    Refused(usize, String),
}

/// What the clients share.
struct Shared {
    db: Db,
    workload: Arc<Workload>,
    is_over: AtomicBool,
    // Relaxed: the counts are independent of each other.
    done: AtomicU64,
    failed: AtomicU64,
    error: Mutex<Option<String>>,
}

tokio::task_local! {
    /// How long the statements of the client's operation have taken so far, in nanoseconds.
    static TOOK: Cell<u64>;
}

/// Counts the operations of a window by the share of their time that lies in it. So that few long operations do not make
/// the figure coarse: of an operation of 100 ms of which the window has the last 30 ms, 0.3 count.
struct Meter {
    began: Instant,
    /// The window, in nanoseconds since `began`.
    window: OnceLock<(u64, u64)>,
    /// The sum of the shares, in parts of `WHOLE`.
    shares: AtomicU64,
}

/// One operation in the sum of a [`Meter`]: more than 2^40 of them fit.
const WHOLE: f64 = 1_048_576.0;

impl Meter {
    fn new() -> Self {
        Meter {
            began: Instant::now(),
            window: OnceLock::new(),
            shares: AtomicU64::new(0),
        }
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins the window.
    fn open(&self, length: Duration) {
        let now = self.nanos();
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let _ = self.window.set((now, now.saturating_add(length)));
    }

    /// Notes an operation that ends now, after its statements took this many nanoseconds.
    fn note(&self, took: u64) {
        if let Some(window) = self.window.get() {
            let share = share_within(*window, self.nanos(), took);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "from 0 to WHOLE"
            )]
            self.shares
                .fetch_add((share * WHOLE).round() as u64, Relaxed);
        }
    }

    /// Returns the operations a second of the window. To be called when all operations of the window have ended. `None` if
    /// there was no window.
    #[allow(clippy::cast_precision_loss, reason = "counts of some seconds")]
    fn throughput(&self) -> Option<f64> {
        let (from, to) = *self.window.get()?;
        let seconds = (to - from) as f64 / 1e9;
        Some(self.shares.load(Relaxed) as f64 / WHOLE / seconds)
    }
}

/// Returns which share of an operation that took some time and ended at `end` lies in a window.
#[allow(clippy::cast_precision_loss, reason = "times of some seconds")]
fn share_within((from, to): (u64, u64), end: u64, took: u64) -> f64 {
    let begin = end.saturating_sub(took);
    match took {
        0 if (from..to).contains(&end) => 1.0,
        0 => 0.0,
        _ => end.min(to).saturating_sub(begin.max(from)) as f64 / took as f64,
    }
}

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) size: usize,
    pub(crate) clients: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    pub(crate) seed: u64,
}

/// Measures one size on a handle that nobody else uses, and closes it.
///
/// # Cancel safety
///
/// Dropped, the clients stop; the handle is to be closed by the caller.
pub(crate) async fn measure(
    db: &Db,
    observer: &Db,
    workload: &Arc<Workload>,
    plan: Plan,
) -> Measured {
    let shared = Arc::new(Shared {
        db: db.clone(),
        workload: Arc::clone(workload),
        is_over: AtomicBool::new(false),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        error: Mutex::default(),
    });
    let meter = Arc::new(Meter::new());
    let counting = db.on_statement(|event| {
        let took = u64::try_from(event.took.as_nanos()).unwrap_or(u64::MAX);
        // The callback runs on the task of the call.
        let _ = TOOK.try_with(|sum| sum.set(sum.get().saturating_add(took)));
    });
    let mut clients = JoinSet::new();
    for number in 0..plan.clients {
        // Dropped, the set aborts its tasks.
        let seed = plan.seed.wrapping_add(number as u64);
        let client = client(Arc::clone(&shared), Arc::clone(&meter), seed);
        clients.spawn(TOOK.scope(Cell::new(0), client));
    }
    let mut measured = match open_all(db, plan.size).await {
        Err(open) => Measured::Refused(
            open,
            shared
                .error()
                .unwrap_or_else(|| "no reason was given".to_owned()),
        ),
        Ok(()) => {
            warm_up(&shared, plan).await;
            Measured::Sample(Box::new(window(&shared, &meter, observer, plan).await))
        }
    };
    // Waiting calls fail with the close, running ones may end.
    shared.is_over.store(true, Relaxed);
    // What does not end in time is dropped with its task.
    let _ = db.close_and_drain(ENDING).await;
    let _ = timeout(ENDING, async {
        while clients.join_next().await.is_some() {}
    })
    .await;
    drop(counting);
    if let Measured::Sample(sample) = &mut measured
        && let Some(exact) = meter.throughput()
    {
        sample.throughput = exact;
    }
    measured
}

/// Waits until all connections are open, or nobody needs more of them: on SQLite those who wait to write have none. Fails
/// with their number if the server refuses more.
async fn open_all(db: &Db, size: usize) -> std::result::Result<(), usize> {
    let deadline = Instant::now() + OPENING;
    let mut looks = interval(Duration::from_millis(5));
    let mut enough = 0;
    loop {
        looks.tick().await;
        let status = db.status();
        let open = status.total - status.creating;
        let in_queue = db.pool().map_or(0, |pool| pool.status().waiting);
        let is_quiet = open > 0 && status.creating == 0 && in_queue == 0;
        enough = if is_quiet { enough + 1 } else { 0 };
        if open >= size || enough == ENOUGH_LOOKS {
            return Ok(());
        }
        let refused = db.counters().create_failed > 0;
        if Instant::now() >= deadline || (refused && status.creating == 0) {
            // A slow server without a refusal is measured with what is open.
            return if refused || open == 0 {
                Err(open)
            } else {
                Ok(())
            };
        }
    }
}

/// Waits for the time to warm up, and until every connection has ended two operations, but not for long: the queues
/// inside the server are as long as they stay then.
async fn warm_up(shared: &Shared, plan: Plan) {
    let now = Instant::now();
    let settled = shared.done.load(Relaxed) + 2 * plan.size as u64;
    sleep_until(now + plan.warm_up).await;
    let mut looks = interval(Duration::from_millis(5));
    while shared.done.load(Relaxed) < settled && now.elapsed() < plan.window {
        looks.tick().await;
    }
}

impl Shared {
    fn error(&self) -> Option<String> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, error: &cenote::Error) {
        let mut last = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(explained(error));
    }
}

async fn client(shared: Arc<Shared>, meter: Arc<Meter>, seed: u64) {
    let mut random = Rng::with_seed(seed);
    while !shared.is_over.load(Relaxed) {
        let (operation, drawn) = shared.workload.draw(&mut random);
        TOOK.with(|took| took.set(0));
        match execute(&shared.db, &shared.workload, operation, &drawn).await {
            Ok(()) => {
                shared.done.fetch_add(1, Relaxed);
                meter.note(TOOK.with(Cell::get));
            }
            Err(error) if error.kind() == Kind::Closed => return,
            Err(error) => {
                shared.failed.fetch_add(1, Relaxed);
                shared.note(&error);
                // A database that fails at once would keep this thread for itself.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Executes an operation.
///
/// # Cancel safety
///
/// Dropped, a transaction is rolled back.
pub(crate) async fn execute(
    db: &Db,
    workload: &Workload,
    operation: &Operation,
    drawn: &Drawn<'_>,
) -> Result<()> {
    let all = async || {
        for statement in &operation.statements {
            let params = workload.bind(statement, drawn);
            match words::returns_rows(&statement.sql) {
                true => drop(db.query(&statement.sql, params).await?),
                false => drop(db.exec(&statement.sql, params).await?),
            }
        }
        Ok(())
    };
    match operation.is_transaction {
        true => db.transaction(all).await,
        false => all().await,
    }
}

/// Sums over the looks at the pool in a window.
#[derive(Default)]
struct PoolSums {
    looks: f64,
    busy: f64,
    waiting: f64,
    waiting_to_write: f64,
}

impl PoolSums {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn add(&mut self, db: &Db) {
        let status = db.status();
        let in_pool = db.pool().map_or(0, |pool| pool.status().waiting);
        self.looks += 1.0;
        self.busy += status.active as f64;
        self.waiting += status.waiting.min(in_pool) as f64;
        self.waiting_to_write += status.waiting.saturating_sub(in_pool) as f64;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a count of some seconds")]
async fn window(shared: &Shared, meter: &Meter, observer: &Db, plan: Plan) -> Sample {
    let db = &shared.db;
    let dialect = Dialect::of(db);
    let counters = look(dialect.counters(observer)).await;
    let scheduled = look(dialect.scheduled(observer)).await;
    let (began, timings, cpu) = (Instant::now(), db.timings(), Cpu::now());
    let (done, failed) = (shared.done.load(Relaxed), shared.failed.load(Relaxed));
    let end = began + plan.window;
    meter.open(plan.window);
    let (mut sums, mut activities) = (PoolSums::default(), Vec::new());
    let pool = async {
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            sums.add(db);
        }
    };
    let server = async {
        let mut looks = interval(LOOK_AT_SERVER);
        while Instant::now() < end {
            looks.tick().await;
            // A server that refuses to say it is unknown.
            activities.extend(dialect.activity(observer).await.ok().flatten());
        }
        // A question is not dropped at the end of the window: MySQL's connection would be closed for that.
        sleep_until(end).await;
    };
    tokio::select! {
        biased;
        () = server => {}
        () = pool => {}
        () = sleep_until(end + LOOK_AT_SERVER * 5) => {}
    }
    let seconds = began.elapsed().as_secs_f64();
    let done = shared.done.load(Relaxed) - done;
    let failed = shared.failed.load(Relaxed) - failed;
    let (now, cpu_now) = (db.timings(), Cpu::now());
    let mut activity = Activity::mean(&activities);
    if let (Some(activity), Some(busy)) = (&mut activity, scheduled.and_then(Scheduled::since)) {
        activity.cpu = busy;
    }
    let counters_now = look(dialect.counters(observer)).await;
    let counters_seconds = began.elapsed().as_secs_f64();
    let rate = |of: fn(&Counters) -> f64| {
        let (now, then) = (counters_now.as_ref()?, counters.as_ref()?);
        Some(((of(now) - of(then)) / counters_seconds).max(0.0))
    };
    let looks = sums.looks.max(1.0);
    Sample {
        size: plan.size,
        // Exact once the statements have ended.
        throughput: done as f64 / seconds,
        failed,
        done,
        statement: Times::of(&now.statements.since(&timings.statements)),
        wait: Times::of(&now.pool.wait.since(&timings.pool.wait)),
        busy: sums.busy / looks,
        waiting: sums.waiting / looks,
        evidence: Evidence {
            client_cpu: cpu_now.own_since(&cpu, seconds),
            machine_cpu: cpu_now.machine_since(&cpu),
            activity,
            waiting_to_write: sums.waiting_to_write / looks,
        },
        server_work: rate(|counters| counters.work),
        server_reads: rate(|counters| counters.reads),
        error: shared.error(),
    }
}

/// Awaits what the server says. What it does not say, or not in time, is unknown.
async fn look<T>(asked: impl Future<Output = Result<Option<T>>>) -> Option<T> {
    timeout(LOOK_AT_SERVER * 5, asked).await.ok()?.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_count_by_their_share_in_the_window() {
        let window = (100, 200);
        for (end, took, share) in [
            (150, 20, 1.0),
            (110, 20, 0.5),
            (210, 40, 0.75),
            (300, 400, 0.25),
            (90, 20, 0.0),
            (400, 100, 0.0),
            (150, 0, 1.0),
            (250, 0, 0.0),
        ] {
            assert_eq!(share_within(window, end, took), share, "{end} {took}");
        }
    }

    #[test]
    fn meter_counts_from_the_beginning_of_its_window() {
        let meter = Meter::new();
        meter.note(0);
        assert_eq!(meter.throughput(), None);
        meter.open(Duration::from_secs(10));
        for _ in 0..20 {
            meter.note(0);
        }
        assert_eq!(meter.throughput(), Some(2.0));
    }
}
