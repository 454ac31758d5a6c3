//! Turns: a call's exclusive use of a pinned connection.

use std::future::poll_fn;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};

use super::bound::{Bound, Lease};
use super::level::{LastCall, Level, TransactionEffect, Undo};
use super::limits::watch;
use super::state::{LostSession, Seat, State};
use crate::call::Call;
use crate::call::op::{AtSavepoint, BeginOnly, Harmless, Op, Rollback};
use crate::call::route;
use crate::coroutine::Frame;
use crate::driver::{Savepoint, Status};
use crate::error::rounded;
use crate::pooled::connection::PooledConnection;
use crate::pooled::shared::TimeLimit;
use crate::sql::Class;
use crate::{Error, Kind, Result};

/// The origin of a call, which decides whether it may run now.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Code in this frame, or in none.
    Frame(Option<Arc<Frame>>),
    /// Code in this frame, which was in this level when it began to wait.
    FrameWithin(Arc<Frame>, u64),
    /// The guard of this level, used by code in this frame.
    Level(u64, Option<Arc<Frame>>),
    /// The guard of this level, to end the level, which may be lost or doomed.
    Ending(u64),
    /// The clean-up, without a caller.
    CleanUp,
}

impl Caller {
    /// Returns the caller of a call that waits in this level.
    fn within(&self, level: Option<u64>) -> Self {
        match (self, level) {
            (Caller::Frame(Some(frame)), Some(level)) => {
                Caller::FrameWithin(Arc::clone(frame), level)
            }
            _ => self.clone(),
        }
    }

    /// Returns the frame of the code that makes the call.
    pub(crate) fn frame(&self) -> Option<&Arc<Frame>> {
        match self {
            Caller::Frame(frame) => frame.as_ref(),
            Caller::FrameWithin(frame, _) => Some(frame),
            Caller::Level(_, frame) => frame.as_ref(),
            Caller::Ending(_) | Caller::CleanUp => None,
        }
    }
}

/// The exclusive use of a connection, for one call. Dropping it ends the turn, whatever the state of the connection.
#[derive(Debug)]
pub(crate) struct ConnectionTurn {
    bound: Arc<Bound>,
    /// `None` when the connection was given up.
    lease: Option<Lease>,
    /// The call that took the turn.
    site: &'static Location<'static>,
}

/// The result of checking the seat.
enum SeatCheck {
    /// The call has the lease; and the level around the call.
    Mine(Lease, Option<u64>),
    /// Another call has the lease; and the level around this call, outside which it must not run.
    Wait(&'static Location<'static>, Option<u64>),
    Never(Error),
}

