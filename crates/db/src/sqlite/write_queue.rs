//! The write queue: serialises the writers of one database, and lets one of them write for others.
//!
//! SQLite lets one connection write at a time. The others retry until their time is up, in no order. So
//! writers queue here first, in the order of arrival. A process has one write queue per database,
//! whichever handles opened it. Other processes do not queue: SQLite's busy timeout applies to them.
//!
//! # Who owns the permit
//!
//! Each queue has one [`WritePermit`], and the permit has one owner:
//!
//! | owner | until |
//! |---|---|
//! | nobody: the queue is empty | the next writer enters |
//! | a session, in `Writing` | the session has no transaction that writes: `Session::leave_write_queue` |
//! | a waiter that was offered the permit | the waiter's next poll, or 20 ms if others wait: then the permit goes to the next waiter, and the late one back to the front |
//!
//! Dropping a permit offers it to the oldest waiter.
//!
//! # The stages of a waiter
//!
//! ```text
//!             .────── not collected for 20 ms ──────.
//!             v                                     |
//! enter ──> Queued ──it is the oldest──────> Answered(Permit) ──poll──> Over
//!            |  ^ |
//!            |  | '──its time is up────────> Answered(Err) ─────poll──> Over
//!            |  |
//!   the batch|  |the batch was rolled back: from now on the waiter writes alone
//!   of a     v  |
//!   session Batched ──committed────────────> Answered(Written) ─poll──> Over
//! ```
//!
//! A task waits with its [`Ticket`] and needs no thread. A thread waits the same way; its
//! [`Control`] is the waker. A dropped ticket leaves the queue: nothing is written for it, unless a session
//! has it in its batch at this moment.
//!
//! # Group commit
//!
//! A single write that nothing depends on enters with its request. The session that owns the permit takes
//! such waiters from the front of the queue as a [`WriteBatch`], runs their requests in one transaction and
//! answers them: one commit, one wait for the disk. The file `group_commit` decides what may be batched.
//!
//! # Locks
//!
//! The queue's lock comes before a waiter's. A waiter is in `waiting` exactly while its stage is `Queued`; both
//! change under the queue's lock. Wakers run, and permits are dropped, under neither.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::cancel::Control;
use super::error;
use super::file::DatabaseId;
use super::statement::OwnedRequest;
use super::timing;
use super::watchdog::Watchdog;
use crate::Result;
use crate::driver::Outcome;

/// A waiter has this long to collect the permit while others wait. Its task may be in a `select!` that polls
/// something else, or wait for one of the others itself.
const UNCOLLECTED: Duration = Duration::from_millis(20);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    queue: Mutex<Queue>,
    /// The session that has the permit, for messages. No other lock is taken under this one.
    holder: Mutex<Option<WriteHolder>>,
}

/// The session that has the permit, as messages name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteHolder {
    /// The line of the program, if it is known.
    pub(super) site: Option<&'static Location<'static>>,
    since: Instant,
}

