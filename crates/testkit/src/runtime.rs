//! A runtime whose clock and tasks move only when the test moves them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task};

use crate::poll::{Hand, Wakes};

/// A runtime for tests that does nothing by itself.
///
/// [`advance`](ManualRuntime::advance) moves its clock, [`run`](ManualRuntime::run) polls what was spawned and
/// woken, [`finish`](ManualRuntime::finish) does the latter until a future is done. Clones share one runtime.
///
/// ```
/// use std::time::Duration;
/// use cenote_testkit::{Fake, ManualRuntime};
///
/// let (fake, runtime) = (Fake::new(), ManualRuntime::new());
/// let db = fake.builder().runtime(runtime.clone()).idle_timeout(Duration::from_secs(60));
/// let db = runtime.finish(db.open())?;
/// runtime.finish(db.ping())?;
/// assert_eq!(fake.connections(), [1]);
/// runtime.advance(Duration::from_secs(61));
/// assert!(fake.connections().is_empty());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct ManualRuntime {
    clockwork: Arc<Clockwork>,
}

struct Clockwork {
    start: Instant,
    state: Mutex<State>,
    next: AtomicU64,
}

#[derive(Default)]
struct State {
    elapsed: Duration,
    tasks: Vec<Spawned>,
    sleepers: Vec<Sleeper>,
    is_dead: bool,
    domain: Option<u64>,
}

struct Spawned {
    task: Task,
    wakes: Arc<Wakes>,
}

struct Sleeper {
    id: u64,
    until: Duration,
    waker: Waker,
}

/// The number of polls after which a future counts as stuck: far more than any future needs that makes
/// progress.
const PATIENCE: usize = 100_000;

impl ManualRuntime {
    /// Returns a runtime without tasks.
    pub fn new() -> Self {
        #[allow(
            clippy::disallowed_methods,
            reason = "the clock has to start somewhere; from then on it is moved by hand"
        )]
        let start = Instant::now();
        ManualRuntime {
            clockwork: Arc::new(Clockwork {
                start,
                state: Mutex::default(),
                next: AtomicU64::new(1),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.clockwork.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> u64 {
        // Relaxed: it only has to be unique.
        self.clockwork.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Polls spawned and woken tasks until none is left to poll.
    pub fn run(&self) {
        while self.run_once() {}
    }

    /// Polls each spawned or woken task once. Returns `false` if there was none.
    fn run_once(&self) -> bool {
        let mut state = self.state();
        let tasks = std::mem::take(&mut state.tasks);
        let (ready, rest): (Vec<_>, Vec<_>) =
            tasks.into_iter().partition(|task| task.wakes.is_woken());
        state.tasks = rest;
        drop(state);
        let any = !ready.is_empty();
        for mut spawned in ready {
            spawned.wakes.forget();
            let waker = Waker::from(Arc::clone(&spawned.wakes));
            let mut cx = Context::from_waker(&waker);
            if spawned.task.as_mut().poll(&mut cx).is_pending() {
                self.keep(spawned);
            }
        }
        any
    }

    fn keep(&self, spawned: Spawned) {
        let mut state = self.state();
        if !state.is_dead {
            state.tasks.push(spawned);
            return;
        }
        // The pool gives back what a task holds when it is dropped: not under the lock.
        drop(state);
        drop(spawned);
    }

    /// Advances the clock. Stops at the end of every sleep and runs the tasks there.
    pub fn advance(&self, by: Duration) {
        self.run();
        let until = self.elapsed() + by;
        while let Some(due) = self.step(until) {
            due.into_iter().for_each(Waker::wake);
            self.run();
        }
    }

    /// Advances the clock to the end of the next sleep, or to `until` if no sleep ends before that.
    fn step(&self, until: Duration) -> Option<Vec<Waker>> {
        let mut state = self.state();
        let next = state.sleepers.iter().map(|sleeper| sleeper.until).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            state.elapsed = until;
            return None;
        };
        state.elapsed = state.elapsed.max(next);
        let sleepers = std::mem::take(&mut state.sleepers);
        let (due, rest): (Vec<_>, Vec<_>) = sleepers
            .into_iter()
            .partition(|sleeper| sleeper.until <= next);
        state.sleepers = rest;
        Some(due.into_iter().map(|sleeper| sleeper.waker).collect())
    }

    /// Polls a future until it is done, and runs the tasks in between. The clock stands still.
    ///
    /// # Panics
    ///
    /// If the future waits for something that no task of this runtime does.
    #[track_caller]
    pub fn finish<F: Future>(&self, future: F) -> F::Output {
        let mut hand = Hand::new(future);
        for _ in 0..PATIENCE {
            if let Poll::Ready(output) = hand.poll() {
                return output;
            }
            self.run();
            assert!(
                hand.is_woken(),
                "the future waits, and neither it nor any task was woken"
            );
        }
        panic!("the future is polled and polled, and never done");
    }

    /// Returns how far the clock has advanced.
    pub fn elapsed(&self) -> Duration {
        self.state().elapsed
    }

    /// Returns the number of tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.state().tasks.len()
    }

    /// Shuts the executor down: drops its tasks, and every task that is spawned later.
    pub fn die(&self) {
        let mut state = self.state();
        state.is_dead = true;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        drop(tasks);
    }

    /// Starts a new executor after [`die`](ManualRuntime::die).
    pub fn revive(&self) {
        let next = self.next();
        let mut state = self.state();
        state.is_dead = false;
        state.domain = state.domain.map(|_| next);
    }

    /// Makes resources depend on the executor that they were created on, as sockets depend on Tokio's.
    pub fn bind_resources(&self) {
        let next = self.next();
        self.state().domain = Some(next);
    }
}

impl Default for ManualRuntime {
    fn default() -> Self {
        ManualRuntime::new()
    }
}

impl Runtime for ManualRuntime {
    fn now(&self) -> Instant {
        self.clockwork.start + self.elapsed()
    }

    fn coarse_now(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, until: Instant) -> Task {
        Box::pin(Sleep {
            id: self.next(),
            until: until.saturating_duration_since(self.clockwork.start),
            runtime: self.clone(),
        })
    }

    fn spawn(&self, task: Task) {
        self.keep(Spawned {
            task,
            wakes: Arc::new(Wakes::woken()),
        });
    }

    fn domain(&self) -> Option<u64> {
        self.state().domain
    }
}

struct Sleep {
    id: u64,
    until: Duration,
    runtime: ManualRuntime,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut state = self.runtime.state();
        if state.elapsed >= self.until {
            return Poll::Ready(());
        }
        let known = state.sleepers.iter_mut().find(|known| known.id == self.id);
        let before = match known {
            Some(known) => Some(std::mem::replace(&mut known.waker, waker)),
            None => {
                let Sleep { id, until, .. } = *self;
                state.sleepers.push(Sleeper { id, until, waker });
                None
            }
        };
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = self.runtime.state();
        let found = state.sleepers.iter().position(|known| known.id == self.id);
        let gone = found.map(|at| state.sleepers.swap_remove(at));
        drop(state);
        drop(gone);
    }
}

