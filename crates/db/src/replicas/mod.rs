//! Reads on replicas that see what their coroutine has written.
//!
//! ```text
//! write ──> primary ── COMMIT + position, one write ──> Own, in the frame of the coroutine
//!                                                        │ needed
//! reading() ──> Replicas::choose ──> replica ── replayed that much? + read, one write ──> rows
//!                     │ none fits           │ not yet: wait, at most `replica_wait`
//!                     └────> primary <──────┘ still not, or the read failed
//! ```
//!
//! [`position`] is the token; [`own`] what a coroutine has to see; [`primary`] how far the primary is, and the lag that follows;
//! [`track`] takes the positions of writes; [`read`] runs reads; [`watch`] asks replicas and primary how far they
//! are. Each replica is a [`Handle`] of its own with the identity of the `Db`, so that a transaction on a replica is found by the
//! calls in it. A `Db` without replicas has none of this.

mod api;
mod op;
mod own;
mod position;
mod primary;
mod problem;
mod read;
mod track;
pub(crate) mod watch;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub use self::api::{PrimaryReads, ReplicaStatus};
pub(crate) use self::own::{Needed, Own};
pub use self::position::{LogPosition, Position};
use self::primary::Primary;
pub use self::problem::ReplicaProblem;
use self::problem::{LeftReads, Reason};
pub(crate) use self::track::{OpenWrite, Tracker};
use crate::driver::History;
use crate::pooled::handle::Handle;

/// What a replica says about itself: for drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaAnswer {
    /// The server follows another one.
    pub is_standby: bool,
    /// It follows another one, and has replayed everything up to the position.
    pub has_reached: bool,
    /// How far it has replayed: it lacks nothing up to there.
    pub replayed: Option<u64>,
    /// What it replays, if it was asked to say so. The timeline is one that it has certainly reached.
    pub history: Option<History>,
}

/// The replicas of a handle.
pub(crate) struct Replicas {
    all: Vec<Replica>,
    tracker: Arc<Tracker>,
    /// How long a read waits for a replica to catch up.
    wait: Duration,
    max_lag: Option<Duration>,
    /// The replica that the next read begins its choice with.
    next: AtomicUsize,
    /// Somebody reads: before that, nothing is watched.
    has_begun: AtomicBool,
    is_closed: AtomicBool,
    /// The reads that no replica has answered.
    left: LeftReads,
    /// The primary is to be asked how far it is.
    wake: Notify,
}

/// A replica: a pool of its own, and what is known about the server.
pub(crate) struct Replica {
    handle: Arc<Handle>,
    seen: Mutex<Seen>,
    /// How far it has certainly replayed, in the newest history. Relaxed: it only helps to choose.
    replayed: AtomicU64,
    /// How many reads it has answered.
    reads: AtomicU64,
    /// It is to be asked at once.
    wake: Notify,
    /// It hangs: reads under way go to the primary.
    gone: Notify,
}

/// What a replica said last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// `None` before the first answer, and after one that did not come.
    answer: Option<ReplicaAnswer>,
    lag: Duration,
    /// Why it gets no reads; `None` if it does.
    problem: Option<ReplicaProblem>,
    /// Since when; `None` before it was asked.
    since: Option<Instant>,
}

impl Default for Seen {
    fn default() -> Self {
        Seen {
            answer: None,
            lag: Duration::ZERO,
            problem: Some(ReplicaProblem::NotAsked),
            since: None,
        }
    }
}

impl Replicas {
    pub(crate) fn new(
        handles: Vec<Arc<Handle>>,
        tracker: Arc<Tracker>,
        wait: Duration,
        max_lag: Option<Duration>,
    ) -> Arc<Self> {
        let replica = |handle| Replica {
            handle,
            seen: Mutex::default(),
            replayed: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            wake: Notify::new(),
            gone: Notify::new(),
        };
        Arc::new(Replicas {
            all: handles.into_iter().map(replica).collect(),
            tracker,
            wait,
            max_lag,
            next: AtomicUsize::new(0),
            has_begun: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            left: LeftReads::default(),
            wake: Notify::new(),
        })
    }

