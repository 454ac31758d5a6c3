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
/// Tasks go to the Tokio runtime of the calling thread; from a plain thread, to the runtime that the pool
/// saw last; and in a program without Tokio, to the built-in [`ThreadRuntime`]. So a lease may be dropped
/// anywhere. Once every runtime that the pool saw has shut down, tasks are dropped.
///
/// Acquires time out wherever they are polled: also under another executor's `block_on`, and, a few
/// milliseconds late, while nobody drives a Tokio runtime.
#[derive(Debug, Default)]
pub struct TokioRuntime {
    /// The runtimes that the pool saw and that may be alive; the last one it saw comes last.
    seen: Mutex<Vec<SeenRuntime>>,
    follows_paused_clock: bool,
    outlives: bool,
}

impl TokioRuntime {
    /// Returns the default runtime of a pool.
    pub fn new() -> Self {
        TokioRuntime::default()
    }

    /// Uses Tokio's clock for everything, for tests that pause it. The ages of leases follow it, which costs
    /// about 25 ns per acquire, and so does the sleep of the maintenance task, which costs Tokio 1 to 2 µs per
    /// wait for I/O. Without this option the maintenance task follows a paused clock only if the clock was
    /// paused before the task went to sleep. With it, deadlines pass only while the runtime is driven.
    #[must_use]
    pub fn follows_paused_clock(mut self) -> Self {
        self.follows_paused_clock = true;
        self
    }

    /// Keeps resources when the Tokio runtime shuts down that they were created on. For resources without
    /// I/O of their own. By default they are destroyed, because a socket does not work without its runtime.
    #[must_use]
    pub fn resources_outlive_it(mut self) -> Self {
        self.outlives = true;
        self
    }

    /// Returns where tasks of this thread go.
    fn target(&self) -> Target {
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Ok(handle) = Handle::try_current() else {
            if seen.is_empty() {
                return Target::NeverSeen;
            }
            let alive = seen.iter().rev().find(|seen| seen.is_alive());
            return alive.map_or(Target::Gone, |seen| Target::Runtime(seen.handle.clone()));
        };
        match seen
            .iter()
            .rposition(|seen| seen.handle.id() == handle.id())
        {
            Some(last) if last + 1 == seen.len() => {}
            Some(earlier) => seen[earlier..].rotate_left(1),
            None => {
                seen.retain(SeenRuntime::is_alive);
                seen.push(SeenRuntime::new(handle.clone()));
            }
        }
        Target::Runtime(handle)
    }
}

/// Returns whether Tokio polls a task on this thread, which blocking would stop. That is not so under a
/// guard of `Handle::enter`, in `spawn_blocking` and in `block_in_place`.
fn polls_a_task() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    // Tokio limits the steps of a task, to at most 255, only while it polls the task.
    let mut context = Context::from_waker(Waker::noop());
    let mut restores = None;
    for _ in 0..=u8::MAX {
        match poll_proceed(&mut context) {
            Poll::Pending => return true,
            Poll::Ready(first) if restores.is_none() => restores = Some(first),
            // The first one restores the whole budget when it is dropped.
            Poll::Ready(later) => later.made_progress(),
        }
    }
    false
}

/// Returns the number of a runtime, which Tokio shows to hashers only.
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

/// Sleeps at least this long are left to the built-in thread.
const LONG: Duration = Duration::from_millis(500);

/// Returns the time by Tokio's clock; by the machine's clock on a thread that is ending, where Tokio's
/// clock panics if it can be paused.
fn tokio_now() -> Instant {
    let now = catch_unwind(tokio::time::Instant::now);
    now.map_or_else(|_| clock::precise(), tokio::time::Instant::into_std)
}

/// Returns whether Tokio's clock is the machine's. A paused clock stands at an earlier time, or was
/// advanced to a later one.
fn clock_is_real() -> bool {
    let before = clock::precise();
    let told = tokio_now();
    before <= told && told <= clock::precise()
}

/// Where tasks go.
enum Target {
    /// To this runtime: that of the thread, or the last one seen.
    Runtime(Handle),
    /// Nowhere: every runtime that was seen has shut down.
    Gone,
    /// To the built-in thread: no runtime was ever seen.
    NeverSeen,
}

/// A Tokio runtime, and a task on it whose end means that the runtime has shut down.
#[derive(Debug)]
struct SeenRuntime {
    handle: Handle,
    alive: Weak<()>,
    witness: AbortHandle,
}

impl SeenRuntime {
    fn new(handle: Handle) -> Self {
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        // The task owns `alive` until its runtime or this value drops the task.
        let witness = handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(alive);
        });
        SeenRuntime {
            handle,
            alive: weak,
            witness: witness.abort_handle(),
        }
    }

    fn is_alive(&self) -> bool {
        self.alive.strong_count() > 0
    }
}

impl Drop for SeenRuntime {
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
        // A task of Tokio is driven by Tokio. Elsewhere nobody may drive the runtime of the handle.
        let is_driven = tokio::task::try_id().is_some();
        if is_driven || (Handle::try_current().is_ok() && !self.needs_driving()) {
            // Panics on a runtime that was built without timers.
            let sleep = catch_unwind(|| tokio::time::sleep_until(until.into()));
            if let Ok(sleep) = sleep {
                // Outside of the budget: otherwise a future that uses it up at every poll never meets its limit.
                return Box::pin(tokio::task::unconstrained(sleep));
            }
        }
        ThreadRuntime::new().sleep(until)
    }

    /// While a timer is set, each of Tokio's waits for I/O sets a timer in the kernel as well, which takes
    /// more than a microsecond. So long sleeps are left to the built-in thread, except under a paused clock,
    /// which that thread does not follow.
    fn sleep_aside(&self, until: Instant) -> Task {
        let is_long = until.saturating_duration_since(self.now()) >= LONG;
        let thread = ThreadRuntime::new();
        match is_long && self.needs_driving() && thread.starts() {
            true => thread.sleep(until),
            false => self.sleep(until),
        }
    }

    fn spawn(&self, task: Task) {
        match self.target() {
            // A runtime that shuts down drops the task.
            Target::Runtime(handle) => drop(catch_unwind(AssertUnwindSafe(|| handle.spawn(task)))),
            Target::Gone => drop(task),
            Target::NeverSeen => ThreadRuntime::new().spawn(task),
        }
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        match Handle::try_current() {
            // Tokio's thread-local is gone, so `Handle::enter` would panic.
            Err(error) if error.is_thread_local_destroyed() => {}
            Err(_) => match self.target() {
                Target::Runtime(handle) => {
                    let _guard = handle.enter();
                    f();
                }
                Target::Gone | Target::NeverSeen => f(),
            },
            Ok(_) => f(),
        }
    }

    fn must_not_block(&self) -> bool {
        polls_a_task() || ThreadRuntime::new().must_not_block()
    }

    /// Not under a paused clock, which the built-in thread does not follow.
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
        assert!(matches!(pool.target(), Target::Runtime(to) if to.id() == living.handle().id()));
        drop(living);
        assert!(matches!(pool.target(), Target::Gone));
        let next = current_thread();
        let _guard = next.enter();
        pool.spawn(Box::pin(async {}));
        assert_eq!(witnesses(&pool).len(), 1);
    }
}
