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
mod read;
mod track;
pub(crate) mod watch;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub use self::api::ReplicaStatus;
pub(crate) use self::own::{Needed, Own};
pub use self::position::{LogPosition, Position};
use self::primary::Primary;
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
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// `None` before the first answer, and after one that did not come.
    answer: Option<ReplicaAnswer>,
    lag: Duration,
    is_usable: bool,
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
        let usable = || in_turn().filter(|replica| replica.seen().is_usable);
        let ready = usable().find(|replica| replica.replayed.load(Ordering::Relaxed) >= lsn);
        ready.or_else(|| usable().next())
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
        let is_usable = answer.is_some_and(|answer| {
            answer.is_standby && answer.history.is_some() && answer.history == newest
        }) && max_lag.is_none_or(|most| lag <= most);
        let before = std::mem::replace(
            &mut *self.seen(),
            Seen {
                answer,
                lag,
                is_usable,
            },
        );
        // In a newer history, positions may be smaller.
        self.replayed
            .store(replayed.unwrap_or(0), Ordering::Relaxed);
        if before.is_usable && !is_usable {
            tracing::info!(
                replica = self.name(),
                ?lag,
                is_reachable = answer.is_some(),
                "the replica gets no reads for now"
            );
        }
    }

    /// Notes a failure: no further reads until the replica has answered again.
    #[cold]
    fn fail(&self) {
        self.seen().is_usable = false;
        self.wake.notify_one();
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
