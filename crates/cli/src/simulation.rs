//! The simulation: many tasks, few connections, and everything that goes wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cenote_pool::{
    AcquireError, BreakerState, ConfigError, ConsecutiveFailures, Counters, Event, FnPool, Pool,
    Status, Subscription, Timings,
};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, interval, timeout};

use crate::args::Options;

/// One use in so many breaks its connection.
const BREAKS: u32 = 300;
/// One use in so many ends in a panic.
const PANICS: u32 = 1_000;
/// One acquire in so many is in a hurry.
const HURRIES: u32 = 25;
/// This often a task is cancelled, wherever it happens to be.
const CANCEL_EVERY: Duration = Duration::from_millis(25);
/// How long the end may take.
const DRAIN: Duration = Duration::from_secs(5);

/// The server that the connections are to. It is down for a while half-way.
struct Server {
    down_from: Instant,
    down_until: Instant,
}

impl Server {
    fn is_down(&self) -> bool {
        (self.down_from..self.down_until).contains(&Instant::now())
    }

    async fn connect(&self) -> Result<Connection, Refused> {
        pause(2.0, 10.0).await;
        if self.is_down() {
            return Err(Refused);
        }
        Ok(Connection { sound: true })
    }
}

/// A simulated connection.
struct Connection {
    /// Set only between two uses. A use that breaks the connection, panics or is
    /// cancelled half-way leaves it unset, and the release hook sees that.
    sound: bool,
}

/// Why there is no connection.
#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated server refuses connections")
    }
}

impl std::error::Error for Refused {}

/// The payload of a simulated panic, for the panic hook to recognise.
pub(crate) struct SimulatedPanic;

/// What the pool does not count itself.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    broken: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    unavailable: AtomicU64,
    events: AtomicU64,
    opened: AtomicU64,
    recovered: AtomicU64,
}

impl Tally {
    fn count(&self, event: &Event) {
        self.events.fetch_add(1, Relaxed);
        if let Event::BreakerChanged { to, .. } = event {
            match to {
                BreakerState::Inactive => self.opened.fetch_add(1, Relaxed),
                BreakerState::Active => self.recovered.fetch_add(1, Relaxed),
                _ => 0,
            };
        }
    }
}

/// What all tasks share.
struct Shared {
    pool: FnPool<Connection, Refused>,
    server: Arc<Server>,
    tally: Arc<Tally>,
    stop: AtomicBool,
}

/// The pool, the tasks that use it, and the one that looks after the tasks.
pub(crate) struct Simulation {
    shared: Arc<Shared>,
    started: Instant,
    supervisor: JoinSet<()>,
    _listener: Subscription,
}

/// The simulation at one moment.
pub(crate) struct Snapshot {
    pub(crate) elapsed: Duration,
    pub(crate) server_is_down: bool,
    pub(crate) status: Status,
    pub(crate) counters: Counters,
    /// Uses that went well.
    pub(crate) done: u64,
    /// Uses whose connection broke.
    pub(crate) broken: u64,
    pub(crate) panicked: u64,
    /// Tasks that were cancelled.
    pub(crate) cancelled: u64,
    /// Acquires that the open breaker refused.
    pub(crate) unavailable: u64,
    pub(crate) events: u64,
    /// How often the breaker opened, and how often it closed again.
    pub(crate) opened: u64,
    pub(crate) recovered: u64,
}

/// How it went.
pub(crate) struct Report {
    /// After the last task, before the pool was closed.
    pub(crate) end: Snapshot,
    /// For how long the tasks worked, the last one included.
    pub(crate) worked: Duration,
    pub(crate) timings: Timings,
    /// What was lost, in words; empty if all is well.
    pub(crate) lost: Vec<String>,
}

