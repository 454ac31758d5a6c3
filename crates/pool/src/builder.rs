//! The builder: settings, hooks and the two ways to get a pool out of it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Strategy;
use crate::config::{Config, Order};
use crate::core::Core;
use crate::error::{ConfigError, OpenError};
use crate::hooks::{Answer, Check, DestroyAnswer, Hooks, InformedHook, ReleaseAnswer};
use crate::manager::Manager;
use crate::pool::Pool;
use crate::runtime::fork;
use crate::runtime::{Runtime, default_runtime};
use crate::user_code::drop_contained;

/// Builds a [`Pool`]. Made by [`Pool::builder`] and [`Pool::from_fn`].
///
/// Every setting has a default that works; every impossible combination is an
/// error of [`build`](Builder::build) that names the option and its value.
#[must_use = "a builder does nothing until `build` or `open`"]
pub struct Builder<M: Manager> {
    manager: M,
    hooks: Hooks<M>,
    config: Config,
    runtime: Option<Arc<dyn Runtime>>,
    strategy: Option<Arc<dyn Strategy>>,
}

impl<M: Manager> Builder<M> {
    pub(crate) fn new(manager: M) -> Self {
        Builder {
            manager,
            hooks: Hooks::default(),
            config: Config::default(),
            runtime: None,
            strategy: None,
        }
    }

    /// Makes the pool. Nothing is created yet, and nothing is started: the first
    /// acquire does both. Needs no runtime.
    ///
    /// # Errors
    ///
    /// The settings are impossible; the error names the option and its value.
    pub fn build(self) -> Result<Pool<M>, ConfigError> {
        self.config.validate()?;
        let runtime = self.runtime.unwrap_or_else(default_runtime);
        let core = Core::new(self.manager, self.hooks, self.config, runtime);
        let core = Arc::new(core);
        fork::register(&core);
        if self.strategy.is_some() {
            core.set_strategy(self.strategy);
        }
        Ok(Pool::from_core(core))
    }

    /// Makes the pool and its first [`min`](Builder::min) resources, one after another.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the pool and destroys what was made.
    ///
    /// # Errors
    ///
    /// The settings are impossible, or a creation failed. The first failure
    /// stops it, and what was made is destroyed.
    pub async fn open(self) -> Result<Pool<M>, OpenError<M::Error>> {
        let pool = self.build().map_err(OpenError::Config)?;
        // A cancel here drops the only handle, which closes the pool.
        match pool.warm_up().await {
            Ok(()) => Ok(pool),
            Err(error) => {
                // The events tell of its destructors' errors; the cause counts here.
                drop_contained(pool.close().await);
                Err(OpenError::Warmup(error))
            }
        }
    }

    /// A name for messages and metrics. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// The fewest resources the pool keeps up, made by [`open`](Builder::open)
    /// and refilled in the background. Default: 0. At most `max`.
    /// [`Pool::set_min`] changes it.
    pub fn min(mut self, min: usize) -> Self {
        self.config.min = min;
        self
    }

    /// The most resources there may be, in whatever state. Default: 10. At least 1.
    pub fn max(mut self, max: usize) -> Self {
        self.config.max = max;
        self
    }

