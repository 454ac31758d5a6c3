//! The workload: clients that transfer money, and an auditor that verifies the total meanwhile.

mod clients;
mod errors;
mod latency;
mod phases;
mod tally;
mod visits;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cenote::Db;
use cenote::pool::Status;
use tokio::sync::{RwLock, RwLockWriteGuard};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use self::clients::Shared;
pub use self::errors::{ErrorCounts, OtherErrors};
pub use self::latency::LatencySummary;
pub use self::phases::Phase;
use self::phases::Phases;
use self::tally::Tally;
pub use self::tally::{CAUSES, Counts, Outcome};
pub use self::visits::silence_planned_panics;
use crate::accounts::{self, STARTING_CENTS};
use crate::checks::{Audits, Evidence, PoolState};
use crate::faults::Tracking;
use crate::run::Options;

/// How long clients have to finish their visit at the end; then they are aborted.
const LAST_VISITS: Duration = Duration::from_secs(10);
/// How long the pool has to clean up after the last client.
const CLEAN_UP: Duration = Duration::from_secs(10);
/// How long locking every account may take.
const LOCKING: Duration = Duration::from_secs(10);
/// The shortest time between two audits, and the largest share of the time that they take.
const AUDIT_EVERY: Duration = Duration::from_millis(250);
const AUDIT_SHARE: u32 = 10;

/// Clients and auditor at work. Dropped, they are aborted.
#[derive(Debug)]
pub(crate) struct Workload {
    monitor: Arc<Monitor>,
    clients: JoinSet<()>,
    auditor: JoinSet<()>,
}

/// The figures of a run.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    /// A separate handle: it sees what is committed.
    observer: Db,
    audits: Mutex<Audits>,
    started: Instant,
    /// The sum of all balances at the start.
    before: i64,
    /// How many connections the clients may have.
    max: usize,
    phases: Phases,
    /// How long after the last promotion writes were back.
    failover: Mutex<Option<Duration>>,
}

/// The figures of a run at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time since the start.
    pub elapsed: Duration,
    /// The pool.
    pub status: Status,
    /// The visits that have ended.
    pub counts: Counts,
    /// How long clients waited until their transaction was open.
    pub waits: LatencySummary,
    /// What the auditor found so far.
    pub audits: Audits,
    /// The sum of all balances at the start, in cents.
    pub before: i64,
    /// The faults and quiet moments that last now; if there are none, the last that ended.
    pub phases: Vec<Phase>,
    /// How long after the last promotion writes were back, if there was one.
    pub failover: Option<Duration>,
}

/// A workload that has ended.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// How long the clients worked, the last one included.
    pub(crate) worked: Duration,
    pub(crate) waits: LatencySummary,
    /// The last unplanned error.
    pub(crate) complaint: Option<String>,
    pub(crate) evidence: Evidence,
}

impl Workload {
    /// Starts the clients. Needs Tokio, and the tables.
    pub(crate) fn start(
        db: Db,
        observer: Db,
        options: &Options,
        tracking: Option<Tracking>,
    ) -> Self {
        let Options {
            accounts,
            tasks,
            seed,
            max,
            ..
        } = *options;
        let monitor = Arc::new(Monitor {
            shared: Arc::new(Shared {
                db,
                tally: Arc::new(Tally::default()),
                accounts,
                stopping: AtomicBool::new(false),
                gate: RwLock::default(),
                tracking,
            }),
            observer,
            audits: Mutex::default(),
            started: Instant::now(),
            before: i64::try_from(accounts).unwrap_or(i64::MAX) * STARTING_CENTS,
            max,
            phases: Phases::default(),
            failover: Mutex::default(),
        });
        let mut auditor = JoinSet::new();
        auditor.spawn(audit_repeatedly(Arc::clone(&monitor)));
        Workload {
            clients: clients::start(&monitor.shared, tasks, seed),
            auditor,
            monitor,
        }
    }

    pub(crate) fn monitor(&self) -> Arc<Monitor> {
        Arc::clone(&self.monitor)
    }

