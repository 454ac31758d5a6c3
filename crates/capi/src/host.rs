//! A host's event loop as the runtime of a pool: everything runs inside calls of the host, on
//! its thread. The host provides a clock, a timer and a way to schedule a call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use rust_pool::{Runtime, Task, ThreadRuntime};

/// Cancels a timer; see cenote_runtime.
pub const CENOTE_NEVER: u64 = u64::MAX;

/// A function that the host calls with the argument it got. An extra call is harmless, and so is
/// a call after the pool is destroyed.
pub type cenote_run_fn = Option<unsafe extern "C" fn(arg: *mut c_void)>;

/// The event loop of a single-threaded host. A pool with a host runs all its callbacks on the
/// host's thread, inside the host's calls of `run` and of this library's functions. The struct
/// is copied; what `data` points to must live until the pool's `dispose` was called.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_runtime {
    /// sizeof(cenote_runtime).
    pub size: usize,
    /// Passed to the functions below.
    pub data: *mut c_void,
    /// Returns the time in nanoseconds since a fixed moment; must be monotonic. NULL: the
    /// system's monotonic clock. Called on any thread and while the pool is locked: must not
    /// call this library.
    pub now: Option<unsafe extern "C" fn(data: *mut c_void) -> u64>,
    /// Schedules run(arg) on the host's thread for the time `at` of `now`. Each `arg` has one
    /// timer: another call moves it, CENOTE_NEVER cancels it. Called on the host's thread only, and must not call run(arg) itself.
    pub timer: Option<
        unsafe extern "C" fn(data: *mut c_void, at: u64, run: cenote_run_fn, arg: *mut c_void),
    >,
    /// Schedules run(arg) on the host's thread, from its event loop, as soon as possible.
    /// Called on any thread; must not call run(arg) itself. Returns 0, or anything else if the
    /// loop accepts no more work: then the work is cancelled. Before the loop ends, it must run
    /// the work that it has accepted.
    pub post: Option<
        unsafe extern "C" fn(data: *mut c_void, run: cenote_run_fn, arg: *mut c_void) -> c_int,
    >,
    /// Returns whether the calling thread is the host's. NULL: the host's thread is the one that
    /// calls cenote_pool_new.
    pub on_thread: Option<unsafe extern "C" fn(data: *mut c_void) -> c_int>,
}

/// The hosts of existing pools, by the number that is their `arg`.
static HOSTS: LazyLock<Mutex<HashMap<usize, Arc<Host>>>> = LazyLock::new(Mutex::default);

pub(crate) type HostsGuard = MutexGuard<'static, HashMap<usize, Arc<Host>>>;

pub(crate) fn hosts() -> HostsGuard {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Its address names the thread.
    static HERE: u8 = const { 0 };
}

fn here() -> usize {
    HERE.try_with(|here| std::ptr::from_ref(here).addr())
        .unwrap_or(0)
}

/// One pool's view of its host.
pub(crate) struct Host {
    /// A number and not an address, so that a late call is harmless.
    arg: usize,
    table: cenote_runtime,
    thread: usize,
    /// The same moment on our clock and on the host's.
    epoch: (Instant, u64),
    todo: Mutex<Todo>,
    /// The pool is destroyed: the library no longer calls the host.
    ended: AtomicBool,
}

// SAFETY: `table` has functions that may be called on the threads that the header
// names, and C's data, which is only handed to them.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

#[derive(Default)]
struct Todo {
    ready: VecDeque<Arc<Job>>,
    timers: BTreeMap<(Instant, u64), Waker>,
    serial: u64,
    /// A `post` is pending: the host has not called yet.
    posted: bool,
    /// The time to which the host's timer is set.
    armed: Option<Instant>,
}