    /// Which idle resource is handed out next. Default: [`Order::Affine`].
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// How long an acquire may take, waiting, creation and hook together, unless
    /// the call says otherwise. Default: for ever.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.config.acquire_timeout = Some(timeout);
        self
    }

    /// How long one creation may take; then it is dropped and its place is free.
    /// Default: 30 s.
    ///
    /// A creation whose acquire has gone serves the queue, and nobody else creates in its
    /// stead; but only for a second, in case it hangs. Its place it keeps until this time
    /// is over.
    pub fn create_timeout(mut self, timeout: Duration) -> Self {
        self.config.create_timeout = Some(timeout);
        self
    }

    /// Creations may take for ever. One that hangs keeps its place until its executor ends.
    pub fn no_create_timeout(mut self) -> Self {
        self.config.create_timeout = None;
        self
    }

    /// How long the acquire hook may look at one resource. After that the resource is
    /// destroyed, and the acquire goes on with another one, within its own timeout.
    /// Default: as long as the acquire may take.
    pub fn before_acquire_timeout(mut self, timeout: Duration) -> Self {
        self.config.before_acquire_timeout = Some(timeout);
        self
    }

    /// How long a destructor, a health check or the async half of a release may
    /// take before it is dropped and the resource with it. Default: 5 s.
    pub fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.config.cleanup_timeout = timeout;
        self
    }

    /// How often idle resources are checked. Default: never.
    pub fn healthcheck_interval(mut self, interval: Duration) -> Self {
        self.config.healthcheck_interval = Some(interval);
        self
    }

    /// How long a resource may be idle before it is destroyed, as long as `min`
    /// are left; up to a quarter longer. Default: for ever.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = Some(timeout);
        self
    }

    /// How long a resource may live, give or take the jitter; up to a quarter
    /// longer. A leased one is left alone until it comes back. Where there is
    /// room, its replacement is made before it goes; if that fails, it stays,
    /// and is tried again. Default: for ever.
    pub fn max_lifetime(mut self, lifetime: Duration) -> Self {
        self.config.max_lifetime = Some(lifetime);
        self
    }

    /// By what share lifetimes differ, up or down, so that resources made
    /// together do not expire together. Default: 0.1. At least 0.0, below 1.0.
    pub fn lifetime_jitter(mut self, share: f64) -> Self {
        self.config.lifetime_jitter = share;
        self
    }

    /// How many acquires may wait in the queue; one that comes then ends with
    /// [`AcquireError::QueueFull`](crate::AcquireError::QueueFull). Those with a creation under
    /// way, or with a resource reserved for them, do not count; nor do those that lost their
    /// reservation because nobody polled them, which may exceed the limit when they are polled again.
    /// With 0 nobody waits for others. [`Pool::set_max_waiting`] changes it. Default: no limit.
    pub fn max_waiting(mut self, limit: usize) -> Self {
        self.config.max_waiting = Some(limit);
        self
    }

    /// How many creations may run at once. Default: as many as there is room for.
    pub fn concurrent_creations(mut self, limit: usize) -> Self {
        self.config.concurrent_creations = Some(limit);
        self
    }

    /// Makes an acquire with a deadline try again when the creation that it began fails, after
    /// the [back-off](Builder::backoff), instead of ending with the error. It ends with the
    /// error if its deadline comes first, if it has none, or if the error is permanent
    /// ([`Manager::is_permanent`]). An acquire that never queues, and a probe of the breaker,
    /// end with the first error. Default: off.
    pub fn retry_creations(mut self) -> Self {
        self.config.retry_creations = true;
        self
    }

    /// The pause after a failed creation, and the longest it doubles up to, less
    /// up to half of it at random. During it acquires queue, and `try_acquire`
    /// finds nothing. Default: 100 ms to 5 s.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.config.backoff = Some((first, longest));
        self
    }

    /// No pause after failed creations: every acquire tries at once.
    pub fn no_backoff(mut self) -> Self {
        self.config.backoff = None;
        self
    }

    /// Warns through `tracing` of acquires that took this long. Default: 1 s.
    pub fn slow_acquire_warning(mut self, slow: Duration) -> Self {
        self.config.slow_acquire_warning = Some(slow);
        self
    }

    /// Does not warn of slow acquires.
    pub fn no_slow_acquire_warning(mut self) -> Self {
        self.config.slow_acquire_warning = None;
        self
    }

    /// Warns through `tracing` and the events, once, of a lease that has been out
    /// for this long, with its source line. Default: off.
    pub fn leak_warning(mut self, after: Duration) -> Self {
        self.config.leak_warning = Some(after);
        self
    }

    /// Keeps [`Pool::timings`]. Every acquire and release reads a precise clock
    /// and comes by the pool's lock then. Default: off.
    pub fn histograms(mut self) -> Self {
        self.config.histograms = true;
        self
    }

    /// The executor to live on. Default: Tokio, or the built-in thread where the
    /// `tokio` feature is off.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// The strategy of the circuit breaker. Default: none; it moves by hand only.
    pub fn breaker(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Overrides [`Manager::create`].
    pub fn create<F, Fut>(mut self, create: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Resource, M::Error>> + Send + 'static,
    {
        self.hooks.create = Some(Box::new(move || Box::pin(create())));
        self
    }

    /// Overrides [`Manager::is_permanent`].
    pub fn is_permanent(
        mut self,
        is_permanent: impl Fn(&M::Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.hooks.is_permanent = Some(Box::new(is_permanent));
        self
    }

    /// Overrides [`Manager::destroy`] with a plain closure, which answers
    /// nothing or a `Result`.
    pub fn destroy<A: DestroyAnswer<M::Error>>(
        mut self,
        destroy: impl Fn(M::Resource) -> A + Send + Sync + 'static,
    ) -> Self {
        let destroy = move |resource| {
            let answer = destroy(resource).into_result();
            Box::pin(std::future::ready(answer)) as _
        };
        self.hooks.destroy = Some(Box::new(destroy));
        self
    }

    /// Overrides [`Manager::destroy`] with one that gives a future.
    pub fn destroy_async<F, Fut, A>(mut self, destroy: F) -> Self
    where
        F: Fn(M::Resource) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: DestroyAnswer<M::Error>,
    {
        let destroy = move |resource| {
            let end = destroy(resource);
            Box::pin(async move { end.await.into_result() }) as _
        };
        self.hooks.destroy = Some(Box::new(destroy));
        self
    }

    /// Overrides [`Manager::healthcheck`] with a plain closure.
    pub fn healthcheck<A: Answer>(
        mut self,
        check: impl Fn(&mut M::Resource) -> A + Send + Sync + 'static,
    ) -> Self {
        self.hooks.healthcheck = Some(Check::Sync(Box::new(move |r| check(r).into_answer())));
        self
    }

    /// Overrides [`Manager::healthcheck`] with an async closure.
    pub fn healthcheck_async<A: Answer + 'static>(
        mut self,
        check: impl for<'a> InformedHook<'a, M::Resource, A>,
    ) -> Self {
        self.hooks.healthcheck = Some(async_check(check, A::into_answer));
        self
    }

    /// Overrides [`Manager::before_acquire`] with a plain closure.
    pub fn before_acquire<A: Answer>(
        mut self,
        check: impl Fn(&mut M::Resource) -> A + Send + Sync + 'static,
    ) -> Self {
        self.hooks.before_acquire = Some(Check::Sync(Box::new(move |r| check(r).into_answer())));
        self
    }

    /// Overrides [`Manager::before_acquire`] with an async closure. Its future is
    /// boxed; a [`Manager`]'s is not.
    pub fn before_acquire_async<A: Answer + 'static>(
        mut self,
        check: impl for<'a> InformedHook<'a, M::Resource, A>,
    ) -> Self {
        self.hooks.before_acquire = Some(async_check(check, A::into_answer));
        self
    }

    /// Overrides [`Manager::before_release`] with a plain closure. It may answer
    /// [`Verdict::Later`](crate::Verdict::Later), and [`Manager::recycle`] runs. It also decides
    /// about a resource whose holder panicked, which is destroyed where there is no such hook.
    pub fn before_release<A: ReleaseAnswer>(
        mut self,
        check: impl Fn(&mut M::Resource) -> A + Send + Sync + 'static,
    ) -> Self {
        self.hooks.before_release = Some(Check::Sync(Box::new(move |r| check(r).into_verdict())));
        self
    }

    /// Overrides [`Manager::before_release`] and [`Manager::recycle`] with an
    /// async closure. It is polled first where a lease is dropped, and then on the runtime. It also
    /// decides about a resource whose holder panicked.
    pub fn before_release_async<A: Answer + 'static>(
        mut self,
        check: impl for<'a> InformedHook<'a, M::Resource, A>,
    ) -> Self {
        self.hooks.before_release = Some(async_check(check, A::into_answer));
        self
    }
}

fn async_check<R: Send + 'static, A: 'static>(
    check: impl for<'a> InformedHook<'a, R, A>,
    into: fn(A) -> Result<crate::Verdict, Option<Arc<str>>>,
) -> Check<R> {
    let check = Arc::new(check);
    Check::Async(Box::new(move |resource, info| {
        let check = Arc::clone(&check);
        Box::pin(async move { into(check.call_with(resource, info).await) })
    }))
}

impl<M: Manager> fmt::Debug for Builder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("config", &self.config)
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}
