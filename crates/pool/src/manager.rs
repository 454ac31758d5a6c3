//! The contract between a pool and its resources.

use std::error::Error;
use std::future::{Future, ready};

use crate::info::Info;

/// Creates, checks, cleans and destroys one kind of resource.
///
/// With a manager the checkout path needs no dynamic dispatch and no boxing. Only
/// [`create`](Manager::create) is required. [`Pool::from_fn`](crate::Pool::from_fn) takes closures instead,
/// and a closure on the [`Builder`](crate::Builder) overrides the same hook of a manager.
///
/// The pool calls no hook under a lock. While a hook runs, its resource counts as active. A hook that
/// panics has failed; its resource is destroyed.
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
    /// The type of the resources.
    type Resource: Send + 'static;

    /// The error of the hooks. [`std::io::Error::other`] wraps any error.
    type Error: Error + Send + Sync + 'static;

    /// Creates a resource, when one is needed and a slot is free.
    ///
    /// The first poll runs in the acquire that caused the creation, the others in a task of the pool. So the
    /// creation continues if that acquire is cancelled, and the resource goes to the oldest waiter. An error
    /// goes to the acquire that caused the creation, if it still waits.
    fn create(&self) -> impl Future<Output = Result<Self::Resource, Self::Error>> + Send;

    /// Returns whether another attempt is useless after this error of [`create`](Manager::create), for
    /// example after a refused login, which would lock the account if it were repeated. The pool asks only
    /// if [`Builder::retry_creations`](crate::Builder::retry_creations) is on; a panic counts as yes.
    /// Default: no.
    fn is_permanent(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }

    /// Destroys a resource that leaves the pool. Default: drops it.
    ///
    /// The slot becomes free when this ends or the cleanup timeout passes. If no runtime is left to run it,
    /// it is polled once and then dropped. An error goes to the caller of [`close`](crate::Pool::close),
    /// otherwise to the events and the log.
    fn destroy(
        &self,
        resource: Self::Resource,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        drop(resource);
        ready(Ok(()))
    }

    /// Checks an idle resource, at every health-check interval. Default: accepts it.
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

    /// Checks an idle resource that is about to be handed out. Default: accepts it.
    ///
    /// New resources are not checked. `Ok(false)` or an error destroys the resource, and the acquire
    /// continues with the next one. The hook runs in the acquire, within its timeout and
    /// [its own](crate::Builder::before_acquire_timeout). If the acquire is dropped meanwhile, the resource
    /// is destroyed. If the pool is closed meanwhile, the acquire fails.
    fn before_acquire(
        &self,
        resource: &mut Self::Resource,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (resource, info);
        ready(Ok(true))
    }

    /// Decides what happens to a resource that is released. Default: keeps it, but destroys a resource
    /// whose holder panicked, because its state is unknown.
    ///
    /// The drop of a lease calls this, so it must not block. Put what takes longer into
    /// [`recycle`](Manager::recycle). Your own hook also decides about the resource of a holder that
    /// panics: [`std::thread::panicking`] returns `true` then.
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
    /// It runs inside [`Lease::release`](crate::Lease::release). When a lease is dropped, the first poll runs
    /// in the drop, the others in a task of the pool. `Ok(false)`, an error or the cleanup timeout destroys
    /// the resource.
    fn recycle(
        &self,
        resource: &mut Self::Resource,
        info: Info<'_>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (resource, info);
        ready(Ok(true))
    }
}

/// What to do with a resource that is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Keep it.
    Keep,
    /// Destroy it because it is broken, and report a failure to the breaker.
    Discard,
    /// Destroy it because of its age, its uses or an unknown state. This is not a failure.
    Retire,
    /// Run [`Manager::recycle`], which decides.
    Later,
}