impl Simulation {
    /// Starts it. Needs Tokio.
    pub(crate) fn start(options: &Options) -> Result<Simulation, ConfigError> {
        let started = Instant::now();
        let down_from = started + options.length * 5 / 12;
        let server = Arc::new(Server {
            down_from,
            down_until: down_from + options.length / 6,
        });
        let cool_down = (options.length / 20).min(Duration::from_millis(300));

        let factory = Arc::clone(&server);
        let pool = Pool::from_fn(move || {
            let server = Arc::clone(&factory);
            async move { server.connect().await }
        })
        .name("simulation")
        .max(options.max)
        .acquire_timeout(Duration::from_secs(2))
        .concurrent_creations(4)
        .backoff(Duration::from_millis(10), Duration::from_millis(100))
        .before_release(|connection: &mut Connection| connection.sound)
        .breaker(ConsecutiveFailures::new(5).with_cool_down(cool_down))
        .histograms()
        .build()?;

        let tally = Arc::new(Tally::default());
        let listener = {
            let tally = Arc::clone(&tally);
            pool.on_event(move |event| tally.count(event))
        };
        let shared = Arc::new(Shared {
            pool,
            server,
            tally,
            stop: AtomicBool::new(false),
        });
        let mut supervisor = JoinSet::new();
        supervisor.spawn(supervise(Arc::clone(&shared), options.tasks));
        Ok(Simulation {
            shared,
            started,
            supervisor,
            _listener: listener,
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let Shared {
            pool,
            server,
            tally,
            ..
        } = &*self.shared;
        Snapshot {
            elapsed: self.started.elapsed(),
            server_is_down: server.is_down(),
            status: pool.status(),
            counters: pool.counters(),
            done: tally.done.load(Relaxed),
            broken: tally.broken.load(Relaxed),
            panicked: tally.panicked.load(Relaxed),
            cancelled: tally.cancelled.load(Relaxed),
            unavailable: tally.unavailable.load(Relaxed),
            events: tally.events.load(Relaxed),
            opened: tally.opened.load(Relaxed),
            recovered: tally.recovered.load(Relaxed),
        }
    }

    /// Lets every task finish what it is at, closes the pool, and looks whether
    /// anything was lost.
    pub(crate) async fn finish(mut self) -> Report {
        let mut lost = Vec::new();
        self.shared.stop.store(true, Relaxed);
        match timeout(DRAIN, self.supervisor.join_next()).await {
            Ok(Some(Err(error))) => lost.push(format!("the supervisor failed: {error}")),
            Ok(_) => {}
            Err(_) => lost.push(format!("tasks that still wait after {DRAIN:?}")),
        }
        let worked = self.started.elapsed();
        let pool = &self.shared.pool;
        // A creation that nobody waits for any more may still be under way.
        let mut again = interval(Duration::from_millis(5));
        let at_rest = async {
            while pool.status().creating > 0 || pool.status().active > 0 {
                again.tick().await;
            }
        };
        // If it does not come to rest, the numbers below say so.
        let _ = timeout(DRAIN, at_rest).await;

        let end = self.snapshot();
        let (status, counters) = (&end.status, &end.counters);
        if status.total != status.idle {
            lost.push(format!("places: {status}"));
        }
        if status.waiting > 0 || status.reserved > 0 {
            lost.push(format!("waiters: {status}"));
        }
        if counters.created != counters.destroyed + status.total as u64 {
            let (created, destroyed) = (counters.created, counters.destroyed);
            let total = status.total;
            lost.push(format!(
                "connections: {created} created, {destroyed} destroyed, {total} there"
            ));
        }
        if let Err(error) = pool.close_and_drain(DRAIN).await {
            lost.push(error.to_string());
        }
        let timings = pool.timings().expect("the builder asked for histograms");
        Report {
            end,
            worked,
            timings,
            lost,
        }
    }
}

/// Keeps up the number of tasks, and cancels one now and then, until told to stop.
async fn supervise(shared: Arc<Shared>, tasks: usize) {
    let mut workers = JoinSet::new();
    let mut handles: Vec<AbortHandle> = (0..tasks)
        .map(|_| workers.spawn(work(Arc::clone(&shared))))
        .collect();
    let mut cancel = interval(CANCEL_EVERY);
    loop {
        let ended = tokio::select! {
            _ = cancel.tick() => {
                // Few tasks are cancelled less often, or they would never get to work.
                if fastrand::usize(..200) < tasks && !shared.stop.load(Relaxed) {
                    handles[fastrand::usize(..tasks)].abort();
                }
                continue;
            }
            ended = workers.join_next() => ended,
        };
        match ended {
            None => return,
            Some(Ok(())) => continue,
            Some(Err(error)) if error.is_panic() => shared.tally.panicked.fetch_add(1, Relaxed),
            Some(Err(_)) => shared.tally.cancelled.fetch_add(1, Relaxed),
        };
        // Another one takes the place of the one that ended before its time.
        if let Some(handle) = handles.iter_mut().find(|handle| handle.is_finished()) {
            *handle = workers.spawn(work(Arc::clone(&shared)));
        }
    }
}

/// One task: thinks, takes a connection, uses it, gives it back, and again.
async fn work(shared: Arc<Shared>) {
    while !shared.stop.load(Relaxed) {
        // With the usual numbers the pool is just about busy all the time.
        pause(0.0, 160.0).await;
        let leased = if one_in(HURRIES) {
            let hurry = Duration::from_millis(fastrand::u64(1..100));
            shared.pool.acquire_within(hurry).await
        } else {
            shared.pool.acquire().await
        };
        match leased {
            Ok(mut connection) => shared.use_it(&mut connection).await,
            // A real program would tell its user; this one tries again later.
            Err(AcquireError::Unavailable) => {
                shared.tally.unavailable.fetch_add(1, Relaxed);
            }
            // Out of time, or no connection could be made: the pool counts these.
            Err(_) => {}
        }
    }
}

impl Shared {
    async fn use_it(&self, connection: &mut Connection) {
        connection.sound = false;
        // A cancel here leaves it unsound.
        pause(0.2, 5.0).await;
        if one_in(PANICS) {
            std::panic::panic_any(SimulatedPanic);
        }
        if self.server.is_down() || one_in(BREAKS) {
            self.tally.broken.fetch_add(1, Relaxed);
            return;
        }
        connection.sound = true;
        self.tally.done.fetch_add(1, Relaxed);
    }
}

fn one_in(n: u32) -> bool {
    fastrand::u32(..n) == 0
}

async fn pause(from_millis: f64, to_millis: f64) {
    let millis = from_millis + (to_millis - from_millis) * fastrand::f64();
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the work that is simulated"
    )]
    tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
}
