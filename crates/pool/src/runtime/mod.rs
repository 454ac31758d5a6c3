//! What the pool needs of an executor: the time, a timer and a place to run work.

mod clock;
pub(crate) mod fork;
mod thread;
#[cfg(feature = "tokio")]
mod tokio;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::user_code::{Contained, contained};

pub use self::thread::ThreadRuntime;
pub(crate) use self::thread::{Timer, block_on, forget_thread};
#[cfg(feature = "tokio")]
pub use self::tokio::TokioRuntime;

/// A boxed future, as a [`Runtime`] takes and gives them.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor a pool lives on.
///
/// Tokio ([`TokioRuntime`]) is the default; [`ThreadRuntime`] is one plain thread
/// for programs without an executor. Another one takes the four methods without
/// a default.
pub trait Runtime: Send + Sync + 'static {
    /// The time. Deadlines, lifetimes and intervals are reckoned by it. Called
    /// under the pool's lock, like [`coarse_now`](Runtime::coarse_now): neither may
    /// call the pool back or panic.
    fn now(&self) -> Instant;

    /// Nanoseconds since some fixed moment, cheap to read and a few milliseconds
    /// exact: the age of leases is reckoned by it. Nothing may tick for it.
    fn coarse_now(&self) -> u64;

    /// Resolves at or after `until`, wherever it is polled.
    fn sleep(&self, until: Instant) -> Task;

    /// The same for the pool's maintenance task, which sleeps nearly all the time, and for long.
    /// An executor that waits for I/O at a higher price while a timer is set can
    /// keep this one elsewhere. Default: [`sleep`](Runtime::sleep).
    fn sleep_aside(&self, until: Instant) -> Task {
        self.sleep(until)
    }

    /// Runs a task in the background. It may be dropped instead of being run to
    /// its end, when the executor shuts down or is gone: the pool's tasks give
    /// back what they hold when dropped.
    fn spawn(&self, task: Task);

    /// Calls `f` where the executor's timers and I/O can be used, if the present
    /// thread is none of its own: hooks are polled through this from plain threads.
    /// Calls it once, or not at all where that is impossible (on a thread whose locals
    /// are gone); the pool then uses [`spawn`](Runtime::spawn). Default: just calls it.
    fn enter(&self, f: &mut dyn FnMut()) {
        f();
    }

    /// Returns whether spawned tasks run only while some thread drives the executor, by the
    /// machine's clock. The built-in thread then watches the deadlines of acquires as well, so that they
    /// pass wherever an acquire is polled. Default: no, the executor drives itself.
    fn needs_driving(&self) -> bool {
        false
    }

    /// Whether blocking the present thread would stop an executor. Default: no.
    fn must_not_block(&self) -> bool {
        false
    }

    /// Names the executor that the I/O of a resource made right now depends on,
    /// if resources do not outlive executors here. Default: they do.
    fn domain(&self) -> Option<u64> {
        None
    }
}

/// A runtime can be shared: by several pools, and with code around them.
impl<R: Runtime + ?Sized> Runtime for Arc<R> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn coarse_now(&self) -> u64 {
        (**self).coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        (**self).sleep(until)
    }

    fn sleep_aside(&self, until: Instant) -> Task {
        (**self).sleep_aside(until)
    }

    fn spawn(&self, task: Task) {
        (**self).spawn(task);
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        (**self).enter(f);
    }

    fn needs_driving(&self) -> bool {
        (**self).needs_driving()
    }

    fn must_not_block(&self) -> bool {
        (**self).must_not_block()
    }

    fn domain(&self) -> Option<u64> {
        (**self).domain()
    }
}

impl fmt::Debug for dyn Runtime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// The runtime of a pool that was given none.
pub(crate) fn default_runtime() -> Arc<dyn Runtime> {
    #[cfg(all(feature = "tokio", not(loom)))]
    return Arc::new(TokioRuntime::new());
    #[cfg(not(all(feature = "tokio", not(loom))))]
    return Arc::new(ThreadRuntime::new());
}

/// A time limit, which begins when it is polled first: what is ready at once never looks at a clock.
#[derive(Default)]
pub(crate) struct Limit {
    sleep: Option<Contained<Task>>,
}

impl Limit {
    /// Whether it is over. A timer that panics counts as one that has gone off.
    pub(crate) fn is_over(
        &mut self,
        runtime: &dyn Runtime,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> bool {
        let mut is_over = true;
        contained(|| {
            let sleep = match &mut self.sleep {
                Some(sleep) => sleep,
                none => match runtime.now().checked_add(limit) {
                    Some(until) => none.insert(Contained::new(runtime.sleep(until))),
                    None => {
                        is_over = false;
                        return;
                    }
                },
            };
            is_over = sleep.as_mut().poll(cx).is_ready();
        });
        is_over
    }
}

/// Runs a future for at most `limit`, by the clock of `runtime`. Returns `None` if the future
/// takes longer. A future that is ready at its first poll sets no timer.
///
/// # Cancel safety
///
/// Dropped, it drops the future. So does the limit.
pub async fn within<F: Future>(
    runtime: &dyn Runtime,
    limit: Option<Duration>,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = Limit::default();
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        match limit {
            Some(limit) if timer.is_over(runtime, limit, cx) => Poll::Ready(None),
            _ => Poll::Pending,
        }
    })
    .await
}
