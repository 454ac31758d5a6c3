//! The state of a bound connection: who has it and what is open on it. What pins it is in `release`.

use std::panic::Location;
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::bound::Lease;
use super::level::{AfterCommit, Doom, Level, Undo};
use crate::coroutine::Frame;
use crate::pooled::shared::Shared;
use crate::{Error, Kind, Result};

pub(super) struct State {
    pub(super) seat: Seat,
    /// On a replica it serves one transaction: what the coroutine does afterwards belongs to the primary again.
    pub(super) is_of_replica: bool,
    /// A transaction has begun on it.
    pub(super) had_level: bool,
    /// The frame that has the connection. `None` for statements and connections outside coroutines.
    pub(super) owner: Option<Weak<Frame>>,
    pub(super) levels: Vec<Level>,
    pub(super) statements: usize,
    pub(super) explicit: usize,
    /// The session was changed: the connection is pinned until the coroutine ends.
    pub(super) session: bool,
    pub(super) undo: Vec<Undo>,
    /// The error of every call in a lost transaction, until the transaction is ended.
    pub(super) lost: Option<Error>,
    /// Whether session state was lost with the connection.
    pub(super) lost_session: LostSession,
    /// Where the transaction was begun that was open when the coroutine ended.
    pub(super) ended_at: Option<&'static Location<'static>>,
    pub(super) waiting: Vec<(u64, Waker)>,
}

/// Where the lease is.
pub(super) enum Seat {
    Here(Lease),
    /// With a turn, which the call at `site` has taken.
    Lent {
        site: &'static Location<'static>,
        streaming: bool,
    },
    Gone,
}

/// Whether session state that a coroutine had changed was lost with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostSession {
    No,
    /// It was lost, and no caller got an error for it: the connection stays bound until one has.
    Unreported,
    /// It was lost, and a caller got an error for it.
    Reported,
}

/// What has to happen after the lock is released: dropping the lease, which gives it back, and waking waiters.
#[derive(Default)]
#[must_use]
pub(super) struct Deferred {
    pub(super) lease: Option<Lease>,
    pub(super) wakers: Vec<(u64, Waker)>,
    pub(super) unbind: Option<Arc<Frame>>,
    /// Levels that have ended: they hold the user's callbacks.
    pub(super) levels: Vec<Level>,
    pub(super) clean_up: bool,
}

impl Deferred {
    /// Adds the consequences of a release. A lease that goes back needs no clean-up here: the pool's hook does it.
    pub(super) fn absorb(&mut self, released: Deferred) {
        self.clean_up &= released.lease.is_none();
        self.lease = released.lease;
        self.unbind = released.unbind;
    }
}

impl State {
    pub(super) fn new(lease: Lease) -> Self {
        State {
            is_of_replica: lease.is_of_replica(),
            seat: Seat::Here(lease),
            had_level: false,
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

    /// Notes that the connection goes away, and with it a changed session.
    pub(super) fn lose_session(&mut self, lost_session: LostSession) {
        if std::mem::take(&mut self.session) {
            self.lost_session = lost_session;
        }
    }

    /// Notes that the connection is gone, and with it its transaction and its changed session. Returns the frame to
    /// unbind from. An unreported lost session stays bound until a caller gets an error for it.
    pub(super) fn lose_connection(
        &mut self,
        lost_session: LostSession,
        message: String,
    ) -> Option<Arc<Frame>> {
        self.lose_session(lost_session);
        self.seat = Seat::Gone;
        self.undo.clear();
        self.free_place();
        if let Some(top) = self.levels.last() {
            let site = top.site;
            self.lose(message, "begun at", site);
            return None;
        }
        match self.lost_session {
            LostSession::Unreported => None,
            LostSession::No | LostSession::Reported => {
                self.owner.take().and_then(|it| it.upgrade())
            }
        }
    }

    pub(super) fn owner(&self) -> Option<Arc<Frame>> {
        self.owner.as_ref()?.upgrade()
    }

    /// Moves the levels of a frame to another.
    pub(super) fn move_levels(&mut self, from: &Arc<Frame>, to: &Arc<Frame>) {
        for level in &mut self.levels {
            if matches!(&level.frame, Some(of) if Arc::ptr_eq(of, from)) {
                level.frame = Some(Arc::clone(to));
            }
        }
    }

    /// Returns whether the connection is gone, and no lost transaction is left of it.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.seat, Seat::Gone) && self.levels.is_empty()
    }

    /// Returns the innermost level around code in this frame.
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

    /// Removes the levels from this depth on, and notes that they have to be undone.
    pub(super) fn end_levels(&mut self, depth: usize, after: &mut Deferred) {
        after.levels = self.levels.drain(depth..).collect();
        let Some(outermost) = after.levels.first() else {
            return;
        };
        after.wakers = std::mem::take(&mut self.waiting);
        if let Some(site) = outermost.ending.filter(|_| depth > 0) {
            // Its end was sent: it is unknown whether the level ended before the rollback.
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

    /// Dooms the innermost level, because the call at this line was dropped before its answer.
    pub(super) fn doom(&mut self, dropped: &'static Location<'static>) {
        self.doom_by(Doom::Dropped(dropped));
    }

    /// Dooms the innermost level, unless its end was sent.
    pub(super) fn doom_by(&mut self, doom: Doom) {
        if let Some(top) = self.levels.last_mut()
            && top.ending.is_none()
        {
            top.doomed_by.get_or_insert(doom);
        }
    }

    /// Notes that the transaction begins to idle.
    pub(super) fn note_idle(&mut self, shared: &Shared) {
        if let Some(first) = self.levels.first_mut()
            && first.idle_limit.is_some()
        {
            first.idle_since = Some(shared.runtime.now());
        }
    }

    /// Notes that the transaction holds no connection any more, because the connection is gone.
    pub(super) fn free_place(&mut self) {
        if let Some(first) = self.levels.first_mut() {
            first.holding = None;
        }
    }

    /// Marks the transaction as lost.
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
