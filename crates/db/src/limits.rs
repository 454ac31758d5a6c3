//! Limits on transactions: how old they may grow, and how long they may idle.

use std::sync::{Arc, Weak};

use crate::binding::Bound;

/// Watches a transaction, if there is a limit to watch: one that idles beyond it is
/// rolled back and its place freed, though its holder is not there to do it. A statement that is
/// under way has a deadline of its own.
pub(crate) fn watch(bound: &Arc<Bound>, serial: u64) {
    let shared = bound.shared();
    if shared.max_transaction_age.is_none() && shared.idle_in_transaction.is_none() {
        return;
    }
    let runtime = shared.runtime.clone();
    let bound = Arc::downgrade(bound);
    shared.runtime.0.spawn(Box::pin(async move {
        while let Some(until) = next_look(&bound, serial) {
            runtime.0.sleep(until).await;
            let Some(bound) = bound.upgrade() else { return };
            bound.expire(serial);
        }
    }));
}

fn next_look(bound: &Weak<Bound>, serial: u64) -> Option<std::time::Instant> {
    // Let go of before sleeping: the watch must not keep the connection.
    bound.upgrade()?.next_expiry(serial)
}
