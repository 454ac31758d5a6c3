//! Closures that override a manager's methods.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::chain;
use crate::info::Info;
use crate::manager::{Manager, Verdict};
use crate::user_code::drop_contained;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a hook refused a resource; `None` if it gave no reason.
pub(crate) type Refusal = Option<Arc<str>>;

/// What a checking hook may return: nothing, a `bool`, or a `Result` of either.
///
/// On `false` and on an error the pool destroys the resource. It also reports the error.
pub trait Answer: sealed::Sealed {
    #[doc(hidden)]
    fn into_answer(self) -> Result<Verdict, Option<Arc<str>>>;
}

/// What a release hook may return: any [`Answer`], or a [`Verdict`].
pub trait ReleaseAnswer: sealed::Sealed {
    #[doc(hidden)]
    fn into_verdict(self) -> Result<Verdict, Option<Arc<str>>>;
}

/// What a destructor may return: nothing, or a `Result`.
pub trait DestroyAnswer<E>: sealed::Sealed {
    #[doc(hidden)]
    fn into_result(self) -> Result<(), E>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for bool {}
    impl Sealed for super::Verdict {}
    impl<T: Sealed, E> Sealed for Result<T, E> {}
}

impl Answer for () {
    fn into_answer(self) -> Result<Verdict, Refusal> {
        Ok(Verdict::Keep)
    }
}

impl Answer for bool {
    fn into_answer(self) -> Result<Verdict, Refusal> {
        if self { Ok(Verdict::Keep) } else { Err(None) }
    }
}

impl<T: Answer, E: Into<Box<dyn Error + Send + Sync>>> Answer for Result<T, E> {
    fn into_answer(self) -> Result<Verdict, Refusal> {
        match self {
            Ok(answer) => answer.into_answer(),
            Err(error) => Err(Some(chain(&*error.into()))),
        }
    }
}

impl<A: Answer> ReleaseAnswer for A {
    fn into_verdict(self) -> Result<Verdict, Refusal> {
        self.into_answer()
    }
}

impl ReleaseAnswer for Verdict {
    fn into_verdict(self) -> Result<Verdict, Refusal> {
        match self {
            Verdict::Discard => Err(None),
            other => Ok(other),
        }
    }
}

impl<E> DestroyAnswer<E> for () {
    fn into_result(self) -> Result<(), E> {
        Ok(())
    }
}

impl<E> DestroyAnswer<E> for Result<(), E> {
    fn into_result(self) -> Result<(), E> {
        self
    }
}

/// An async closure over a resource: `async |resource: &mut R| …`.
///
/// In Rust an async closure that lends its captures to its future is not a `Fn`; pass such state to
/// [`with`] instead. Closures and the result of `with` implement this trait.
pub trait AsyncHook<'a, R: 'a, A>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&'a self, resource: &'a mut R) -> Pin<Box<dyn Future<Output = A> + Send + 'a>>;
}

impl<'a, R, A, F, Fut> AsyncHook<'a, R, A> for F
where
    R: 'a,
    F: Fn(&'a mut R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send + 'a,
{
    fn call(&'a self, resource: &'a mut R) -> Pin<Box<dyn Future<Output = A> + Send + 'a>> {
        Box::pin(self(resource))
    }
}

/// Returns an async hook with state: `with(state, async |state: &S, resource: &mut R| …)`.
///
/// # Examples
///
/// ```
/// # use cenote_pool::{Pool, with};
/// # use std::{convert::Infallible, time::Duration};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = 3;
/// let pool = Pool::from_fn(|| async { Ok::<u32, Infallible>(0) })
///     .before_acquire_async(with(limit, async |limit: &u32, uses: &mut u32| {
///         *uses += 1;
///         *uses < *limit
///     }))
///     .build()?;
/// # drop(pool.acquire().await?);
/// # Ok(()) }
/// ```
pub fn with<S, F>(state: S, hook: F) -> With<S, F> {
    With { state, hook }
}

/// A hook with state, made by [`with`].
#[derive(Debug)]
pub struct With<S, F> {
    state: S,
    hook: F,
}

impl<'a, R, A, S, F, Fut> AsyncHook<'a, R, A> for With<S, F>
where
    R: 'a,
    S: Send + Sync + 'static,
    F: Fn(&'a S, &'a mut R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send + 'a,
{
    fn call(&'a self, resource: &'a mut R) -> Pin<Box<dyn Future<Output = A> + Send + 'a>> {
        Box::pin((self.hook)(&self.state, resource))
    }
}

/// What the builder accepts as an async hook: an async closure over a resource, or the result of [`with`]
/// or [`informed`]. Unlike an [`AsyncHook`], it may also receive an [`Info`](crate::Info).
pub trait InformedHook<'a, R: 'a, A>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call_with(
        &'a self,
        resource: &'a mut R,
        info: Info<'a>,
    ) -> Pin<Box<dyn Future<Output = A> + Send + 'a>>;
}

impl<'a, R, A, F, Fut> InformedHook<'a, R, A> for F
where
    R: 'a,
    F: Fn(&'a mut R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send + 'a,
{
    fn call_with(
        &'a self,
        resource: &'a mut R,
        _: Info<'a>,
    ) -> Pin<Box<dyn Future<Output = A> + Send + 'a>> {
        AsyncHook::call(self, resource)
    }
}

