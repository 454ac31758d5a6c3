//! Time that stands still until a test moves it.
//!
//! Tokio's paused clock jumps ahead whenever nothing is left to poll, and that is so whenever SQLite
//! works on its thread. So the handle gets a clock of its own.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task};
use tokio::runtime::Handle;

#[derive(Clone)]
pub(crate) struct Clock {
    dial: Arc<Dial>,
}

struct Dial {
    start: Instant,
    tokio: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    passed: Duration,
    sleepers: Vec<(Instant, Waker)>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            dial: Arc::new(Dial {
                start: tokio::time::Instant::now().into_std(),
                tokio: Handle::current(),
                state: Mutex::default(),
            }),
        }
    }

    /// Lets time pass, at once.
    pub(crate) fn advance(&self, time: Duration) {
        let mut state = self.dial.state();
        state.passed += time;
        let now = self.dial.start + state.passed;
        let (due, later) = std::mem::take(&mut state.sleepers)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        state.sleepers = later;
        drop(state);
        let due: Vec<(Instant, Waker)> = due;
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Lets time pass, and then everybody else run until this is so.
    pub(crate) async fn advance_until(
        &self,
        time: Duration,
        what: &str,
        is_so: impl FnMut() -> bool,
    ) {
        self.advance(time);
        super::until(what, is_so).await;
    }
}

impl Dial {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        self.start + self.state().passed
    }
}

impl Runtime for Clock {
    fn now(&self) -> Instant {
        self.dial.now()
    }

    fn coarse_now(&self) -> u64 {
        let passed = self.dial.state().passed.as_nanos();
        u64::try_from(passed).expect("tests last less than centuries")
    }

    fn sleep(&self, until: Instant) -> Task {
        let dial = Arc::clone(&self.dial);
        Box::pin(poll_fn(move |cx| {
            let mut state = dial.state();
            if dial.start + state.passed >= until {
                return Poll::Ready(());
            }
            state.sleepers.push((until, cx.waker().clone()));
            Poll::Pending
        }))
    }

    fn spawn(&self, task: Task) {
        self.dial.tokio.spawn(task);
    }
}
