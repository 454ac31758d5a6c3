//! The write queue: who writes to a database, one after the other, in the order in which they came.
//!
//! ```text
//! session ──enter──> | waiting | waiting | ──> WritePermit: one writes ──drop──> the next
//! task ─────join───> '── with an order: taken along by the one whose turn it is, committed together
//! ```
//!
//! SQLite lets one connection write at a time; the others try again and again until their
//! time is up, and who comes first is chance. Here they queue before they ask SQLite. There
//! is one write queue for a database in the whole process, whichever handle it was opened by. Other
//! processes do not queue: for them there is the busy timeout.
//!
//! A task that *joins* waits without a thread. One that wants a transaction has its turn and begins.
//! One with a write that nothing else depends on brings it along as an order: whoever's turn it
//! is takes the orders right behind it along into a transaction, and all of them are committed
//! at once. What a disk takes for one commit, it then takes for all of them.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::cancel::{Control, News};
use super::session::Order;
use super::timing;
use super::watchdog::Watchdog;
use crate::Result;
use crate::driver::Outcome;

/// Which database it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A file, by its device and number, whatever it is called.
    #[cfg(unix)]
    File(u64, u64),
    /// A file, or a database in memory, by its name.
    Name(String),
}

impl Key {
    /// Of a file, if it is there.
    pub(super) fn of_file(path: &str) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(Key::File(file.dev(), file.ino()))
        }
        #[cfg(not(unix))]
        {
            drop(file);
            Some(Key::Name(path.to_owned()))
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Somebody has the permit.
    is_taken: bool,
    waiting: VecDeque<Waiter>,
    /// The task that was last told that it is its turn, and when.
    told: Option<Told>,
}

/// Holds on to nothing: a turn that goes with its task is the next one's.
#[derive(Debug)]
struct Told {
    slot: Weak<Slot>,
    order: Option<Arc<Order>>,
    make: SessionKind,
    since: Instant,
}

#[derive(Debug)]
enum Waiter {
    /// The thread of a connection, which goes on by itself.
    Thread(Arc<Control>),
    Task(Joiner),
}

/// A task that waits.
#[derive(Debug)]
struct Joiner {
    slot: Arc<Slot>,
    /// What it wants to write, if another may do that for it: a session of this make.
    order: Option<Arc<Order>>,
    make: SessionKind,
}

/// Sessions of one make are alike: opened by the same handle, with the same settings, and not
/// changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionKind(u64);