impl WriteHolder {
    /// Returns how long the session has had the permit.
    pub(super) fn held_for(&self) -> Duration {
        timing::now().saturating_duration_since(self.since)
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// The permit has an owner.
    is_taken: bool,
    waiting: VecDeque<Arc<Waiter>>,
    /// The waiter that was last offered the permit, and when.
    offered: Option<(Arc<Waiter>, Instant)>,
}

/// What entering the queue returns at once.
#[derive(Debug)]
pub(super) enum EnterOutcome {
    Permit(WritePermit),
    Queued(Ticket),
}

/// How a wait in the queue ends.
#[derive(Debug)]
pub(super) enum QueueAnswer {
    /// The waiter may write.
    Permit(WritePermit),
    /// Another session has written the waiter's request.
    Written(Outcome),
}

impl QueueAnswer {
    /// Returns the permit of a waiter that entered without a request.
    pub(super) fn into_permit(self) -> WritePermit {
        match self {
            QueueAnswer::Permit(permit) => permit,
            QueueAnswer::Written(_) => unreachable!("only a waiter with a request is batched"),
        }
    }
}

/// Sessions of one kind are interchangeable: the same handle opened them, with the same settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionKind(u64);

impl SessionKind {
    /// Returns a new kind, different from all others.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the number only has to be unique.
        SessionKind(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl WriteQueue {
    /// Returns the write queue of this database, and whether it is new.
    pub(super) fn of(database: DatabaseId) -> (Arc<Self>, bool) {
        static QUEUES: OnceLock<Mutex<HashMap<DatabaseId, Weak<WriteQueue>>>> = OnceLock::new();
        let queues = QUEUES.get_or_init(Mutex::default);
        let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(write_queue) = queues.get(&database).and_then(Weak::upgrade) {
            return (write_queue, false);
        }
        queues.retain(|_, write_queue| write_queue.strong_count() > 0);
        let write_queue = Arc::new(WriteQueue::default());
        queues.insert(database, Arc::downgrade(&write_queue));
        (write_queue, true)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller has set `is_taken`, or takes the place of a permit that is being dropped.
    fn permit(self: &Arc<Self>) -> WritePermit {
        WritePermit {
            write_queue: Arc::clone(self),
        }
    }

    /// Returns the session that has the permit.
    pub(super) fn holder(&self) -> Option<WriteHolder> {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_holder(&self, holder: Option<WriteHolder>) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = holder;
    }

    /// Returns the number of waiters in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns the permit if it is free.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<WritePermit> {
        let is_free = self.lock().take();
        is_free.then(|| self.permit())
    }

    /// Returns the permit if it is free, else a place in the queue for at most `timeout`. A session of the
    /// given kind may run the given request for the waiter.
    pub(super) fn enter(
        self: &Arc<Self>,
        request: Option<(SessionKind, &Arc<OwnedRequest>)>,
        timeout: Duration,
    ) -> EnterOutcome {
        let mut queue = self.lock();
        if queue.take() {
            drop(queue);
            return EnterOutcome::Permit(self.permit());
        }
        let waiter = Arc::new(Waiter {
            until: timing::now().checked_add(timeout),
            request: request.map(|(kind, request)| (kind, Arc::clone(request))),
            state: Mutex::default(),
        });
        queue.waiting.push_back(Arc::clone(&waiter));
        drop(queue);
        EnterOutcome::Queued(Ticket {
            write_queue: Arc::clone(self),
            waiter,
        })
    }

    /// Blocks the connection's thread until it has the permit.
    ///
    /// # Errors
    ///
    /// The busy timeout has passed, or the call was cancelled.
    pub(super) fn enter_blocking(self: &Arc<Self>, control: &Arc<Control>) -> Result<WritePermit> {
        // The thread watches the time itself: it works without a watchdog, too.
        let ticket = match self.enter(None, Duration::MAX) {
            EnterOutcome::Permit(permit) => return Ok(permit),
            EnterOutcome::Queued(ticket) => ticket,
        };
        Watchdog::watch_queues();
        let answer = control.block_on(|cx| ticket.poll(cx));
        let answer = answer.map_err(|error| match error::is_busy(&error) {
            true => error::write_queue_timeout(self.holder()),
            false => error,
        })?;
        Ok(answer.into_permit())
    }

    /// Ends the waits whose time is up, and passes a permit on that was not collected. The watchdog calls this
    /// regularly. Returns whether the queue has waiters left.
    pub(super) fn check_times(&self) -> bool {
        let now = timing::now();
        let holder = self.holder();
        let mut wakers = Vec::new();
        let mut queue = self.lock();
        queue.waiting.retain(|waiter| {
            let is_late = waiter.until.is_some_and(|until| now >= until);
            if is_late {
                wakers.extend(waiter.answer(Err(error::write_queue_timeout(holder))));
            }
            !is_late
        });
        wakers.extend(queue.pass_on_uncollected(now));
        let has_waiters = !queue.waiting.is_empty();
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
        has_waiters
    }
}

impl Queue {
    /// Takes the permit if it is free.
    fn take(&mut self) -> bool {
        !std::mem::replace(&mut self.is_taken, true)
    }

    /// Offers the permit to the oldest waiter. Without one it is free.
    fn offer(&mut self, permit: impl FnOnce() -> WritePermit) -> Option<Waker> {
        let Some(next) = self.waiting.pop_front() else {
            self.is_taken = false;
            self.offered = None;
            return None;
        };
        let waker = next.answer(Ok(QueueAnswer::Permit(permit())));
        self.offered = Some((next, timing::now()));
        waker
    }

    /// Takes the permit from a waiter that does not collect it, and offers it to the next. The late waiter goes
    /// back to the front, where a batch may take it.
    fn pass_on_uncollected(&mut self, now: Instant) -> Option<Waker> {
        let (_, since) = self.offered.as_ref()?;
        if self.waiting.is_empty() || now.duration_since(*since) < UNCOLLECTED {
            return None;
        }
        let (late, _) = self.offered.take()?;
        let permit = late.take_permit(Stage::Queued)?;
        let waker = self.offer(|| permit);
        self.waiting.push_front(late);
        waker
    }
}

/// A task or a thread that waits, as the queue, a batch and the ticket share it.
#[derive(Debug)]
struct Waiter {
    /// `None` is for ever.
    until: Option<Instant>,
    /// What a session of this kind may run for the waiter.
    request: Option<(SessionKind, Arc<OwnedRequest>)>,
    state: Mutex<WaiterState>,
}

#[derive(Debug, Default)]
struct WaiterState {
    stage: Stage,
    /// A batch with this waiter was rolled back.
    is_alone: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Queued,
    /// A session runs the request in its batch. If the waiter is leaving, it is not put back.
    Batched { is_leaving: bool },
    /// The answer waits for the next poll.
    Answered(Result<QueueAnswer>),
    /// The waiter has its answer, or has left.
    Over,
}

impl Waiter {
    fn state(&self) -> MutexGuard<'_, WaiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a session of this kind may take the waiter into its batch.
    fn can_batch(&self, kind: SessionKind) -> bool {
        let is_kind = matches!(&self.request, Some((of, _)) if *of == kind);
        is_kind && !self.state().is_alone
    }

    /// Sets the answer. The caller wakes the waiter when it holds no lock.
    #[must_use]
    fn answer(&self, answer: Result<QueueAnswer>) -> Option<Waker> {
        let mut state = self.state();
        state.stage = Stage::Answered(answer);
        state.waker.take()
    }

    /// Takes the permit back if the waiter was offered it and has not collected it.
    fn take_permit(&self, then: Stage) -> Option<WritePermit> {
        let mut state = self.state();
        match std::mem::replace(&mut state.stage, then) {
            Stage::Answered(Ok(QueueAnswer::Permit(permit))) => Some(permit),
            other => {
                state.stage = other;
                None
            }
        }
    }
}

/// A place in the queue. Dropped, it leaves the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    write_queue: Arc<WriteQueue>,
    waiter: Arc<Waiter>,
}

impl Ticket {
    /// Ready with the answer: once, and with an error if the ticket has left.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<QueueAnswer>> {
        let mut state = self.waiter.state();
        if matches!(state.stage, Stage::Answered(_) | Stage::Over) {
            return match std::mem::replace(&mut state.stage, Stage::Over) {
                Stage::Answered(answer) => Poll::Ready(answer),
                _ => Poll::Ready(Err(error::cancelled())),
            };
        }
        let is_new = |waker: &Waker| !waker.will_wake(cx.waker());
        if state.waker.as_ref().is_none_or(is_new) {
            let old = state.waker.replace(cx.waker().clone());
            drop(state);
            drop(old);
        }
        Poll::Pending
    }

