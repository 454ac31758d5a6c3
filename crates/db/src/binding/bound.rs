//! A bound connection, and what pins it.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cenote_pool::OwnedLease;

use super::level::{AfterCommit, Level};
use super::limits::watch;
use super::release::PinKind;
use super::state::{Deferred, LostSession, Seat, State};
use super::turn::{Position, doomed};
use crate::Error;
use crate::api::db::Binding;
use crate::coroutine::{Bind, Frame};
use crate::driver::{Begin, Status};
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::{DbId, Shared};

pub(crate) type Lease = OwnedLease<ConnectionManager>;

/// A connection that is pinned. See the [module](super).
pub(crate) struct Bound {
    pub(super) shared: Arc<Shared>,
    state: Mutex<State>,
}

/// A pin, ended by dropping it.
#[derive(Debug)]
pub(crate) struct PinGuard {
    bound: Arc<Bound>,
    kind: PinKind,
}

impl PinGuard {
    pub(crate) fn new(bound: &Arc<Bound>, kind: PinKind) -> Self {
        *bound.state().count(kind) += 1;
        PinGuard {
            bound: Arc::clone(bound),
            kind,
        }
    }

    /// Pins a connection that was found bound, unless it has gone back meanwhile.
    pub(crate) fn of_found(bound: &Arc<Bound>, kind: PinKind) -> Option<Self> {
        let mut state = bound.state();
        if state.is_gone() {
            return None;
        }
        *state.count(kind) += 1;
        drop(state);
        Some(PinGuard {
            bound: Arc::clone(bound),
            kind,
        })
    }

    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    pub(crate) fn kind(&self) -> PinKind {
        self.kind
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.bound.unpin(self.kind);
    }
}

