//! Numbers of a pool: its status, its counters, its holders.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::observe::events::DestroyReason;
use crate::observe::text::{count, human};

/// The number of a resource. The first resource of a pool is 1; no number is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceId(pub(crate) u64);

impl ResourceId {
    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The state of a pool at one moment.
///
/// In every sample `total == idle + active + creating`, and `total <= max`
/// (after a shrink: at most the former maximum, until enough resources have left).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Slots in use: idle, active and creating.
    pub total: usize,
    /// Resources that nobody holds, including those reserved for a woken waiter.
    pub idle: usize,
    /// Resources that are leased, in a hook, or being destroyed.
    pub active: usize,
    /// Resources being created.
    pub creating: usize,
    /// Of the idle ones: reserved for a waiter that was woken and not polled yet.
    pub reserved: usize,
    /// Acquires in the queue. A waiter whose reservation was revoked, because it was not polled in
    /// time, is in the queue again when it is polled.
    pub waiting: usize,
    /// The maximum number of resources.
    pub max: usize,
    /// The minimum number of resources.
    pub min: usize,
    /// The breaker's state.
    pub breaker: BreakerState,
    /// Whether the pool is closed.
    pub closed: bool,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} open: {} idle", self.total, self.max, self.idle)?;
        if self.reserved > 0 {
            write!(f, " ({} reserved)", self.reserved)?;
        }
        write!(
            f,
            ", {} busy, {} opening; {} waiting",
            self.active, self.creating, self.waiting
        )?;
        if self.breaker != BreakerState::Closed {
            write!(f, "; breaker {}", self.breaker)?;
        }
        if self.closed {
            write!(f, "; closed")?;
        }
        Ok(())
    }
}

/// The counters of a pool since it was built. They only grow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Leases handed out.
    pub acquired: u64,
    /// Acquires that had to queue.
    pub waited: u64,
    /// Acquires that timed out.
    pub timed_out: u64,
    /// Acquires that were turned away because the queue was full.
    pub rejected: u64,
    /// Acquires that were dropped in the queue.
    pub cancelled: u64,
    /// Reservations and rights to create that were revoked, because their acquire was not polled in
    /// time while others waited.
    pub revoked: u64,
    /// Resources created.
    pub created: u64,
    /// Creations that failed, panicked or were dropped.
    pub create_failed: u64,
    /// Resources that left the pool, for any reason; see [`Counters::destroyed_for`].
    pub destroyed: u64,
    pub(crate) by_reason: [u64; DestroyReason::COUNT],
}

impl Counters {
    /// Returns how many resources left the pool for this reason.
    pub fn destroyed_for(&self, reason: DestroyReason) -> u64 {
        self.by_reason[reason as usize]
    }
}

/// A current lease, and the line that acquired it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The leased resource.
    pub resource: ResourceId,
    /// Where `acquire` was called.
    pub caller: &'static Location<'static>,
    /// How long the lease has lasted, exact to a few milliseconds.
    pub held_for: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} held for {} by {}",
            self.resource,
            human(self.held_for),
            self.caller
        )
    }
}

/// An acquire in the queue: see [`Pool::queued`](crate::Pool::queued).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueuedAcquire {
    /// Where `acquire` was called.
    pub caller: &'static Location<'static>,
    /// How long it has waited.
    pub waited: Duration,
    /// What it waits for.
    pub reason: WaitReason,
}

/// What an acquire in the queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WaitReason {
    /// All slots are in use: a lease has to end.
    Full,
    /// A creation is under way, for this acquire or for one before it.
    Creating,
    /// The last creation failed, and the pool pauses before the next.
    BackingOff,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitReason::Full => "full",
            WaitReason::Creating => "creating",
            WaitReason::BackingOff => "backing off",
        })
    }
}

/// The last failed creation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreationError {
    /// The error with its sources as text. The error itself went to the acquire.
    pub message: std::sync::Arc<str>,
    /// The number of failures in a row, including this one.
    pub in_a_row: u32,
}

impl fmt::Display for CreationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = count(self.in_a_row, "failure");
        write!(f, "{} ({failures} in a row)", self.message)
    }
}