impl Host {
    /// Registers a host. The table must have `timer` and `post`.
    pub(crate) fn new(table: cenote_runtime) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only has to be unique. On 32 bits it wraps after four billion.
        #[allow(clippy::cast_possible_truncation, reason = "wraps, and may")]
        let arg = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
        let started = ThreadRuntime::new().now();
        // SAFETY: C's function with C's data.
        let theirs = table.now.map(|now| unsafe { now(table.data) });
        let host = Arc::new(Host {
            arg,
            table,
            thread: here(),
            epoch: (started, theirs.unwrap_or(0)),
            todo: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        hosts().insert(arg, Arc::clone(&host));
        host
    }

    /// Whether this is the host's thread.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        match self.table.on_thread {
            // SAFETY: C's function with C's data.
            Some(on_thread) => unsafe { on_thread(self.table.data) != 0 },
            None => here() == self.thread,
        }
    }

    /// Unregisters the host of a destroyed pool: the library calls none of its functions after this.
    pub(crate) fn end(&self) {
        if self.is_here() {
            self.arm(None);
        }
        self.ended.store(true, Ordering::Release);
        hosts().remove(&self.arg);
        let timers = {
            let mut todo = self.lock();
            todo.posted = true;
            std::mem::take(&mut todo.timers)
        };
        drop(timers);
        self.give_up_all();
    }

    fn lock(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn arg(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.arg)
    }

    /// Posts a call to the host, unless one is pending. If the host refuses, the queued jobs are
    /// cancelled.
    fn ask_to_run(&self) {
        let ended = {
            let mut todo = self.lock();
            if std::mem::replace(&mut todo.posted, true) {
                return;
            }
            self.has_ended()
        };
        let taken = match self.table.post.filter(|_| !ended) {
            // SAFETY: C's function with C's data.
            Some(post) => unsafe { post(self.table.data, Some(run_posted), self.arg()) == 0 },
            None => false,
        };
        if !taken {
            self.give_up_all();
        }
    }

    /// Cancels the queued jobs and those that this wakes. While `posted` is set, a woken job only
    /// joins the queue, so this does not recurse.
    fn give_up_all(&self) {
        loop {
            let refused = {
                let mut todo = self.lock();
                if todo.ready.is_empty() {
                    todo.posted = false;
                    return;
                }
                std::mem::take(&mut todo.ready)
            };
            refused.into_iter().for_each(|job| job.give_up());
        }
    }

    /// Runs the ready jobs once. Jobs that become ready meanwhile wait for the next call, so that
    /// the host's loop can do other work.
    fn run(self: &Arc<Self>, called_by: CalledBy) {
        let now = self.now();
        let (due, jobs) = {
            let mut todo = self.lock();
            match called_by {
                CalledBy::Post => todo.posted = false,
                // Even if the timer fired early: then it must be set again.
                CalledBy::Timer => todo.armed = None,
            }
            let mut due = Vec::new();
            while let Some(timer) = todo.timers.first_entry()
                && timer.key().0 <= now
            {
                due.push(timer.remove());
            }
            (due, std::mem::take(&mut todo.ready))
        };
        for waker in due {
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        for job in jobs {
            job.run();
        }
        self.arm_first();
    }

    /// Sets the host's timer to the earliest of ours.
    fn arm_first(&self) {
        let first = self.lock().timers.keys().next().map(|&(at, _)| at);
        self.arm(first);
    }

    fn arm(&self, at: Option<Instant>) {
        {
            let mut todo = self.lock();
            if self.has_ended() || todo.armed == at {
                return;
            }
            todo.armed = at;
        }
        let at = at.map_or(CENOTE_NEVER, |at| self.in_their_time(at));
        if let Some(timer) = self.table.timer {
            // SAFETY: C's function with C's data, on its own thread.
            unsafe { timer(self.table.data, at, Some(run_due), self.arg()) };
        }
    }

    /// Updates the host's timer, from any thread.
    fn rearm(&self) {
        match self.is_here() {
            true => self.arm_first(),
            false => self.ask_to_run(),
        }
    }

    fn in_their_time(&self, at: Instant) -> u64 {
        let (ours, theirs) = self.epoch;
        let since = at.saturating_duration_since(ours).as_nanos();
        // `CENOTE_NEVER` minus 1 is 584 years away.
        let since = u64::try_from(since).unwrap_or(u64::MAX - 1);
        theirs.saturating_add(since).min(CENOTE_NEVER - 1)
    }

    pub(crate) fn now(&self) -> Instant {
        let Some(now) = self.table.now.filter(|_| !self.has_ended()) else {
            return ThreadRuntime::new().now();
        };
        // SAFETY: C's function with C's data.
        let theirs = unsafe { now(self.table.data) };
        let since = theirs.saturating_sub(self.epoch.1);
        self.epoch.0 + Duration::from_nanos(since)
    }
}

