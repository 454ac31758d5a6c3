//! What pins a bound connection, and when it goes back to the pool.
//!
//! A transaction, a live statement, an explicit holder or a changed session pins it; a transaction alone pins one to a replica.
//! Every change that can remove the last of these calls [`State::release_if_free`].

use super::state::{Deferred, LostSession, Seat, State};

/// Pins that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinKind {
    /// A live statement.
    Statement,
    /// An explicit pin, or an explicitly held connection.
    Explicit,
}

impl State {
    pub(super) fn count(&mut self, kind: PinKind) -> &mut usize {
        match kind {
            PinKind::Statement => &mut self.statements,
            PinKind::Explicit => &mut self.explicit,
        }
    }

    /// Returns whether a transaction, a statement, a holder or a changed session pins the connection.
    pub(super) fn is_pinned(&self) -> bool {
        if self.is_of_replica && self.had_level {
            return !self.levels.is_empty();
        }
        !self.levels.is_empty() || self.statements > 0 || self.explicit > 0 || self.session
    }

    /// Pins the connection until its coroutine ends, because its session was changed.
    pub(super) fn pin_session(&mut self) {
        self.session |= self.owner.is_some() && !self.is_of_replica;
    }

    /// Takes the lease out of its seat if nothing pins the connection; dropping the lease gives the connection back.
    pub(super) fn release_if_free(&mut self) -> Deferred {
        let mut after = Deferred::default();
        // A lost connection is released whatever pinned it. Only a transaction that was lost with it stays, until it
        // is ended.
        if !self.is_gone() && (self.is_pinned() || matches!(self.seat, Seat::Lent { .. })) {
            return after;
        }
        if self.lost_session == LostSession::Unreported && self.owner.is_some() {
            return after;
        }
        self.session = false;
        if let Seat::Here(lease) = std::mem::replace(&mut self.seat, Seat::Gone) {
            after.lease = Some(lease);
        }
        self.undo.clear();
        after.unbind = self.owner.take().and_then(|owner| owner.upgrade());
        after
    }
}