impl Bound {
    /// A connection that is bound to nothing yet.
    pub(crate) fn new(shared: &Arc<Shared>, lease: Lease) -> Arc<Self> {
        Arc::new(Bound {
            shared: Arc::clone(shared),
            state: Mutex::new(State::new(lease)),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Binds it to a frame, unless that has one already.
    pub(crate) fn bind_to(self: &Arc<Self>, frame: &Arc<Frame>) -> Bind {
        self.state().owner = Some(Arc::downgrade(frame));
        let answer = frame.bind(self.shared.id, self);
        if answer != Bind::Done {
            self.state().owner = None;
        }
        answer
    }

    /// Ends a pin; the last one gives the connection back.
    fn unpin(self: &Arc<Self>, kind: PinKind) {
        let mut state = self.state();
        // A coroutine that ended may have taken an explicit pin away before.
        let count = state.count(kind);
        *count = count.saturating_sub(1);
        let mut after = Deferred::default();
        if state.owner.is_none() && state.statements == 0 && state.explicit == 0 {
            // Of an explicit connection: a transaction that is left was forgotten.
            state.end_levels(0, &mut after);
        }
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
    }

    /// Gives the connection back if nothing pins it: for one that was bound for nothing.
    pub(crate) fn release(self: &Arc<Self>) {
        let after = self.state().release_if_free();
        self.follow(after);
    }

    /// Keeps a connection that the text of a statement has pinned: by a transaction, if
    /// there is one, or else by what it did to the session.
    pub(crate) fn keep(self: &Arc<Self>, transaction: Option<Level>) {
        let serial = transaction.as_ref().map(|level| level.serial);
        let mut state = self.state();
        if let Seat::Here(lease) = &state.seat
            && lease.is_touched()
        {
            state.pin_session();
        }
        state.levels.extend(transaction);
        state.note_idle(&self.shared);
        drop(state);
        if let Some(serial) = serial {
            watch(self, serial);
        }
    }

    /// The BEGIN that has to travel with the next statement.
    pub(crate) fn unsent_begin(&self) -> Option<Begin> {
        let state = self.state();
        let first = state.levels.first()?;
        (!first.begun).then_some(first.begin)
    }

    /// The BEGIN is about to be sent, or was refused after all.
    pub(crate) fn set_begun(&self, begun: bool) {
        if let Some(first) = self.state().levels.first_mut() {
            first.begun = begun;
        }
    }

    /// How long the transaction may still last, if its age is limited.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let most = self.shared.max_transaction_age?;
        let since = self.state().levels.first()?.since?;
        let age = self.shared.runtime.now().saturating_duration_since(since);
        Some(most.saturating_sub(age))
    }

    pub(crate) fn push(&self, level: Level) {
        let mut state = self.state();
        state.levels.push(level);
    }

    pub(crate) fn has_level(&self, serial: u64) -> bool {
        self.state().depth_of(serial).is_some()
    }

    /// The innermost level that code in this frame is in.
    pub(crate) fn level_around(&self, frame: &Arc<Frame>) -> Option<u64> {
        let state = self.state();
        let depth = state.level_around(frame)?;
        Some(state.levels[depth].serial)
    }

    /// Whether session state was lost with the connection. From now on somebody knows.
    pub(crate) fn tell_lost_session(&self) -> bool {
        let mut state = self.state();
        let was_lost = state.lost_session != LostSession::No;
        if was_lost {
            state.lost_session = LostSession::Told;
        }
        was_lost
    }

    pub(crate) fn frame_of(&self, serial: u64) -> Option<Arc<Frame>> {
        let state = self.state();
        let depth = state.depth_of(serial)?;
        state.levels[depth].frame.clone()
    }

    /// Whether a level has begun on the server, and its savepoint if it is one.
    pub(crate) fn shape(&self, serial: u64) -> (bool, Option<String>) {
        let state = self.state();
        match state.depth_of(serial).map(|depth| &state.levels[depth]) {
            Some(level) => (level.begun, level.savepoint.clone()),
            None => (false, None),
        }
    }

    /// The end of a level is about to be sent, from there, or was refused.
    pub(crate) fn set_ending(&self, serial: u64, site: Option<&'static Location<'static>>) {
        let mut state = self.state();
        if let Some(depth) = state.depth_of(serial) {
            state.levels[depth].ending = site;
        }
    }

    /// Why no statement can run in the transaction any more, if it was lost.
    pub(crate) fn why_lost(&self) -> Option<Error> {
        self.state().lost.clone()
    }

    /// Ends a transaction that has exceeded `max_transaction_age`: nothing more runs in it.
    pub(crate) fn lose_by_age(&self) -> Error {
        let mut state = self.state();
        let error = self.too_old(&state);
        state.lost.get_or_insert(error).clone()
    }

    /// Why the transaction cannot be committed, if so.
    pub(crate) fn why_not_commit(&self) -> Option<Error> {
        if self.time_left() == Some(Duration::ZERO) {
            return Some(self.lose_by_age());
        }
        let state = self.state();
        let doomed_by = state.levels.iter().find_map(|level| level.doomed_by);
        state.lost.clone().or_else(|| doomed_by.map(doomed))
    }

    /// Callbacks of a level that was committed: they wait for the one around it, or come
    /// back to be run if there is none.
    pub(crate) fn defer(&self, callbacks: Vec<AfterCommit>) -> Vec<AfterCommit> {
        match self.state().levels.last_mut() {
            Some(level) => {
                level.after_commit.extend(callbacks);
                Vec::new()
            }
            None => callbacks,
        }
    }

    /// Ends a lost or doomed transaction that the text of a statement began; gives back what
    /// was wrong with it.
    pub(crate) fn end_failed_raw(self: &Arc<Self>) -> Option<Error> {
        let mut state = self.state();
        let doomed_by = match state.levels.as_slice() {
            [level] if level.raw => level.doomed_by,
            _ => return None,
        };
        let wrong = state.lost.take().or_else(|| doomed_by.map(doomed))?;
        let mut after = Deferred::default();
        state.end_levels(0, &mut after);
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
        Some(wrong)
    }

    /// Whether a stream has to run here: something that it must see is here.
    pub(crate) fn holds_streams(&self) -> bool {
        let state = self.state();
        !state.levels.is_empty()
            || state.explicit > 0
            || state.session
            || state.lost.is_some()
            || state.lost_session == LostSession::Untold
    }

    /// Whether a call may run on another connection as well: no transaction is open on this one, and
    /// its session was not changed, nor lost without a word.
    pub(crate) fn is_exchangeable(&self) -> bool {
        let state = self.state();
        let is_untold = state.lost_session == LostSession::Untold;
        state.levels.is_empty() && !state.session && !is_untold
    }

    /// Whether its outermost transaction may begin on another connection as well: nothing else is open, and the session was
    /// not changed. What was done to one that somebody holds is not known. Statements are prepared again where they run.
    pub(crate) fn is_first_use(&self) -> bool {
        let state = self.state();
        state.levels.len() == 1 && state.owner.is_some() && !state.session
    }

    pub(crate) fn in_transaction(&self) -> bool {
        !self.state().levels.is_empty()
    }

    /// Whether code in this frame is in a transaction here: its own, or one around it.
    pub(crate) fn in_transaction_from(&self, frame: &Arc<Frame>) -> bool {
        self.state().level_around(frame).is_some()
    }

    /// Where the transaction was begun that a call from this frame would run in.
    pub(crate) fn has_level_in(&self, frame: &Arc<Frame>) -> bool {
        let state = self.state();
        let of = |level: &Level| matches!(&level.frame, Some(of) if Arc::ptr_eq(of, frame));
        state.levels.iter().any(of)
    }

    pub(crate) fn describe(&self, frame: &Arc<Frame>) -> Binding {
        let state = self.state();
        let warnings = match &state.seat {
            Seat::Here(lease) => lease.warnings(),
            _ => 0,
        };
        Binding {
            in_transaction: state.level_around(frame).is_some(),
            begun_at: state.levels.first().map(|level| level.site),
            savepoints: state.levels.len().saturating_sub(1),
            statements: state.statements,
            session_touched: state.session,
            warnings,
        }
    }

    /// Registers what is to run when the outermost transaction has been committed, from
    /// code in this frame. Gives it back if there is none.
    pub(crate) fn after_commit_from(
        &self,
        frame: &Arc<Frame>,
        callback: AfterCommit,
    ) -> Result<(), AfterCommit> {
        let mut state = self.state();
        let around = state.level_around(frame);
        state.register(around, callback)
    }

    /// The same, from the guard of a level.
    pub(crate) fn after_commit_of(
        &self,
        serial: u64,
        callback: AfterCommit,
    ) -> Result<(), AfterCommit> {
        let mut state = self.state();
        let depth = state.depth_of(serial);
        state.register(depth, callback)
    }

    /// Its frame has ended. What pins it still goes on to the frame around it; without one, the
    /// coroutine has ended: transactions are rolled back, and only statements that somebody
    /// holds keep it.
    pub(crate) fn frame_ended(
        self: &Arc<Self>,
        db: DbId,
        ended: &Arc<Frame>,
        outer: Option<&Arc<Frame>>,
    ) {
        if let Some(outer) = outer
            && self.move_on(db, ended, outer)
        {
            return;
        }
        let mut state = self.state();
        let open = state.levels.first().map(|level| level.site);
        let mut after = Deferred::default();
        state.end_levels(0, &mut after);
        state.lost = None;
        state.owner = None;
        state.session = false;
        // Explicit pins are guards of this coroutine: they pin nothing without it.
        state.explicit = 0;
        state.ended_at = open;
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
    }

    /// Binds it to the frame around its own, which has ended, if anything pins it still.
    fn move_on(self: &Arc<Self>, db: DbId, ended: &Arc<Frame>, outer: &Arc<Frame>) -> bool {
        let mut state = self.state();
        let is_untold = state.lost_session == LostSession::Untold;
        if !is_untold && (state.is_gone() || !state.is_pinned()) {
            return false;
        }
        state.owner = Some(Arc::downgrade(outer));
        // A closure's own level is over when its frame ends: these are of guards, and of
        // statements' texts.
        state.move_levels(ended, outer);
        // Under the lock, so that it does not go back between the two.
        outer.bind(db, self) == Bind::Done
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state().is_gone()
    }

    /// Levels that were opened in a frame which has ended go on in the one around it.
    pub(crate) fn move_levels(&self, ended: &Arc<Frame>, outer: &Arc<Frame>) {
        self.state().move_levels(ended, outer);
    }

    /// A guard of a transaction or savepoint is gone without having ended it.
    pub(crate) fn abandon(self: &Arc<Self>, serial: u64) {
        let mut state = self.state();
        let Some(depth) = state.depth_of(serial) else {
            return;
        };
        let mut after = Deferred::default();
        state.end_levels(depth, &mut after);
        if depth == 0 {
            state.lost = None;
        }
        after.absorb(state.release_if_free());
        drop(state);
        // Closures inside may still be running: they must not run on without it.
        let mut ended = after.levels.iter();
        let own = ended.next().and_then(|level| level.frame.as_ref());
        for frame in ended.filter_map(|level| level.frame.as_ref()) {
            if !own.is_some_and(|own| Arc::ptr_eq(own, frame)) {
                frame.lose(self.shared.id);
            }
        }
        self.follow(after);
    }

    /// Undoes savepoints above this level whose guards were forgotten: a guard borrows the one
    /// that it is in, so that nobody can have it any more.
    pub(crate) fn abandon_above(self: &Arc<Self>, serial: u64) {
        let state = self.state();
        let Some(depth) = state.depth_of(serial) else {
            return;
        };
        let above = state.levels.get(depth + 1);
        let forgotten = above.filter(|above| above.borrows == Some(serial));
        let forgotten = forgotten.map(|above| above.serial);
        drop(state);
        if let Some(serial) = forgotten {
            self.abandon(serial);
        }
    }

    /// Where the transaction was begun that code in this frame is in, if it may write.
    pub(crate) fn writer_around(&self, frame: &Arc<Frame>) -> Option<&'static Location<'static>> {
        let state = self.state();
        state.level_around(frame)?;
        let first = state.levels.first()?;
        (!first.begin.read_only && state.lost.is_none()).then_some(first.site)
    }

    /// The same, if that is the transaction of a closure, which does not end before the code inside it.
    pub(crate) fn closure_that_writes(
        &self,
        frame: &Arc<Frame>,
    ) -> Option<&'static Location<'static>> {
        let writer = self.writer_around(frame)?;
        let state = self.state();
        let first = state.levels.first()?;
        first.holding.is_some().then_some(writer)
    }

    /// Takes a level off the stack that has been ended in order.
    pub(crate) fn pop(self: &Arc<Self>, serial: u64) -> Option<Level> {
        let mut state = self.state();
        let depth = state.depth_of(serial)?;
        let level = state.levels.drain(depth..).next();
        if depth == 0 {
            state.lost = None;
        }
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
        level
    }

    pub(super) fn follow(self: &Arc<Self>, after: Deferred) {
        let Deferred {
            lease,
            wakers,
            unbind,
            levels,
            clean_up,
        } = after;
        if let Some(frame) = unbind {
            frame.unbind(self);
        }
        // Gives it back; what is open on it is rolled back by the pool's hook.
        drop(lease);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
        if clean_up {
            self.clean_up_soon();
        }
        // Last, because the callbacks in there are the user's, and may panic when dropped.
        for level in levels {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(level)));
        }
    }