/// Why a host calls.
#[derive(Clone, Copy)]
enum CalledBy {
    Post,
    Timer,
}

/// The function that the host calls after a `post`.
unsafe extern "C" fn run_posted(arg: *mut c_void) {
    run(arg, CalledBy::Post);
}

/// The function that the host calls when its timer fires.
unsafe extern "C" fn run_due(arg: *mut c_void) {
    run(arg, CalledBy::Timer);
}

fn run(arg: *mut c_void, called_by: CalledBy) {
    let host = hosts().get(&arg.addr()).cloned();
    if let Some(host) = host {
        // No panic may reach C, and each job catches its own.
        let _ = catch_unwind(AssertUnwindSafe(|| host.run(called_by)));
    }
}

/// The runtime of a pool with a host.
pub(crate) struct HostRuntime(pub(crate) Arc<Host>);

impl Runtime for HostRuntime {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn coarse_now(&self) -> u64 {
        // Used only for the ages of leases: the system's clock is cheaper than a call of the host.
        ThreadRuntime::new().coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        Box::pin(Sleep {
            host: Arc::clone(&self.0),
            until,
            set: None,
        })
    }

    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }

    fn must_not_block(&self) -> bool {
        self.0.is_here()
    }
}

impl Host {
    /// Runs a task on the host's thread, or drops it if the host accepts no more work.
    pub(crate) fn spawn(self: &Arc<Self>, task: Task) {
        let job = Arc::new(Job {
            host: Arc::clone(self),
            state: Mutex::new(JobState {
                task: Some(task),
                running: false,
                again: false,
                given_up: false,
            }),
        });
        job.wake();
    }
}

/// A spawned task.
struct Job {
    host: Arc<Host>,
    state: Mutex<JobState>,
}

struct JobState {
    /// `None` while the task runs, so that no lock is held during the poll.
    task: Option<Task>,
    running: bool,
    /// The task was woken while it ran inside a nested event loop.
    again: bool,
    /// The task was woken while it ran, and the host refused the `post`.
    given_up: bool,
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>) {
        let mut task = {
            let mut state = self.lock();
            if state.running {
                // A callback of this job is running the host's event loop.
                state.again = true;
                return;
            }
            let Some(task) = state.task.take() else {
                return;
            };
            state.running = true;
            task
        };
        let waker = Waker::from(Arc::clone(&self));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            task.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let again = {
            let mut state = self.lock();
            state.running = false;
            let again = std::mem::take(&mut state.again);
            let over = state.given_up || self.host.has_ended();
            if matches!(polled, Ok(Poll::Pending)) && !over {
                state.task = Some(task);
                again
            } else {
                drop(state);
                let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                false
            }
        };
        if again {
            self.wake();
        }
    }

    /// Drops the task without running it.
    fn give_up(&self) {
        let task = {
            let mut state = self.lock();
            state.given_up = state.running;
            state.task.take()
        };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    }
}

impl Wake for Job {
    fn wake(self: Arc<Self>) {
        let host = Arc::clone(&self.host);
        host.lock().ready.push_back(self);
        host.ask_to_run();
    }
}

struct Sleep {
    host: Arc<Host>,
    until: Instant,
    /// The timer in the host's list, and its waker.
    set: Option<(u64, Waker)>,
}

impl Sleep {
    fn unset(&mut self) {
        if let Some((serial, _)) = self.set.take() {
            // Dropped after the lock: the waker may own a task.
            let waker = self.host.lock().timers.remove(&(self.until, serial));
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.host.now() >= self.until {
            return Poll::Ready(());
        }
        let set = self.set.as_ref();
        if !set.is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            self.unset();
            let waker = cx.waker().clone();
            let serial = {
                let mut todo = self.host.lock();
                todo.serial += 1;
                let serial = todo.serial;
                todo.timers.insert((self.until, serial), waker);
                serial
            };
            self.set = Some((serial, cx.waker().clone()));
            self.host.rearm();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.unset();
    }
}
