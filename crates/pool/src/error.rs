//! The error types.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::observe::status::{CreationError, Holder, Status};
use crate::observe::text::{count, human};

/// Why an acquire failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError<E> {
    /// The pool was closed, or its last handle dropped.
    Closed,
    /// The circuit breaker refused the acquire.
    Unavailable(Unavailable),
    /// As many acquires wait as [`max_waiting`](crate::Builder::max_waiting) allows.
    QueueFull {
        /// The number of waiters without a creation or a reservation of their own.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
    /// The acquire took longer than its timeout.
    Timeout(Box<Timeout>),
    /// `create` returned this error.
    Create(E),
    /// `create` panicked or took longer than the create timeout; the text says which.
    CreateFailed(Arc<str>),
    /// [`acquire_blocking`](crate::Pool::acquire_blocking) was called on an executor's thread.
    WouldBlockExecutor,
    /// The process was forked after the pool was built. The resources belong to the parent: build
    /// another pool in the child.
    Forked,
}

/// Why the circuit breaker refused an acquire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Unavailable {
    /// The breaker's state when the acquire failed.
    pub breaker: BreakerState,
    /// Whether the breaker was moved there by hand.
    pub by_hand: bool,
    /// The failures that were reported since the last success.
    pub failures: u32,
    /// How long the breaker stays open before it admits probes; `None` if nothing but a call will
    /// close it, and for a half-open breaker.
    pub retry_in: Option<Duration>,
}

/// The circumstances of an acquire that timed out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeout {
    /// What the acquire was doing at its deadline.
    pub phase: Phase,
    /// How long the acquire had waited.
    pub waited: Duration,
    /// The status of the pool at the deadline.
    pub status: Status,
    /// The last failed creation, if none has succeeded since.
    pub last_creation_error: Option<CreationError>,
    /// The longest leases, at most three.
    pub oldest_holders: Vec<Holder>,
}

/// What an acquire is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// Waiting in the queue for a resource of others.
    Waiting,
    /// Waiting for a creation that it started.
    Creating,
    /// Running the acquire hook on a resource.
    Checking,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Waiting => "waiting for a resource",
            Phase::Creating => "creating a resource",
            Phase::Checking => "checking a resource",
        })
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status {
            active,
            max,
            creating,
            waiting,
            ..
        } = self.status;
        let waited = human(self.waited);
        write!(
            f,
            "timed out after {waited} {} ({active} of {max} in use",
            self.phase
        )?;
        if creating > 0 {
            write!(f, ", {creating} opening")?;
        }
        if waiting > 0 {
            write!(f, ", {waiting} waiting")?;
        }
        f.write_str(")")?;
        if let Some(error) = &self.last_creation_error {
            write!(f, "; last creation error: {error}")?;
        }
        for holder in &self.oldest_holders {
            write!(f, "; {holder}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "circuit breaker {}", self.breaker)?;
        match self.breaker {
            BreakerState::Open if self.by_hand => f.write_str(", opened by hand"),
            BreakerState::Open => {
                write!(f, " after {}", count(self.failures, "failure"))?;
                match self.retry_in {
                    Some(retry_in) => write!(f, ", next attempt in {}", human(retry_in)),
                    None => Ok(()),
                }
            }
            BreakerState::HalfOpen => f.write_str(", its probes are under way; try again later"),
            BreakerState::Closed => f.write_str(" again, try again"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for AcquireError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Closed => f.write_str("the pool is closed"),
            AcquireError::Unavailable(unavailable) => unavailable.fmt(f),
            AcquireError::QueueFull { waiting, limit } => write!(
                f,
                "{} for a resource and max_waiting is {limit}; try again later, or raise it",
                match waiting {
                    1 => "1 acquire waits".to_owned(),
                    _ => format!("{waiting} acquires wait"),
                }
            ),
            AcquireError::Timeout(timeout) => timeout.fmt(f),
            AcquireError::Create(error) => write!(f, "creating a resource failed: {error}"),
            AcquireError::CreateFailed(why) => write!(f, "creating a resource failed: {why}"),
            AcquireError::WouldBlockExecutor => f.write_str(
                "acquire_blocking would block an executor's thread; await acquire there, or block \
                 on a plain thread",
            ),
            AcquireError::Forked => f.write_str(
                "the pool belongs to the process that forked this one; build a pool in the child",
            ),
        }
    }
}

/// `Display` shows the cause, so `source` is the cause of the cause: no text appears twice.
impl<E: Error + 'static> Error for AcquireError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AcquireError::Create(error) => error.source(),
            _ => None,
        }
    }
}

