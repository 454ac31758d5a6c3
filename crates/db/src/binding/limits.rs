//! Enforces the limits of transactions: their age, and how long they may idle.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::bound::Bound;
use super::level::Level;
use super::state::{Deferred, LostSession, Seat, State};
use crate::error::rounded;
use crate::{Error, Kind};

/// A call whose deadline has passed gets this long to end before the next check.
const ABOUT_TO_END: Duration = Duration::from_millis(500);

/// A watch over a transaction. It ends when it is dropped, with the transaction's level.
#[derive(Debug)]
pub(crate) struct Watch {
    _end: oneshot::Sender<()>,
}

/// Watches a transaction that has a limit. A transaction that idles too long is rolled back and its connection
/// released, without its holder. A running statement has a deadline of its own.
pub(crate) fn watch(bound: &Arc<Bound>, serial: u64) {
    if !bound.is_limited(serial) {
        return;
    }
    let shared = bound.shared();
    let (end, mut ended) = oneshot::channel();
    if !bound.set_watch(serial, Watch { _end: end }) {
        return;
    }
    let runtime = shared.runtime.clone();
    let bound = Arc::downgrade(bound);
    shared.runtime.spawn(Box::pin(async move {
        while let Some(until) = next_look(&bound, serial) {
            let mut sleep = runtime.sleep(until);
            let is_over = poll_fn(|cx| match Pin::new(&mut ended).poll(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => sleep.as_mut().poll(cx).map(|()| false),
            });
            if is_over.await {
                return;
            }
            let Some(bound) = bound.upgrade() else { return };
            bound.expire(serial);
        }
    }));
}

fn next_look(bound: &Weak<Bound>, serial: u64) -> Option<Instant> {
    // Dropped before sleeping: the watch must not keep the connection.
    bound.upgrade()?.next_expiry(serial)
}

impl Bound {
    /// Returns whether the age or the idle time of this transaction is limited.
    fn is_limited(&self, serial: u64) -> bool {
        let state = self.state();
        let level = state.levels.first().filter(|first| first.serial == serial);
        level.is_some_and(|level| level.since.is_some() || level.idle_limit.is_some())
    }

    /// Gives the watch to its level. Returns `false` if the level has ended.
    fn set_watch(&self, serial: u64, watch: Watch) -> bool {
        let mut state = self.state();
        let Some(depth) = state.depth_of(serial) else {
            return false;
        };
        state.levels[depth].watch = Some(watch);
        true
    }

    /// Returns when this transaction has to be checked again; `None` if it has ended.
    fn next_expiry(&self, serial: u64) -> Option<Instant> {
        let now = self.shared.runtime.now();
        self.next_expiry_in(&self.state(), serial, now)
    }

    fn next_expiry_in(&self, state: &State, serial: u64, now: Instant) -> Option<Instant> {
        let level = state
            .levels
            .first()
            .filter(|level| level.serial == serial)?;
        if state.lost.is_some() {
            return None;
        }
        let old = self.shared.max_transaction_age.zip(level.since);
        let old = old.and_then(|(most, since)| since.checked_add(most));
        let most_idle = level.idle_limit;
        // A transaction with a running call does not idle: check again when it could.
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
        let next = old.into_iter().chain(idle).min();
        match state.seat {
            // A running call has a deadline of its own; when that has passed, the call is about to end.
            Seat::Lent { .. } if !streaming => {
                let next = next.filter(|next| *next > now);
                next.or_else(|| now.checked_add(ABOUT_TO_END))
            }
            _ => next,
        }
    }

    /// Rolls this transaction back if its time is over and no call runs in it.
    fn expire(self: &Arc<Self>, serial: u64) {
        let now = self.shared.runtime.now();
        let mut state = self.state();
        let next = self.next_expiry_in(&state, serial, now);
        if next.is_none_or(|at| at > now) {
            return;
        }
        if matches!(
            state.seat,
            Seat::Lent {
                streaming: false,
                ..
            } | Seat::Gone
        ) {
            return;
        }
        // The transaction may have ended since, and another begun.
        let first = state.levels.first();
        let Some(first) = first.filter(|first| first.serial == serial) else {
            return;
        };
        let error = match state.seat {
            Seat::Here(_) => idle_too_long(first, now).unwrap_or_else(|| self.too_old(&state)),
            _ => self.too_old(&state),
        };
        state.lost = Some(error.clone());
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        // A stream keeps its connection until it is read or dropped: then it gets the error.
        if matches!(state.seat, Seat::Here(_)) {
            if let Seat::Here(lease) = std::mem::replace(&mut state.seat, Seat::Gone) {
                after.lease = Some(lease);
            }
            state.undo.clear();
            state.free_place();
            state.lose_session(LostSession::Unreported);
        }
        drop(state);
        tracing::warn!("transaction rolled back: {error}");
        self.follow(after);
    }

    /// Returns the error of a transaction that has exceeded `max_transaction_age`.
    pub(super) fn too_old(&self, state: &State) -> Error {
        let first = state.levels.first();
        let age = first.and_then(|first| first.since);
        let age = age.map(|since| self.shared.runtime.now().saturating_duration_since(since));
        let message = format!(
            "a transaction was open for {} (max_transaction_age is {})",
            rounded(age.unwrap_or_default()),
            rounded(self.shared.max_transaction_age.unwrap_or_default())
        );
        let error = Error::new(Kind::TransactionTimeout, message);
        match first {
            Some(first) => error.at("begun at", first.site),
            None => error,
        }
    }
}

/// Returns the error of a transaction that has exceeded `idle_in_transaction`, if it has.
fn idle_too_long(first: &Level, now: Instant) -> Option<Error> {
    let limit = first.idle_limit?;
    let idle = now.saturating_duration_since(first.idle_since?);
    if idle < limit {
        return None;
    }
    let message = format!(
        "idle for {} in a transaction (idle_in_transaction is {})",
        rounded(idle),
        rounded(limit)
    );
    Some(Error::new(Kind::TransactionTimeout, message).at("begun at", first.site))
}
