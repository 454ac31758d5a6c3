//! Transactions as closures: once, or again while a repetition may cure the failure.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::api::lazy::{self, Lazy};
use crate::api::transaction::open;
use crate::api::transaction_options::TransactionOptions;
use crate::call::{Call, Target};
use crate::coroutine::{Frame, InFrame};
use crate::{Error, Result};

/// The pause before the first repetition. It doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why an attempt at a transaction failed.
pub(crate) struct Failed<E> {
    error: E,
    is_retryable: bool,
}

impl<E> Failed<E> {
    /// A closure has returned an error; the calls in its frame say whether a repetition may cure it.
    pub(crate) fn in_body(error: E, frame: &Frame) -> Self {
        Failed {
            error,
            is_retryable: frame.has_failed_retryably(),
        }
    }
}

impl<E: From<Error>> From<Error> for Failed<E> {
    fn from(error: Error) -> Self {
        Failed {
            is_retryable: error.is_retryable(),
            error: error.into(),
        }
    }
}

/// Runs a closure in a transaction.
///
/// # Cancel safety
///
/// Dropped, the transaction is rolled back before its connection is used again.
pub(crate) async fn run<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, E>
where
    E: From<Error>,
    F: AsyncFnOnce() -> Result<T, E>,
{
    let done = attempt(call, options, body).await;
    done.map_err(|failed| failed.error)
}

/// Runs a closure in a transaction once, in a frame of its own, which ends after the commit.
async fn attempt<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, Failed<E>>
where
    E: From<Error>,
    F: AsyncFnOnce() -> Result<T, E>,
{
    call.check_here().map_err(|error| call.named(None, error))?;
    if options.lazily
        && let Some(lazy) = Lazy::new(call, options)
    {
        return lazy::run(call, lazy, body).await;
    }
    let outside_of = match &call.target {
        Target::Outside(handle) => Some(handle.shared.id),
        _ => None,
    };
    let frame = Frame::inside(call.seen.frame(), outside_of);
    let inside = Arc::clone(&frame);
    InFrame::new(frame, async move {
        let opened = open(call, &inside, options, false).await;
        let guard = call.ended(None, opened)?;
        let result = body().await;
        if inside.is_over() {
            // The closure was carried out of its coroutine, which has ended.
            let _ = guard.roll_back(call.site).await;
            return Err(call.named(None, call.too_late()).into());
        }
        match result {
            Ok(value) => {
                let committed = guard.commit(call.site).await;
                call.ended(None, committed)?;
                Ok(value)
            }
            Err(error) => {
                let failed = Failed::in_body(error, &inside);
                // If the rollback fails the connection is closed, which rolls back, too.
                let _ = guard.roll_back(call.site).await;
                Err(failed)
            }
        }
    })
    .await
}

/// Runs a closure in a transaction, again if it failed for a reason that a repetition may cure.
pub(crate) async fn retry<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, E>
where
    E: From<Error> + 'static,
    F: AsyncFnOnce() -> Result<T, E> + Clone,
{
    let nested = call.seen.frame().is_some_and(|frame| {
        let bound = call.lookup();
        call.lazy_around().is_some() || bound.is_some_and(|bound| bound.in_transaction_from(frame))
    });
    let mut left = if nested {
        0
    } else {
        options.retries_or_default()
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let failed = match attempt(call, options, body.clone()).await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        // A closure may also return a retryable error of its own making.
        let own = (&failed.error as &dyn Any).downcast_ref::<Error>();
        let is_retryable = failed.is_retryable || own.is_some_and(Error::is_retryable);
        if !is_retryable || left == 0 {
            return Err(failed.error);
        }
        left -= 1;
        let runtime = &call.shared().runtime;
        // Half of the pause is fixed and half is random, so that transactions that clashed do not clash again.
        let until = runtime
            .now()
            .checked_add(pause / 2 + pause.mul_f64(jitter() / 2.0));
        if let Some(until) = until {
            // Dropped here, nothing is held.
            runtime.sleep(until).await;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns a random number from 0 to 1.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let hasher = RandomState::new().build_hasher();
    f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