/// An invalid setting. The pool never adjusts a setting silently.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The name of the setting.
    pub field: &'static str,
    /// The setting's value.
    pub value: String,
    /// The rule that the value breaks.
    pub rule: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but {}", self.field, self.value, self.rule)
    }
}

impl Error for ConfigError {}

/// Why a pool could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError<E> {
    /// A setting is invalid.
    Config(ConfigError),
    /// One of the first `min` resources could not be created.
    Warmup(AcquireError<E>),
}

impl<E: fmt::Display> fmt::Display for OpenError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Config(error) => write!(f, "invalid setting: {error}"),
            OpenError::Warmup(error) => write!(f, "opening the pool failed: {error}"),
        }
    }
}

/// `Display` shows the cause, so `source` is the cause of the cause: no text appears twice.
impl<E: Error + 'static> Error for OpenError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Config(error) => error.source(),
            OpenError::Warmup(error) => error.source(),
        }
    }
}

/// Why `destroy` failed. The resource has left the pool anyway.
#[derive(Debug)]
#[non_exhaustive]
pub enum DestroyError<E> {
    /// `destroy` returned this error.
    Failed(E),
    /// `destroy` panicked or took longer than the cleanup timeout; the text says which.
    Broken(Arc<str>),
}

impl<E: fmt::Display> fmt::Display for DestroyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestroyError::Failed(error) => write!(f, "destroying a resource failed: {error}"),
            DestroyError::Broken(why) => write!(f, "destroying a resource failed: {why}"),
        }
    }
}

/// `Display` shows the cause, so `source` is the cause of the cause: no text appears twice.
impl<E: Error + 'static> Error for DestroyError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DestroyError::Failed(error) => error.source(),
            DestroyError::Broken(_) => None,
        }
    }
}

/// What went wrong while a pool was closed. The pool is closed anyway.
#[derive(Debug)]
#[non_exhaustive]
pub struct CloseError<E> {
    /// The errors of `destroy`, in the order of destruction.
    pub errors: Vec<DestroyError<E>>,
    /// The leases that were not returned within the time limit.
    pub left: Vec<Holder>,
    /// The number of slots that were still in use at that time: leases, hooks and creations.
    pub still_in_use: usize,
}

impl<E> fmt::Display for CloseError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool is closed")?;
        if !self.errors.is_empty() {
            let failed = count(self.errors.len(), "destructor");
            write!(f, ", but {failed} failed")?;
        }
        match self.still_in_use {
            0 => {}
            1 => f.write_str(", but 1 place was still in use")?,
            places => write!(f, ", but {places} places were still in use")?,
        }
        for holder in &self.left {
            write!(f, "; {holder}")?;
        }
        Ok(())
    }
}

impl<E: Error + 'static> Error for CloseError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.errors.first().map(|error| error as _)
    }
}

/// Returns an error with its sources as one line of text. To print an error is user code, which may
/// panic.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> Arc<str> {
    let print = || {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    };
    match catch_unwind(AssertUnwindSafe(print)) {
        Ok(text) => text.into(),
        Err(panic) => format!("an error that cannot be printed: {}", panic_message(panic)).into(),
    }
}

/// Returns what a panic said. Drops its payload, which may panic again.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> Arc<str> {
    let said = panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let message = match missing_runtime(said) {
        Some(advice) => advice.into(),
        None => format!("panicked: {said}").into(),
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Its drop might panic as well.
        std::mem::forget(again);
    }
    message
}

/// Recognises the panics of Tokio's I/O and timers outside a runtime that drives them. Only the hook
/// knows what it needs, so this cannot be found out before the hook runs.
fn missing_runtime(panic: &str) -> Option<&'static str> {
    if panic.starts_with("there is no reactor running") {
        return Some(
            "needs a Tokio runtime: acquire inside one, or build the pool with a runtime that enters \
             one",
        );
    }
    if panic.starts_with("A Tokio 1.x context was found, but") {
        return Some("needs a Tokio runtime with I/O and timers: call enable_all on its builder");
    }
    None
}
