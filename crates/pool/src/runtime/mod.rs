//! What the pool needs of an executor: a clock, timers and tasks.

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

/// A boxed future, as used by a [`Runtime`].
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of a pool.
///
/// Tokio ([`TokioRuntime`]) is the default; [`ThreadRuntime`] is one plain thread for programs without an
/// executor. For another executor implement the four required methods.
pub trait Runtime: Send + Sync + 'static {
    /// Returns the time, for deadlines, lifetimes and intervals. The pool reads it under its lock, as it does
    /// [`coarse_now`](Runtime::coarse_now): neither may call the pool or panic.
    fn now(&self) -> Instant;

    /// Returns the nanoseconds since some fixed moment, exact to a few milliseconds, for the age of leases.
    /// It must be cheap to read, and must not need a periodic timer.
    fn coarse_now(&self) -> u64;

    /// Returns a future that resolves at or after `until`, wherever it is polled.
    fn sleep(&self, until: Instant) -> Task;

    /// Returns the same for the pool's maintenance task, whose sleeps are long. An executor whose waits for
    /// I/O cost more while a timer is set can keep this timer elsewhere. Default:
    /// [`sleep`](Runtime::sleep).
    fn sleep_aside(&self, until: Instant) -> Task {
        self.sleep(until)
    }

    /// Runs a task in the background. An executor that shuts down may drop it: the pool's tasks give back
    /// what they hold when they are dropped.
    fn spawn(&self, task: Task);

    /// Calls `f` in a context where the executor's timers and I/O can be used. The pool polls hooks through
    /// this on plain threads. It calls `f` once, or not at all if that is impossible, on a thread whose
    /// thread-locals are gone; the pool then uses [`spawn`](Runtime::spawn). Default: calls `f`.
    fn enter(&self, f: &mut dyn FnMut()) {
        f();
    }

    /// Returns whether spawned tasks run only while some thread drives the executor, by the machine's clock.
    /// The built-in thread then enforces the deadlines of acquires as well, wherever an acquire is polled.
    /// Default: no, the executor drives itself.
    fn needs_driving(&self) -> bool {
        false
    }

    /// Returns whether blocking the current thread would stop an executor. Default: no.
    fn must_not_block(&self) -> bool {
        false
    }

    /// Identifies the executor that the I/O of a resource created now depends on. The pool destroys the
    /// resource when that executor shuts down. Default: `None`, resources outlive executors.
    fn domain(&self) -> Option<u64> {
        None
    }
}

/// A runtime can be shared by several pools and other code.
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

/// Returns the default runtime of a pool.
pub(crate) fn default_runtime() -> Arc<dyn Runtime> {
    #[cfg(all(feature = "tokio", not(loom)))]
    return Arc::new(TokioRuntime::new());
    #[cfg(not(all(feature = "tokio", not(loom))))]
    return Arc::new(ThreadRuntime::new());
}

/// A time limit that begins with its first poll, so that a future that is ready at once reads no clock.
#[derive(Default)]
pub(crate) struct PollTimer {
    sleep: Option<Contained<Task>>,
}

impl PollTimer {
    /// Returns whether the limit has passed. A timer that panics counts as passed.
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
/// Dropping this future drops the inner one. So does the limit.
pub async fn within<F: Future>(
    runtime: &dyn Runtime,
    limit: Option<Duration>,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = PollTimer::default();
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
