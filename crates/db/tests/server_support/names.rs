//! The addresses of the servers, and unique names on them.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a variable that the script of the servers has set.
///
/// # Panics
///
/// If the variable is missing: a test that does nothing would look like one that passed.
pub(crate) fn required_variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set; run ci/test.sh, or cargo test inside of ci/mariadb.sh or \
             ci/postgres.sh: their first lines say how"
        )
    })
}

/// A name that nothing else on the server has.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: it only has to be unique.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}_{}_{n}", std::process::id())
}
