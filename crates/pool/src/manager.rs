//! The contract between a pool and the thing it pools.

use std::error::Error;
use std::future::{Future, ready};

use crate::info::Info;

/// Makes, checks, cleans and destroys one kind of resource.
///
/// This is the static way into a pool: no dynamic dispatch and no boxing on the
/// checkout path. Only [`create`](Manager::create) must be written. For
/// application code there is also [`Pool::from_fn`](crate::Pool::from_fn), which
/// takes closures; any hook of a manager can be overridden by one on the
/// [`Builder`](crate::Builder).
///
/// No hook is called under a lock. While one runs its resource counts as active.
/// A hook that panics counts as one that failed; its resource is destroyed.
///
/// # Examples
///
/// ```
/// use std::io;
/// use cenote_pool::{Info, Manager, Pool, Verdict};
///
/// struct Files;
///
/// impl Manager for Files {
///     type Resource = Vec<u8>;
///     type Error = io::Error;
///
///     async fn create(&self) -> io::Result<Vec<u8>> {
///         Ok(Vec::new())
///     }
///
///     fn before_release(&self, buffer: &mut Vec<u8>, info: Info<'_>) -> Verdict {
///         buffer.clear();
///         match info.uses() < 1000 {
///             true => Verdict::Keep,
///             false => Verdict::Retire,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder(Files).max(2).build()?;
/// pool.acquire().await?.push(1);
/// assert!(pool.acquire().await?.is_empty());
/// # Ok(()) }
/// ```
pub trait Manager: Send + Sync + 'static {
    /// What is pooled.
    type Resource: Send + 'static;

    /// What can go wrong with it. [`std::io::Error::other`] wraps anything.
    type Error: Error + Send + Sync + 'static;

    /// Makes a resource, when one is needed and there is room.
    ///
    /// Its place is reserved first. The first poll runs in the acquire that
    /// caused it, the rest as a task of the pool, so it goes on when that
    /// acquire is cancelled, and its result serves whoever is first in the queue.
    /// An error goes to the acquire that caused it, if that one still waits.
    fn create(&self) -> impl Future<Output = Result<Self::Resource, Self::Error>> + Send;

    /// Whether it is of no use to create again after this error of [`create`](Manager::create):
    /// a refused login, say, which repeated would lock the account. Asked only where
    /// [`Builder::retry_creations`](crate::Builder::retry_creations) is on; a panic counts as
    /// yes. Default: no.
    fn is_permanent(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Destroys a resource that leaves the pool. Default: drops it.
    ///
    /// Its place is free when this is done, or when the cleanup time is over.
    /// Where nothing can await it (a lease dropped with no runtime left) it is
    /// polled once and then dropped. An error goes to the caller of
    /// [`close`](crate::Pool::close), and everywhere else to the events and the log.
    fn destroy(
        &self,
        resource: Self::Resource,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        drop(resource);
        ready(Ok(()))
    }

    /// Looks at an idle resource, every health-check interval. Default: all is well.
    ///
    /// `Ok(false)` or an error destroys the resource; the pool refills to `min`.
    fn healthcheck(
        &self,
        resource: &mut Self::Resource,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (resource, info);
        ready(Ok(true))
    }

    /// Looks at an idle resource that is about to be handed out. Default: all is well.
    ///
    /// Fresh resources are trusted and not shown here. `Ok(false)` or an error
    /// destroys the resource, and the acquire goes on with the next. Runs in the
    /// acquire, within its deadline and the
    /// [time limit](crate::Builder::before_acquire_timeout); if that is dropped half-way,
    /// the resource is destroyed. If the pool is closed meanwhile, the acquire fails.
    fn before_acquire(
        &self,
        resource: &mut Self::Resource,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (resource, info);
        ready(Ok(true))
    }

    /// Decides what happens to a resource that comes back. Default: keeps it, except that a
    /// resource whose holder panicked is destroyed: nobody knows what state that left it in.
    ///
    /// Called by the drop of a lease, so it must neither block nor wait;
    /// what takes longer goes into [`recycle`](Manager::recycle). A hook that can tell whether the
    /// resource is sound decides about panics, too: during one [`std::thread::panicking`] says so.
    #[inline]
    fn before_release(&self, resource: &mut Self::Resource, info: Info<'_>) -> Verdict {
        let _ = (resource, info);
        match std::thread::panicking() {
            true => Verdict::Retire,
            false => Verdict::Keep,
        }
    }

    /// The async half of a release, run only after [`Verdict::Later`].
    ///
    /// Runs inside [`Lease::release`](crate::Lease::release). When a lease is dropped, the first
    /// poll happens there, and the rest as a task of the pool. Within the cleanup time:
    /// `Ok(false)`, an error or running late destroys the resource.
    fn recycle(
        &self,
        resource: &mut Self::Resource,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (resource, info);
        ready(Ok(true))
    }
}

/// What to do with a resource that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is fine: the next one may have it.
    Keep,
    /// It is broken: destroy it, and report a failure to the breaker.
    Discard,
    /// It is not wanted any more, because of its age or its use, or in an unknown state: destroy
    /// it. That is no failure.
    Retire,
    /// Run [`Manager::recycle`] first, which decides.
    Later,
}
