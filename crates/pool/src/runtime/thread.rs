//! The built-in runtime: one thread with a queue of tasks and a list of timers.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::{Runtime, Task, clock};
use crate::runtime::fork;
use crate::user_code::{Contained, contained, drop_contained};

/// One background thread, shared by all pools of the process that use it.
///
/// It starts with the first task or timer, sleeps while there is nothing to do, and does not keep the process
/// alive. The child of a `fork` gets a thread of its own. A hook that blocks this thread stops the tasks of all
/// its pools, and delays the deadlines of pools on Tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadRuntime;

impl ThreadRuntime {
    /// Returns a handle of the thread. This starts nothing.
    pub fn new() -> Self {
        ThreadRuntime
    }

    /// Starts the thread if it does not run. Returns whether it runs.
    #[cfg(feature = "tokio")]
    pub(super) fn starts(self) -> bool {
        let agenda = agenda();
        agenda.lock().start(agenda)
    }
}

impl Runtime for ThreadRuntime {
    fn now(&self) -> Instant {
        clock::precise()
    }

    #[inline]
    fn coarse_now(&self) -> u64 {
        clock::coarse_nanos()
    }

    fn sleep(&self, until: Instant) -> Task {
        Box::pin(Sleep { until, set: None })
    }

    fn spawn(&self, task: Task) {
        let job = Arc::new(Job {
            task: Mutex::new(Some(task)),
        });
        job.wake();
    }

    fn must_not_block(&self) -> bool {
        HERE.get()
    }
}

thread_local! {
    /// Whether this is the background thread. It can be read even on a thread that is ending.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// What the thread has to do.
struct Agenda {
    todo: Mutex<Todo>,
    changed: Condvar,
}

#[derive(Default)]
struct Todo {
    started: bool,
    ready: VecDeque<Arc<Job>>,
    timers: BTreeMap<(Instant, u64), Waker>,
    /// Until when the thread sleeps. A later timer need not wake it.
    sleeps_until: Option<Instant>,
}

impl Todo {
    fn start(&mut self, agenda: &'static Agenda) -> bool {
        if !self.started {
            self.started = thread::Builder::new()
                .name("cenote-pool".into())
                .spawn(move || agenda.run())
                .is_ok();
        }
        self.started
    }
}

/// The agenda of this process. It is null until it is needed, and again in the child of a fork.
static AGENDA: AtomicPtr<Agenda> = AtomicPtr::new(std::ptr::null_mut());

fn agenda() -> &'static Agenda {
    // Acquire pairs with the release in `make_agenda`: the agenda is complete.
    let known = AGENDA.load(Ordering::Acquire);
    // SAFETY: an agenda that was put there is never freed.
    unsafe { known.as_ref() }.unwrap_or_else(make_agenda)
}

#[cold]
fn make_agenda() -> &'static Agenda {
    fork::watch();
    let new = Box::into_raw(Box::new(Agenda {
        todo: Mutex::default(),
        changed: Condvar::new(),
    }));
    // Release pairs with the acquire in `agenda`; acquire, if another thread was first.
    let put = AGENDA.compare_exchange(
        std::ptr::null_mut(),
        new,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    match put {
        // SAFETY: just made, and never freed from here on.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: an agenda that was put there is never freed.
            unsafe { &*first }
        }
    }
}

/// Forgets the thread in a forked process, which has no such thread: the next use starts another one. The
/// old agenda belongs to the parent, and its lock may be taken for ever, so it is leaked.
pub(crate) fn forget_thread() {
    AGENDA.store(std::ptr::null_mut(), Ordering::Release);
}

