//! A thread that ends waits in the write queues when their time is up.
//!
//! The thread goes to sleep after about a second without a waiter.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use super::write_queue::WriteQueue;

/// The time between two checks of the queues.
const TICK: Duration = Duration::from_millis(4);

/// The thread goes to sleep after this many checks that found no waiter.
const QUIET_TICKS: u32 = 250;

/// One for the whole process: it is idle nearly always.
#[derive(Debug)]
pub(super) struct Watchdog {
    state: AtomicU8,
    queues: Mutex<Vec<Weak<WriteQueue>>>,
    thread: Thread,
}

/// The thread sleeps until a new waiter wakes it.
const ASLEEP: u8 = 0;
/// No waiter has queued since the last check.
const QUIET: u8 = 1;
/// A waiter has queued since the last check.
const ACTIVE: u8 = 2;

impl Watchdog {
    /// Returns the watchdog of this process, or `None` if its thread could not be started.
    fn get() -> Option<&'static Watchdog> {
        static WATCHDOG: OnceLock<Option<Watchdog>> = OnceLock::new();
        let start = || {
            let thread = std::thread::Builder::new().name("cenote-watchdog".into());
            // The thread may run before the watchdog is stored: then it parks until `notify` wakes it.
            let thread = thread.spawn(|| {
                loop {
                    match WATCHDOG.get() {
                        Some(Some(watchdog)) => watchdog.run(),
                        _ => std::thread::park(),
                    }
                }
            });
            let thread = thread.ok()?.thread().clone();
            Some(Watchdog {
                state: AtomicU8::new(ASLEEP),
                queues: Mutex::default(),
                thread,
            })
        };
        WATCHDOG.get_or_init(start).as_ref()
    }

    /// Adds a write queue to those that are checked, until the queue is dropped.
    pub(super) fn add(write_queue: &Arc<WriteQueue>) {
        // Without a watchdog no task enters a write queue.
        if let Some(watchdog) = Watchdog::get() {
            let mut queues = watchdog.queues();
            queues.retain(|write_queue| write_queue.strong_count() > 0);
            queues.push(Arc::downgrade(write_queue));
        }
    }

    /// Starts the periodic check of the queues, because a writer waits. Returns `false` if the watchdog has no thread.
    pub(super) fn watch_queues() -> bool {
        let watchdog = Watchdog::get();
        watchdog.inspect(|watchdog| watchdog.notify()).is_some()
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Weak<WriteQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        // Relaxed: the swap decides. If this reads an old `ACTIVE`, the thread is awake for
        // `QUIET_TICKS` more checks, and they see every waiter that waits that long.
        if self.state.load(Ordering::Relaxed) == ACTIVE {
            return;
        }
        // Pairs with the exchanges in `run`: either they see this, or this sees that the thread sleeps.
        if self.state.swap(ACTIVE, Ordering::AcqRel) == ASLEEP {
            self.thread.unpark();
        }
    }

    fn run(&self) -> ! {
        let mut quiet = 0;
        let goes = |from, to| {
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let gone = self.state.compare_exchange(from, to, done, failed);
            gone.is_ok()
        };
        loop {
            if goes(ACTIVE, QUIET) {
                quiet = 0;
            } else if quiet < QUIET_TICKS {
                quiet += 1;
            } else if goes(QUIET, ASLEEP) {
                quiet = 0;
            }
            // The thread may wake up for nothing: then it checks once more. Acquire pairs with the swap in `notify`.
            while self.state.load(Ordering::Acquire) == ASLEEP {
                std::thread::park();
            }
            if self.check() {
                quiet = 0;
            }
            std::thread::park_timeout(TICK);
        }
    }

    /// Checks every queue. Returns whether anybody waits.
    fn check(&self) -> bool {
        let queues: Vec<_> = self.queues().iter().filter_map(Weak::upgrade).collect();
        // Not under the lock: the checks wake tasks.
        let has_waiters = queues.iter().map(|queue| queue.check_times());
        has_waiters.fold(false, |any, has| any | has)
    }
}
