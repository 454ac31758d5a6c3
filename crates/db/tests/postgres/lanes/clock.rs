//! A clock that only the test moves, so that no read is slow because the machine is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task, TokioRuntime};
use tokio::sync::watch;

#[derive(Clone)]
pub(super) struct Clock {
    began: Instant,
    passed: Arc<watch::Sender<Duration>>,
    tokio: Arc<TokioRuntime>,
}

impl Clock {
    #[allow(
        clippy::disallowed_methods,
        reason = "all times are relative to this one"
    )]
    pub(super) fn new() -> Self {
        Clock {
            began: Instant::now(),
            passed: Arc::new(watch::Sender::new(Duration::ZERO)),
            tokio: Arc::new(TokioRuntime::new()),
        }
    }

    /// Moves the clock. What sleeps until then wakes up.
    pub(super) fn advance(&self, by: Duration) {
        self.passed.send_modify(|passed| *passed += by);
    }
}

impl Runtime for Clock {
    fn now(&self) -> Instant {
        self.began + *self.passed.borrow()
    }

    fn coarse_now(&self) -> u64 {
        self.tokio.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        let (began, mut passed) = (self.began, self.passed.subscribe());
        Box::pin(async move {
            let _ = passed.wait_for(|passed| began + *passed >= until).await;
        })
    }

    fn spawn(&self, task: Task) {
        self.tokio.spawn(task);
    }

    fn domain(&self) -> Option<u64> {
        self.tokio.domain()
    }
}