impl Agenda {
    fn lock(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds something to do, which returns whether the thread has to wake for it. Starts the thread if it does
    /// not run.
    fn add(&'static self, add: impl FnOnce(&mut Todo) -> bool) {
        let mut todo = self.lock();
        let is_urgent = add(&mut todo);
        // If the thread cannot be started now, the next addition tries again.
        todo.start(self);
        drop(todo);
        if is_urgent {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        HERE.set(true);
        let mut todo = self.lock();
        loop {
            let now = clock::precise();
            let mut due = Vec::new();
            while let Some(timer) = todo.timers.first_entry()
                && timer.key().0 <= now
            {
                due.push(timer.remove());
            }
            let job = todo.ready.pop_front();
            if !due.is_empty() || job.is_some() {
                // Wakers and tasks are user code: they run without the lock, and their panics are
                // contained.
                drop(todo);
                for waker in due {
                    contained(|| waker.wake());
                }
                if let Some(job) = job {
                    job.run();
                }
                todo = self.lock();
                continue;
            }
            // Nothing is ready: the memory of a burst is freed.
            todo.ready.shrink_to(64);
            todo.sleeps_until = todo.timers.first_key_value().map(|(&(at, _), _)| at);
            todo = match todo.sleeps_until {
                None => self
                    .changed
                    .wait(todo)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let pause = at.saturating_duration_since(now);
                    let waited = self.changed.wait_timeout(todo, pause);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A spawned task. It may be in the queue more than once; a run after its end does nothing.
struct Job {
    task: Mutex<Option<Task>>,
}

impl Job {
    fn run(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut slot = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(task) = slot.as_mut() else { return };
        let mut is_over = true;
        contained(|| {
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            is_over = polled.is_ready();
        });
        if is_over {
            let done = slot.take();
            drop(slot);
            contained(|| drop(done));
        }
    }
}

impl Wake for Job {
    fn wake(self: Arc<Self>) {
        agenda().add(|todo| {
            todo.ready.push_back(self);
            true
        });
    }
}

/// A timer on the thread's list. Dropping it removes it from the list.
pub(crate) struct Timer {
    until: Instant,
    serial: u64,
}

impl Timer {
    pub(crate) fn new(until: Instant, waker: Waker) -> Self {
        // Unique also in children: a timer that was set before a fork is not in the child's list.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only has to be unique.
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        agenda().add(|todo| {
            todo.timers.insert((until, serial), waker);
            todo.sleeps_until.is_none_or(|sleeps| until < sleeps)
        });
        Timer { until, serial }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // Dropped after the unlock: the waker may own a task, whose drop is user code and may call this
        // again.
        let waker = agenda().lock().timers.remove(&(self.until, self.serial));
        drop_contained(waker);
    }
}

struct Sleep {
    until: Instant,
    /// The timer and its waker.
    set: Option<(Timer, Contained<Waker>)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if clock::precise() >= self.until {
            return Poll::Ready(());
        }
        let set = self.set.as_ref();
        if !set.is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            let timer = Timer::new(self.until, cx.waker().clone());
            self.set = Some((timer, Contained::new(cx.waker().clone())));
        }
        Poll::Pending
    }
}

/// Runs a future on the current thread, which sleeps meanwhile. After `limit` the future is polled again
/// even without a wake-up, because it may depend on an executor that nobody drives.
///
/// A wake-up sets a flag, because the future may park the thread itself and consume the token of an
/// `unpark`.
pub(crate) fn block_on<F: Future>(
    runtime: &dyn Runtime,
    limit: Option<Duration>,
    future: F,
) -> F::Output {
    struct Unpark {
        thread: Thread,
        is_woken: AtomicBool,
    }

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            // Release pairs with the acquire below: the next poll sees what happened before the wake-up.
            self.is_woken.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }

    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut left = limit;
    loop {
        let mut polled = None;
        runtime.enter(&mut || polled = Some(future.as_mut().poll(&mut context)));
        let polled = match polled {
            Some(polled) => polled,
            // The runtime cannot be entered here.
            None => future.as_mut().poll(&mut context),
        };
        if let Poll::Ready(output) = polled {
            return output;
        }
        while !unpark.is_woken.swap(false, Ordering::Acquire) {
            let Some(pause) = left else {
                thread::park();
                continue;
            };
            let began = clock::precise();
            thread::park_timeout(pause);
            let passed = clock::precise().saturating_duration_since(began);
            let rest = pause.saturating_sub(passed);
            // After the limit the future is polled every millisecond.
            left = Some(rest.max(Duration::from_millis(1)));
            if rest.is_zero() {
                break;
            }
        }
    }
}
