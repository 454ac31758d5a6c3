//! Time limits of the drivers' own work: to connect, to cancel, to drain.
//!
//! The layer above limits calls with [`cenote_pool::within`] and the handle's runtime. A driver has no such runtime: it
//! runs on Tokio.

use std::time::Duration;

use cenote_pool::TokioRuntime;

use crate::{Error, Kind, Result};

/// Runs a future for at most `limit`. Returns `None` if the future takes longer.
///
/// # Cancel safety
///
/// Dropping this future drops the inner one. So does the limit.
pub(crate) async fn within<F: Future>(limit: Option<Duration>, future: F) -> Option<F::Output> {
    cenote_pool::within(&TokioRuntime::new(), limit, future).await
}

/// Runs an attempt to connect for at most `limit`.
///
/// # Cancel safety
///
/// Dropping this future drops the attempt.
///
/// # Errors
///
/// [`Kind::Timeout`] if the attempt takes longer; else the attempt's own.
pub(crate) async fn attempt_within<T>(
    limit: Option<Duration>,
    attempt: impl Future<Output = Result<T>>,
) -> Result<T> {
    let outcome = within(limit, attempt).await;
    outcome.unwrap_or_else(|| {
        let message = format!("timed out after {:?}", limit.unwrap_or_default());
        Err(Error::new(Kind::Timeout, message))
    })
}
