//! The state that the connection and its thread share: which call runs and where, whether it was cancelled, and
//! how long it waits for locks.
//!
//! Calls are numbered. An interrupt is sent under the lock, and only while the call that it is meant for runs: it
//! never hits the next call.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rusqlite::InterruptHandle;

use super::error;
use super::timing;
use crate::{Error, Kind, Result};

/// The lengths of the first, second … wait for a lock, in milliseconds. They are short at first, because most
/// locks are held briefly.
const WAITS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];

/// See the [module](self).
pub(super) struct Control {
    state: Mutex<State>,
    /// The progress handler has to check a limit or a cancelled call.
    is_watched: AtomicBool,
    /// Notified when a call is cancelled, and by the waker of [`block_on`](Control::block_on).
    changed: Condvar,
}

struct State {
    /// The number of the call that runs; 0 is none.
    running: u64,
    /// Every call up to this one has been cancelled.
    cancelled: u64,
    /// `None` before the connection is open.
    interrupt: Option<InterruptHandle>,
    busy_timeout: Duration,
    /// SQLite did not get a lock in time.
    gave_up: bool,
    /// The call runs inline: nothing may wait, and no function of the application may run.
    in_place: bool,
    /// The run is given up at this limit. Only a run that can be repeated has one.
    limit: Option<RunLimit>,
    /// The number of the running call while it writes for others, and cannot be cancelled.
    suspended: u64,
    /// The inline run is given up, and has to be repeated on the thread.
    to_thread: bool,
}

impl State {
    fn is_cancelled(&self) -> bool {
        self.running != 0 && self.running <= self.cancelled
    }

    fn interrupt(&self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.interrupt();
        }
    }

    /// Gives an inline run up. Its result is thrown away.
    fn send_to_thread(&mut self) {
        self.to_thread = true;
        self.interrupt();
    }
}

/// When a run is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimit {
    until: Instant,
    /// How many more calls of the progress handler the run may have.
    looks: u32,
}

impl RunLimit {
    pub(super) fn until(until: Instant) -> Self {
        RunLimit {
            until,
            looks: u32::MAX,
        }
    }

    /// Adds a limit to the calls of the progress handler.
    pub(super) fn and_looks(self, looks: u32) -> Self {
        RunLimit { looks, ..self }
    }

    /// Counts a call of the progress handler. Returns whether the run is over its limit.
    fn is_over(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        self.looks == 0 || timing::now() >= self.until
    }
}

impl Control {
    pub(super) fn new(busy_timeout: Duration) -> Self {
        Control {
            state: Mutex::new(State {
                running: 0,
                cancelled: 0,
                interrupt: None,
                busy_timeout,
                gave_up: false,
                in_place: false,
                limit: None,
                suspended: 0,
                to_thread: false,
            }),
            is_watched: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and updates the progress handler's flag.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        let is_watched = state.limit.is_some() || state.is_cancelled();
        // Relaxed: the flag is a hint. The progress handler then reads the state under the lock.
        self.is_watched.store(is_watched, Ordering::Relaxed);
        changed
    }

    /// Sets the handle by which a cancelled call is interrupted inside SQLite.
    pub(super) fn interrupt_with(&self, handle: InterruptHandle) {
        self.state().interrupt = Some(handle);
    }

    pub(super) fn set_busy_timeout(&self, timeout: Duration) {
        self.state().busy_timeout = timeout;
    }

    /// Begins a call. Returns `false` if the call was cancelled before.
    pub(super) fn begin(&self, call: u64) -> bool {
        self.change(|state| {
            state.running = call;
            !state.is_cancelled()
        })
    }

    /// Ends the running call, or makes the rest of it uncancellable.
    pub(super) fn end(&self) {
        self.change(|state| state.running = 0);
    }

    /// Cancels a call that has not ended: a running one is interrupted, one that waits for the thread never begins.
    ///
    /// SQLite forgets an interrupt just before a statement's first step. The progress handler does not: it checks
    /// [`is_cancelled`](Control::is_cancelled).
    pub(super) fn cancel(&self, call: u64) {
        self.change(|state| {
            state.cancelled = state.cancelled.max(call);
            if state.running == call {
                state.interrupt();
            }
        });
        self.changed.notify_all();
    }

    /// Returns whether the running call was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.state().is_cancelled()
    }