    /// Lets the clients finish, waits until the pool is at rest, and collects the evidence.
    ///
    /// # Errors
    ///
    /// The accounts cannot be read.
    pub(crate) async fn stop(mut self) -> cenote::Result<Stopped> {
        let shared = &self.monitor.shared;
        shared.stopping.store(true, Relaxed);
        if timeout(LAST_VISITS, all_ended(&mut self.clients))
            .await
            .is_err()
        {
            self.clients.shutdown().await;
        }
        let worked = self.monitor.started.elapsed();
        self.auditor.shutdown().await;
        let pool = self.monitor.pool_at_rest().await;
        let still_locked = self.monitor.still_locked().await;
        let books = accounts::audit(&self.monitor.observer).await?;
        Ok(Stopped {
            worked,
            waits: shared.tally.waits(),
            complaint: shared.tally.complaint(),
            evidence: Evidence {
                before: self.monitor.before,
                accounts: shared.accounts,
                books,
                counts: shared.tally.counts(),
                audits: self.monitor.audits().clone(),
                still_locked,
                pool,
            },
        })
    }
}

impl Monitor {
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns the figures as they are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            elapsed: self.started.elapsed(),
            status: self.shared.db.status(),
            counts: self.shared.tally.counts(),
            waits: self.shared.tally.waits(),
            audits: self.audits().clone(),
            before: self.before,
            phases: self.phases.latest(),
            failover: *self.failover(),
        }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.shared.db
    }

    pub(crate) fn observer(&self) -> &Db {
        &self.observer
    }

    pub(crate) fn tracking(&self) -> Option<&Tracking> {
        self.shared.tracking.as_ref()
    }

    pub(crate) fn before(&self) -> i64 {
        self.before
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Returns how many visits have ended with a commit.
    pub(crate) fn committed(&self) -> u64 {
        self.shared.tally.counts().of(Outcome::Committed)
    }

    /// Returns the unplanned errors of clients so far, by kind.
    pub(crate) fn errors(&self) -> ErrorCounts {
        self.shared.tally.errors()
    }

    /// Notes how long after a promotion writes were back.
    pub(crate) fn failed_over(&self, took: Duration) {
        *self.failover() = Some(took);
    }

    fn failover(&self) -> MutexGuard<'_, Option<Duration>> {
        // Nothing that can panic runs under this lock.
        self.failover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the visits took that ended with a commit.
    pub(crate) fn served(&self) -> LatencySummary {
        self.shared.tally.served()
    }

    /// Waits until all visits have ended. No other begins while the guard lives.
    ///
    /// # Cancel safety
    ///
    /// Dropped, visits begin again.
    pub(crate) async fn pause_visits(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.gate.write().await
    }

    /// Returns every fault and every quiet moment so far.
    pub fn phases(&self) -> Vec<Phase> {
        self.phases.all()
    }

    /// Notes that a fault or a quiet moment begins.
    pub(crate) fn begin_phase(&self, name: &'static str) {
        self.phases.begin(name, self.started.elapsed());
    }

    /// Notes that everything that lasted has ended.
    pub(crate) fn end_phases(&self) {
        self.phases.end(self.started.elapsed());
    }

    fn audits(&self) -> MutexGuard<'_, Audits> {
        // Nothing that can panic runs under this lock.
        self.audits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the pool is at rest, or for too long, and returns its state.
    pub(crate) async fn pool_at_rest(&self) -> PoolState {
        let db = &self.shared.db;
        let look = || PoolState::new(&db.status(), &db.counters());
        let mut again = interval(Duration::from_millis(5));
        let rest = async {
            while !look().is_at_rest() {
                again.tick().await;
            }
        };
        // If it does not come to rest, the state says so.
        let _ = timeout(CLEAN_UP, rest).await;
        look()
    }

    async fn still_locked(&self) -> Option<String> {
        match timeout(LOCKING, accounts::lock_all(&self.observer)).await {
            Ok(locked) => locked.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer after {LOCKING:?}")),
        }
    }
}

async fn all_ended(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            // Visits panic by plan, clients do not.
            std::panic::resume_unwind(panic);
        }
    }
}

/// Verifies the total while the clients work.
async fn audit_repeatedly(monitor: Arc<Monitor>) {
    let mut tick = interval(AUDIT_EVERY);
    loop {
        tick.tick().await;
        let asked = Instant::now();
        // An audit that fails says nothing about the money; the one at the end must succeed.
        if let Ok(books) = accounts::audit(&monitor.observer).await {
            let mut audits = monitor.audits();
            audits.done += 1;
            if books.sum != monitor.before {
                audits.wrong.get_or_insert(books.sum);
            }
        }
        tick.reset_after((asked.elapsed() * AUDIT_SHARE).max(AUDIT_EVERY));
    }
}