impl Bound {
    /// Waits for a turn, takes it, and settles and undoes what earlier calls left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropped while waiting, nothing has happened; dropped while undoing, the next turn continues.
    ///
    /// # Errors
    ///
    /// The call may not run: its transaction has ended, is lost or doomed, perhaps by the clean-up.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        caller: &Caller,
        site: &'static Location<'static>,
    ) -> Result<ConnectionTurn> {
        let (lease, within) = match self.look(caller, site) {
            SeatCheck::Mine(lease, within) => (lease, within),
            SeatCheck::Never(error) => return Err(error),
            SeatCheck::Wait(holder, within) => {
                let caller = caller.within(within);
                // This future is part of many calls' futures: the rare branch is boxed.
                let waited = Box::pin(self.wait_for_turn(&caller, site, holder));
                (waited.await?, within)
            }
        };
        let mut turn = ConnectionTurn {
            bound: Arc::clone(self),
            lease: Some(lease),
            site,
        };
        if turn.is_untidy() {
            let lost_session = match caller {
                // No caller gets the error of a rollback.
                Caller::CleanUp | Caller::Ending(_) => LostSession::Unreported,
                _ => LostSession::Reported,
            };
            Box::pin(turn.tidy(lost_session)).await?;
            // The clean-up may have rolled the transaction back, or the transaction has ended meanwhile: the call
            // must not run outside it.
            if let Admission::No(error) = self.state().admits(&caller.within(within)) {
                return Err(error);
            }
        }
        // If the connection is lost, the call fails with an error that says that nothing was sent.
        turn.connection().probe();
        Ok(turn)
    }

    async fn wait_for_turn(
        self: &Arc<Self>,
        caller: &Caller,
        site: &'static Location<'static>,
        holder: &'static Location<'static>,
    ) -> Result<Lease> {
        let mut waiting = Waiting {
            bound: self,
            key: None,
            holder,
        };
        let looked = poll_fn(|cx| match self.look(caller, site) {
            SeatCheck::Mine(lease, _) => Poll::Ready(Ok(lease)),
            SeatCheck::Never(error) => Poll::Ready(Err(error)),
            SeatCheck::Wait(holder, _) => {
                waiting.holder = holder;
                // Registered first, then checked again: a turn that ended in between has woken nobody.
                waiting.register(cx.waker());
                match self.look(caller, site) {
                    SeatCheck::Mine(lease, _) => Poll::Ready(Ok(lease)),
                    SeatCheck::Never(error) => Poll::Ready(Err(error)),
                    SeatCheck::Wait(..) => Poll::Pending,
                }
            }
        });
        // The clean-up has no deadline.
        let cleans_up = matches!(caller, Caller::CleanUp);
        let limit = self.shared.acquire_timeout.filter(|_| !cleans_up);
        let lease = cenote_pool::within(&self.shared.runtime, limit, looked).await;
        let holder = waiting.holder;
        drop(waiting);
        lease.unwrap_or_else(|| {
            let message = format!(
                "timed out after {} waiting for a turn on the connection of this coroutine",
                rounded(limit.unwrap_or_default())
            );
            Err(Error::new(Kind::Timeout, message).at("which is used at", holder))
        })
    }

    fn look(&self, caller: &Caller, site: &'static Location<'static>) -> SeatCheck {
        let mut state = self.state();
        let within = state.level_of(caller);
        match state.admits(caller) {
            Admission::Yes => {}
            Admission::Deferred(holder) => return SeatCheck::Wait(holder, within),
            Admission::No(error) => return SeatCheck::Never(error),
        }
        match &state.seat {
            // A closed handle only lets open transactions finish.
            Seat::Here(_)
                if state.levels.is_empty()
                    && self.shared.is_closed()
                    && !matches!(caller, Caller::CleanUp) =>
            {
                return SeatCheck::Never(route::closed());
            }
            Seat::Here(_) => {}
            Seat::Lent {
                site,
                streaming: true,
            } if !matches!(caller, Caller::CleanUp) => {
                let message = "a row stream or COPY that is still open holds the connection that this \
                               call has to run on: bring it to its end or drop it first";
                return SeatCheck::Never(Error::new(Kind::Busy, message).at("opened at", site));
            }
            Seat::Lent { site, .. } => return SeatCheck::Wait(site, within),
            Seat::Gone if state.is_of_replica && state.levels.is_empty() => {
                let message = "the transaction on a replica in which this statement was prepared has ended, and \
                               the statement with it: prepare it after the transaction, or again in each";
                return SeatCheck::Never(Error::new(Kind::TransactionEnded, message));
            }
            Seat::Gone => {
                let message = match state.lost_session {
                    LostSession::No => "the connection was lost",
                    _ => {
                        "the connection was lost, and with it what this coroutine had changed in \
                         its session: change it again"
                    }
                };
                return SeatCheck::Never(Error::new(Kind::ConnectionLost, message));
            }
        }
        let lent = Seat::Lent {
            site,
            streaming: false,
        };
        match std::mem::replace(&mut state.seat, lent) {
            Seat::Here(lease) => SeatCheck::Mine(lease, within),
            _ => unreachable!("it was here a moment ago, under the same lock"),
        }
    }
}

enum Admission {
    Yes,
    /// After the transaction that was begun at this site.
    Deferred(&'static Location<'static>),
    No(Error),
}

impl State {
    /// Returns the level around a call from this caller.
    fn level_of(&self, caller: &Caller) -> Option<u64> {
        let depth = self.level_around(caller.frame()?)?;
        Some(self.levels[depth].serial)
    }