impl fmt::Debug for ManualRuntime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        out.debug_struct("ManualRuntime")
            .field("elapsed", &state.elapsed)
            .field("tasks", &state.tasks.len())
            .field("sleepers", &state.sleepers.len())
            .field("is_dead", &state.is_dead)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::yield_now;

    const SECOND: Duration = Duration::from_secs(1);

    fn sleep(runtime: &ManualRuntime, time: Duration) -> Task {
        runtime.sleep(runtime.now() + time)
    }

    #[test]
    fn a_sleep_ends_when_the_clock_has_been_moved_so_far() {
        let runtime = ManualRuntime::new();
        let mut hand = Hand::new(sleep(&runtime, SECOND));
        hand.waits();
        runtime.advance(SECOND / 2);
        assert!(!hand.is_woken());
        runtime.advance(SECOND / 2);
        assert!(hand.is_woken());
        hand.done();
    }

    #[test]
    fn the_clock_stops_at_every_moment_that_a_task_waits_for() {
        let runtime = ManualRuntime::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (own, noted) = (runtime.clone(), Arc::clone(&seen));
        runtime.spawn(Box::pin(async move {
            for _ in 0..3 {
                sleep(&own, SECOND).await;
                noted.lock().unwrap().push(own.elapsed());
            }
        }));
        runtime.advance(SECOND * 10);
        assert_eq!(*seen.lock().unwrap(), [SECOND, SECOND * 2, SECOND * 3]);
        assert_eq!((runtime.elapsed(), runtime.tasks()), (SECOND * 10, 0));
    }

    #[test]
    fn a_dropped_sleep_wakes_no_task() {
        let runtime = ManualRuntime::new();
        let mut hand = Hand::new(sleep(&runtime, SECOND));
        hand.waits();
        drop(hand);
        assert_eq!(runtime.state().sleepers.len(), 0);
    }

    #[test]
    fn a_task_runs_only_when_the_test_runs_it() {
        let runtime = ManualRuntime::new();
        runtime.spawn(Box::pin(yield_now()));
        assert_eq!(runtime.tasks(), 1);
        runtime.run();
        assert_eq!(runtime.tasks(), 0);
    }

    #[test]
    fn a_dead_runtime_drops_its_tasks_and_those_to_come() {
        let runtime = ManualRuntime::new();
        let held = Arc::new(());
        let task = |held: &Arc<()>| {
            let held = Arc::clone(held);
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(held);
            })
        };
        runtime.spawn(task(&held));
        runtime.die();
        runtime.spawn(task(&held));
        assert_eq!(Arc::strong_count(&held), 1);
        runtime.revive();
        runtime.spawn(task(&held));
        assert_eq!((Arc::strong_count(&held), runtime.tasks()), (2, 1));
    }

    #[test]
    fn executor_is_its_own_domain_if_resources_depend_on_it() {
        let runtime = ManualRuntime::new();
        runtime.revive();
        assert_eq!(runtime.domain(), None);
        runtime.bind_resources();
        let first = runtime.domain();
        runtime.revive();
        assert!(first.is_some() && runtime.domain() != first);
    }

    #[test]
    fn finish_runs_the_tasks_that_the_future_waits_for() {
        let runtime = ManualRuntime::new();
        let done = Arc::new(Mutex::new((false, None::<Waker>)));
        let by_task = Arc::clone(&done);
        runtime.spawn(Box::pin(async move {
            yield_now().await;
            let mut done = by_task.lock().unwrap();
            done.0 = true;
            if let Some(waker) = done.1.take() {
                waker.wake();
            }
        }));
        runtime.finish(std::future::poll_fn(|cx| {
            let mut done = done.lock().unwrap();
            done.1 = Some(cx.waker().clone());
            if done.0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
    }

    #[test]
    #[should_panic(expected = "neither it nor any task was woken")]
    fn a_future_without_a_wake_up_is_reported_as_stuck() {
        ManualRuntime::new().finish(std::future::pending::<()>());
    }
}
