//! Transactions as closures: once, or again while a repetition may cure the failure.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::api::lazy::{self, Lazy};
use crate::api::transaction::{LevelGuard, open};
use crate::api::transaction_options::TransactionOptions;
use crate::call::trace::{self, OpenSpan};
use crate::call::{Call, Target};
use crate::coroutine::{Frame, Inside};
use crate::driver::{Violation, boxed_in_place};
use crate::{Error, Result};

/// The pause before the first repetition. It doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The shortest pause before a repetition on a server that had no room for the transaction.
const PAUSE_IF_EXHAUSTED: Duration = Duration::from_millis(100);

/// Why an attempt at a transaction failed.
pub(crate) struct Failed<E> {
    pub(crate) error: E,
    is_retryable: bool,
}

impl<E: From<Error>> From<Error> for Failed<E> {
    fn from(error: Error) -> Self {
        Failed {
            is_retryable: error.is_retryable(),
            error: error.into(),
        }
    }
}

/// The transaction of a closure, run once, in a frame of its own. Dropping it rolls back and ends the frame.
///
/// The future of the closure is on the heap, and as few types as possible are around it: functions that each run a
/// transaction may call one another, and for each of them the compiler visits all these types, to find their size and
/// whether they are `Send`. It gives up at a depth of 128.
pub(crate) struct Attempt {
    frame: Arc<Frame>,
    level: Option<Open>,
    span: Span,
    /// Records how the transaction ended.
    outcome: OpenSpan,
}

/// The level of the closure.
enum Open {
    Now(LevelGuard),
    /// It begins with the first statement.
    Lazily(lazy::Ending),
}

impl Attempt {
    /// Opens the transaction.
    ///
    /// # Cancel safety
    ///
    /// Dropped, what has begun is rolled back before the connection is used again.
    pub(crate) async fn open(call: &Call<'_>, options: TransactionOptions) -> Result<Self> {
        call.check_here().map_err(|error| call.named(None, error))?;
        let span = trace::transaction_span(call.shared(), call.site);
        let outcome = OpenSpan::new(&span);
        let outer = call.context.frame();
        let outside_of = match &call.target {
            Target::Outside(handle) => Some(handle.shared.id),
            _ => None,
        };
        if options.lazily
            && let Some(lazy) = Lazy::new(call, options)
        {
            return Ok(Attempt {
                frame: Frame::lazily_inside(outer, outside_of, Arc::clone(&lazy)),
                level: Some(Open::Lazily(lazy::Ending::of(lazy))),
                span,
                outcome,
            });
        }
        let mut attempt = Attempt {
            frame: Frame::inside(outer, outside_of),
            level: None,
            span,
            outcome,
        };
        let opening = open(call, &attempt.frame, options, false);
        let opened = Inside::new(&attempt.frame, &attempt.span, opening).await;
        if let Err(error) = &opened {
            attempt.outcome.end(Err(error));
        }
        attempt.level = Some(Open::Now(call.ended(None, opened)?));
        Ok(attempt)
    }

    /// Calls the closure in the frame, and returns its future, which runs in the frame.
    pub(crate) fn run<B: Future>(&self, body: impl FnOnce() -> B) -> Inside<Pin<Box<B>>> {
        let future = self.frame.enter(|| boxed_in_place(body));
        Inside::new(&self.frame, &self.span, future)
    }

    /// Commits or rolls back, whatever the closure has returned, and ends the frame.
    ///
    /// # Cancel safety
    ///
    /// Dropped, what was not committed is rolled back.
    pub(crate) async fn end<T, E: From<Error>>(
        mut self,
        call: &Call<'_>,
        result: Result<T, E>,
    ) -> Result<T, Failed<E>> {
        let frame = Arc::clone(&self.frame);
        let level = self.level.take().expect("an attempt ends once");
        let span = self.span.clone();
        let ending = Inside::new(&frame, &span, async {
            if frame.is_over() {
                // The closure was carried out of its coroutine, which has ended.
                let _ = level.roll_back(call).await;
                return Err(call.named(None, call.too_late()).into());
            }
            match result {
                Ok(value) => {
                    let committed = level.commit(call).await;
                    call.ended(None, committed)?;
                    Ok(value)
                }
                Err(error) => {
                    let failed = Failed {
                        error,
                        // The calls in the frame say whether a repetition may cure it.
                        is_retryable: frame.has_failed_retryably(),
                    };
                    // If the transaction could not begin, that is the cause of the closure's error.
                    let rolled_back = level.roll_back(call).await;
                    rolled_back.map_err(|error| call.named(None, error))?;
                    Err(failed)
                }
            }
        });
        let done = ending.await;
        let outcome = match done {
            Ok(_) => "committed",
            Err(_) => "rolled_back",
        };
        self.outcome.end(Ok(outcome));
        done
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        match self.level.take() {
            Some(level) => self.frame.end_after(|| drop(level)),
            None => self.frame.end(),
        }
    }
}

