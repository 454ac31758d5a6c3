//! What a pool knows of one of its resources, for hooks and predicates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::slot::Slot;
use crate::core::state::Meta;
use crate::observe::status::ResourceId;
use crate::runtime::Runtime;
use crate::sync::AtomicU64;

/// What a pool knows of one of its resources: its age, and how often it was used.
///
/// Hooks of a [`Manager`](crate::Manager) get it, closures wrapped in [`informed`](crate::informed),
/// and the predicate of [`Pool::retain`](crate::Pool::retain). Nothing is computed until it is asked for.
#[derive(Clone, Copy)]
pub struct Info<'a> {
    born: &'a Born,
    usage: &'a Usage,
}

/// How often and when a slot was leased. Only its owner writes; anybody reads.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Leases so far, of all resources that were ever here.
    pub(crate) leases: AtomicU64,
    /// Coarse time of the last lease, in nanoseconds.
    pub(crate) since: AtomicU64,
}

impl<'a> Info<'a> {
    #[inline]
    pub(crate) fn new<T>(born: &'a Born, slot: &'a Slot<T>) -> Self {
        let usage = slot.usage();
        Info { born, usage }
    }

    /// Returns the number of the resource.
    pub fn id(self) -> ResourceId {
        self.born.id
    }

    /// Returns when the resource was made, by the pool's runtime.
    pub fn created(self) -> Instant {
        self.born.created
    }

    /// Returns how long ago the resource was made.
    pub fn age(self) -> Duration {
        let now = self.born.runtime.now();
        now.saturating_duration_since(self.born.created)
    }

    /// Returns how many leases of the resource there were. A release hook finds the present one
    /// counted; an acquire hook does not.
    pub fn uses(self) -> u64 {
        // Relaxed: the caller owns the slot, and only its owner writes.
        self.usage.leases.load(Ordering::Relaxed) - self.born.leases_before
    }

    /// Returns how long ago the last lease of the resource began, or its creation if there was none;
    /// a few milliseconds exact. In a release hook that is how long the present lease took. For an idle
    /// resource it is the longest that it may have been idle: a return reads no clock.
    pub fn unused_for(self) -> Duration {
        // Relaxed: as above.
        let since = self.usage.since.load(Ordering::Relaxed);
        Duration::from_nanos(self.born.runtime.coarse_now().saturating_sub(since))
    }
}

impl fmt::Debug for Info<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info")
            .field("id", &self.id())
            .field("age", &self.age())
            .field("uses", &self.uses())
            .finish_non_exhaustive()
    }
}

/// What never changes about a resource in a slot.
#[derive(Clone)]
pub(crate) struct Born {
    pub(crate) id: ResourceId,
    created: Instant,
    /// Leases of the slot before this resource.
    leases_before: u64,
    runtime: Arc<dyn Runtime>,
}

impl Born {
    /// For a resource that was just made and goes into this slot.
    pub(crate) fn new<T>(meta: &Meta, slot: &Slot<T>, runtime: &Arc<dyn Runtime>) -> Self {
        Born {
            id: meta.id,
            created: meta.seen.1,
            leases_before: slot.uses(),
            runtime: Arc::clone(runtime),
        }
    }
}