impl SessionKind {
    /// Another than all others.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: it only has to be unique.
        SessionKind(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Waiter {
    /// It has joined, and a session of this make may write for it.
    fn joins(&self, make: SessionKind) -> bool {
        matches!(self, Waiter::Task(joiner) if joiner.order.is_some() && joiner.make == make)
    }

    /// It is its turn.
    fn hand(self, permit: WritePermit) {
        match self {
            Waiter::Thread(control) => control.hand(permit),
            Waiter::Task(joiner) => joiner.slot.tell(Word::EnterOutcome(permit)),
        }
    }
}

/// What entering the write queue comes to.
#[derive(Debug)]
pub(super) enum EnterOutcome {
    /// Its turn has come.
    In(WritePermit),
    /// Not in time.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
}

impl WriteQueue {
    /// The write queue of this database, and whether it is a new one.
    pub(super) fn of(key: Key) -> (Arc<Self>, bool) {
        static LANES: OnceLock<Mutex<HashMap<Key, Weak<WriteQueue>>>> = OnceLock::new();
        let lanes = LANES.get_or_init(Mutex::default);
        let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(write_queue) = lanes.get(&key).and_then(Weak::upgrade) {
            return (write_queue, false);
        }
        lanes.retain(|_, write_queue| write_queue.strong_count() > 0);
        let write_queue = Arc::new(WriteQueue::default());
        lanes.insert(key, Arc::downgrade(&write_queue));
        (write_queue, true)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// The pass, if nobody has it and nobody waits.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<WritePermit> {
        let mut queue = self.queue();
        if queue.is_taken {
            return None;
        }
        queue.is_taken = true;
        drop(queue);
        Some(WritePermit {
            write_queue: Arc::clone(self),
        })
    }

    /// Waits for its turn, for as long as for a lock. Blocks the connection's thread.
    pub(super) fn enter(self: &Arc<Self>, control: &Arc<Control>) -> EnterOutcome {
        let mut queue = self.queue();
        if !queue.is_taken {
            queue.is_taken = true;
            drop(queue);
            return EnterOutcome::In(WritePermit {
                write_queue: Arc::clone(self),
            });
        }
        let waiter = Waiter::Thread(Arc::clone(control));
        queue.waiting.push_back(waiter);
        drop(queue);
        // It may have to take the turn back from one who does not collect it.
        Watchdog::attend_to_lanes();
        let gives_up = match control.wait_for_pass(false) {
            News::EnterOutcome(permit) => return EnterOutcome::In(permit),
            News::TimedOut => EnterOutcome::TimedOut,
            News::Cancelled => EnterOutcome::Cancelled,
        };
        let is_this =
            |waiter: &Waiter| matches!(waiter, Waiter::Thread(c) if Arc::ptr_eq(c, control));
        if self.remove(is_this) {
            return gives_up;
        }
        // It is being handed over this very moment.
        match control.wait_for_pass(true) {
            News::EnterOutcome(permit) if matches!(gives_up, EnterOutcome::TimedOut) => {
                EnterOutcome::In(permit)
            }
            _ => gives_up,
        }
    }

    /// Queues a task for at most so long, or gives it its turn at once. With an order, another
    /// session of this make may write that for it.
    pub(super) fn join(
        self: &Arc<Self>,
        make: SessionKind,
        order: Option<&Arc<Order>>,
        timeout: Duration,
    ) -> Joined {
        let mut queue = self.queue();
        if !queue.is_taken {
            queue.is_taken = true;
            drop(queue);
            return Joined::EnterOutcome(WritePermit {
                write_queue: Arc::clone(self),
            });
        }
        let slot = Arc::new(Slot {
            until: timing::now().checked_add(timeout),
            state: Mutex::default(),
        });
        queue.waiting.push_back(Waiter::Task(Joiner {
            slot: Arc::clone(&slot),
            order: order.cloned(),
            make,
        }));
        drop(queue);
        Joined::Queued(Ticket {
            write_queue: Arc::clone(self),
            slot,
        })
    }

    /// Takes one out of the queue. `false` if it is not in it.
    fn remove(&self, is_this: impl Fn(&Waiter) -> bool) -> bool {
        let mut queue = self.queue();
        let found = queue.waiting.iter().position(is_this);
        let gone = found.and_then(|at| queue.waiting.remove(at));
        drop(queue);
        gone.is_some()
    }

    /// Asked by the watchdog, every now and then: tells the tasks whose time is up, and takes a
    /// turn back that nobody collects while others wait. Whether there are any.
    pub(super) fn watch(self: &Arc<Self>) -> bool {
        let now = timing::now();
        let mut late = Vec::new();
        let mut queue = self.queue();
        queue.waiting.retain(|waiter| match waiter {
            Waiter::Task(Joiner { slot, .. }) if slot.until.is_some_and(|until| now >= until) => {
                late.push(Arc::clone(slot));
                false
            }
            _ => true,
        });
        let passed_on = queue.pass_on_uncollected(now);
        let any_left = !queue.waiting.is_empty();
        drop(queue);
        late.iter().for_each(|slot| slot.tell(Word::TimedOut));
        if let Some((next, permit)) = passed_on {
            next.hand(permit);
        }
        any_left
    }
}

impl Queue {
    /// Whose turn it is now. A task is told, and noted for that.
    fn next(&mut self) -> Option<Waiter> {
        let next = self.waiting.pop_front();
        self.is_taken = next.is_some();
        self.told = match &next {
            Some(Waiter::Task(joiner)) => Some(Told {
                slot: Arc::downgrade(&joiner.slot),
                order: joiner.order.clone(),
                make: joiner.make,
                since: timing::now(),
            }),
            _ => None,
        };
        next
    }

    /// Takes the turn back from a task that does not collect it, for the next one who waits. The
    /// task stays in front, and may be written for.
    fn pass_on_uncollected(&mut self, now: Instant) -> Option<(Waiter, WritePermit)> {
        let since = self.told.as_ref()?.since;
        if self.waiting.is_empty() || now.duration_since(since) < UNCOLLECTED {
            return None;
        }
        let told = self.told.take()?;
        let slot = told.slot.upgrade()?;
        let permit = slot.take_back()?;
        let next = self.next()?;
        self.waiting.push_front(Waiter::Task(Joiner {
            slot,
            order: told.order,
            make: told.make,
        }));
        Some((next, permit))
    }
}

/// So long a task may take to collect its turn while others wait: it may be in a `select!` that
/// looks elsewhere, or waits for another of them itself.
const UNCOLLECTED: Duration = Duration::from_millis(20);

/// What joining the write queue comes to at first.
#[derive(Debug)]
pub(super) enum Joined {
    /// It is its turn.
    EnterOutcome(WritePermit),
    Queued(Ticket),
}

/// What a task that waits is told.
#[derive(Debug)]
pub(super) enum Word {
    /// It is its turn: it has to write by itself.
    EnterOutcome(WritePermit),
    /// It has been done.
    Done(Box<Result<Outcome>>),
    /// Its time is up.
    TimedOut,
}

/// Where a task that waits is told.
#[derive(Debug)]
struct Slot {
    /// None is for ever.
    until: Option<Instant>,
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    word: Option<Word>,
    waker: Option<Waker>,
    /// It does not want its turn any more.
    is_leaving: bool,
    /// It has left by itself: nothing will be written for it.
    has_left: bool,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, word: Word) {
        let mut state = self.state();
        let mut unwanted = None;
        if state.is_leaving && matches!(word, Word::EnterOutcome(_)) {
            state.has_left = true;
            unwanted = Some(word);
        } else {
            state.word = Some(word);
        }
        let waker = state.waker.take();
        drop(state);
        // The next one's turn.
        drop(unwanted);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The turn, if it has not been collected.
    fn take_back(&self) -> Option<WritePermit> {
        let mut state = self.state();
        match state.word.take() {
            Some(Word::EnterOutcome(permit)) => Some(permit),
            other => {
                state.word = other;
                None
            }
        }
    }
}

/// The place of a task in the queue.
#[derive(Debug)]
pub(super) struct Ticket {
    write_queue: Arc<WriteQueue>,
    slot: Arc<Slot>,
}

impl Ticket {
    pub(super) fn poll_word(&self, cx: &mut Context<'_>) -> Poll<Word> {
        let mut state = self.slot.state();
        if let Some(word) = state.word.take() {
            return Poll::Ready(word);
        }
        let is_new = |waker: &Waker| !waker.will_wake(cx.waker());
        if state.waker.as_ref().is_none_or(is_new) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Leaves the queue, or gives its turn up, so that nothing is written for it. `false` if it has
    /// been told something else, or will be as soon as those who have it in hand are done.
    pub(super) fn leave(&self) -> bool {
        let is_this = |waiter: &Waiter| matches!(waiter, Waiter::Task(joiner) if Arc::ptr_eq(&joiner.slot, &self.slot));
        let left = self.write_queue.remove(is_this);
        self.slot.state().is_leaving = true;
        let turn = self.slot.take_back();
        let mut state = self.slot.state();
        state.has_left |= left || turn.is_some();
        let has_left = state.has_left;
        drop(state);
        drop(turn);
        has_left
    }

    /// For somebody who may have to leave while the ticket is elsewhere.
    pub(super) fn copy(&self) -> Ticket {
        Ticket {
            write_queue: Arc::clone(&self.write_queue),
            slot: Arc::clone(&self.slot),
        }
    }
}

/// The right to write. Dropped, it is the next one's turn.
#[derive(Debug)]
pub(super) struct WritePermit {
    write_queue: Arc<WriteQueue>,
}

impl WritePermit {
    /// Somebody of this make waits right behind, and has joined.
    pub(super) fn has_companions(&self, make: SessionKind) -> bool {
        let queue = self.write_queue.queue();
        queue.waiting.front().is_some_and(|next| next.joins(make))
    }

    /// Takes those who wait right behind and have joined, of the same make, up to so many.
    pub(super) fn batched(&self, make: SessionKind, most: usize) -> Vec<BatchedWrite> {
        let mut queue = self.write_queue.queue();
        let joining = queue.waiting.iter().take_while(|w| w.joins(make));
        let count = joining.take(most).count();
        let taken: Vec<Waiter> = queue.waiting.drain(..count).collect();
        drop(queue);
        let batched_write = |waiter| match waiter {
            Waiter::Task(Joiner {
                slot,
                order: Some(order),
                make,
            }) => Some(BatchedWrite {
                order,
                make,
                slot: Some(slot),
                write_queue: Arc::clone(&self.write_queue),
            }),
            _ => None,
        };
        taken.into_iter().filter_map(batched_write).collect()
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        let next = self.write_queue.queue().next();
        if let Some(next) = next {
            next.hand(WritePermit {
                write_queue: Arc::clone(&self.write_queue),
            });
        }
    }
}

/// A write that is done by another's session. Dropped without an answer it waits for its own
/// turn again, in front of all others.
#[derive(Debug)]
pub(super) struct BatchedWrite {
    order: Arc<Order>,
    make: SessionKind,
    /// None once it has been answered.
    slot: Option<Arc<Slot>>,
    write_queue: Arc<WriteQueue>,
}

impl BatchedWrite {
    pub(super) fn order(&self) -> &Order {
        &self.order
    }

    /// It has been done.
    pub(super) fn answer(mut self, done: Result<Outcome>) {
        if let Some(slot) = self.slot.take() {
            slot.tell(Word::Done(Box::new(done)));
        }
    }
}

impl Drop for BatchedWrite {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let order = None;
            let mut queue = self.write_queue.queue();
            queue.waiting.push_front(Waiter::Task(Joiner {
                slot: Arc::clone(&slot),
                order,
                make: self.make,
            }));
            drop(queue);
            // One who wants to leave can, now.
            let waker = slot.state().waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Puts companions back in front of all others, in the order in which they came.
pub(super) fn put_back(batched: Vec<BatchedWrite>) {
    batched.into_iter().rev().for_each(drop);
}

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