    /// Leaves the queue, or gives the permit up. Returns `true` if nothing is written for the ticket.
    /// `false`: its request is written, or is in a batch; then [`poll`](Ticket::poll) is ready when the batch ends.
    pub(super) fn leave(&self) -> bool {
        let mut queue = self.write_queue.lock();
        let permit = self.waiter.take_permit(Stage::Over);
        let mut state = self.waiter.state();
        let mut waker = None;
        match &mut state.stage {
            Stage::Queued => {
                state.stage = Stage::Over;
                waker = state.waker.take();
                let is_this = |waiter: &Arc<Waiter>| Arc::ptr_eq(waiter, &self.waiter);
                let place = queue.waiting.iter().position(is_this);
                place.and_then(|place| queue.waiting.remove(place));
            }
            Stage::Batched { is_leaving } => *is_leaving = true,
            Stage::Answered(_) | Stage::Over => {}
        }
        let has_left = matches!(state.stage, Stage::Over);
        drop(state);
        drop(queue);
        drop((permit, waker));
        has_left
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The right to write. Dropped, it is offered to the oldest waiter.
#[derive(Debug)]
pub(super) struct WritePermit {
    write_queue: Arc<WriteQueue>,
}

impl WritePermit {
    /// Notes the line of the program that has the permit from now on.
    pub(super) fn set_holder(&self, site: Option<&'static Location<'static>>) {
        let since = timing::now();
        self.write_queue
            .set_holder(Some(WriteHolder { site, since }));
    }

    /// Returns whether a session of this kind could take the oldest waiter into its batch.
    pub(super) fn can_batch(&self, kind: SessionKind) -> bool {
        let queue = self.write_queue.lock();
        let oldest = queue.waiting.front();
        oldest.is_some_and(|waiter| waiter.can_batch(kind))
    }

    /// Takes up to `most` waiters from the front of the queue: those that a session of this kind may write for.
    pub(super) fn take_batch(&self, kind: SessionKind, most: usize) -> WriteBatch {
        let mut queue = self.write_queue.lock();
        let batchable = queue.waiting.iter().take_while(|w| w.can_batch(kind));
        let count = batchable.take(most).count();
        let waiters: VecDeque<_> = queue.waiting.drain(..count).collect();
        for waiter in &waiters {
            waiter.state().stage = Stage::Batched { is_leaving: false };
        }
        drop(queue);
        WriteBatch {
            waiters,
            write_queue: Arc::clone(&self.write_queue),
        }
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        self.write_queue.set_holder(None);
        let waker = self.write_queue.lock().offer(|| self.write_queue.permit());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waiters that a session writes for. Dropped, those without an answer go back to the front of the queue, in
/// their order, and each writes alone.
#[derive(Debug)]
pub(super) struct WriteBatch {
    waiters: VecDeque<Arc<Waiter>>,
    write_queue: Arc<WriteQueue>,
}

impl WriteBatch {
    /// The requests that have no answer yet, in order.
    pub(super) fn requests(&self) -> impl Iterator<Item = &OwnedRequest> {
        let requests = self.waiters.iter().filter_map(|w| w.request.as_ref());
        requests.map(|(_, request)| &**request)
    }

    /// Answers the first request that has no answer yet.
    pub(super) fn answer_next(&mut self, done: Result<Outcome>) {
        if let Some(waiter) = self.waiters.pop_front()
            && let Some(waker) = waiter.answer(done.map(QueueAnswer::Written))
        {
            waker.wake();
        }
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let mut wakers = Vec::new();
        let mut queue = self.write_queue.lock();
        for waiter in self.waiters.drain(..).rev() {
            let mut state = waiter.state();
            if let Stage::Batched { is_leaving: true } = state.stage {
                state.stage = Stage::Over;
                wakers.extend(state.waker.take());
                continue;
            }
            state.stage = Stage::Queued;
            state.is_alone = true;
            drop(state);
            queue.waiting.push_front(waiter);
        }
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
