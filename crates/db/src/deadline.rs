//! Futures that may take only so long.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{Runtime, Task};

/// The executor of a handle, shared with its pool.
#[derive(Clone)]
pub(crate) struct SharedRuntime(pub(crate) Arc<dyn Runtime>);

impl fmt::Debug for SharedRuntime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedRuntime").finish_non_exhaustive()
    }
}

impl Runtime for SharedRuntime {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn coarse_now(&self) -> u64 {
        self.0.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        self.0.sleep(until)
    }

    fn sleep_aside(&self, until: Instant) -> Task {
        self.0.sleep_aside(until)
    }

    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        self.0.enter(f);
    }

    fn needs_driving(&self) -> bool {
        self.0.needs_driving()
    }

    fn must_not_block(&self) -> bool {
        self.0.must_not_block()
    }

    fn domain(&self) -> Option<u64> {
        self.0.domain()
    }
}

impl SharedRuntime {
    /// Runs a future for at most this long; `None` if that was not enough. What is ready
    /// at once never looks at a clock.
    pub(crate) async fn within<F: Future>(
        &self,
        limit: Option<Duration>,
        future: F,
    ) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut sleep: Option<Task> = None;
        poll_fn(move |cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let Some(limit) = limit else {
                return Poll::Pending;
            };
            let sleep = match &mut sleep {
                Some(sleep) => sleep,
                none => match self.now().checked_add(limit) {
                    Some(until) => none.insert(self.sleep(until)),
                    None => return Poll::Pending,
                },
            };
            sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}
