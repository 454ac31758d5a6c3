//! The handle of a pool.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acquire::AcquireOptions;
use crate::acquire::create::Creation;
use crate::breaker::{BreakerState, PoolId, Strategy};
use crate::builder::Builder;
use crate::config::{Config, check_max, check_min, wrong};
use crate::core::Core;
use crate::error::{AcquireError, ConfigError};
use crate::hooks::FnManager;
use crate::lease::{IfIdle, Lease, OwnedLease};
use crate::manager::Manager;
use crate::observe::events::{Event, Events, Source, Subscription, Wanted};
use crate::observe::histogram::Timings;
use crate::observe::status::{Counters, CreationError, Holder, QueuedAcquire, Status};
use crate::runtime::block_on;

/// A pool of resources. Clone it to share it.
///
/// Clones are handles of the same pool; when the last one is dropped, the pool closes. Leases keep the pool
/// working, but not open.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use cenote_pool::{FnPool, Pool};
///
/// struct App {
///     buffers: FnPool<Vec<u8>, Infallible>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let app = App {
///     buffers: Pool::from_fn(|| async { Ok(Vec::with_capacity(4096)) })
///         .max(4)
///         .before_release(|buffer: &mut Vec<u8>| buffer.clear())
///         .build()?,
/// };
/// let mut buffer = app.buffers.acquire().await?;
/// buffer.extend_from_slice(b"hello");
/// drop(buffer);
/// assert_eq!(app.buffers.status().idle, 1);
/// # Ok(()) }
/// ```
pub struct Pool<M: Manager> {
    pub(crate) core: Arc<Core<M>>,
}

/// A pool made of closures by [`Pool::from_fn`]. Use it to name the type in a struct field.
pub type FnPool<R, E> = Pool<FnManager<R, E>>;

impl<R, E> Pool<FnManager<R, E>>
where
    R: Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    /// Returns a builder for a pool that creates its resources with this closure. All other hooks are
    /// closures on the [`Builder`].
    #[track_caller]
    pub fn from_fn<F, Fut>(create: F) -> Builder<FnManager<R, E>>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        Builder::new(FnManager::new(Box::new(move || Box::pin(create()))))
    }
}

impl<M: Manager> Pool<M> {
    /// Returns a builder for a pool with this [`Manager`].
    #[track_caller]
    pub fn builder(manager: M) -> Builder<M> {
        Builder::new(manager)
    }

    /// Returns the first handle, which a new core counts already.
    pub(crate) fn from_core(core: Arc<Core<M>>) -> Self {
        Pool { core }
    }

    /// Acquires a resource: an idle one, a new one if a slot is free, or the next one that is released.
    /// Waiters are served in the order of arrival.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; a reservation goes to the next waiter. A creation that it
    /// started continues and serves the queue. A resource in the acquire hook is destroyed.
    ///
    /// # Errors
    ///
    /// The pool is closed, the breaker is open, the queue is full, the timeout has passed, or the creation
    /// that it started has failed; see [`AcquireError`].
    #[track_caller]
    #[inline]
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<Lease<'_, M>, AcquireError<M::Error>>> + Send + '_ {
        self.core
            .acquire(Location::caller(), self.core.config.acquire_timeout)
    }

    /// Acquires like [`acquire`](Pool::acquire), with a timeout or a call site of its own.
    /// [`Lease::into_owned`] makes an owned lease of the result.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Pool::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Pool::acquire).
    #[track_caller]
    #[inline]
    pub fn acquire_with(
        &self,
        options: AcquireOptions,
    ) -> impl Future<Output = Result<Lease<'_, M>, AcquireError<M::Error>>> + Send + '_ {
        let caller = options.call_site.unwrap_or(Location::caller());
        let timeout = options.timeout.or(self.core.config.acquire_timeout);
        self.core.acquire(caller, timeout)
    }