impl Open {
    async fn commit(self, call: &Call<'_>) -> Result<()> {
        match self {
            Open::Now(guard) => guard.commit(call.site).await,
            Open::Lazily(ending) => ending.commit(call).await,
        }
    }

    /// Rolls back. Returns the error of the BEGIN if a lazy transaction could not begin.
    async fn roll_back(self, call: &Call<'_>) -> Result<()> {
        match self {
            // If the rollback fails the connection is closed, which rolls back, too.
            Open::Now(guard) => {
                let _ = guard.roll_back(call.site).await;
                Ok(())
            }
            Open::Lazily(ending) => ending.roll_back(call).await,
        }
    }
}

/// Runs a closure in a transaction once: the body of an `async` block, whose result is `Result<T, Failed<E>>`.
///
/// A macro and no function, because each function around the closure's future deepens its type: see [`Attempt`].
macro_rules! attempt {
    ($call:expr, $options:expr, $body:expr) => {
        // A cancel at any of the three awaits drops the attempt, which rolls back.
        match $crate::api::closure::Attempt::open($call, $options).await {
            Ok(attempt) => {
                let result = attempt.run(|| $body()).await;
                attempt.end($call, result).await
            }
            Err(error) => Err($crate::api::closure::Failed::from(error)),
        }
    };
}
pub(crate) use attempt;

/// Returns the future that runs a closure in a transaction.
macro_rules! in_transaction {
    ($call:expr, $options:expr, $body:expr) => {{
        let (call, options, body) = ($call, $options, $body);
        async move {
            let done = $crate::api::closure::attempt!(&call, options, body);
            done.map_err(|failed| failed.error)
        }
    }};
}
pub(crate) use in_transaction;

/// How often a transaction may be repeated, and how long the pause before that is.
pub(crate) struct Retries {
    left: u32,
    pause: Duration,
}

impl Retries {
    pub(crate) fn new(call: &Call<'_>, options: TransactionOptions) -> Self {
        let nested = call.context.frame().is_some_and(|frame| {
            let bound = call.lookup();
            call.lazy_around().is_some()
                || bound.is_some_and(|bound| bound.in_transaction_from(frame))
        });
        Retries {
            left: match nested {
                true => 0,
                false => options.retries_or_default(),
            },
            pause: FIRST_PAUSE,
        }
    }

    /// Returns the pause before the next attempt; `None` if there is none, because a repetition cannot cure the failure
    /// or there were enough.
    // Not async: the future would be `Send` only for errors that are `Sync`.
    pub(crate) fn after<E: 'static>(&mut self, failed: &Failed<E>) -> Option<Duration> {
        // A closure may also return a retryable error of its own making.
        let own = (&failed.error as &dyn Any).downcast_ref::<Error>();
        let is_retryable = failed.is_retryable || own.is_some_and(Error::is_retryable);
        if !is_retryable || self.left == 0 {
            return None;
        }
        self.left -= 1;
        if own.is_some_and(|error| error.violation() == Some(Violation::Exhausted)) {
            self.pause = self.pause.max(PAUSE_IF_EXHAUSTED);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        // Half of the pause is fixed and half is random, so that transactions that clashed do not clash again.
        Some(pause / 2 + pause.mul_f64(jitter() / 2.0))
    }
}

/// Waits. Dropped, nothing is held.
pub(crate) async fn sleep(call: &Call<'_>, pause: Duration) {
    let runtime = &call.shared().runtime;
    if let Some(until) = runtime.now().checked_add(pause) {
        runtime.sleep(until).await;
    }
}

/// Returns a random number from 0 to 1.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let hasher = RandomState::new().build_hasher();
    f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
