//! Tokio, the default runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::Instant;

use tokio::runtime::Handle;

use super::{Runtime, Task, ThreadRuntime, clock};

/// Runs a pool's tasks on Tokio.
///
/// Work goes to the Tokio runtime of the calling thread; from a plain thread,
/// to the one the pool saw last; and in a program that has none, to the built-in
/// [`ThreadRuntime`]. So a lease may be dropped anywhere.
#[derive(Debug, Default)]
pub struct TokioRuntime {
    last_seen: Mutex<Option<Handle>>,
    exact_ages: bool,
    outlives: bool,
}

impl TokioRuntime {
    /// The runtime of a pool that was given none.
    pub fn new() -> Self {
        TokioRuntime::default()
    }

    /// Reckons the age of leases by Tokio's clock, so that it follows a paused
    /// one in tests. Costs about 25 ns an acquire.
    #[must_use]
    pub fn exact_ages(mut self) -> Self {
        self.exact_ages = true;
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

    fn handle(&self) -> Option<Handle> {
        let mut last_seen = self
            .last_seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match Handle::try_current() {
            Ok(handle) => {
                if last_seen.as_ref().map(Handle::id) != Some(handle.id()) {
                    *last_seen = Some(handle.clone());
                }
                Some(handle)
            }
            Err(_) => last_seen.clone(),
        }
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    #[inline]
    fn coarse_now(&self) -> u64 {
        if self.exact_ages {
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

    fn spawn(&self, task: Task) {
        match self.handle() {
            // A runtime that shuts down drops the task, as it may.
            Some(handle) => drop(catch_unwind(AssertUnwindSafe(|| handle.spawn(task)))),
            None => ThreadRuntime::new().spawn(task),
        }
    }

    fn must_not_block(&self) -> bool {
        Handle::try_current().is_ok() || ThreadRuntime::new().must_not_block()
    }

    fn domain(&self) -> Option<u64> {
        if self.outlives {
            return None;
        }
        // The id has no number to give, but prints as one.
        Handle::try_current().ok()?.id().to_string().parse().ok()
    }
}
