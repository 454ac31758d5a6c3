//! Warnings through `tracing`, where it is compiled in.

use std::panic::Location;
use std::time::Duration;

use crate::observe::status::ResourceId;

macro_rules! warn {
    ($($field:ident = $value:expr),+; $text:literal) => {{
        // A subscriber is anybody's code, and this may be called in a drop.
        #[cfg(feature = "tracing")]
        crate::user_code::contained(|| {
            tracing::warn!(target: "cenote_pool", $($field = %$value),+, $text);
        });
        #[cfg(not(feature = "tracing"))]
        { $(let _ = &$value;)+ }
    }};
}

pub(crate) fn slow_acquire(pool: &str, waited: Duration, caller: &Location<'_>) {
    warn!(pool = pool, waited = format_args!("{waited:?}"), caller = caller; "slow acquire");
}

pub(crate) fn leak_suspected(
    pool: &str,
    resource: ResourceId,
    held_for: Duration,
    caller: &Location<'_>,
) {
    warn!(pool = pool, resource = resource, held_for = format_args!("{held_for:?}"),
        caller = caller; "a lease has been out for long, it may have leaked");
}

pub(crate) fn destroy_failed(pool: &str, resource: ResourceId, error: &str) {
    warn!(pool = pool, resource = resource, error = error; "destroying a resource failed");
}

pub(crate) fn create_failed(pool: &str, error: &str) {
    warn!(pool = pool, error = error; "creating a resource failed, and nobody waits for it");
}

pub(crate) fn hook_failed(pool: &str, resource: ResourceId, error: &str) {
    warn!(pool = pool, resource = resource, error = error; "a hook failed, its resource is destroyed");
}

pub(crate) fn strategy_panicked(pool: &str, error: &str) {
    warn!(pool = pool, error = error; "the breaker's strategy panicked");
}
