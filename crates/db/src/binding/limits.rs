//! Limits on transactions: how old they may grow, and how long they may idle.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::bound::Bound;
use super::state::{After, Seat};
use crate::{Error, Kind};

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

fn next_look(bound: &Weak<Bound>, serial: u64) -> Option<Instant> {
    // Let go of before sleeping: the watch must not keep the connection.
    bound.upgrade()?.next_expiry(serial)
}

impl Bound {
    /// When this transaction has to be looked at again; `None` if it is over.
    fn next_expiry(&self, serial: u64) -> Option<Instant> {
        let now = self.shared.runtime.0.now();
        let state = self.state();
        let level = state
            .levels
            .first()
            .filter(|level| level.serial == serial)?;
        if state.lost.is_some() {
            return None;
        }
        let old = self.shared.max_transaction_age.zip(level.since);
        let old = old.and_then(|(most, since)| since.checked_add(most));
        let most_idle = self.shared.idle_in_transaction;
        // While a call is under way it does not idle: look again when it could.
        let idle_since = match state.seat {
            Seat::Lent { .. } => Some(now),
            _ => level.idle_since,
        };
        // A stream that nobody reads has no deadline of its own.
        let streaming = matches!(
            state.seat,
            Seat::Lent {
                streaming: true,
                ..
            }
        );
        let idle = most_idle.zip(idle_since);
        let idle = idle.and_then(|(most, since)| since.checked_add(most));
        match state.seat {
            // The call has a deadline; what is left of it is seen to when it is over.
            Seat::Lent { .. } if !streaming => {
                idle.or_else(|| now.checked_add(self.shared.cleanup_timeout))
            }
            _ => old.into_iter().chain(idle).min(),
        }
    }

    /// Rolls this transaction back if its time is over and no call is under way in it.
    fn expire(self: &Arc<Self>, serial: u64) {
        let now = self.shared.runtime.0.now();
        if self.next_expiry(serial).is_none_or(|at| at > now) {
            return;
        }
        let mut state = self.state();
        if matches!(
            state.seat,
            Seat::Lent {
                streaming: false,
                ..
            } | Seat::Gone
        ) {
            return;
        }
        let Some(first) = state.levels.first() else {
            return;
        };
        let site = first.site;
        let message = "the transaction was open or idle for longer than it may be, and was rolled \
                       back";
        state.lost = Some(Error::new(Kind::TransactionTimeout, message).at(site));
        let mut after = After {
            wakers: std::mem::take(&mut state.waiting),
            ..After::default()
        };
        // A stream keeps its connection until it is read or dropped: it gets the error then.
        if matches!(state.seat, Seat::Here(_)) {
            if let Seat::Here(lease) = std::mem::replace(&mut state.seat, Seat::Gone) {
                after.lease = Some(lease);
            }
            state.undo.clear();
            state.free_place();
        }
        drop(state);
        tracing::warn!(%site, "{message}");
        self.follow(after);
    }
}
