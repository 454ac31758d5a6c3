#![doc = include_str!("../README.md")]

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use bb8::ManageConnection;
use cenote_pool::{Info, Manager, Verdict};

/// A manager of bb8, for [`cenote_pool::Pool::builder`].
///
/// | bb8 | when `cenote-pool` calls it |
/// |---|---|
/// | `connect` | when a connection is needed and a slot is free |
/// | `is_valid` | before an idle connection is handed out, unless [`check_after`](FromBb8::check_after) spares it, and in health checks |
/// | `has_broken` | when a connection is released; `true` destroys it and reports a failure to the breaker |
///
/// A connection whose holder panicked is destroyed. An error of `connect` goes to the caller of `acquire`.
pub struct FromBb8<M: ManageConnection, E = <M as ManageConnection>::Error> {
    manager: M,
    into_error: fn(M::Error) -> E,
    check_after: Duration,
}

impl<M: ManageConnection> FromBb8<M> {
    /// Wraps a manager whose error type implements [`std::error::Error`].
    pub fn new(manager: M) -> Self {
        FromBb8::map_errors(manager, |error| error)
    }
}

impl<M: ManageConnection, E> FromBb8<M, E> {
    /// Wraps a manager and converts its errors, for error types that do not implement
    /// [`std::error::Error`] or are not `Sync`: `cenote-pool` requires both.
    pub fn map_errors(manager: M, into_error: fn(M::Error) -> E) -> Self {
        FromBb8 {
            manager,
            into_error,
            check_after: Duration::ZERO,
        }
    }

    /// Calls `is_valid` only before an acquire of a connection whose last use began at least `unused` ago.
    ///
    /// `is_valid` is a round trip in most managers, and a connection that just worked rarely needs it.
    /// Default: zero, which checks in every acquire like bb8. [`Duration::MAX`] never checks, like bb8's
    /// `test_on_check_out(false)`. Health checks do not depend on it.
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

impl<M, E> FromBb8<M, E>
where
    M: ManageConnection,
    E: StdError + Send + Sync + 'static,
{
    async fn check(&self, connection: &mut M::Connection) -> Result<bool, E> {
        let valid = self.manager.is_valid(connection).await;
        valid.map(|()| true).map_err(self.into_error)
    }
}

impl<M, E> Manager for FromBb8<M, E>
where
    M: ManageConnection,
    E: StdError + Send + Sync + 'static,
{
    type Resource = M::Connection;
    type Error = E;

    async fn create(&self) -> Result<M::Connection, E> {
        self.manager.connect().await.map_err(self.into_error)
    }

    #[inline]
    async fn before_acquire(
        &self,
        connection: &mut M::Connection,
        info: Info<'_>,
    ) -> Result<bool, E> {
        if !self.check_after.is_zero() && info.unused_for() < self.check_after {
            return Ok(true);
        }
        self.check(connection).await
    }

    fn healthcheck(
        &self,
        connection: &mut M::Connection,
        _: Info<'_>,
    ) -> impl Future<Output = Result<bool, E>> + Send {
        self.check(connection)
    }

    #[inline]
    fn before_release(&self, connection: &mut M::Connection, _: Info<'_>) -> Verdict {
        if self.manager.has_broken(connection) {
            Verdict::Discard
        } else if std::thread::panicking() {
            Verdict::Retire
        } else {
            Verdict::Keep
        }
    }
}

impl<M: ManageConnection + fmt::Debug, E> fmt::Debug for FromBb8<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromBb8")
            .field("manager", &self.manager)
            .field("check_after", &self.check_after)
            .finish_non_exhaustive()
    }
}
