//! What a pool knows about one of its resources, for hooks and predicates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::slot::Slot;
use crate::core::state::Meta;
use crate::observe::status::ResourceId;
use crate::runtime::Runtime;
use crate::sync::AtomicU64;

/// The age and the uses of a resource.
///
/// The hooks of a [`Manager`](crate::Manager), closures wrapped in [`informed`](crate::informed) and the
/// predicate of [`Pool::retain`](crate::Pool::retain) receive it. Nothing is computed until it is asked for.
#[derive(Clone, Copy)]
pub struct Info<'a> {
    origin: &'a Origin,
    usage: &'a Usage,
}

/// How often and when a slot was leased. Only its owner writes it; anybody may read it.
#[derive(Debug)]
pub(crate) struct Usage {
    /// The number of leases, of all resources that were ever in the slot.
    pub(crate) leases: AtomicU64,
    /// When the last lease began, by the coarse clock, in nanoseconds.
    pub(crate) since: AtomicU64,
    /// When the last sampled lease began, by the precise clock, in nanoseconds.
    pub(crate) sampled: AtomicU64,
}

impl<'a> Info<'a> {
    #[inline]
    pub(crate) fn new<T>(origin: &'a Origin, slot: &'a Slot<T>) -> Self {
        let usage = slot.usage();
        Info { origin, usage }
    }

    /// Returns the number of the resource.
    pub fn id(self) -> ResourceId {
        self.origin.id
    }

    /// Returns when the resource was created, by the clock of the pool's runtime.
    pub fn created(self) -> Instant {
        self.origin.created
    }

    /// Returns how long ago the resource was created.
    pub fn age(self) -> Duration {
        let now = self.origin.runtime.now();
        now.saturating_duration_since(self.origin.created)
    }

    /// Returns the number of leases of the resource. In a release hook that includes the lease that
    /// ends; in an acquire hook it does not include the one that begins.
    pub fn uses(self) -> u64 {
        // Relaxed: the caller owns the slot, and only its owner writes.
        self.usage.leases.load(Ordering::Relaxed) - self.origin.leases_before
    }

    /// Returns how long ago the last lease of the resource began, or its creation if there was none,
    /// exact to a few milliseconds. In a release hook that is the length of the lease. An idle resource
    /// has been idle for at most this long: a release reads no clock.
    pub fn unused_for(self) -> Duration {
        // Relaxed: as above.
        let since = self.usage.since.load(Ordering::Relaxed);
        Duration::from_nanos(self.origin.runtime.coarse_now().saturating_sub(since))
    }

    /// Returns when the last lease of the resource began, or its creation if there was none, exact to a few
    /// milliseconds. Reads no clock.
    pub fn last_used(self) -> Instant {
        // Relaxed: as above.
        let since = self.usage.since.load(Ordering::Relaxed);
        let later = since.saturating_sub(self.origin.created_coarse);
        self.origin.created + Duration::from_nanos(later)
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
pub(crate) struct Origin {
    pub(crate) id: ResourceId,
    created: Instant,
    /// About the same moment by the coarse clock, in nanoseconds.
    created_coarse: u64,
    /// Leases of the slot before this resource.
    leases_before: u64,
    runtime: Arc<dyn Runtime>,
}

impl Origin {
    /// Describes a new resource that goes into this slot.
    pub(crate) fn new<T>(meta: &Meta, slot: &Slot<T>, runtime: &Arc<dyn Runtime>) -> Self {
        Origin {
            id: meta.id,
            created: meta.seen.1,
            created_coarse: runtime.coarse_now(),
            leases_before: slot.uses(),
            runtime: Arc::clone(runtime),
        }
    }
}