    /// Settles and undoes in the background what cannot wait for the next call.
    fn clean_up_soon(self: &Arc<Self>) {
        let bound = Arc::clone(self);
        self.shared.runtime.spawn(Box::pin(async move {
            // A turn undoes what there is before it is given. If that fails the
            // connection goes, and with it what was to be undone.
            let site = Location::caller();
            drop(bound.turn(&Position::CleanUp, site).await);
        }));
    }
}

impl Bound {
    /// Puts the lease of a turn back, and sees what follows from what was done in it.
    pub(super) fn put_back(self: &Arc<Self>, lease: Lease) {
        let mut state = self.state();
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        let dropped = lease.dropped_call();
        if lease.is_broken() {
            let told = if lease.is_loss_reported() {
                LostSession::Told
            } else {
                if lease.is_touched() {
                    // By a call that was answered: its caller relies on it.
                    state.pin_session();
                }
                LostSession::Untold
            };
            let message = "the connection of this transaction was lost: nothing more can run in \
                           it, and nothing of it was committed";
            after.unbind = state.lose_connection(told, message.into());
            after.lease = Some(lease);
        } else {
            if let Some(dropped) = dropped {
                state.doom(dropped);
            }
            if lease.is_touched() {
                // By a text that may have run, or by what the server reported, also with a COMMIT.
                state.pin_session();
            }
            state.note_idle(&self.shared);
            after.clean_up = lease.is_unsettled() || !state.undo.is_empty();
            if state.levels.is_empty() && lease.status() == Status::Idle {
                state.lost = None;
            }
            state.seat = Seat::Here(lease);
            after.absorb(state.release_if_free());
        }
        drop(state);
        self.follow(after);
    }

    /// The connection cannot be brought back to order: it goes.
    ///
    /// `told` says whether a caller gets an error for it.
    pub(super) fn give_up(self: &Arc<Self>, lease: Lease, why: &Error, told: LostSession) {
        let mut state = self.state();
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        let message = format!("the connection of this transaction had to be given up: {why}");
        after.unbind = state.lose_connection(told, message);
        drop(state);
        Lease::discard(lease);
        self.follow(after);
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        out.debug_struct("Bound")
            .field("levels", &state.levels)
            .field("statements", &state.statements)
            .field("explicit", &state.explicit)
            .field("session", &state.session)
            .finish_non_exhaustive()
    }
}
