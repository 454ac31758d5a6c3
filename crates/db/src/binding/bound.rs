//! A pinned connection: its pins, its levels, and how it goes back.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cenote_pool::OwnedLease;

use super::level::{AfterCommit, Doom, Level};
use super::limits::watch;
use super::pins::PinKind;
use super::state::{Deferred, LostSession, Seat, State};
use super::turn::Caller;
use crate::Error;
use crate::api::db::Binding;
use crate::coroutine::{Bind, Frame};
use crate::driver::{Begin, Status};
use crate::pooled::activity::PinReason;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::{DbId, Shared};

pub(crate) type Lease = OwnedLease<ConnectionManager>;

/// A connection that is pinned. See the [module](super).
pub(crate) struct Bound {
    pub(super) shared: Arc<Shared>,
    state: Mutex<State>,
}

/// A pin. Dropped, it ends.
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

    /// Pins a bound connection, unless it has gone back meanwhile.
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
    /// Returns a connection that is not bound to a frame yet.
    pub(crate) fn new(shared: &Arc<Shared>, lease: Lease) -> Arc<Self> {
        Arc::new_cyclic(|bound| {
            lease.activity().set_bound(Weak::clone(bound));
            Bound {
                shared: Arc::clone(shared),
                state: Mutex::new(State::new(lease)),
            }
        })
    }

    /// Returns what pins the connection; `None` if nothing does, or the connection is gone.
    pub(crate) fn pin_reason(&self) -> Option<PinReason> {
        let state = self.state();
        if matches!(state.seat, Seat::Gone) {
            return None;
        }
        let reasons = [
            (PinReason::Transaction, !state.levels.is_empty()),
            (PinReason::Statement, state.statements > 0),
            (PinReason::Explicit, state.explicit > 0),
            (PinReason::Session, state.session),
        ];
        let reason = reasons.into_iter().find(|(_, pins)| *pins);
        reason.map(|(reason, _)| reason)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Binds the connection to a frame, unless the frame has one of this `Db` already.
    pub(crate) fn bind_to(self: &Arc<Self>, frame: &Arc<Frame>) -> Bind {
        self.state().owner = Some(Arc::downgrade(frame));
        let answer = frame.bind(self.shared.id, self);
        if answer != Bind::Done {
            self.state().owner = None;
        }
        answer
    }

    /// Ends a pin. The last one gives the connection back.
    fn unpin(self: &Arc<Self>, kind: PinKind) {
        let mut state = self.state();
        // The end of the coroutine may have removed an explicit pin before.
        let count = state.count(kind);
        *count = count.saturating_sub(1);
        let mut after = Deferred::default();
        if state.owner.is_none() && state.statements == 0 && state.explicit == 0 {
            // An explicit connection is given back: a transaction that is still open was forgotten.
            state.end_levels(0, &mut after);
        }
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
    }

    /// Gives the connection back if nothing pins it: for a call that bound it and left nothing open.
    pub(crate) fn release(self: &Arc<Self>) {
        let after = self.state().release_if_free();
        self.follow(after);
    }

    /// Keeps a connection that the text of a statement has pinned: by a transaction if there is one, else by a change of
    /// the session.
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

    /// Returns the BEGIN that has to be sent with the next statement.
    pub(crate) fn unsent_begin(&self) -> Option<Begin> {
        let state = self.state();
        let first = state.levels.first()?;
        (!first.begun).then_some(first.begin)
    }

    /// Notes that BEGIN is about to be sent, or was refused.
    pub(crate) fn set_begun(&self, begun: bool) {
        if let Some(first) = self.state().levels.first_mut() {
            first.begun = begun;
        }
    }

    /// Returns how long the transaction may still last, if its age is limited.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let most = self.shared.max_transaction_age?;
        let since = self.state().levels.first()?.since?;
        let age = self.shared.runtime.now().saturating_duration_since(since);
        Some(most.saturating_sub(age))
    }

    pub(crate) fn push(&self, level: Level) {
        let mut state = self.state();
        state.had_level = true;
        state.levels.push(level);
    }

    pub(crate) fn has_level(&self, serial: u64) -> bool {
        self.state().depth_of(serial).is_some()
    }

    /// Returns the innermost level around code in this frame.
    pub(crate) fn level_around(&self, frame: &Arc<Frame>) -> Option<u64> {
        let state = self.state();
        let depth = state.level_around(frame)?;
        Some(state.levels[depth].serial)
    }

    /// Returns whether session state was lost with the connection, and notes that a caller gets an error for it.
    pub(crate) fn report_lost_session(&self) -> bool {
        let mut state = self.state();
        let was_lost = state.lost_session != LostSession::No;
        if was_lost {
            state.lost_session = LostSession::Reported;
        }
        was_lost
    }

    pub(crate) fn frame_of(&self, serial: u64) -> Option<Arc<Frame>> {
        let state = self.state();
        let depth = state.depth_of(serial)?;
        state.levels[depth].frame.clone()
    }

    /// Returns whether a level has begun on the server, and the name of its savepoint.
    pub(crate) fn shape(&self, serial: u64) -> (bool, Option<String>) {
        let state = self.state();
        match state.depth_of(serial).map(|depth| &state.levels[depth]) {
            Some(level) => (level.begun, level.savepoint.clone()),
            None => (false, None),
        }
    }

    /// Notes that the end of a level is about to be sent by the call at `site`, or was refused.
    pub(crate) fn set_ending(&self, serial: u64, site: Option<&'static Location<'static>>) {
        let mut state = self.state();
        if let Some(depth) = state.depth_of(serial) {
            state.levels[depth].ending = site;
        }
    }

    /// Returns the error of every call in the transaction, if the transaction was lost.
    pub(crate) fn why_lost(&self) -> Option<Error> {
        self.state().lost.clone()
    }

    /// Ends a transaction that has exceeded `max_transaction_age`: nothing more runs in it.
    pub(crate) fn lose_by_age(&self) -> Error {
        let mut state = self.state();
        let error = self.too_old(&state);
        state.lost.get_or_insert(error).clone()
    }

    /// Dooms the innermost level: the `exec_many` at this line failed in it, perhaps after some of its sets.
    pub(crate) fn doom_half_done(&self, site: &'static Location<'static>) {
        self.state().doom_by(Doom::HalfDone(site));
    }

    /// Returns why the transaction cannot be committed, if it cannot.
    pub(crate) fn why_not_commit(&self) -> Option<Error> {
        if self.time_left() == Some(Duration::ZERO) {
            return Some(self.lose_by_age());
        }
        let state = self.state();
        let doomed_by = state.levels.iter().find_map(|level| level.doomed_by);
        state.lost.clone().or_else(|| doomed_by.map(Doom::error))
    }

    /// Takes the callbacks of a committed level: they wait for the level around it. Returns them, to be run, if there is
    /// none.
    pub(crate) fn defer(&self, callbacks: Vec<AfterCommit>) -> Vec<AfterCommit> {
        match self.state().levels.last_mut() {
            Some(level) => {
                level.after_commit.extend(callbacks);
                Vec::new()
            }
            None => callbacks,
        }
    }

    /// Ends a lost or doomed transaction that the text of a statement began. Returns its error.
    pub(crate) fn end_failed_raw(self: &Arc<Self>) -> Option<Error> {
        let mut state = self.state();
        let doomed_by = match state.levels.as_slice() {
            [level] if level.raw => level.doomed_by,
            _ => return None,
        };
        let wrong = state.lost.take().or_else(|| doomed_by.map(Doom::error))?;
        let mut after = Deferred::default();
        state.end_levels(0, &mut after);
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
        Some(wrong)
    }

    /// Returns whether a stream has to run on this connection, because it must see an open transaction or a changed
    /// session.
    pub(crate) fn holds_streams(&self) -> bool {
        let state = self.state();
        !state.levels.is_empty()
            || state.explicit > 0
            || state.session
            || state.lost.is_some()
            || state.lost_session == LostSession::Unreported
    }

    /// Returns whether a call may run on another connection as well: no transaction is open on this one, and its session
    /// was neither changed nor lost without an error.
    pub(crate) fn is_exchangeable(&self) -> bool {
        let state = self.state();
        let is_unreported = state.lost_session == LostSession::Unreported;
        state.levels.is_empty() && !state.session && !is_unreported
    }

    /// Returns whether the outermost transaction may begin on another connection as well: nothing else is open, and the
    /// session was not changed. The history of an explicitly held connection is unknown. Statements are prepared again
    /// on the new connection.
    pub(crate) fn is_first_use(&self) -> bool {
        let state = self.state();
        state.levels.len() == 1 && state.owner.is_some() && !state.session
    }

    pub(crate) fn in_transaction(&self) -> bool {
        !self.state().levels.is_empty()
    }

    /// Returns whether code in this frame is in a transaction on this connection: its own, or one around it.
    pub(crate) fn in_transaction_from(&self, frame: &Arc<Frame>) -> bool {
        self.state().level_around(frame).is_some()
    }

    /// Returns whether a transaction or savepoint was opened in this very frame.
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

    /// Registers a callback that runs when the outermost transaction around code in this frame is committed. Returns the
    /// callback if there is no transaction.
    pub(crate) fn after_commit_from(
        &self,
        frame: &Arc<Frame>,
        callback: AfterCommit,
    ) -> Result<(), AfterCommit> {
        let mut state = self.state();
        let around = state.level_around(frame);
        state.register(around, callback)
    }

    /// As [`after_commit_from`](Bound::after_commit_from), for the guard of a level.
    pub(crate) fn after_commit_of(
        &self,
        serial: u64,
        callback: AfterCommit,
    ) -> Result<(), AfterCommit> {
        let mut state = self.state();
        let depth = state.depth_of(serial);
        state.register(depth, callback)
    }

    /// Takes the end of the frame. A pinned connection moves to the frame around it. Without one, the coroutine has
    /// ended: transactions are rolled back, and only live statements keep the connection.
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
        // Explicit pins are guards of this coroutine, and end with it.
        state.explicit = 0;
        state.ended_at = open;
        after.absorb(state.release_if_free());
        drop(state);
        self.follow(after);
    }

    /// Binds the connection to the frame around its own, which has ended, if anything still pins it.
    fn move_on(self: &Arc<Self>, db: DbId, ended: &Arc<Frame>, outer: &Arc<Frame>) -> bool {
        let mut state = self.state();
        let is_unreported = state.lost_session == LostSession::Unreported;
        if !is_unreported && (state.is_gone() || !state.is_pinned()) {
            return false;
        }
        state.owner = Some(Arc::downgrade(outer));
        // A closure's own level has ended with its frame: these levels are of guards and of statements' texts.
        state.move_levels(ended, outer);
        // Under the lock, so that the connection does not go back in between.
        outer.bind(db, self) == Bind::Done
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state().is_gone()
    }

    /// Moves the levels of a frame that has ended to the frame around it.
    pub(crate) fn move_levels(&self, ended: &Arc<Frame>, outer: &Arc<Frame>) {
        self.state().move_levels(ended, outer);
    }

    /// Takes the drop of a guard that has not ended its transaction or savepoint.
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
        // Closures inside may still be running: their calls must not run outside the transaction.
        let mut ended = after.levels.iter();
        let own = ended.next().and_then(|level| level.frame.as_ref());
        for frame in ended.filter_map(|level| level.frame.as_ref()) {
            if !own.is_some_and(|own| Arc::ptr_eq(own, frame)) {
                frame.lose(self.shared.id);
            }
        }
        self.follow(after);
    }

    /// Returns where a level was begun that has written and that nothing keeps from a commit: no failed call, no panic and no
    /// cancel.
    pub(crate) fn forgotten(&self, serial: u64) -> Option<&'static Location<'static>> {
        let state = self.state();
        let levels = &state.levels[state.depth_of(serial)?..];
        let is_cancelled = |level: &Level| level.frame.as_ref().is_some_and(Frame::is_cancelled);
        let is_well = |level: &Level| level.could_commit() && !is_cancelled(level);
        let is_forgotten = state.lost.is_none()
            && !std::thread::panicking()
            && levels.iter().any(|level| level.wrote)
            && levels.iter().all(is_well);
        is_forgotten.then(|| levels[0].site)
    }

    /// Undoes savepoints above this level whose guards were forgotten: a guard borrows the one around it, so no live guard
    /// of them can exist.
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

    /// Returns where the transaction around code in this frame was begun, if the transaction may write.
    pub(crate) fn writer_around(&self, frame: &Arc<Frame>) -> Option<&'static Location<'static>> {
        let state = self.state();
        state.level_around(frame)?;
        let first = state.levels.first()?;
        (!first.begin.read_only && state.lost.is_none()).then_some(first.site)
    }

    /// As [`writer_around`](Bound::writer_around), for the transaction of a closure, which outlives the code inside it.
    pub(crate) fn closure_that_writes(
        &self,
        frame: &Arc<Frame>,
    ) -> Option<&'static Location<'static>> {
        let writer = self.writer_around(frame)?;
        let state = self.state();
        let first = state.levels.first()?;
        first.holding.is_some().then_some(writer)
    }

    /// Removes a level that has ended regularly from the stack.
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
        // Gives the connection back; the pool's hook rolls back what is open on it.
        drop(lease);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
        if clean_up {
            self.clean_up_soon();
        }
        // Last, because the user's callbacks in the levels may panic when dropped.
        for level in levels {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(level)));
        }
    }

    /// Settles and undoes, in the background, what cannot wait for the next call.
    fn clean_up_soon(self: &Arc<Self>) {
        let bound = Arc::clone(self);
        self.shared.runtime.spawn(Box::pin(async move {
            // Taking a turn undoes what is left. If that fails, the connection is closed, and the server undoes it.
            let site = Location::caller();
            drop(bound.turn(&Caller::CleanUp, site).await);
        }));
    }
}

