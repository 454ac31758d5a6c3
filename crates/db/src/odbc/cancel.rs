//! Tracks which call runs on a connection's thread, and cancels it.
//!
//! A cancel may take long: psqlODBC opens a connection for it. So a separate short-lived thread cancels, and the caller never
//! waits. A cancel that arrives before the driver has begun with the statement has no effect, so the thread repeats it until
//! the call has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::handle::{Cancel, Stmt, Target};
use crate::driver::worker;

/// How long a dropped call may take to end by itself before it is cancelled. Most do.
const GRACE: Duration = Duration::from_millis(10);

/// The first and the longest pause before a cancel is repeated.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See the [module](self). Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A call has ended.
    ended: Condvar,
    /// Has its own lock, which is held while the driver cancels.
    target: Target,
    left: Arc<Left>,
}

#[derive(Debug, Default)]
struct State {
    /// The running call; 0 means none.
    running: u64,
    /// Every call up to this one is cancelled.
    cancelled: u64,
    /// A thread cancels the running call, and checks for the next one before it ends.
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

    /// Returns how a statement of the running call is cancelled: through itself, or through another statement.
    pub(super) fn cancel_by<'a>(&'a self, proxy: Option<&'a Stmt>) -> Cancel<'a> {
        Cancel {
            target: Some(&self.shared.target),
            call: self.shared.state().running,
            proxy,
        }
    }

    /// Whether the running call is cancelled, for a check between two statements.
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
        // Without the thread, callers wait for the call until their deadlines.
        state.has_helper = helper.spawn(move || shared.cancel_until_ended()).is_ok();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the running call until it has ended, and the next one if it was cancelled meanwhile.
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
        // Under the lock: a later cancel starts another thread.
        state.has_helper = false;
    }
}

/// Abandoned threads: of connections that are closing, and of calls that the driver neither ends nor cancels.
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

    /// Returns the number of those that have not ended yet.
    pub(super) fn count(&self) -> usize {
        let mut threads = self.threads();
        threads.retain(|thread| !thread.is_finished());
        threads.len()
    }
}
