//! Which call runs on a connection's thread, and how it is cancelled.
//!
//! A driver may take its time to cancel: psqlODBC opens a connection for it. So that
//! is done by a thread that lives for just this, and nothing here ever waits. A driver forgets
//! a cancel that comes before it has begun with the statement: so it is cancelled again and
//! again until the call has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::handle::{Cancel, Stmt, Target};
use crate::driver::worker;

/// So long a call may take to end by itself: most do, and nothing has to be disturbed.
const GRACE: Duration = Duration::from_millis(10);

/// How long to wait before a cancel is sent once more, at first and at most.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the [module](self). Clones of it are the same.
#[derive(Clone, Debug)]
pub(super) struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A call has ended.
    ended: Condvar,
    /// Has a lock of its own, which is held for as long as a driver takes to cancel.
    target: Target,
    left: Arc<Left>,
}

#[derive(Debug, Default)]
struct State {
    /// The call that runs; 0 is none.
    running: u64,
    /// Every call up to this one has been cancelled.
    cancelled: u64,
    /// A thread cancels the running call, and looks again before it ends.
    has_helper: bool,
}

impl State {
    fn is_cancelled(&self) -> bool {
        self.running != 0 && self.running <= self.cancelled
    }
}

impl Control {
    pub(super) fn new(left: &Arc<Left>) -> Self {
        Control {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                ended: Condvar::new(),
                target: Target::default(),
                left: Arc::clone(left),
            }),
        }
    }

    /// How a statement of the running call is cancelled: by itself, or by the bell of its connection.
    pub(super) fn cancel_by<'a>(&'a self, bell: Option<&'a Stmt>) -> Cancel<'a> {
        Cancel {
            target: Some(&self.shared.target),
            call: self.shared.state().running,
            bell,
        }
    }

    /// The running call has been cancelled: for between two statements.
    pub(super) fn is_cancelled(&self) -> bool {
        self.shared.state().is_cancelled()
    }

    pub(super) fn leave(&self, thread: JoinHandle<()>) {
        self.shared.left.add(thread);
    }
}

impl worker::Control for Control {
    fn begin(&self, call: u64) -> bool {
        let mut state = self.shared.state();
        state.running = call;
        state.cancelled < call
    }

    fn end(&self) {
        self.shared.state().running = 0;
        self.shared.ended.notify_all();
    }

    fn cancel(&self, call: u64) {
        let mut state = self.shared.state();
        state.cancelled = state.cancelled.max(call);
        if state.running != call || state.has_helper {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let helper = std::thread::Builder::new().name("cenote-odbc-cancel".into());
        // Without it the call is waited for, until somebody's deadline.
        state.has_helper = helper.spawn(move || shared.cancel_until_ended()).is_ok();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the running call until it has ended; and the next one, if that was cancelled meanwhile.
    fn cancel_until_ended(&self) {
        let mut pause = GRACE;
        let mut state = self.state();
        while state.is_cancelled() {
            let call = state.running;
            let runs = |state: &mut State| state.running == call;
            let waited = self.ended.wait_timeout_while(state, pause, runs);
            let (waited, in_vain) = waited.unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if in_vain.timed_out() {
                drop(state);
                self.target.cancel(call);
                state = self.state();
                pause = (pause * 2).clamp(PAUSE, LONGEST_PAUSE);
            } else {
                pause = GRACE;
            }
        }
        // Under the lock: whoever cancels after this starts another.
        state.has_helper = false;
    }
}

/// Threads that nobody waits for any more: of connections that are being closed, and of calls that a
/// driver neither ends nor lets be cancelled.
#[derive(Debug, Default)]
pub(super) struct Left {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Left {
    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// How many of them have not ended yet.
    pub(super) fn count(&self) -> usize {
        let mut threads = self.threads();
        threads.retain(|thread| !thread.is_finished());
        threads.len()
    }
}
