//! What the tests share: a runtime whose clock and scheduler the test moves,
//! futures polled by hand, and a factory under the test's control.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cenote_pool::{AcquireOptions, Builder, FnManager, FnPool, Pool, Runtime, Task};

/// A runtime that does nothing by itself: [`Manual::advance`] moves the clock,
/// [`Manual::run`] polls what was spawned and woken.
#[derive(Clone)]
pub struct Manual {
    shared: Arc<Shared>,
}

struct Shared {
    start: Instant,
    state: Mutex<ManualState>,
    domain: AtomicUsize,
}

#[derive(Default)]
struct ManualState {
    elapsed: Duration,
    tasks: Vec<Spawned>,
    sleepers: Vec<(Duration, Waker)>,
    /// Drops whatever is spawned: the executor is gone.
    dead: bool,
}

struct Spawned {
    task: Task,
    flag: Arc<Flag>,
}

/// A waker that only counts.
#[derive(Default)]
pub struct Flag {
    woken: AtomicBool,
    times: AtomicUsize,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.times.fetch_add(1, Ordering::SeqCst);
    }
}

impl Default for Manual {
    fn default() -> Self {
        Manual::new()
    }
}

impl Manual {
    pub fn new() -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "a starting point for the manual clock"
        )]
        let start = Instant::now();
        Manual {
            shared: Arc::new(Shared {
                start,
                state: Mutex::default(),
                domain: AtomicUsize::new(0),
            }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ManualState> {
        self.shared.state.lock().unwrap()
    }

    /// Polls every spawned task that was woken, until none is.
    pub fn run(&self) {
        loop {
            let ready: Vec<Spawned> = {
                let mut state = self.state();
                let tasks = std::mem::take(&mut state.tasks);
                let (ready, rest) = tasks
                    .into_iter()
                    .partition(|task: &Spawned| task.flag.woken.load(Ordering::SeqCst));
                state.tasks = rest;
                ready
            };
            if ready.is_empty() {
                return;
            }
            for mut spawned in ready {
                spawned.flag.woken.store(false, Ordering::SeqCst);
                let waker = Waker::from(Arc::clone(&spawned.flag));
                let mut cx = Context::from_waker(&waker);
                if spawned.task.as_mut().poll(&mut cx).is_pending() {
                    self.state().tasks.push(spawned);
                }
            }
        }
    }

    /// Moves the clock, step by step through whatever is due, and runs tasks.
    pub fn advance(&self, by: Duration) {
        let until = self.state().elapsed + by;
        self.run();
        loop {
            let due: Vec<Waker> = {
                let mut state = self.state();
                let next = state.sleepers.iter().map(|(at, _)| *at).min();
                match next {
                    Some(next) if next <= until => {
                        state.elapsed = state.elapsed.max(next);
                        let sleepers = std::mem::take(&mut state.sleepers);
                        let (due, rest) = sleepers.into_iter().partition(|(at, _)| *at <= next);
                        state.sleepers = rest;
                        due
                    }
                    _ => {
                        state.elapsed = until;
                        Vec::new()
                    }
                }
                .into_iter()
                .map(|(_, waker)| waker)
                .collect()
            };
            if due.is_empty() {
                break;
            }
            due.into_iter().for_each(Waker::wake);
            self.run();
        }
        self.run();
    }

    pub fn advance_millis(&self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    /// How many tasks exist.
    pub fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    /// The executor dies: drops all tasks, and whatever is spawned later.
    pub fn die(&self) {
        let tasks = {
            let mut state = self.state();
            state.dead = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
    }

    /// The executor is replaced by a new one.
    pub fn revive(&self) {
        self.state().dead = false;
        self.shared.domain.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that resources depend on this executor, as Tokio's do.
    pub fn binds_resources(&self) {
        self.shared.domain.store(1, Ordering::SeqCst);
    }

    /// A future that waits for this long by the manual clock.
    pub fn sleep_for(&self, time: Duration) -> Task {
        let until = Runtime::now(self) + time;
        Runtime::sleep(self, until)
    }
}

impl Runtime for Manual {
    fn now(&self) -> Instant {
        self.shared.start + self.state().elapsed
    }

    fn coarse_now(&self) -> u64 {
        u64::try_from(self.state().elapsed.as_nanos()).unwrap()
    }

    fn sleep(&self, until: Instant) -> Task {
        let at = until.saturating_duration_since(self.shared.start);
        let manual = self.clone();
        Box::pin(std::future::poll_fn(move |cx| {
            let mut state = manual.state();
            if state.elapsed >= at {
                return Poll::Ready(());
            }
            state.sleepers.push((at, cx.waker().clone()));
            Poll::Pending
        }))
    }

    fn spawn(&self, task: Task) {
        let flag = Arc::new(Flag::default());
        flag.woken.store(true, Ordering::SeqCst);
        let spawned = Spawned { task, flag };
        let mut state = self.state();
        if state.dead {
            drop(state);
            drop(spawned);
        } else {
            state.tasks.push(spawned);
        }
    }

    fn domain(&self) -> Option<u64> {
        match self.shared.domain.load(Ordering::SeqCst) {
            0 => None,
            domain => Some(domain as u64),
        }
    }
}

/// A future that is polled by hand. Dropping it cancels the future.
pub struct Hand<F: Future> {
    future: Pin<Box<F>>,
    flag: Arc<Flag>,
}

/// Wraps a future without polling it.
pub fn hand<F: Future>(future: F) -> Hand<F> {
    Hand {
        future: Box::pin(future),
        flag: Arc::default(),
    }
}

impl<F: Future> Hand<F> {
    pub fn poll(&mut self) -> Poll<F::Output> {
        self.flag.woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Whether it was woken since it was polled last.
    pub fn is_woken(&self) -> bool {
        self.flag.woken.load(Ordering::SeqCst)
    }

    /// Polls, and expects it to be done.
    #[track_caller]
    pub fn done(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is not done"),
        }
    }

    /// Polls until it is done, and runs the runtime's tasks in between.
    #[track_caller]
    pub fn waits_for(&mut self, manual: &Manual) -> F::Output {
        for _ in 0..1000 {
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
            manual.run();
        }
        panic!("the future is stuck");
    }

    /// Polls, and expects it to wait.
    #[track_caller]
    pub fn waits(&mut self) {
        assert!(self.poll().is_pending(), "the future does not wait");
    }
}

/// Runs a future that needs no waiting.
#[track_caller]
pub fn now<F: Future>(future: F) -> F::Output {
    hand(future).done()
}

/// The simplest error there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oops(pub &'static str);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

/// Counts what a factory made and what a destructor got.
#[derive(Clone, Default)]
pub struct Log {
    shared: Arc<LogShared>,
}

#[derive(Default)]
struct LogShared {
    made: AtomicUsize,
    gone: Mutex<Vec<usize>>,
    lines: Mutex<Vec<String>>,
}

impl Log {
    /// The next number.
    pub fn make(&self) -> usize {
        self.shared.made.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn made(&self) -> usize {
        self.shared.made.load(Ordering::SeqCst)
    }

    pub fn destroy(&self, number: usize) {
        self.shared.gone.lock().unwrap().push(number);
    }

    /// What was destroyed, in order.
    pub fn gone(&self) -> Vec<usize> {
        self.shared.gone.lock().unwrap().clone()
    }

    pub fn line(&self, line: impl Into<String>) {
        self.shared.lines.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.shared.lines.lock().unwrap().clone()
    }
}

/// A builder whose resources are the numbers 1, 2, 3 …, made at once, with a
/// destructor that notes them.
pub fn numbers(log: &Log, manual: &Manual) -> Builder<FnManager<usize, Oops>> {
    let (make, gone) = (log.clone(), log.clone());
    Pool::from_fn(move || {
        let number = make.make();
        async move { Ok(number) }
    })
    .destroy(move |number| gone.destroy(number))
    .runtime(manual.clone())
}

/// A pool of numbers, built.
pub fn number_pool(log: &Log, manual: &Manual, max: usize) -> FnPool<usize, Oops> {
    numbers(log, manual).max(max).build().unwrap()
}

/// Resources that cost nothing and never fail.
pub fn units() -> Builder<FnManager<(), Infallible>> {
    Pool::from_fn(|| async { Ok(()) })
}

/// Runs `work` with this log for its thread.
///
/// `tracing` caches for each line whether a subscriber wants it. With one subscriber, a thread of another test
/// may decide that; with two, both are asked.
#[cfg(feature = "tracing")]
pub fn with_log<T>(
    log: impl tracing::Subscriber + Send + Sync + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().finish());
    tracing::subscriber::with_default(log, work)
}

/// The options of an acquire that may take this long.
pub fn at_most(limit: Duration) -> AcquireOptions {
    AcquireOptions::new().timeout(limit)
}
