//! A thread that tells tasks that wait in a write queue when their time is up.
//!
//! While nobody waits, for a second or so, it sleeps.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use super::write_queue::WriteQueue;

/// Between two looks.
const TICK: Duration = Duration::from_millis(4);

/// After so many looks at nobody it goes to sleep.
const DROWSY: u32 = 250;

/// One for the whole process: it is idle nearly always.
#[derive(Debug)]
pub(super) struct Watchdog {
    state: AtomicU8,
    lanes: Mutex<Vec<Weak<WriteQueue>>>,
    thread: Thread,
}

/// It sleeps until somebody wakes it.
const ASLEEP: u8 = 0;
/// Nobody has begun to wait since the last look.
const QUIET: u8 = 1;
/// Somebody has.
const ACTIVE: u8 = 2;

impl Watchdog {
    /// The one of this process; `None` if no thread could be started for it.
    fn get() -> Option<&'static Watchdog> {
        static WATCHDOG: OnceLock<Option<Watchdog>> = OnceLock::new();
        let start = || {
            let thread = std::thread::Builder::new().name("cenote-watchdog".into());
            // It finds the watchdog once that is there: whoever makes it waits for no thread.
            let thread = thread.spawn(|| {
                loop {
                    match WATCHDOG.get() {
                        Some(Some(watchdog)) => watchdog.watch(),
                        _ => std::thread::park(),
                    }
                }
            });
            let thread = thread.ok()?.thread().clone();
            Some(Watchdog {
                state: AtomicU8::new(ASLEEP),
                lanes: Mutex::default(),
                thread,
            })
        };
        WATCHDOG.get_or_init(start).as_ref()
    }

    /// Watches a write queue from now on, for as long as it is there.
    pub(super) fn over_write_queue(write_queue: &Arc<WriteQueue>) {
        // Without one nobody joins a write queue.
        if let Some(watchdog) = Watchdog::get() {
            let mut lanes = watchdog.lanes();
            lanes.retain(|write_queue| write_queue.strong_count() > 0);
            lanes.push(Arc::downgrade(write_queue));
        }
    }

    /// Somebody waits in a write queue from now on. `false` if no thread could be started to look after them.
    pub(super) fn attend_to_lanes() -> bool {
        let watchdog = Watchdog::get();
        watchdog.inspect(|watchdog| watchdog.attend()).is_some()
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Weak<WriteQueue>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attend(&self) {
        // Relaxed: the swap decides. If this reads an old `ACTIVE`, the dog is awake for
        // `DROWSY` more looks, and somebody who waits for so long is seen by them.
        if self.state.load(Ordering::Relaxed) == ACTIVE {
            return;
        }
        // Pairs with the exchanges in `watch`: either they see this, or this sees that it sleeps.
        if self.state.swap(ACTIVE, Ordering::AcqRel) == ASLEEP {
            self.thread.unpark();
        }
    }

    fn watch(&self) -> ! {
        let mut quiet = 0;
        let goes = |from, to| {
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let gone = self.state.compare_exchange(from, to, done, failed);
            gone.is_ok()
        };
        loop {
            if goes(ACTIVE, QUIET) {
                quiet = 0;
            } else if quiet < DROWSY {
                quiet += 1;
            } else if goes(QUIET, ASLEEP) {
                quiet = 0;
            }
            // It may wake up for nothing: then it looks once more.
            while self.state.load(Ordering::Acquire) == ASLEEP {
                std::thread::park();
            }
            if self.look() {
                quiet = 0;
            }
            std::thread::park_timeout(TICK);
        }
    }

    /// Whether there is somebody who waits.
    fn look(&self) -> bool {
        let lanes: Vec<_> = self.lanes().iter().filter_map(Weak::upgrade).collect();
        // Not under the lock: it wakes tasks.
        let waiting = lanes
            .iter()
            .filter(|write_queue| write_queue.watch())
            .count();
        waiting > 0
    }
}
