#![doc = include_str!("../README.md")]

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;

use cenote_pool::{Info, Manager};
use deadpool::managed::{self, Metrics, RecycleError};

/// A manager of deadpool, for [`cenote_pool::Pool::builder`].
///
/// | deadpool | when `cenote-pool` calls it |
/// |---|---|
/// | `create` | when a resource is needed and a slot is free |
/// | `recycle` | before an idle resource is handed out, as deadpool does, and in health checks |
/// | `detach` | when a resource is destroyed |
///
/// The [`Metrics`] that `recycle` receives count like deadpool's: `recycle_count` is 0 at the first call.
/// `recycled`, the begin of the last use, is exact to a few milliseconds.
///
/// `Lease::detach` hands the resource to you and does not call `detach`; call it through
/// [`manager`](FromDeadpool::manager) if your manager keeps references to its resources.
pub struct FromDeadpool<M: managed::Manager, E = <M as managed::Manager>::Error> {
    manager: M,
    into_error: fn(M::Error) -> E,
}

impl<M: managed::Manager> FromDeadpool<M> {
    /// Wraps a manager whose error type implements [`std::error::Error`].
    pub fn new(manager: M) -> Self {
        FromDeadpool {
            manager,
            into_error: |error| error,
        }
    }
}

impl<M: managed::Manager, E> FromDeadpool<M, E> {
    /// Wraps a manager and converts its errors, for error types that do not implement
    /// [`std::error::Error`] or are not `Sync`: `cenote-pool` requires both.
    pub fn map_errors(manager: M, into_error: fn(M::Error) -> E) -> Self {
        FromDeadpool {
            manager,
            into_error,
        }
    }

    /// Returns the wrapped manager.
    pub fn manager(&self) -> &M {
        &self.manager
    }

    fn convert(&self, error: RecycleError<M::Error>) -> Error<E> {
        match error {
            RecycleError::Message(message) => Error::Refused(message),
            RecycleError::Backend(error) => Error::Backend((self.into_error)(error)),
        }
    }
}

impl<M, E> FromDeadpool<M, E>
where
    M: managed::Manager<Type: 'static> + 'static,
    E: StdError + Send + Sync + 'static,
{
    async fn recycle(&self, resource: &mut M::Type, info: Info<'_>) -> Result<bool, Error<E>> {
        let metrics = metrics(info);
        match self.manager.recycle(resource, &metrics).await {
            Ok(()) => Ok(true),
            Err(error) => Err(self.convert(error)),
        }
    }
}

impl<M, E> Manager for FromDeadpool<M, E>
where
    M: managed::Manager<Type: 'static> + 'static,
    E: StdError + Send + Sync + 'static,
{
    type Resource = M::Type;
    type Error = Error<E>;

    async fn create(&self) -> Result<M::Type, Error<E>> {
        let created = self.manager.create().await;
        created.map_err(|error| Error::Backend((self.into_error)(error)))
    }

    async fn destroy(&self, mut resource: M::Type) -> Result<(), Error<E>> {
        self.manager.detach(&mut resource);
        Ok(())
    }

    #[inline]
    fn before_acquire(
        &self,
        resource: &mut M::Type,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Error<E>>> + Send {
        self.recycle(resource, info)
    }

    fn healthcheck(
        &self,
        resource: &mut M::Type,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Error<E>>> + Send {
        self.recycle(resource, info)
    }
}

impl<M: managed::Manager + fmt::Debug, E> fmt::Debug for FromDeadpool<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromDeadpool").field(&self.manager).finish()
    }
}

/// Describes a resource as deadpool would: the first use is not a recycling.
#[inline]
fn metrics(info: Info<'_>) -> Metrics {
    let uses = usize::try_from(info.uses()).unwrap_or(usize::MAX);
    let recycle_count = uses.saturating_sub(1);
    Metrics {
        created: info.created(),
        recycled: (recycle_count > 0).then(|| info.last_used()),
        recycle_count,
    }
}

/// An error of a deadpool manager.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The manager's own error.
    Backend(E),
    /// `recycle` refused the resource with a message.
    Refused(Cow<'static, str>),
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Backend(error) => error.fmt(f),
            Error::Refused(message) => write!(f, "recycle refused the resource: {message}"),
        }
    }
}

impl<E: StdError + 'static> StdError for Error<E> {
    /// `Backend` shows the manager's error as its own, so this is the source of that error.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::Backend(error) => error.source(),
            Error::Refused(_) => None,
        }
    }
}
