//! The builder of a pool: settings and hooks.

use std::fmt;
use std::future::Future;
use std::panic::Location;
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

/// Builds a [`Pool`]; see [`Pool::builder`] and [`Pool::from_fn`].
///
/// Every setting has a default. [`build`](Builder::build) returns an error for invalid settings, which names
/// the setting and its value.
#[must_use = "a builder does nothing until `build` or `open`"]
pub struct Builder<M: Manager> {
    manager: M,
    hooks: Hooks<M>,
    config: Config,
    runtime: Option<Arc<dyn Runtime>>,
    strategy: Option<Arc<dyn Strategy>>,
    call_site: &'static Location<'static>,
}

impl<M: Manager> Builder<M> {
    #[track_caller]
    pub(crate) fn new(manager: M) -> Self {
        Builder {
            manager,
            hooks: Hooks::default(),
            config: Config::default(),
            runtime: None,
            strategy: None,
            call_site: Location::caller(),
        }
    }

    /// Builds the pool. Building needs no runtime. The first acquire creates the first resource and starts
    /// the pool's maintenance.
    ///
    /// # Errors
    ///
    /// A setting is invalid; the error names the setting and its value.
    pub fn build(self) -> Result<Pool<M>, ConfigError> {
        self.config.validate()?;
        let runtime = self.runtime.unwrap_or_else(default_runtime);
        let core = Core::new(
            self.manager,
            self.hooks,
            self.config,
            runtime,
            self.call_site,
        );
        let core = Arc::new(core);
        fork::register(&core);
        core.update_console();
        if self.strategy.is_some() {
            core.set_strategy(self.strategy);
        }
        Ok(Pool::from_core(core))
    }

    /// Builds the pool and creates [`min`](Builder::min) resources, one after another.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the pool and destroys its resources.
    ///
    /// # Errors
    ///
    /// A setting is invalid, or a creation failed. The first failure closes the pool and destroys its
    /// resources.
    pub async fn open(self) -> Result<Pool<M>, OpenError<M::Error>> {
        let pool = self.build().map_err(OpenError::Config)?;
        // A cancel here drops the only handle, which closes the pool.
        match pool.warm_up().await {
            Ok(()) => Ok(pool),
            Err(error) => {
                // The events report the errors of destructors; this returns the cause.
                drop_contained(pool.close().await);
                Err(OpenError::Warmup(error))
            }
        }
    }

    /// Sets a name for messages and metrics. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// Sets the source line that tokio-console shows as the pool's. Default: the line that called
    /// [`Pool::builder`] or [`Pool::from_fn`]. For libraries that want their users' lines shown.
    ///
    /// The console shows the pool, with its [`Status`](crate::Status), in programs that are built with
    /// `--cfg tokio_unstable`, as for Tokio's own resources, and that install its subscriber before they build the pool.
    /// Every acquire and release of such a pool takes the pool's lock.
    pub fn call_site(mut self, call_site: &'static Location<'static>) -> Self {
        self.call_site = call_site;
        self
    }

    /// Sets the minimum number of resources, in use or idle. [`open`](Builder::open) creates them, and the
    /// pool refills to this number in the background. Default: 0. At most `max`. [`Pool::set_min`] changes
    /// it.
    pub fn min(mut self, min: usize) -> Self {
        self.config.min = min;
        self
    }

    /// Sets the maximum number of resources. Default: 10. At least 1. [`Pool::resize`] changes it.
    pub fn max(mut self, max: usize) -> Self {
        self.config.max = max;
        self
    }

