//! What the tests share: a runtime with a clock and a scheduler that move only
//! when told to, futures polled by hand, and a factory with a remote control.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cenote_pool::{Builder, FnManager, FnPool, Pool, Runtime, Task};

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

/// A waker that only remembers.
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

/// A future polled by hand. Dropping it is a cancellation.
pub struct Hand<F: Future> {
    future: Pin<Box<F>>,
    flag: Arc<Flag>,
}

/// Takes a future into the hand; it is not polled yet.
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

/// A door that futures wait at until it is opened.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Mutex<GateState>>,
}

#[derive(Default)]
struct GateState {
    /// How many may still pass; `None` if all may.
    tickets: Option<usize>,
    open: bool,
    waiting: Vec<Waker>,
    arrived: usize,
}

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Gate::default()
    }

    /// Waits until the gate is open or has a ticket left.
    pub fn pass(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        let mut counted = false;
        std::future::poll_fn(move |cx| {
            let mut state = shared.lock().unwrap();
            if !std::mem::replace(&mut counted, true) {
                state.arrived += 1;
            }
            if state.open {
                return Poll::Ready(());
            }
            if let Some(tickets) = state.tickets.filter(|&tickets| tickets > 0) {
                state.tickets = Some(tickets - 1);
                return Poll::Ready(());
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Lets everybody through from now on.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.shared.lock().unwrap();
            state.open = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Lets one through.
    pub fn let_one_pass(&self) {
        let waiting = {
            let mut state = self.shared.lock().unwrap();
            state.tickets = Some(state.tickets.unwrap_or(0) + 1);
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// How many have come to the gate so far.
    pub fn arrived(&self) -> usize {
        self.shared.lock().unwrap().arrived
    }
}

/// Gives way once.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Tasks run by hand on one thread, in the order in which they were woken, or in
/// one that a seed decides.
#[derive(Default)]
pub struct Crew<'a> {
    tasks: Vec<Option<Pin<Box<dyn Future<Output = ()> + 'a>>>>,
    ready: Arc<Mutex<std::collections::VecDeque<usize>>>,
}

struct CrewWaker {
    index: usize,
    ready: Arc<Mutex<std::collections::VecDeque<usize>>>,
}

impl Wake for CrewWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap();
        if !ready.contains(&self.index) {
            ready.push_back(self.index);
        }
    }
}

impl<'a> Crew<'a> {
    pub fn new() -> Self {
        Crew::default()
    }

    /// Adds a task, which is ready to run.
    pub fn add(&mut self, task: impl Future<Output = ()> + 'a) {
        self.ready.lock().unwrap().push_back(self.tasks.len());
        self.tasks.push(Some(Box::pin(task)));
    }

    /// How many tasks are not done.
    pub fn left(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    /// Runs what is ready until nothing is, in the order of waking.
    pub fn run(&mut self) {
        self.run_picking(|_| 0);
    }

    /// Runs everything to its end in a random order that the seed decides. The
    /// clock moves when nothing else can.
    #[track_caller]
    pub fn run_shuffled(&mut self, mut seed: u64, manual: &Manual) {
        seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..100_000 {
            self.run_picking(|ready| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                usize::try_from(seed % u64::try_from(ready).unwrap()).unwrap()
            });
            if self.left() == 0 {
                return;
            }
            manual.advance_millis(1);
        }
        panic!("{} tasks are stuck", self.left());
    }

    fn run_picking(&mut self, mut pick: impl FnMut(usize) -> usize) {
        loop {
            let index = {
                let mut ready = self.ready.lock().unwrap();
                if ready.is_empty() {
                    return;
                }
                let at = pick(ready.len());
                ready.remove(at).unwrap()
            };
            let Some(task) = self.tasks[index].as_mut() else {
                continue;
            };
            let waker = Waker::from(Arc::new(CrewWaker {
                index,
                ready: Arc::clone(&self.ready),
            }));
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                self.tasks[index] = None;
            }
        }
    }
}

/// A builder whose resources are the numbers 1, 2, 3 …, each made when the gate
/// lets it through.
pub fn gated_numbers(log: &Log, manual: &Manual, gate: &Gate) -> Builder<FnManager<usize, Oops>> {
    let (make, gate) = (log.clone(), gate.clone());
    numbers(log, manual).create(move || {
        let (make, pass) = (make.clone(), gate.pass());
        async move {
            pass.await;
            Ok(make.make())
        }
    })
}

/// What a status says, as `(total, idle, active)`.
pub fn counts<M: cenote_pool::Manager>(pool: &Pool<M>) -> (usize, usize, usize) {
    let status = pool.status();
    assert_eq!(status.total, status.idle + status.active + status.creating);
    (status.total, status.idle, status.active)
}

/// A short way to write a duration.
pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