    /// Fails if the running call was cancelled: between two statements SQLite has nothing to interrupt.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(error::cancelled());
        }
        Ok(())
    }

    /// Begins an inline call: within this limit if it can be repeated, else to its end.
    pub(super) fn begin_in_place(&self, call: u64, limit: Option<RunLimit>) {
        self.change(|state| {
            state.running = call;
            state.in_place = true;
            state.limit = limit;
            state.to_thread = false;
        });
    }

    /// Ends an inline call. Returns whether it has to be repeated on the thread.
    pub(super) fn end_in_place(&self) -> bool {
        self.change(|state| {
            state.running = 0;
            state.in_place = false;
            state.limit = None;
            std::mem::take(&mut state.to_thread)
        })
    }

    /// Makes the running call uncancellable while it writes for others.
    pub(super) fn suspend(&self) {
        self.change(|state| state.suspended = std::mem::take(&mut state.running));
    }

    /// Makes the call cancellable again.
    pub(super) fn resume(&self) {
        self.change(|state| state.running = std::mem::take(&mut state.suspended));
    }

    /// Sets or removes the limit of the run.
    pub(super) fn set_limit(&self, limit: Option<RunLimit>) {
        self.change(|state| {
            state.limit = limit;
            state.to_thread = false;
        });
    }

    /// Gives an inline call up. Returns the error of the inline run, which no caller sees.
    pub(super) fn give_up(&self) -> Error {
        self.state().to_thread = true;
        Error::new(Kind::Busy, "not inline")
    }

    /// Returns whether the running call has to stop. SQLite's progress handler calls this.
    pub(super) fn must_stop(&self) -> bool {
        if !self.is_watched.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state();
        if state.limit.as_mut().is_some_and(RunLimit::is_over) {
            state.to_thread = true;
        }
        state.to_thread || state.is_cancelled()
    }

    /// Gives an inline call up because a function or collation of the application was called. Returns whether the
    /// call is inline.
    pub(super) fn keeps_off(&self) -> bool {
        let mut state = self.state();
        if state.in_place {
            state.send_to_thread();
        }
        state.in_place
    }

    /// Blocks the thread until `poll` is ready. `poll` runs under the lock of this control.
    ///
    /// # Errors
    ///
    /// The busy timeout has passed, or the running call was cancelled.
    pub(super) fn block_on<T>(
        self: &Arc<Self>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<T>>,
    ) -> Result<T> {
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        let mut answer = Poll::Pending;
        let state = self.state();
        let timeout = state.busy_timeout;
        let waits = |state: &mut State| {
            answer = poll(&mut cx);
            answer.is_pending() && !state.is_cancelled()
        };
        let waited = self.changed.wait_timeout_while(state, timeout, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match answer {
            Poll::Ready(answer) => answer,
            Poll::Pending if state.is_cancelled() => Err(error::cancelled()),
            Poll::Pending => Err(error::write_queue_timeout(None)),
        }
    }

    /// Returns how long a call waits for locks.
    pub(super) fn busy_timeout(&self) -> Duration {
        self.state().busy_timeout
    }

    /// Returns whether SQLite failed to get a lock in time since the last call of this.
    pub(super) fn take_gave_up(&self) -> bool {
        std::mem::take(&mut self.state().gave_up)
    }

    /// Waits a little for another connection's lock, the `turn`th time in a row. Returns `false` when the time is
    /// up or the running call was cancelled.
    pub(super) fn wait_for_lock(&self, turn: usize) -> bool {
        let mut state = self.state();
        // The call writes for others, who wait: after a while each of them writes alone.
        let limit = match state.suspended {
            0 => state.busy_timeout,
            _ => state.busy_timeout.min(timing::SOON),
        };
        let left = limit.saturating_sub(waited_before(turn));
        if state.in_place {
            // Only the thread may wait.
            state.to_thread = true;
            return false;
        }
        if left.is_zero() || state.is_cancelled() {
            state.gave_up = true;
            return false;
        }
        let wait = left.min(nth_wait(turn));
        let (state, _) = self
            .changed
            .wait_timeout_while(state, wait, |state| !state.is_cancelled())
            .unwrap_or_else(PoisonError::into_inner);
        !state.is_cancelled()
    }
}