    /// Sets which idle resource is handed out next. Default: [`Order::Affine`].
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// Sets how long an acquire may take, with waiting, creation and hook.
    /// [`AcquireOptions`](crate::AcquireOptions) override it. Default: no limit.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.config.acquire_timeout = Some(timeout);
        self
    }

    /// Sets how long a creation may take. After that it is dropped and its slot becomes free. Default:
    /// 30 s.
    ///
    /// A creation whose acquire was dropped serves the queue, so no other waiter creates in its stead. After
    /// a second it no longer counts, because it may hang; it keeps its slot until this timeout.
    pub fn create_timeout(mut self, timeout: Duration) -> Self {
        self.config.create_timeout = Some(timeout);
        self
    }

    /// Sets no limit for creations. A creation that hangs keeps its slot until its executor ends.
    pub fn no_create_timeout(mut self) -> Self {
        self.config.create_timeout = None;
        self
    }

    /// Sets how long the acquire hook may take for one resource. After that the resource is destroyed, and
    /// the acquire continues with another one, within its own timeout. Default: no limit of its own.
    pub fn before_acquire_timeout(mut self, timeout: Duration) -> Self {
        self.config.before_acquire_timeout = Some(timeout);
        self
    }

    /// Sets how long a destructor, a health check or the async half of a release may take. After that it is
    /// dropped, and the resource with it. Default: 5 s.
    pub fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.config.cleanup_timeout = timeout;
        self
    }

    /// Sets how often idle resources are checked. Default: never.
    pub fn healthcheck_interval(mut self, interval: Duration) -> Self {
        self.config.healthcheck_interval = Some(interval);
        self
    }

    /// Sets how long a resource may be idle. The pool then destroys it, at most a quarter of the time-out
    /// late, if more than `min` resources exist. Default: no limit.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = Some(timeout);
        self
    }

    /// Sets the lifetime of a resource, plus or minus the jitter. After that, and at most a quarter later,
    /// it is destroyed, a leased one when it is released. If a slot is free, the pool creates its
    /// replacement first; while that fails, the old resource stays. Default: no limit.
    pub fn max_lifetime(mut self, lifetime: Duration) -> Self {
        self.config.max_lifetime = Some(lifetime);
        self
    }

    /// Sets by what share lifetimes vary, up or down, so that resources created together do not expire
    /// together. Default: 0.1. At least 0.0, below 1.0.
    pub fn lifetime_jitter(mut self, share: f64) -> Self {
        self.config.lifetime_jitter = share;
        self
    }

    /// Limits how many acquires may wait in the queue. Further ones fail with
    /// [`AcquireError::QueueFull`](crate::AcquireError::QueueFull). Waiters with a creation or a reservation
    /// of their own do not count. A waiter whose reservation was revoked may exceed the limit when it is
    /// polled again. With 0 no acquire waits for others. [`Pool::set_max_waiting`] changes it. Default: no
    /// limit.
    pub fn max_waiting(mut self, limit: usize) -> Self {
        self.config.max_waiting = Some(limit);
        self
    }

    /// Limits how many creations may run at once. Default: no limit besides `max`.
    pub fn concurrent_creations(mut self, limit: usize) -> Self {
        self.config.concurrent_creations = Some(limit);
        self
    }

    /// Makes an acquire with a timeout try again after the [back-off](Builder::backoff) when its creation
    /// fails. It fails with the error if it has no timeout, if the timeout comes first, or if the error is
    /// permanent ([`Manager::is_permanent`]). `try_acquire` and probes of the breaker fail with the first
    /// error. Default: off.
    pub fn retry_creations(mut self) -> Self {
        self.config.retry_creations = true;
        self
    }

    /// Sets the pause after a failed creation and its maximum. The pause doubles with every failure and is
    /// shortened at random by up to a half. During the pause acquires queue, and `try_acquire` finds
    /// nothing. Default: 100 ms to 5 s.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.config.backoff = Some((first, longest));
        self
    }

    /// Sets no pause after failed creations: every acquire tries at once.
    pub fn no_backoff(mut self) -> Self {
        self.config.backoff = None;
        self
    }

    /// Warns through `tracing` about acquires that take this long: once while they wait, with the longest
    /// leases, and once when they have got their lease. Default: 1 s.
    pub fn slow_acquire_warning(mut self, slow: Duration) -> Self {
        self.config.slow_acquire_warning = Some(slow);
        self
    }

    /// Switches the warnings about slow acquires off.
    pub fn no_slow_acquire_warning(mut self) -> Self {
        self.config.slow_acquire_warning = None;
        self
    }

    /// Warns once, through `tracing` and the events, about a lease that lasts this long, with its source
    /// line. Default: off.
    pub fn leak_warning(mut self, after: Duration) -> Self {
        self.config.leak_warning = Some(after);
        self
    }

    /// Sets the executor of the pool. Default: Tokio, or the built-in thread if the `tokio` feature is off.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// Sets the strategy of the circuit breaker. Default: none; the breaker moves by hand only.
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

    /// Overrides [`Manager::destroy`] with a closure that returns nothing or a `Result`.
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

    /// Overrides [`Manager::destroy`] with a closure that returns a future.
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

    /// Overrides [`Manager::healthcheck`] with a closure.
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

    /// Overrides [`Manager::before_acquire`] with a closure.
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

    /// Overrides [`Manager::before_release`] with a closure. After
    /// [`Verdict::Later`](crate::Verdict::Later) [`Manager::recycle`] runs. The closure also decides about a
    /// resource whose holder panicked; without a hook the pool destroys it.
    pub fn before_release<A: ReleaseAnswer>(
        mut self,
        check: impl Fn(&mut M::Resource) -> A + Send + Sync + 'static,
    ) -> Self {
        self.hooks.before_release = Some(Check::Sync(Box::new(move |r| check(r).into_verdict())));
        self
    }

    /// Overrides [`Manager::before_release`] and [`Manager::recycle`] with an async closure. Dropping a
    /// lease polls the closure's future once; if it is pending, the runtime drives it to its end. The closure
    /// also decides whether the pool keeps a resource whose holder panicked.
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
