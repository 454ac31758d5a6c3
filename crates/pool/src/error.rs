//! What can go wrong, as types to match on.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::observe::status::{CreationError, Holder, Status};

/// Why an acquire gave no resource.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError<E> {
    /// The pool was closed, or its last handle dropped.
    Closed,
    /// The circuit breaker is open.
    Unavailable,
    /// As many acquires wait as [`max_waiting`](crate::Builder::max_waiting) allows.
    QueueFull {
        /// How many wait, without a creation or a reservation of their own.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// The caller's deadline passed. The pool itself may be fine: this is not a pool failure.
    Timeout(Box<Timeout>),
    /// Creating a resource failed, with the factory's own error.
    Create(E),
    /// The factory panicked, or ran out of its own time; the text says which.
    CreateFailed(Arc<str>),
    /// [`acquire_blocking`](crate::Pool::acquire_blocking) was called on an executor's thread.
    WouldBlockExecutor,
    /// The pool was made before this process was forked. Its resources are the parent's: make another
    /// pool in the child.
    Forked,
}

/// The story of an acquire that ran out of time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeout {
    /// What the acquire was doing when time ran out.
    pub phase: Phase,
    /// How long it had tried.
    pub waited: Duration,
    /// The pool at that moment.
    pub status: Status,
    /// The last failed creation, if none has succeeded since.
    pub last_creation_error: Option<CreationError>,
    /// The leases that have been out longest, at most three.
    pub oldest_holders: Vec<Holder>,
}

/// What an acquire is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Phase {
    /// Waiting in the queue for somebody else's resource.
    Waiting,
    /// Waiting, while a creation it started is under way.
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
        write!(
            f,
            "timed out after {:?} while {}: {}",
            self.waited, self.phase, self.status
        )?;
        if let Some(error) = &self.last_creation_error {
            write!(f, "; last creation error: {error}")?;
        }
        for holder in &self.oldest_holders {
            write!(f, "; {holder}")?;
        }
        Ok(())
    }
}

impl<E> fmt::Display for AcquireError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Closed => f.write_str("the pool is closed"),
            AcquireError::Unavailable => {
                f.write_str("the pool's circuit breaker is open, try again later")
            }
            AcquireError::QueueFull { waiting, limit } => write!(
                f,
                "{waiting} acquires wait for a resource and max_waiting is {limit}: \
                 try again later, or raise it"
            ),
            AcquireError::Timeout(timeout) => timeout.fmt(f),
            AcquireError::Create(_) => f.write_str("creating a resource failed"),
            AcquireError::CreateFailed(why) => write!(f, "creating a resource failed: {why}"),
            AcquireError::WouldBlockExecutor => f.write_str(
                "acquire_blocking was called on an executor's thread, which it would stop: \
                 await acquire() there, or call it from a plain thread",
            ),
            AcquireError::Forked => f.write_str(
                "the pool was made before this process was forked, and its resources are the \
                 parent's: make a pool in the child",
            ),
        }
    }
}

impl<E: Error + 'static> Error for AcquireError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AcquireError::Create(error) => Some(error),
            _ => None,
        }
    }
}

/// A configuration that cannot work. Nothing is silently adjusted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    /// The option that is wrong.
    pub field: &'static str,
    /// The value it was given.
    pub value: String,
    /// What it has to be.
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
    /// The configuration cannot work.
    Config(ConfigError),
    /// One of the first `min` resources could not be made.
    Warmup(AcquireError<E>),
}

impl<E> fmt::Display for OpenError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Config(_) => f.write_str("the pool's configuration is not possible"),
            OpenError::Warmup(_) => f.write_str("the pool's first resources could not be made"),
        }
    }
}

impl<E: Error + 'static> Error for OpenError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Config(error) => Some(error),
            OpenError::Warmup(error) => Some(error),
        }
    }
}

/// Why `destroy` failed. The resource has left the pool anyway.
#[derive(Debug)]
#[non_exhaustive]
pub enum DestroyError<E> {
    /// The destructor's own error.
    Failed(E),
    /// The destructor panicked, or outlasted the cleanup time; the text says which.
    Broken(Arc<str>),
}

impl<E> fmt::Display for DestroyError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DestroyError::Failed(_) => f.write_str("destroying a resource failed"),
            DestroyError::Broken(why) => write!(f, "destroying a resource failed: {why}"),
        }
    }
}

impl<E: Error + 'static> Error for DestroyError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            DestroyError::Failed(error) => Some(error),
            DestroyError::Broken(_) => None,
        }
    }
}

/// What went wrong while a pool was closed. Every resource is gone all the same.
#[derive(Debug)]
#[non_exhaustive]
pub struct CloseError<E> {
    /// Every destructor's error, in the order of destruction.
    pub errors: Vec<DestroyError<E>>,
    /// The leases that were still out when the drain's time was over.
    pub left: Vec<Holder>,
    /// How many places were still in use then: leases, hooks and creations.
    pub still_in_use: usize,
}

impl<E> fmt::Display for CloseError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool is closed")?;
        if !self.errors.is_empty() {
            let failed = self.errors.len();
            let plural = if failed == 1 { "" } else { "s" };
            write!(f, ", but {failed} destructor{plural} failed")?;
        }
        if self.still_in_use > 0 {
            write!(f, ", but {} places were still in use", self.still_in_use)?;
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

/// An error with its sources, as one line of text. How it prints is its maker's
/// code, and may panic.
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

/// What a panic said, as text. What it carried is dropped, and may panic again.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> Arc<str> {
    let said = panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let message = format!("panicked: {said}").into();
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Enough is enough.
        std::mem::forget(again);
    }
    message
}
