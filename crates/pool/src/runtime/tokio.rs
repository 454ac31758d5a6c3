//! Tokio, the default runtime.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::task::coop::poll_proceed;

use super::{Runtime, Task, ThreadRuntime, clock};

/// Runs a pool's tasks on Tokio.
///
/// Work goes to the Tokio runtime of the calling thread; from a plain thread,
/// to the one the pool saw last; and in a program that has none, to the built-in
/// [`ThreadRuntime`]. So a lease may be dropped anywhere. Once every runtime that the pool
/// saw is shut down, what would need one is destroyed instead.
///
/// Deadlines of acquires pass wherever they are polled: also under another executor's
/// `block_on`, and while nobody drives a Tokio runtime (a few milliseconds late then).
#[derive(Debug, Default)]
pub struct TokioRuntime {
    /// The runtimes that the pool saw and that may be alive; the one it saw last comes last.
    seen: Mutex<Vec<Seen>>,
    follows_paused_clock: bool,
    outlives: bool,
}

impl TokioRuntime {
    /// The runtime of a pool that was given none.
    pub fn new() -> Self {
        TokioRuntime::default()
    }

    /// Follows Tokio's clock in everything, for tests that pause it: the age of leases is
    /// reckoned by it, which costs about 25 ns an acquire, and the pool's maintenance task sleeps by it, which
    /// costs Tokio 1 to 2 µs whenever it waits for I/O. Without this the maintenance task follows a clock that was
    /// paused before the maintenance task went to sleep. With it, deadlines pass only while the runtime is driven.
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
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Ok(handle) = Handle::try_current() else {
            if seen.is_empty() {
                return Way::NeverSeen;
            }
            let alive = seen.iter().rev().find(|seen| seen.is_alive());
            return alive.map_or(Way::Gone, |seen| Way::To(seen.handle.clone()));
        };
        match seen
            .iter()
            .rposition(|seen| seen.handle.id() == handle.id())
        {
            Some(last) if last + 1 == seen.len() => {}
            Some(earlier) => seen[earlier..].rotate_left(1),
            None => {
                seen.retain(Seen::is_alive);
                seen.push(Seen::new(handle.clone()));
            }
        }
        Way::To(handle)
    }
}

/// Returns whether Tokio polls a task on this thread, which blocking would stop. A guard of
/// `Handle::enter`, `spawn_blocking` and `block_in_place` are no such places.
fn polls_a_task() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    // Only while it polls does Tokio limit what a task may do in a row, to 255 steps at most.
    let mut context = Context::from_waker(Waker::noop());
    let mut restores = None;
    for _ in 0..=u8::MAX {
        match poll_proceed(&mut context) {
            Poll::Pending => return true,
            Poll::Ready(first) if restores.is_none() => restores = Some(first),
            // The first one gives everything back when it is dropped.
            Poll::Ready(later) => later.made_progress(),
        }
    }
    false
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

/// The time by Tokio's clock; by the machine's on a thread that is ending, where Tokio's panics if it
/// can be paused.
fn tokio_now() -> Instant {
    let now = catch_unwind(tokio::time::Instant::now);
    now.map_or_else(|_| clock::precise(), tokio::time::Instant::into_std)
}

/// Whether Tokio's clock is the machine's. A paused one stands at an earlier time, or was advanced
/// to a later one.
fn clock_is_real() -> bool {
    let before = clock::precise();
    let told = tokio_now();
    before <= told && told <= clock::precise()
}

/// Where work goes that comes from some thread.
enum Way {
    /// To this runtime: the thread's own, or the one seen last.
    To(Handle),
    /// Every runtime that was seen is shut down.
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

impl Seen {
    fn new(handle: Handle) -> Self {
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        // Holds on to `alive` until its runtime drops it, or this does.
        let witness = handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        Seen {
            handle,
            alive: weak,
            witness: witness.abort_handle(),
        }
    }

    fn is_alive(&self) -> bool {
        self.alive.strong_count() > 0
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.witness.abort();
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        tokio_now()
    }

    #[inline]
    fn coarse_now(&self) -> u64 {
        if self.follows_paused_clock {
            return clock::nanos_since_start(self.now());
        }
        clock::coarse_nanos()
    }

    fn sleep(&self, until: Instant) -> Task {
        // Tokio drives what its tasks wait for. Elsewhere a handle means little: nobody may drive it.
        let is_driven = tokio::task::try_id().is_some();
        if is_driven || (Handle::try_current().is_ok() && !self.needs_driving()) {
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
        match is_long && self.needs_driving() && thread.starts() {
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
        match Handle::try_current() {
            // Tokio's thread-local is gone, and `Handle::enter` would panic.
            Err(error) if error.is_thread_local_destroyed() => {}
            Err(_) => match self.way() {
                Way::To(handle) => {
                    let _guard = handle.enter();
                    f();
                }
                Way::Gone | Way::NeverSeen => f(),
            },
            Ok(_) => f(),
        }
    }

    fn must_not_block(&self) -> bool {
        polls_a_task() || ThreadRuntime::new().must_not_block()
    }

    /// Except by a clock that a test sets, which the built-in thread does not follow.
    fn needs_driving(&self) -> bool {
        !self.follows_paused_clock && clock_is_real()
    }

    fn domain(&self) -> Option<u64> {
        if self.outlives {
            return None;
        }
        Some(number(Handle::try_current().ok()?.id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witnesses(runtime: &TokioRuntime) -> Vec<tokio::task::Id> {
        let seen = runtime.seen.lock().unwrap();
        let mut ids: Vec<_> = seen.iter().map(|seen| seen.witness.id()).collect();
        ids.sort_by_key(|id| id.to_string().parse::<u64>().unwrap_or(0));
        ids
    }

    fn current_thread() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap()
    }

    #[test]
    fn alternating_runtimes_have_one_witness_each() {
        let (pool, tokios) = (TokioRuntime::new(), [current_thread(), current_thread()]);
        let use_both = || {
            for tokio in &tokios {
                let _guard = tokio.enter();
                pool.spawn(Box::pin(async {}));
            }
        };
        use_both();
        let first = witnesses(&pool);
        use_both();
        use_both();
        assert_eq!((first.len(), witnesses(&pool)), (2, first));
    }

    #[test]
    fn work_goes_to_a_living_runtime_if_the_last_one_is_gone() {
        let (pool, living, gone) = (TokioRuntime::new(), current_thread(), current_thread());
        for tokio in [&living, &gone] {
            let _guard = tokio.enter();
            pool.spawn(Box::pin(async {}));
        }
        drop(gone);
        assert!(matches!(pool.way(), Way::To(to) if to.id() == living.handle().id()));
        drop(living);
        assert!(matches!(pool.way(), Way::Gone));
        let next = current_thread();
        let _guard = next.enter();
        pool.spawn(Box::pin(async {}));
        assert_eq!(witnesses(&pool).len(), 1);
    }
}
