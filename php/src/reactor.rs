//! The Tokio runtime of the PHP thread, for the connections of PDO handles.
//!
//! It has no thread of its own: the PHP thread drives it whenever nothing else is to do. So an answer of a server
//! takes no switch of threads. It starts with the first handle, and not in the process that forks.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};

use crate::fiber;
use crate::wake::RunQueue;

thread_local! {
    static REACTOR: Cell<Option<&'static Reactor>> = const { Cell::new(None) };
    static FORKS: Cell<u32> = const { Cell::new(0) };
    /// The waker of the drive that runs, for the hook after a sleep.
    static DRIVER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

pub(crate) struct Reactor {
    runtime: Runtime,
}

/// Returns the runtime, and starts it first if necessary.
///
/// # Errors
///
/// The system refuses the descriptors that it needs.
pub(crate) fn reactor() -> std::io::Result<&'static Reactor> {
    if let Some(reactor) = REACTOR.get() {
        return Ok(reactor);
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        // A signal ends the sleep; its PHP handler must not wait for the next answer.
        .on_thread_unpark(|| {
            if fiber::is_interrupt_pending() {
                DRIVER.with_borrow(|waker| {
                    if let Some(waker) = waker {
                        waker.wake_by_ref();
                    }
                });
            }
        })
        .build()?;
    let reactor: &'static Reactor = Box::leak(Box::new(Reactor { runtime }));
    REACTOR.set(Some(reactor));
    Ok(reactor)
}

/// Returns the runtime if it has started.
pub(crate) fn existing_reactor() -> Option<&'static Reactor> {
    REACTOR.get()
}

/// In the child of a fork: forgets the runtime of the parent, whose sockets it shares.
pub(crate) fn after_fork() {
    REACTOR.set(None);
    FORKS.set(FORKS.get() + 1);
}

/// Returns how often the process was forked since the extension was loaded: a handle with another number belongs to
/// another process.
pub(crate) fn forks() -> u32 {
    FORKS.get()
}

/// How long the PHP thread sleeps at most while it waits for a server. A signal that arrives between the last look
/// and the sleep is noticed after this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(200);

impl Reactor {
    /// Makes the runtime the current one.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Serves sockets and tasks until the queue has an entry, a signal has arrived or the time has passed.
    pub(crate) fn drive(&self, queue: &RunQueue, limit: Option<Duration>) {
        if fiber::is_interrupt_pending() {
            return;
        }
        let limit = limit.map_or(LONGEST_SLEEP, |limit| limit.min(LONGEST_SLEEP));
        self.runtime.block_on(async {
            let ready = poll_fn(|cx| {
                queue.set_driver(Some(cx.waker().clone()));
                DRIVER.set(Some(cx.waker().clone()));
                match !queue.is_empty() || fiber::is_interrupt_pending() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            // Only the time can make it fail.
            let _ = tokio::time::timeout(limit, ready).await;
        });
        DRIVER.set(None);
        queue.set_driver(None);
    }

    /// Serves what is ready now, without a wait.
    pub(crate) fn turn(&self) {
        let mut turns = 0;
        self.runtime.block_on(poll_fn(|cx| {
            turns += 1;
            if turns > 2 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
    }

    /// Runs the tasks until all have ended or the time has passed.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime does not tell when its last task ends, so this asks it again, at the end of a request"
    )]
    pub(crate) fn finish_tasks(&self, limit: Duration) {
        let metrics = self.runtime.metrics();
        self.wait(
            async {
                while metrics.num_alive_tasks() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            },
            limit,
        );
    }

    /// Waits for a future without running anything else of PHP. Returns `None` if the time has passed before.
    pub(crate) fn wait<F: Future>(&self, future: F, limit: Duration) -> Option<F::Output> {
        self.runtime
            .block_on(async { tokio::time::timeout(limit, future).await.ok() })
    }

    /// Sleeps until `flag` is set, or a thread of SQLite has a call to serve.
    pub(crate) fn drive_for(&self, flag: &Arc<Flag>, queue: &RunQueue) {
        self.runtime.block_on(async {
            let set = poll_fn(|cx| {
                flag.set_driver(cx.waker());
                queue.set_driver(Some(cx.waker().clone()));
                match flag.take() || queue.has_calls() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            let _ = tokio::time::timeout(LONGEST_SLEEP, set).await;
        });
        queue.set_driver(None);
    }
}

/// A waker that sets a flag, for a wait that must not switch to another coroutine.
#[derive(Default)]
pub(crate) struct Flag {
    is_set: AtomicBool,
    driver: std::sync::Mutex<Option<Waker>>,
}

impl Flag {
    fn set_driver(&self, waker: &Waker) {
        let mut driver = self
            .driver
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *driver = Some(waker.clone());
    }

    fn take(&self) -> bool {
        // AcqRel pairs with `wake`: what the waking thread did is visible to the next poll.
        self.is_set.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        let driver = self
            .driver
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
