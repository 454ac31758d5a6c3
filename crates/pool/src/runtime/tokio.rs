//! Tokio, the default runtime.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Runtime, Task, ThreadRuntime, clock};

/// Runs a pool's tasks on Tokio.
///
/// Work goes to the Tokio runtime of the calling thread; from a plain thread,
/// to the one the pool saw last; and in a program that has none, to the built-in
/// [`ThreadRuntime`]. So a lease may be dropped anywhere. Once the runtime seen last
/// is shut down, what would need it is destroyed instead.
#[derive(Debug, Default)]
pub struct TokioRuntime {
    last_seen: Mutex<Option<Seen>>,
    follows_paused_clock: bool,
    outlives: bool,
}

impl TokioRuntime {
    /// The runtime of a pool that was given none.
    pub fn new() -> Self {
        TokioRuntime::default()
    }

    /// Follows Tokio's clock in everything, for tests that pause it: the age of leases is
    /// reckoned by it, which costs about 25 ns an acquire, and the pool's keeper sleeps by it, which
    /// costs Tokio 1 to 2 µs whenever it waits for I/O. Without this the keeper follows a clock that was
    /// paused before the keeper went to sleep.
    #[must_use]
    pub fn follows_paused_clock(mut self) -> Self {
        self.follows_paused_clock = true;
        self
    }

    /// For resources without I/O of their own: keeps them when the Tokio runtime
    /// they were made on shuts down. By default they are destroyed then, because
    /// a socket whose runtime is gone is dead.
    #[must_use]
    pub fn resources_outlive_it(mut self) -> Self {
        self.outlives = true;
        self
    }

    /// Where to go from this thread.
    fn way(&self) -> Way {
        let mut last_seen = self
            .last_seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Ok(handle) = Handle::try_current() else {
            return match last_seen.as_ref() {
                None => Way::NeverSeen,
                Some(seen) if seen.alive.strong_count() == 0 => Way::Gone,
                Some(seen) => Way::To(seen.handle.clone()),
            };
        };
        if last_seen.as_ref().map(|seen| seen.handle.id()) != Some(handle.id()) {
            let alive = Arc::new(());
            let weak = Arc::downgrade(&alive);
            // Holds on to `alive` until its runtime drops it, or this does.
            let witness = handle.spawn(async move {
                std::future::pending::<()>().await;
                drop(alive);
            });
            *last_seen = Some(Seen {
                handle: handle.clone(),
                alive: weak,
                witness: witness.abort_handle(),
            });
        }
        Way::To(handle)
    }
}

/// The number of a runtime, which it gives to hashers only.
fn number(id: tokio::runtime::Id) -> u64 {
    struct Number(u64);

    impl Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                self.0 = self.0.rotate_left(8) ^ u64::from(byte);
            }
        }

        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let mut number = Number(0);
    id.hash(&mut number);
    number.finish()
}

/// A sleep so long is worth another thread's waking up for it.
const LONG: Duration = Duration::from_millis(500);

/// Whether Tokio's clock is the machine's. A paused one stands at an earlier time, or was advanced
/// to a later one.
fn clock_is_real() -> bool {
    let before = clock::precise();
    let told = tokio::time::Instant::now().into_std();
    before <= told && told <= clock::precise()
}

/// Where work goes that comes from some thread.
enum Way {
    /// To this runtime: the thread's own, or the one seen last.
    To(Handle),
    /// The runtime seen last was shut down.
    Gone,
    /// There never was one.
    NeverSeen,
}

/// A Tokio runtime, and a task on it that tells whether it is still there.
#[derive(Debug)]
struct Seen {
    handle: Handle,
    alive: Weak<()>,
    witness: AbortHandle,
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.witness.abort();
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    #[inline]
    fn coarse_now(&self) -> u64 {
        if self.follows_paused_clock {
            return clock::nanos_since_start(self.now());
        }
        clock::coarse_nanos()
    }

    fn sleep(&self, until: Instant) -> Task {
        if Handle::try_current().is_ok() {
            // Panics on a runtime that was built without timers.
            let sleep = catch_unwind(|| tokio::time::sleep_until(until.into()));
            if let Ok(sleep) = sleep {
                return Box::pin(sleep);
            }
        }
        ThreadRuntime::new().sleep(until)
    }

    /// While a timer is set, every wait of Tokio's for I/O has one in the kernel as well: more than a
    /// microsecond for each query of a database. So a long sleep is left to the built-in thread,
    /// except where a test sets the clock, which that thread does not follow.
    fn sleep_aside(&self, until: Instant) -> Task {
        let is_long = until.saturating_duration_since(self.now()) >= LONG;
        let thread = ThreadRuntime::new();
        match is_long && !self.follows_paused_clock && clock_is_real() && thread.starts() {
            true => thread.sleep(until),
            false => self.sleep(until),
        }
    }

    fn spawn(&self, task: Task) {
        match self.way() {
            // A runtime that shuts down drops the task, as it may.
            Way::To(handle) => drop(catch_unwind(AssertUnwindSafe(|| handle.spawn(task)))),
            Way::Gone => drop(task),
            Way::NeverSeen => ThreadRuntime::new().spawn(task),
        }
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        if Handle::try_current().is_err()
            && let Way::To(handle) = self.way()
        {
            let _guard = handle.enter();
            return f();
        }
        f();
    }

    fn must_not_block(&self) -> bool {
        Handle::try_current().is_ok() || ThreadRuntime::new().must_not_block()
    }

    fn home(&self) -> u64 {
        match Handle::try_current() {
            Ok(handle) => number(handle.id()),
            Err(_) => match self.way() {
                Way::To(handle) => number(handle.id()),
                Way::Gone | Way::NeverSeen => 0,
            },
        }
    }

    fn domain(&self) -> Option<u64> {
        if self.outlives {
            return None;
        }
        Some(number(Handle::try_current().ok()?.id()))
    }
}