impl Bound {
    /// Puts the lease of a turn back, and notes what the turn changed.
    pub(super) fn put_back(self: &Arc<Self>, lease: Lease) {
        let mut state = self.state();
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        let dropped = lease.dropped_call();
        if lease.is_broken() {
            let lost_session = if lease.is_loss_reported() {
                LostSession::Reported
            } else {
                if lease.is_touched() {
                    // An answered call changed the session: its caller relies on the change.
                    state.pin_session();
                }
                LostSession::Unreported
            };
            let message = "the connection of this transaction was lost: nothing more can run in \
                           it, and nothing of it was committed";
            after.unbind = state.lose_connection(lost_session, message.into());
            after.lease = Some(lease);
        } else {
            if let Some(dropped) = dropped {
                state.doom(dropped);
            }
            if lease.is_touched() {
                // A text that may have run changed the session, or the server reported a change, perhaps with a COMMIT.
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

    /// Closes a connection that could not be cleaned up.
    ///
    /// `lost_session` says whether a caller gets an error for it.
    pub(super) fn give_up(self: &Arc<Self>, lease: Lease, why: &Error, lost_session: LostSession) {
        let mut state = self.state();
        let mut after = Deferred {
            wakers: std::mem::take(&mut state.waiting),
            ..Deferred::default()
        };
        let message = format!("the connection of this transaction had to be given up: {why}");
        after.unbind = state.lose_connection(lost_session, message);
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
