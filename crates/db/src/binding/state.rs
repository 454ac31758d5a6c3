//! The state of a bound connection: who has it, what pins it, what is open on it.

use std::panic::Location;
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::bound::Lease;
use super::level::{AfterCommit, Level, Undo};
use crate::coroutine::Frame;
use crate::pooled::shared::Shared;
use crate::{Error, Kind, Result};

pub(super) struct State {
    pub(super) seat: Seat,
    /// The frame it is bound to. None for statements and connections outside of coroutines.
    pub(super) owner: Option<Weak<Frame>>,
    pub(super) levels: Vec<Level>,
    pub(super) statements: usize,
    pub(super) explicit: usize,
    /// The session was touched: pinned until the coroutine ends.
    pub(super) session: bool,
    pub(super) undo: Vec<Undo>,
    /// Why no call can run in its transaction any more, until that is ended.
    pub(super) lost: Option<Error>,
    /// Session state went with the connection.
    pub(super) lost_session: LostSession,
    /// Its coroutine ended with a transaction open, begun here.
    pub(super) ended_at: Option<&'static Location<'static>>,
    pub(super) waiting: Vec<(u64, Waker)>,
}

/// Where the lease is.
pub(super) enum Seat {
    Here(Lease),
    /// Out with a turn, which was taken there.
    Lent {
        site: &'static Location<'static>,
        streaming: bool,
    },
    Gone,
}

/// Whether session state that a coroutine had changed went with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostSession {
    No,
    /// And no caller has had an error for it: the connection stays bound until one has.
    Untold,
    Told,
}

/// What has to happen after the lock is released: the lease is dropped, which gives it
/// back, and waiters are woken.
#[derive(Default)]
#[must_use]
pub(super) struct Deferred {
    pub(super) lease: Option<Lease>,
    pub(super) wakers: Vec<(u64, Waker)>,
    pub(super) unbind: Option<Arc<Frame>>,
    /// Levels that are gone: they hold callbacks of the user's.
    pub(super) levels: Vec<Level>,
    pub(super) clean_up: bool,
}

impl Deferred {
    /// With what follows from a release. A lease that goes back needs no cleaning up
    /// here: the pool's hook does it.
    pub(super) fn absorb(&mut self, released: Deferred) {
        self.clean_up &= released.lease.is_none();
        self.lease = released.lease;
        self.unbind = released.unbind;
    }
}

impl State {
    pub(super) fn new(lease: Lease) -> Self {
        State {
            seat: Seat::Here(lease),
            owner: None,
            levels: Vec::new(),
            statements: 0,
            explicit: 0,
            session: false,
            undo: Vec::new(),
            lost: None,
            lost_session: LostSession::No,
            ended_at: None,
            waiting: Vec::new(),
        }
    }

    /// The connection goes: if its session was changed, that is lost.
    pub(super) fn lose_session(&mut self, told: LostSession) {
        if std::mem::take(&mut self.session) {
            self.lost_session = told;
        }
    }

    /// The connection is gone: its transaction is lost, and so is what was changed in its session. Gives the frame
    /// that it is bound to no more; a session stays bound until a caller was told that it is lost.
    pub(super) fn lose_connection(
        &mut self,
        told: LostSession,
        message: String,
    ) -> Option<Arc<Frame>> {
        self.lose_session(told);
        self.seat = Seat::Gone;
        self.undo.clear();
        self.free_place();
        if let Some(top) = self.levels.last() {
            let site = top.site;
            self.lose(message, "begun at", site);
            return None;
        }
        match self.lost_session {
            LostSession::Untold => None,
            LostSession::No | LostSession::Told => self.owner.take().and_then(|it| it.upgrade()),
        }
    }

    pub(super) fn owner(&self) -> Option<Arc<Frame>> {
        self.owner.as_ref()?.upgrade()
    }

    /// The levels of a frame go on in another.
    pub(super) fn move_levels(&mut self, from: &Arc<Frame>, to: &Arc<Frame>) {
        for level in &mut self.levels {
            if matches!(&level.frame, Some(of) if Arc::ptr_eq(of, from)) {
                level.frame = Some(Arc::clone(to));
            }
        }
    }

    /// It is not there any more, and nothing that was lost with it.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.seat, Seat::Gone) && self.levels.is_empty()
    }

    /// The innermost level that code in this frame is in.
    pub(super) fn level_around(&self, frame: &Arc<Frame>) -> Option<usize> {
        self.levels.iter().rposition(|level| match &level.frame {
            Some(of) => frame.is_within(of),
            None => true,
        })
    }

    pub(super) fn register(
        &mut self,
        depth: Option<usize>,
        callback: AfterCommit,
    ) -> Result<(), AfterCommit> {
        match depth {
            Some(depth) => {
                self.levels[depth].after_commit.push(callback);
                Ok(())
            }
            None => Err(callback),
        }
    }

    pub(super) fn depth_of(&self, serial: u64) -> Option<usize> {
        self.levels.iter().position(|level| level.serial == serial)
    }

    /// Forgets the levels from this depth on; what they did is to be undone.
    pub(super) fn end_levels(&mut self, depth: usize, after: &mut Deferred) {
        after.levels = self.levels.drain(depth..).collect();
        let Some(outermost) = after.levels.first() else {
            return;
        };
        after.wakers = std::mem::take(&mut self.waiting);
        if let Some(site) = outermost.ending.filter(|_| depth > 0) {
            // It may have ended before it could be undone: nobody knows.
            self.doom(site);
        } else if outermost.begun && !matches!(self.seat, Seat::Gone) {
            self.undo.retain(|undo| undo.depth < depth);
            self.undo.push(Undo {
                depth,
                savepoint: outermost.savepoint.clone(),
                sent: None,
            });
            after.clean_up = true;
        }
    }

    /// A call was dropped before it was answered.
    pub(super) fn doom(&mut self, dropped: &'static Location<'static>) {
        if let Some(top) = self.levels.last_mut()
            && top.ending.is_none()
        {
            top.doomed_by.get_or_insert(dropped);
        }
    }

    /// From now on the transaction idles.
    pub(super) fn note_idle(&mut self, shared: &Shared) {
        if let Some(first) = self.levels.first_mut()
            && first.idle_limit.is_some()
        {
            first.idle_since = Some(shared.runtime.now());
        }
    }

    /// The connection is gone: its transaction does not hold a place any more.
    pub(super) fn free_place(&mut self) {
        if let Some(first) = self.levels.first_mut() {
            first.holding = None;
        }
    }

    /// The connection has been lost under a transaction, or so it seems.
    /// `role` says what was done at `site`.
    pub(super) fn lose(
        &mut self,
        message: String,
        role: &'static str,
        site: &'static Location<'static>,
    ) {
        let error = Error::new(Kind::TransactionLost, message).at(role, site);
        self.lost.get_or_insert(error);
    }
}
