#![doc = include_str!("../README.md")]

mod blocking;

use std::error::Error as StdError;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{AcquireError, Info, Manager, Pool, Verdict};
use r2d2::ManageConnection;

pub use crate::blocking::Blocking;
use crate::blocking::run_aside;

/// A manager of r2d2, for [`cenote_pool::Pool::builder`]. All that may block runs on a blocking thread.
///
/// | r2d2 | when `cenote-pool` calls it | on |
/// |---|---|---|
/// | `connect` | when a connection is needed and a slot is free | a blocking thread |
/// | `is_valid` | before an idle connection is handed out, unless [`check_after`](FromR2d2::check_after) spares it, and in health checks | a blocking thread |
/// | `has_broken` | when a connection is released; `true` destroys it and reports a failure to the breaker | the thread that releases it |
/// | `Drop` of the connection | when it is destroyed | a blocking thread |
///
/// Inside a Tokio runtime the blocking threads are Tokio's; elsewhere each call gets a thread of its own.
/// A connection whose holder panicked is destroyed.
pub struct FromR2d2<M: ManageConnection, E = <M as ManageConnection>::Error> {
    manager: Arc<M>,
    into_error: fn(M::Error) -> E,
    check_after: Duration,
}

impl<M: ManageConnection> FromR2d2<M> {
    /// Wraps a manager whose error type is `Send + Sync`.
    pub fn new(manager: M) -> Self {
        FromR2d2::map_errors(manager, |error| error)
    }
}

impl<M: ManageConnection, E> FromR2d2<M, E> {
    /// Wraps a manager and converts its errors, for error types that are not `Send + Sync`.
    pub fn map_errors(manager: M, into_error: fn(M::Error) -> E) -> Self {
        FromR2d2 {
            manager: Arc::new(manager),
            into_error,
            check_after: Duration::ZERO,
        }
    }

    /// Calls `is_valid` only before an acquire of a connection whose last use began at least `unused` ago.
    ///
    /// Each check moves the connection to a blocking thread and back. Default: zero, which checks in every
    /// acquire like r2d2. [`Duration::MAX`] never checks, like r2d2's `test_on_check_out(false)`. Health
    /// checks do not depend on it.
    #[must_use]
    pub fn check_after(mut self, unused: Duration) -> Self {
        self.check_after = unused;
        self
    }

    /// Returns the wrapped manager.
    pub fn manager(&self) -> &M {
        &self.manager
    }
}

impl<M, E> FromR2d2<M, E>
where
    M: ManageConnection,
    E: StdError + Send + Sync + 'static,
{
    /// # Cancel safety
    ///
    /// Dropped meanwhile, the resource is empty and the pool destroys it; the connection is dropped on
    /// the blocking thread.
    async fn check(&self, resource: &mut Blocking<M::Connection>) -> Result<bool, E> {
        let Some(mut connection) = resource.take() else {
            return Ok(false);
        };
        let (manager, into_error) = (Arc::clone(&self.manager), self.into_error);
        let (connection, valid) = run_aside(move || {
            let valid = manager.is_valid(&mut connection).map_err(into_error);
            (Blocking::new(connection), valid)
        })
        .await
        .unwrap_or_else(|panic| resume_unwind(panic));
        *resource = connection;
        valid.map(|()| true)
    }
}

impl<M, E> Manager for FromR2d2<M, E>
where
    M: ManageConnection,
    E: StdError + Send + Sync + 'static,
{
    type Resource = Blocking<M::Connection>;
    type Error = E;

    async fn create(&self) -> Result<Blocking<M::Connection>, E> {
        let (manager, into_error) = (Arc::clone(&self.manager), self.into_error);
        let connect = move || manager.connect().map(Blocking::new).map_err(into_error);
        run_aside(connect)
            .await
            .unwrap_or_else(|panic| resume_unwind(panic))
    }

    async fn destroy(&self, mut resource: Blocking<M::Connection>) -> Result<(), E> {
        if let Some(connection) = resource.take() {
            let dropped = run_aside(move || drop(connection)).await;
            dropped.unwrap_or_else(|panic| resume_unwind(panic));
        }
        Ok(())
    }

    async fn before_acquire(
        &self,
        resource: &mut Blocking<M::Connection>,
        info: Info<'_>,
    ) -> Result<bool, E> {
        if !self.check_after.is_zero() && info.unused_for() < self.check_after {
            return Ok(true);
        }
        self.check(resource).await
    }

    async fn healthcheck(
        &self,
        resource: &mut Blocking<M::Connection>,
        _: Info<'_>,
    ) -> Result<bool, E> {
        self.check(resource).await
    }

    fn before_release(&self, resource: &mut Blocking<M::Connection>, _: Info<'_>) -> Verdict {
        if self.manager.has_broken(resource) {
            Verdict::Discard
        } else if std::thread::panicking() {
            Verdict::Retire
        } else {
            Verdict::Keep
        }
    }
}

impl<M: ManageConnection + fmt::Debug, E> fmt::Debug for FromR2d2<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromR2d2")
            .field("manager", &self.manager)
            .field("check_after", &self.check_after)
            .finish_non_exhaustive()
    }
}

/// Acquires a connection and passes it to `work` on a blocking thread, where it is also released.
///
/// This is how async code uses a blocking connection. A plain thread calls
/// [`Pool::acquire_blocking`] instead.
///
/// # Errors
///
/// Fails like [`Pool::acquire`].
///
/// # Panics
///
/// Panics if `work` panics, with the same payload; the connection is destroyed.
///
/// # Cancel safety
///
/// Dropped while it waits for a connection, this runs nothing. Dropped later, `work` runs to its end on its
/// thread, and then the connection goes back to the pool.
pub async fn run<M, E, R>(
    pool: &Pool<FromR2d2<M, E>>,
    work: impl FnOnce(&mut M::Connection) -> R + Send + 'static,
) -> Result<R, AcquireError<E>>
where
    M: ManageConnection,
    E: StdError + Send + Sync + 'static,
    R: Send + 'static,
{
    let mut lease = pool.acquire_owned().await?;
    let done = run_aside(move || work(&mut lease)).await;
    Ok(done.unwrap_or_else(|panic| resume_unwind(panic)))
}