    /// Returns whether a call comes from code in or below the frame of the innermost level.
    fn is_inside_top(&self, caller: &Caller) -> bool {
        let within = match self.levels.last().map(|top| &top.frame) {
            Some(Some(within)) => within,
            // An explicit connection has no frame.
            Some(None) => return !matches!(caller, Caller::Level(..) | Caller::Ending(_)),
            None => return true,
        };
        let frame = caller.frame();
        frame.is_some_and(|frame| frame.is_within(within))
    }

    /// Decides whether a call from this caller may run now.
    fn admits(&self, caller: &Caller) -> Admission {
        match caller {
            Caller::CleanUp => return Admission::Yes,
            Caller::Ending(serial) | Caller::Level(serial, _) => {
                let Some(depth) = self.depth_of(*serial) else {
                    let message = "the transaction that this call belongs to has ended";
                    return Admission::No(Error::new(Kind::TransactionEnded, message));
                };
                if let Some(above) = self.levels.get(depth + 1)
                    && !self.is_inside_top(caller)
                {
                    return Admission::Deferred(above.site);
                }
            }
            Caller::FrameWithin(_, level) if self.depth_of(*level).is_none() => {
                let message = "the transaction that this call was made in ended while it waited \
                               for its turn";
                return Admission::No(Error::new(Kind::TransactionEnded, message));
            }
            Caller::Frame(_) | Caller::FrameWithin(..) => {
                if let Some(site) = self.ended_at {
                    let message = "the coroutine ended with its transaction open, which was \
                                   rolled back: a statement of it cannot run any more";
                    let error = Error::new(Kind::TransactionEnded, message);
                    return Admission::No(error.at("begun at", site));
                }
                if let Some(top) = self.levels.last()
                    && !self.is_inside_top(caller)
                {
                    return Admission::Deferred(top.site);
                }
            }
        }
        if matches!(caller, Caller::Ending(_)) {
            return Admission::Yes;
        }
        if let Some(lost) = &self.lost {
            return Admission::No(lost.clone());
        }
        match self.levels.iter().find_map(|level| level.doomed_by) {
            Some(doom) => Admission::No(doom.error()),
            None => Admission::Yes,
        }
    }
}

impl ConnectionTurn {
    pub(crate) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    pub(crate) fn connection(&mut self) -> &mut PooledConnection {
        self.lease.as_mut().expect("a turn has its lease")
    }