    /// Notes that somebody reads: from now on the servers are watched.
    fn begin(&self) {
        // Relaxed: the wake synchronises.
        if !self.has_begun.load(Ordering::Relaxed) && !self.has_begun.swap(true, Ordering::Relaxed)
        {
            self.wake_all();
        }
    }

    fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        // Acquire pairs with the release in `close`.
        self.is_closed.load(Ordering::Acquire)
    }

    fn wake_all(&self) {
        self.wake.notify_one();
        self.all
            .iter()
            .for_each(|replica| replica.wake.notify_one());
    }

    /// Refuses new reads on replicas, and ends the watchers.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake_all();
        self.all.iter().for_each(|replica| replica.handle.close());
    }

    pub(crate) fn handles(&self) -> impl Iterator<Item = &Arc<Handle>> {
        self.all.iter().map(|replica| &replica.handle)
    }

    /// Returns a usable replica, one that has replayed enough as far as is known, in turns; `None` if none is usable.
    fn choose(&self, lsn: u64) -> Option<&Replica> {
        // Relaxed: any order of turns will do.
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.all.len();
        let in_turn = || (0..count).map(|n| &self.all[(first.wrapping_add(n)) % count]);
        let usable = || in_turn().filter(|replica| replica.seen().problem.is_none());
        let ready = usable().find(|replica| replica.replayed.load(Ordering::Relaxed) >= lsn);
        ready.or_else(|| usable().next())
    }
}

impl Seen {
    /// Notes why the replica gets no reads from now on. Returns the same of before.
    fn turn(&mut self, problem: Option<ReplicaProblem>, now: Instant) -> Option<ReplicaProblem> {
        if self.problem != problem || self.since.is_none() {
            self.since = Some(now);
        }
        std::mem::replace(&mut self.problem, problem)
    }
}

impl Replica {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing that can panic runs under this lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the replica said when it was asked, or that it did not answer.
    fn note(
        &self,
        answer: Option<ReplicaAnswer>,
        primary: &Primary,
        max_lag: Option<Duration>,
        now: Instant,
    ) {
        let newest = primary.newest().map(|newest| newest.history);
        let replayed = answer.and_then(|answer| answer.replayed);
        let lag = replayed.map_or(Duration::ZERO, |lsn| primary.lag(lsn, now));
        let is_late = max_lag.is_some_and(|most| lag > most);
        let problem = ReplicaProblem::of(answer.as_ref(), newest, is_late);
        let before = {
            let mut seen = self.seen();
            (seen.answer, seen.lag) = (answer, lag);
            seen.turn(problem, now)
        };
        // In a newer history, positions may be smaller.
        self.replayed
            .store(replayed.unwrap_or(0), Ordering::Relaxed);
        self.log(before, problem, lag);
    }

    /// Notes a failure: no further reads until the replica has answered again.
    #[cold]
    fn fail(&self) {
        let failed = Some(ReplicaProblem::Failed);
        let now = self.handle.shared.runtime.now();
        let (before, lag) = {
            let mut seen = self.seen();
            // A replica that got no reads anyway keeps its reason.
            let before = match seen.problem {
                None => seen.turn(failed, now),
                _ => failed,
            };
            (before, seen.lag)
        };
        self.log(before, failed, lag);
        self.wake.notify_one();
    }

    /// Logs a change.
    fn log(&self, from: Option<ReplicaProblem>, to: Option<ReplicaProblem>, lag: Duration) {
        if from == to {
            return;
        }
        let replica = self.name();
        match to {
            None => tracing::info!(replica, "the replica gets reads"),
            Some(why) => tracing::info!(replica, %why, ?lag, "the replica gets no reads for now"),
        }
    }

    fn note_replayed(&self, answer: &ReplicaAnswer) {
        if let Some(lsn) = answer.replayed {
            self.replayed.fetch_max(lsn, Ordering::Relaxed);
        }
    }

    fn name(&self) -> String {
        self.handle.pool.manager().template.address()
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Replicas")
            .field("count", &self.all.len())
            .finish_non_exhaustive()
    }
}
