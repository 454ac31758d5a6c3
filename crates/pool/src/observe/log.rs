//! Warnings through `tracing`, if that feature is on.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::observe::status::{Holder, ResourceId, Status};
use crate::observe::text::human;

/// Whether anybody can receive warnings.
pub(crate) const WARNS: bool = cfg!(feature = "tracing");

macro_rules! warn {
    ($($field:ident = $value:expr),+; $text:literal) => {{
        // A subscriber is user code, and this may be called in a drop.
        #[cfg(feature = "tracing")]
        crate::user_code::contained(|| {
            tracing::warn!(target: "cenote_pool", $($field = %$value),+, $text);
        });
        #[cfg(not(feature = "tracing"))]
        { $(let _ = &$value;)+ }
    }};
}

/// The longest leases, in one line.
struct Holders<'a>(&'a [Holder]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, holder) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{holder}")?;
        }
        Ok(())
    }
}

pub(crate) fn still_waiting(
    pool: &str,
    waited: Duration,
    caller: &Location<'_>,
    status: &Status,
    holders: &[Holder],
) {
    warn!(pool = pool, waited = human(waited), caller = caller, status = status,
        holders = Holders(holders); "an acquire is still waiting");
}

pub(crate) fn more_still_waiting(pool: &str, acquires: usize, status: &Status) {
    warn!(pool = pool, acquires = acquires, status = status; "more acquires are still waiting");
}

pub(crate) fn slow_acquire(pool: &str, waited: Duration, caller: &Location<'_>) {
    warn!(pool = pool, waited = human(waited), caller = caller; "an acquire was slow");
}

pub(crate) fn leak_suspected(
    pool: &str,
    resource: ResourceId,
    held_for: Duration,
    caller: &Location<'_>,
) {
    warn!(pool = pool, resource = resource, held_for = human(held_for), caller = caller;
        "a resource is in use for longer than leak_warning; it may have leaked");
}

pub(crate) fn destroy_failed(pool: &str, resource: ResourceId, error: &str) {
    warn!(pool = pool, resource = resource, error = error; "destroying a resource failed");
}

pub(crate) fn create_failed(pool: &str, error: &str) {
    warn!(pool = pool, error = error; "creating a resource failed, and no acquire waits for it");
}

pub(crate) fn hook_failed(pool: &str, resource: ResourceId, error: &str) {
    warn!(pool = pool, resource = resource, error = error;
        "checking or cleaning up a resource failed; it is destroyed");
}

pub(crate) fn strategy_panicked(pool: &str, error: &str) {
    warn!(pool = pool, error = error; "the strategy of the circuit breaker panicked");
}