    /// Marks the turn as a stream's: other calls get an error instead of waiting.
    pub(crate) fn set_streaming(&mut self) {
        let mut state = self.bound.state();
        if let Seat::Lent { streaming, .. } = &mut state.seat {
            *streaming = true;
        }
        let wakers = std::mem::take(&mut state.waiting);
        drop(state);
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Returns whether something has to be settled or undone.
    fn is_untidy(&mut self) -> bool {
        self.connection().is_unsettled() || !self.bound.state().undo.is_empty()
    }

    /// Settles and undoes what earlier calls left behind.
    async fn tidy(&mut self, lost_session: LostSession) -> Result<()> {
        let limit = Some(self.bound.shared.cleanup_timeout);
        let runtime = Arc::clone(&self.bound.shared.runtime);
        let done = match cenote_pool::within(&runtime, limit, self.undo_all()).await {
            Some(done) => done,
            None => Err(Error::new(
                Kind::Timeout,
                "cleaning up after an earlier call took too long",
            )),
        };
        done.map_err(|error| {
            if let Some(lease) = self.lease.take() {
                self.bound.give_up(lease, &error, lost_session);
            }
            error.wrapped(
                Kind::ConnectionLost,
                "the connection could not be cleaned up after an earlier call, and was closed",
            )
        })?;
        Ok(())
    }

    async fn undo_all(&mut self) -> Result<()> {
        let site = self.site;
        let mut effect = None;
        if self.connection().is_unsettled() {
            let dropped = self.connection().dropped_call();
            let streamed = self.connection().stream().copied();
            self.connection().settle().await?;
            // Nobody read how the stream ended, so it is uncertain whether a COMMIT in it succeeded.
            effect = streamed.and_then(|class| TransactionEffect::of(&class, true));
            effect = effect.map(|_| TransactionEffect::Other);
            if let Some(dropped) = dropped
                && self.connection().status() == Status::Idle
            {
                // The cancel has rolled the whole transaction back.
                self.bound.state().doom(dropped);
            }
            let nobody_began = self.bound.state().levels.is_empty();
            if nobody_began && self.connection().status() != Status::Idle {
                // A dropped BEGIN took effect.
                self.send_undo(Rollback, site).await?;
            }
        }
        // Removed from the list when it is done: a cancel leaves it there.
        while let Some(next) = self.next_undo() {
            match (&next.savepoint, next.sent) {
                // The server has ended the transaction already.
                _ if self.connection().status() == Status::Idle => {}
                (None, _) => self.send_undo(Rollback, site).await?,
                // It is unknown whether the savepoint still exists: only the whole transaction can be undone.
                (Some(_), Some(sent)) => self.bound.state().doom(sent),
                (Some(name), None) => {
                    let back = AtSavepoint(Savepoint::RollBack(name));
                    self.mark_undo_sent();
                    self.send_undo(back, site).await?;
                }
            }
            let mut state = self.bound.state();
            let depth = next.depth;
            state.undo.retain(|undo| undo.depth != depth);
        }
        self.observe(effect.map(|_| site), effect, None);
        Ok(())
    }

    /// Sends a rollback. A cancel leaves the connection unsettled and the rollback on the list. A cancel dooms
    /// nothing, because no code uses the transaction any more.
    async fn send_undo<O: Op>(
        &mut self,
        op: O,
        site: &'static Location<'static>,
    ) -> Result<O::Out> {
        self.send(&Harmless(op), site, None).await
    }

    fn mark_undo_sent(&self) {
        if let Some(undo) = self.bound.state().undo.last_mut() {
            undo.sent = Some(self.site);
        }
    }

    fn next_undo(&self) -> Option<Undo> {
        self.bound.state().undo.last().cloned()
    }

    /// Compares the transaction status that the server reports with the levels. `site` is the call that was just
    /// answered, `effect` what its text did to the transaction, and `last` what became of it.
    pub(crate) fn observe(
        &mut self,
        site: Option<&'static Location<'static>>,
        effect: Option<TransactionEffect>,
        last: Option<LastCall>,
    ) {
        let connection = self.connection();
        let status = connection.status();
        // Behind an answered call, the position may be late, or the connection lost: that begins no transaction.
        let is_reported = !connection.is_broken() && !connection.is_unsettled();
        let mut state = self.bound.state();
        if let (Some(top), Some(last)) = (state.levels.last_mut(), last) {
            top.note(last);
        }
        let (mut ended, mut began) = (None, None);
        match state.levels.first() {
            None => {
                let open = matches!(status, Status::InTransaction | Status::Failed);
                // A transaction that is about to be rolled back has no owner.
                let open = open && state.undo.is_empty();
                if let (true, Some(site)) = (open, site) {
                    let level = Level::raw(&self.bound.shared, state.owner(), site);
                    began = Some(level.serial);
                    state.levels.push(level);
                }
            }
            Some(first) if first.raw && state.levels.len() == 1 => {
                // The text of a statement has ended what a text began.
                let is_chained = matches!(
                    effect,
                    Some(TransactionEffect::Committed | TransactionEffect::RolledBack)
                );
                if status == Status::Idle || is_chained {
                    ended = state.levels.pop();
                }
                if let (Some(of), true) = (&ended, is_reported && status != Status::Idle) {
                    // COMMIT AND CHAIN, ROLLBACK AND CHAIN: the next transaction has begun.
                    let site = site.unwrap_or(of.site);
                    let level = Level::raw(&self.bound.shared, state.owner(), site);
                    began = Some(level.serial);
                    state.levels.push(level);
                }
            }
            Some(first) if first.begun => {
                let doomed = state.levels.iter().any(|level| level.doomed_by.is_some());
                let is_over = status == Status::Idle || effect.is_some();
                if is_over && !doomed {
                    let message = "the server ended this transaction behind our back (by a COMMIT \
                                   or ROLLBACK in the text of a statement, an implicit commit, or \
                                   a rollback of its own): nothing more can run in it";
                    let (role, site) = match site {
                        Some(site) => ("ended at", site),
                        None => ("begun at", first.site),
                    };
                    state.lose(message.into(), role, site);
                }
            }
            Some(_) => {}
        }
        drop(state);
        if let Some(serial) = began {
            watch(&self.bound, serial);
        }
        if let Some(level) = ended {
            level.end_raw(effect);
        }
    }

    /// Sends a BEGIN that was waiting for the first statement.
    pub(crate) async fn begin_now(&mut self, call: &Call<'_>) -> Result<()> {
        let Some(begin) = self.bound.unsent_begin() else {
            return Ok(());
        };
        let limit = self.bound.shared.statement_limit();
        let begin = BeginOnly(begin);
        let done = self.send_first(&begin, &Class::NO_SQL, call, limit).await;
        if done.is_err() {
            let open = self.connection().status() != Status::Idle;
            self.bound.set_begun(open);
        }
        done.map(drop)
    }

    /// Sends the first request of the transaction together with BEGIN. If the connection was lost before anything ran,
    /// sends both once more on a new connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it connects, the transaction has not begun. Otherwise the transaction may have begun, and is rolled
    /// back.
    pub(crate) async fn send_first<O: Op>(
        &mut self,
        op: &O,
        class: &Class,
        call: &Call<'_>,
        limit: Option<TimeLimit>,
    ) -> Result<O::Out> {
        if self.connection().is_outdated() && self.bound.is_first_use() {
            // Its host was retired since the transaction took the connection, and nothing has run on it.
            Box::pin(call.reconnect(self.connection())).await?;
        }
        self.bound.set_begun(true);
        let answer = self.send(op, call.site, limit).await;
        match &answer {
            Err(lost)
                if call.may_repeat(class, lost, self.connection().in_use_for())
                    && self.bound.is_first_use() =>
            {
                self.bound.set_begun(false);
                // The future of every call would have room for it.
                Box::pin(call.reconnect(self.connection())).await?;
                self.bound.set_begun(true);
                self.send(op, call.site, limit).await
            }
            _ => answer,
        }
    }

    /// Sends a request that belongs to the transaction itself.
    pub(crate) async fn send<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
        limit: Option<TimeLimit>,
    ) -> Result<O::Out> {
        let shared = Arc::clone(&self.bound.shared);
        let runtime = &shared.runtime;
        self.connection()
            .send_within(op, site, runtime, limit)
            .await
    }