    /// Acquires like [`acquire`](Pool::acquire). The lease borrows nothing, so that it can be stored or sent
    /// to another task.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Pool::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Pool::acquire).
    #[track_caller]
    #[inline]
    pub fn acquire_owned(
        &self,
    ) -> impl Future<Output = Result<OwnedLease<M>, AcquireError<M::Error>>> + Send + '_ {
        self.core
            .acquire(Location::caller(), self.core.config.acquire_timeout)
    }

    /// Acquires without queueing: an idle resource, or a new one if a slot is free or becomes free because
    /// the acquire hook refused its resource. Returns `None` if the pool is exhausted, closed or backing off
    /// after a failed creation, or if its breaker is open.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Pool::acquire).
    ///
    /// # Errors
    ///
    /// The creation that it started has failed, or the acquire timeout has passed.
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Lease<'_, M>>, AcquireError<M::Error>>> + Send + '_
    {
        self.core
            .acquire(Location::caller(), self.core.config.acquire_timeout)
    }

    /// Returns an idle resource, if there is one, without waiting. If the acquire hook is pending, it
    /// continues in the background, and this returns `None`.
    #[track_caller]
    pub fn try_acquire_idle(&self) -> Option<Lease<'_, M>> {
        self.idle(Location::caller())
    }

    /// Acquires like [`try_acquire_idle`](Pool::try_acquire_idle), with a call site of its own. Takes no lock if no
    /// resource is idle.
    #[track_caller]
    pub fn try_acquire_idle_with(&self, options: AcquireOptions) -> Option<Lease<'_, M>> {
        let caller = options.call_site.unwrap_or(Location::caller());
        match self.core.may_have_idle() {
            true => self.idle(caller),
            false => None,
        }
    }

    fn idle(&self, caller: &'static Location<'static>) -> Option<Lease<'_, M>> {
        let core = Arc::clone(&self.core);
        // Boxed, so that a pending hook can continue elsewhere. The lease is owned, so that it releases
        // the resource there.
        let mut acquire: Pin<Box<dyn Future<Output = Option<OwnedLease<M>>> + Send>> =
            Box::pin(async move {
                let IfIdle(lease) = core.acquire(caller, None).await.ok()?;
                lease
            });
        let mut context = Context::from_waker(Waker::noop());
        match acquire.as_mut().poll(&mut context) {
            Poll::Ready(lease) => lease.map(|lease| OwnedLease::into_borrowed(lease, &self.core)),
            Poll::Pending => {
                self.core.spawn(Box::pin(async move {
                    drop(acquire.await);
                }));
                None
            }
        }
    }

    /// Acquires like [`acquire`](Pool::acquire), and blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Pool::acquire), and [`WouldBlockExecutor`](AcquireError::WouldBlockExecutor) in an
    /// executor's task, where blocking would stop other tasks. It works under a guard of Tokio's
    /// `Handle::enter`, in `spawn_blocking` and in `block_in_place`.
    #[track_caller]
    pub fn acquire_blocking(&self) -> Result<Lease<'_, M>, AcquireError<M::Error>> {
        self.lease_blocking(Location::caller(), self.core.config.acquire_timeout)
    }

    /// Acquires like [`acquire_blocking`](Pool::acquire_blocking), with a timeout or a call site of
    /// its own.
    ///
    /// # Errors
    ///
    /// As [`acquire_blocking`](Pool::acquire_blocking).
    #[track_caller]
    pub fn acquire_blocking_with(
        &self,
        options: AcquireOptions,
    ) -> Result<Lease<'_, M>, AcquireError<M::Error>> {
        let caller = options.call_site.unwrap_or(Location::caller());
        let timeout = options.timeout.or(self.core.config.acquire_timeout);
        self.lease_blocking(caller, timeout)
    }

    fn lease_blocking(
        &self,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
    ) -> Result<Lease<'_, M>, AcquireError<M::Error>> {
        if self.core.runtime.must_not_block() {
            return Err(AcquireError::WouldBlockExecutor);
        }
        block_on(
            &**self.core.runtime,
            timeout,
            self.core.acquire(caller, timeout),
        )
    }

    /// Creates the first `min` resources, one after another, until one fails.
    pub(crate) async fn warm_up(&self) -> Result<(), AcquireError<M::Error>> {
        let core = &self.core;
        loop {
            let place = core.locked(|locked| {
                let lacking = locked.state.total() < locked.state.min;
                // Meanwhile maintenance creates none.
                locked.state.warming = lacking;
                lacking.then(|| locked.begin_own_creation())
            });
            let Some(claim) = place else { break };
            let creation = Creation::new(core, claim, None);
            // A cancel here frees the slot.
            if let Err(failure) = creation.run().await {
                return Err(failure.into_error());
            }
        }
        core.locked(|locked| locked.restart_maintenance());
        Ok(())
    }

    /// Returns the current numbers of the pool.
    pub fn status(&self) -> Status {
        self.core.state().status(&self.core.slots)
    }

    /// Returns the counters of the pool.
    pub fn counters(&self) -> Counters {
        let mut counters = self.core.state().counters;
        counters.acquired = self.core.leases();
        counters
    }

    /// Returns how long acquires, creations and leases took since the pool was built, as histograms.
    pub fn timings(&self) -> Timings {
        self.core.histograms.snapshot(|| self.core.leases())
    }

    /// Returns the current leases, longest first.
    pub fn holders(&self) -> Vec<Holder> {
        self.core.holders(usize::MAX)
    }

    /// Returns the oldest acquires in the queue, `most` at most, oldest first. It reads them under the pool's lock.
    pub fn queued(&self, most: usize) -> Vec<QueuedAcquire> {
        let now = self.core.now();
        self.core.state().queued(most, now)
    }

    /// Returns the last failed creation, if none has succeeded since.
    pub fn last_creation_error(&self) -> Option<CreationError> {
        self.core.state().last_creation_error.clone()
    }

    /// Returns the settings that the pool was built with. [`status`](Pool::status) has the current minimum
    /// and maximum.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Returns the manager of the pool.
    pub fn manager(&self) -> &M {
        &self.core.manager
    }

    /// Returns the identity of the pool among all pools of the process.
    pub fn id(&self) -> PoolId {
        self.core.id
    }

    /// Starts a health check of the idle resources now, in the background, instead of at the end of the
    /// [interval](crate::Builder::healthcheck_interval). Does nothing in a pool without an interval.
    pub fn check_idle(&self) {
        if self.core.config.healthcheck_interval.is_some() && !self.core.is_inherited() {
            self.core.locked(|locked| {
                let now = locked.clock.now();
                locked.state.next_healthcheck = Some(now);
                locked.call_maintenance(now);
            });
        }
    }

    /// Changes the maximum. A larger one serves waiters at once. A smaller one destroys idle resources
    /// first, the others when they are released.
    ///
    /// # Errors
    ///
    /// `max` is 0, or less than `min`.
    pub fn resize(&self, max: usize) -> Result<(), ConfigError> {
        check_max(max)?;
        self.core.locked(|locked| {
            let min = locked.state.min;
            if max < min {
                let rule = format!("it cannot be less than min, which is {min}");
                return Err(wrong("max", max, rule));
            }
            locked.resize(max);
            Ok(())
        })
    }

    /// Changes the minimum. The pool creates missing resources in the background. Surplus resources stay
    /// until their idle timeout.
    ///
    /// # Errors
    ///
    /// `min` is more than the current maximum.
    pub fn set_min(&self, min: usize) -> Result<(), ConfigError> {
        self.core.locked(|locked| {
            check_min(min, locked.state.max)?;
            locked.state.min = min;
            locked.refill_later();
            Ok(())
        })
    }

    /// Changes the limit of the queue ([`max_waiting`](Builder::max_waiting)); `None` is no limit. Acquires
    /// that wait already continue to wait.
    pub fn set_max_waiting(&self, limit: Option<usize>) {
        self.core.state().max_waiting = limit.unwrap_or(usize::MAX);
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker(&self) -> BreakerState {
        self.core.state().breaker.state()
    }

    /// Closes the circuit breaker by hand: acquires are served.
    pub fn close_breaker(&self) {
        self.move_breaker(BreakerState::Closed);
    }

    /// Opens the circuit breaker by hand: all waiters fail with [`AcquireError::Unavailable`] at once, and
    /// no strategy closes the breaker again.
    pub fn open_breaker(&self) {
        self.move_breaker(BreakerState::Open);
    }

    /// Half-opens the circuit breaker by hand: it admits probes, or all acquires if there is no strategy.
    pub fn half_open_breaker(&self) {
        self.move_breaker(BreakerState::HalfOpen);
    }

    fn move_breaker(&self, to: BreakerState) {
        self.core.locked(|locked| locked.move_breaker(to, true));
    }

    /// Sets or removes the strategy of the circuit breaker. The breaker's state does not change.
    pub fn set_strategy(&self, strategy: Option<Arc<dyn Strategy>>) {
        self.core.set_strategy(strategy);
    }

    /// Calls `callback` for every event, on the thread where the event happens, outside every lock, until the
    /// subscription is dropped. While anybody listens, every acquire and release takes the pool's lock.
    pub fn on_event(&self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Subscription {
        self.subscribe(Wanted::All, Arc::new(callback))
    }

    /// Calls `callback` for every event except [`Event::Acquired`], [`Event::Released`] and [`Event::Waiting`], as
    /// [`on_event`](Pool::on_event) does. Acquires and releases cost no more than without it.
    pub fn on_rare_event(&self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Subscription {
        self.subscribe(Wanted::Rare, Arc::new(callback))
    }

    /// Returns the events from now on as a stream.
    pub fn events(&self) -> Events {
        let events = Events::new(|callback| self.subscribe(Wanted::All, callback));
        if self.core.state().drained {
            // No more events follow.
            events.end();
        }
        events
    }

    fn subscribe(
        &self,
        wanted: Wanted,
        callback: Arc<dyn Fn(&Event) + Send + Sync>,
    ) -> Subscription {
        let id = self.core.listeners.add(wanted, callback);
        self.core.note_listeners();
        let core: Arc<dyn Source> = self.core.clone();
        Subscription {
            source: Arc::downgrade(&core),
            id,
        }
    }

    /// Returns a handle that does not keep the pool open.
    pub fn downgrade(&self) -> WeakPool<M> {
        WeakPool {
            core: Arc::downgrade(&self.core),
        }
    }
}

impl<M: Manager> Clone for Pool<M> {
    fn clone(&self) -> Self {
        // Relaxed: this handle exists, so the count cannot reach zero meanwhile.
        self.core.handles.0.fetch_add(1, Ordering::Relaxed);
        Pool {
            core: Arc::clone(&self.core),
        }
    }
}

impl<M: Manager> Drop for Pool<M> {
    fn drop(&mut self) {
        // AcqRel: the drop that closes the pool sees all that was done through other handles.
        if self.core.handles.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.core.close());
        }
    }
}

impl<M: Manager> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.core.name())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// A handle that keeps a pool neither open nor alive.
pub struct WeakPool<M: Manager> {
    core: Weak<Core<M>>,
}

impl<M: Manager> WeakPool<M> {
    /// Returns the pool, if it still has a handle.
    pub fn upgrade(&self) -> Option<Pool<M>> {
        let core = self.core.upgrade()?;
        // Acquire pairs with the release of the last drop. The count never grows from zero, where the
        // pool is closed for good.
        core.handles
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |handles| {
                (handles > 0).then_some(handles + 1)
            })
            .ok()?;
        Some(Pool { core })
    }
}

impl<M: Manager> Clone for WeakPool<M> {
    fn clone(&self) -> Self {
        WeakPool {
            core: Weak::clone(&self.core),
        }
    }
}

impl<M: Manager> fmt::Debug for WeakPool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakPool").finish_non_exhaustive()
    }
}