/// Wakes the thread in [`Control::block_on`].
impl Wake for Control {
    fn wake(self: Arc<Self>) {
        // The lock waits for a thread that has polled and does not sleep yet.
        drop(self.state());
        self.changed.notify_all();
    }
}

fn nth_wait(turn: usize) -> Duration {
    let last = WAITS.len() - 1;
    Duration::from_millis(WAITS[turn.min(last)])
}

/// Returns the sum of all waits before this one.
fn waited_before(turn: usize) -> Duration {
    let listed = turn.min(WAITS.len());
    let more = u32::try_from(turn - listed).unwrap_or(u32::MAX);
    let listed: u64 = WAITS[..listed].iter().sum();
    let rest = nth_wait(turn).saturating_mul(more);
    Duration::from_millis(listed).saturating_add(rest)
}

impl fmt::Debug for Control {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        out.debug_struct("Control")
            .field("running", &state.running)
            .field("cancelled", &state.cancelled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_call_stops_and_the_next_one_does_not() {
        let control = Control::new(Duration::ZERO);
        assert!(control.begin(1));
        assert!(control.check().is_ok());
        control.cancel(1);
        assert!(control.check().is_err());
        control.end();
        assert!(control.begin(2));
        assert!(control.check().is_ok());
    }

    #[test]
    fn a_call_that_is_cancelled_before_it_begins_never_does() {
        let control = Control::new(Duration::ZERO);
        control.cancel(1);
        assert!(!control.begin(1));
    }

    #[test]
    fn a_late_cancel_has_no_effect() {
        let control = Control::new(Duration::ZERO);
        control.begin(1);
        control.end();
        assert!(control.begin(2));
        control.cancel(1);
        assert!(control.check().is_ok());
    }

    #[test]
    fn an_interrupt_is_sent_only_to_the_call_it_is_meant_for() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        let control = Control::new(Duration::ZERO);
        control.interrupt_with(db.get_interrupt_handle());
        control.begin(2);
        control.cancel(1);
        assert!(!db.is_interrupted());
        control.cancel(2);
        assert!(db.is_interrupted());
    }

    #[test]
    fn waiting_for_a_lock_ends_with_the_timeout() {
        let control = Control::new(Duration::from_millis(4));
        control.begin(1);
        assert!(!control.take_gave_up());
        // 1 + 2 + the rest of the four.
        assert!(control.wait_for_lock(0));
        assert!(control.wait_for_lock(1));
        assert!(control.wait_for_lock(2));
        assert!(!control.take_gave_up());
        assert!(!control.wait_for_lock(3));
        assert!(control.take_gave_up());
        assert!(!control.take_gave_up());
    }

    #[test]
    fn waits_add_up() {
        let all: u64 = WAITS.iter().sum();
        assert_eq!(waited_before(0), Duration::ZERO);
        assert_eq!(waited_before(3), Duration::from_millis(8));
        assert_eq!(waited_before(12), Duration::from_millis(all));
        assert_eq!(waited_before(15), Duration::from_millis(all + 300));
    }

    #[test]
    fn no_timeout_is_no_waiting() {
        let control = Control::new(Duration::ZERO);
        control.begin(1);
        assert!(!control.wait_for_lock(0));
    }

    #[test]
    fn a_cancelled_call_waits_no_longer() {
        let control = Control::new(Duration::from_secs(3600));
        control.begin(1);
        std::thread::scope(|threads| {
            // The hundredth waits are long enough for this test never to end unless they
            // are cut short.
            let waiting = threads.spawn(|| {
                let mut turn = 100;
                while control.wait_for_lock(turn) {
                    turn = 100;
                }
            });
            control.cancel(1);
            waiting.join().unwrap();
        });
    }
}