    /// Closes the connection, whose state is unknown.
    pub(crate) fn give_up(&mut self) {
        if let Some(lease) = self.lease.take() {
            let why = Error::new(Kind::ConnectionLost, "a rollback failed");
            self.bound.give_up(lease, &why, LostSession::Unreported);
        }
    }
}

impl Drop for ConnectionTurn {
    fn drop(&mut self) {
        if let Some(mut lease) = self.lease.take() {
            if lease.status() == Status::Idle {
                // Other pins may keep the connection, but it does not write any more.
                lease.set_writer(None);
            }
            self.bound.put_back(lease);
        }
    }
}

/// A waiter for a turn. Dropped, it removes its waker.
struct Waiting<'b> {
    bound: &'b Arc<Bound>,
    key: Option<u64>,
    holder: &'static Location<'static>,
}

impl Waiting<'_> {
    fn register(&mut self, waker: &Waker) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the number only has to be unique.
        let key = *self
            .key
            .get_or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let waker = waker.clone();
        let mut state = self.bound.state();
        let before = match state.waiting.iter_mut().find(|(of, _)| *of == key) {
            Some((_, before)) => Some(std::mem::replace(before, waker)),
            None => {
                state.waiting.push((key, waker));
                None
            }
        };
        drop(state);
        drop(before);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut state = self.bound.state();
        let found = state.waiting.iter().position(|(of, _)| *of == key);
        let gone = found.map(|at| state.waiting.swap_remove(at));
        drop(state);
        drop(gone);
    }
}