impl<'a, R, A, S, F, Fut> InformedHook<'a, R, A> for With<S, F>
where
    R: 'a,
    S: Send + Sync + 'static,
    F: Fn(&'a S, &'a mut R) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send + 'a,
{
    fn call_with(
        &'a self,
        resource: &'a mut R,
        _: Info<'a>,
    ) -> Pin<Box<dyn Future<Output = A> + Send + 'a>> {
        self.call(resource)
    }
}

/// Returns an async hook that also receives the age and the uses of a resource:
/// `informed(async |resource: &mut R, info: Info<'_>| …)`.
///
/// # Examples
///
/// ```
/// # use cenote_pool::{Info, Pool, informed};
/// # use std::{convert::Infallible, time::Duration};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # struct Connection;
/// # impl Connection { async fn ping(&mut self) -> bool { true } }
/// let pool = Pool::from_fn(|| async { Ok::<_, Infallible>(Connection) })
///     .before_acquire_async(informed(async |connection: &mut Connection, info: Info<'_>| {
///         info.unused_for() < Duration::from_secs(30) || connection.ping().await
///     }))
///     .build()?;
/// # drop(pool.acquire().await?);
/// # drop(pool.acquire().await?);
/// # Ok(()) }
/// ```
pub fn informed<F>(hook: F) -> Informed<F> {
    Informed { hook }
}

/// A hook that also receives an [`Info`](crate::Info), made by [`informed`].
#[derive(Debug)]
pub struct Informed<F> {
    hook: F,
}

impl<'a, R, A, F, Fut> InformedHook<'a, R, A> for Informed<F>
where
    R: 'a,
    F: Fn(&'a mut R, Info<'a>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = A> + Send + 'a,
{
    fn call_with(
        &'a self,
        resource: &'a mut R,
        info: Info<'a>,
    ) -> Pin<Box<dyn Future<Output = A> + Send + 'a>> {
        Box::pin((self.hook)(resource, info))
    }
}

type SyncFn<R> = dyn Fn(&mut R) -> Result<Verdict, Refusal> + Send + Sync;
type AsyncFn<R> =
    dyn for<'a> Fn(&'a mut R, Info<'a>) -> BoxFuture<'a, Result<Verdict, Refusal>> + Send + Sync;

/// A hook given as a closure.
pub(crate) enum Check<R> {
    Sync(Box<SyncFn<R>>),
    Async(Box<AsyncFn<R>>),
}

/// Overrides of a manager's methods.
pub(crate) struct Hooks<M: Manager> {
    pub(crate) create: Option<Create<M::Resource, M::Error>>,
    pub(crate) is_permanent: Option<IsPermanent<M::Error>>,
    pub(crate) destroy: Option<Destroy<M::Resource, M::Error>>,
    pub(crate) healthcheck: Option<Check<M::Resource>>,
    pub(crate) before_acquire: Option<Check<M::Resource>>,
    pub(crate) before_release: Option<Check<M::Resource>>,
}

pub(crate) type Create<R, E> = Box<dyn Fn() -> BoxFuture<'static, Result<R, E>> + Send + Sync>;
pub(crate) type IsPermanent<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;
pub(crate) type Destroy<R, E> = Box<dyn Fn(R) -> BoxFuture<'static, Result<(), E>> + Send + Sync>;

impl<M: Manager> Drop for Hooks<M> {
    fn drop(&mut self) {
        // One by one: a second panic in the drop of the struct would abort the process.
        drop_contained(self.create.take());
        drop_contained(self.is_permanent.take());
        drop_contained(self.destroy.take());
        drop_contained(self.healthcheck.take());
        drop_contained(self.before_acquire.take());
        drop_contained(self.before_release.take());
    }
}

impl<M: Manager> Default for Hooks<M> {
    fn default() -> Self {
        Hooks {
            create: None,
            is_permanent: None,
            destroy: None,
            healthcheck: None,
            before_acquire: None,
            before_release: None,
        }
    }
}

impl<M: Manager> fmt::Debug for Hooks<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Closures have no names; show which hooks they override.
        let Hooks {
            create,
            is_permanent,
            destroy,
            healthcheck,
            before_acquire,
            before_release,
        } = self;
        f.debug_struct("Hooks")
            .field("create", &create.is_some())
            .field("is_permanent", &is_permanent.is_some())
            .field("destroy", &destroy.is_some())
            .field("healthcheck", &healthcheck.is_some())
            .field("before_acquire", &before_acquire.is_some())
            .field("before_release", &before_release.is_some())
            .finish()
    }
}

/// The manager of a pool made by [`Pool::from_fn`](crate::Pool::from_fn): it creates resources with a
/// closure. All other hooks are closures on the builder.
pub struct FnManager<R, E> {
    create: Create<R, E>,
}

impl<R, E> FnManager<R, E> {
    pub(crate) fn new(create: Create<R, E>) -> Self {
        FnManager { create }
    }
}

impl<R, E> Manager for FnManager<R, E>
where
    R: Send + 'static,
    E: Error + Send + Sync + 'static,
{
    type Resource = R;
    type Error = E;

    async fn create(&self) -> Result<R, E> {
        (self.create)().await
    }
}

impl<R, E> fmt::Debug for FnManager<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnManager").finish_non_exhaustive()
    }
}
