//! Numbers: what the pool holds now, what it did so far, who holds what.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::observe::events::DestroyReason;

/// A resource's number: the first one a pool makes is 1, and none is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceId(pub(crate) u64);

impl ResourceId {
    /// The number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What a pool holds at one moment.
///
/// In every sample `total == idle + active + creating`, and `total <= max`
/// (while a shrink is being worked off: at most the former maximum).
/// Guarded by `status_is_sound_in_every_sample`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Places in use: idle, active and creating.
    pub total: usize,
    /// Resources in the pool, those reserved for a woken waiter included.
    pub idle: usize,
    /// Resources with a holder, in a hook, or being destroyed.
    pub active: usize,
    /// Resources being made.
    pub creating: usize,
    /// Of the idle ones: set aside for a waiter that was woken and has not run yet.
    pub reserved: usize,
    /// Acquires in the queue. One that was not polled in time, and lost what it was given,
    /// is in the queue again when it is polled.
    pub waiting: usize,
    /// The most resources there may be.
    pub max: usize,
    /// The fewest resources the pool keeps up.
    pub min: usize,
    /// The breaker's state.
    pub breaker: BreakerState,
    /// Whether the pool was closed.
    pub closed: bool,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} in use ({} idle, {} active, {} being created), {} reserved, {} waiting",
            self.total,
            self.max,
            self.idle,
            self.active,
            self.creating,
            self.reserved,
            self.waiting
        )?;
        if self.breaker != BreakerState::Active {
            write!(f, ", breaker {}", self.breaker)?;
        }
        if self.closed {
            write!(f, ", closed")?;
        }
        Ok(())
    }
}

/// What a pool has done since it was built. Every number only grows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Counters {
    /// Leases handed out.
    pub acquired: u64,
    /// Acquires that had to queue.
    pub waited: u64,
    /// Acquires that ran out of time.
    pub timed_out: u64,
    /// Acquires that found as many waiting as may wait.
    pub rejected: u64,
    /// Acquires that were dropped while they queued.
    pub cancelled: u64,
    /// Resources and rights to create that were taken back from an acquire, because it was
    /// not polled in time and others waited.
    pub revoked: u64,
    /// Resources made.
    pub created: u64,
    /// Creations that failed, panicked or were abandoned.
    pub create_failed: u64,
    /// Resources that left the pool, for any reason; see [`Counters::destroyed_for`].
    pub destroyed: u64,
    pub(crate) by_reason: [u64; DestroyReason::COUNT],
}

impl Counters {
    /// How many resources left the pool for this reason.
    pub fn destroyed_for(&self, reason: DestroyReason) -> u64 {
        self.by_reason[reason as usize]
    }
}

/// One lease that is out, and who took it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The resource that is held.
    pub resource: ResourceId,
    /// Where `acquire` was called.
    pub caller: &'static Location<'static>,
    /// For how long, by the coarse clock (a few milliseconds exact).
    pub held_for: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} held for {:?} by {}",
            self.resource, self.held_for, self.caller
        )
    }
}

/// The last creation that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreationError {
    /// The error with its sources, as text: the value itself went to the caller.
    pub message: std::sync::Arc<str>,
    /// How many creations in a row have failed, this one included.
    pub in_a_row: u32,
}

impl fmt::Display for CreationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} in a row)", self.message, self.in_a_row)
    }
}
