//! The handle: everything a user does with a pool.

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
use crate::observe::events::{Event, Events, Source, Subscription};
use crate::observe::histogram::Timings;
use crate::observe::status::{Counters, CreationError, Holder, Status};
use crate::runtime::block_on;

/// A pool of resources, shared by cloning.
///
/// Clones are handles to the same pool; when the last one is dropped the pool
/// closes. Leases keep it working, not open.
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

/// A pool made of closures by [`Pool::from_fn`], to write in a struct field.
pub type FnPool<R, E> = Pool<FnManager<R, E>>;

impl<R, E> Pool<FnManager<R, E>>
where
    R: Send + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    /// Starts a pool whose resources this closure makes. All other hooks are
    /// closures on the [`Builder`].
    pub fn from_fn<F, Fut>(create: F) -> Builder<FnManager<R, E>>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        Builder::new(FnManager::new(Box::new(move || Box::pin(create()))))
    }
}

impl<M: Manager> Pool<M> {
    /// Starts a pool over a [`Manager`].
    pub fn builder(manager: M) -> Builder<M> {
        Builder::new(manager)
    }

    /// Takes over the count of one handle, which every core is born with.
    pub(crate) fn from_core(core: Arc<Core<M>>) -> Self {
        Pool { core }
    }

    /// Acquires a resource: an idle one, a new one if there is room, or the one
    /// that comes back first; in the order of arrival.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue; what it was given
    /// already goes to the next. A creation that it started goes on and serves
    /// the queue. A resource that is in the acquire hook is destroyed.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]: closed, breaker open, out of time, or the creation it
    /// caused has failed.
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

    /// Acquires like [`acquire`](Pool::acquire) a lease that borrows nothing, so
    /// that it can be stored or sent away.
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

    /// Acquires without queueing: an idle resource, or a new one if there is
    /// room, or in place of an idle one that the acquire hook refused. `None` if the pool is exhausted, closed, backing off after a failed
    /// creation, or its breaker open.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Pool::acquire).
    ///
    /// # Errors
    ///
    /// The creation it caused has failed, or its acquire timeout passed meanwhile.
    #[track_caller]
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<Lease<'_, M>>, AcquireError<M::Error>>> + Send + '_
    {
        self.core
            .acquire(Location::caller(), self.core.config.acquire_timeout)
    }

    /// Takes an idle resource, if there is one, without waiting for anything. An
    /// acquire hook that does not answer at once goes on in the background, and
    /// this gives `None`.
    #[track_caller]
    pub fn try_acquire_idle(&self) -> Option<Lease<'_, M>> {
        let caller = Location::caller();
        let core = Arc::clone(&self.core);
        // Boxed, so that a hook that waits can go on elsewhere; it owns its
        // lease, so that it gives the resource back when it is done.
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

    /// Acquires like [`acquire`](Pool::acquire), and blocks the thread meanwhile.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Pool::acquire); and
    /// [`WouldBlockExecutor`](AcquireError::WouldBlockExecutor) in an executor's task, where
    /// blocking would stop other tasks. Under a guard of Tokio's `Handle::enter`, in `spawn_blocking` and
    /// in `block_in_place` it blocks.
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

    /// Makes the first `min` resources, one after another; stops at a failure.
    pub(crate) async fn warm_up(&self) -> Result<(), AcquireError<M::Error>> {
        let core = &self.core;
        loop {
            let place = core.locked(|locked| {
                let lacking = locked.state.total() < locked.state.min;
                // Until then the maintenance task makes none beside us.
                locked.state.warming = lacking;
                lacking.then(|| locked.begin_own_creation())
            });
            let Some(claim) = place else { break };
            let creation = Creation::new(core, claim, None);
            // A cancel here gives the place back.
            if let Err(failure) = creation.run().await {
                return Err(failure.into_error());
            }
        }
        core.locked(|locked| locked.restart_maintenance());
        Ok(())
    }

    /// What the pool holds now.
    pub fn status(&self) -> Status {
        self.core.state().status(&self.core.slots)
    }

    /// What the pool has done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.core.state().counters;
        counters.acquired = self.core.slots.iter().map(|(_, slot)| slot.uses()).sum();
        counters
    }

    /// How long things took; `None` unless the builder asked for
    /// [`histograms`](Builder::histograms).
    pub fn timings(&self) -> Option<Timings> {
        self.core.histograms.as_ref().map(|live| live.snapshot())
    }

    /// Who holds what, and since when, longest first.
    pub fn holders(&self) -> Vec<Holder> {
        self.core.holders(usize::MAX)
    }

    /// The last failed creation, if none has succeeded since.
    pub fn last_creation_error(&self) -> Option<CreationError> {
        self.core.state().last_creation_error.clone()
    }

    /// The settings it was built with. The present minimum and maximum are in
    /// [`status`](Pool::status).
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// The manager it was built with.
    pub fn manager(&self) -> &M {
        &self.core.manager
    }

    /// Names this pool among all pools of the process.
    pub fn id(&self) -> PoolId {
        self.core.id
    }

    /// Checks the idle resources now, in the background, instead of at the end of the
    /// [health check interval](crate::Builder::healthcheck_interval). In a pool without one nothing
    /// happens.
    pub fn check_idle(&self) {
        if self.core.config.healthcheck_interval.is_some() && !self.core.is_inherited() {
            self.core.locked(|locked| {
                let now = locked.clock.now();
                locked.state.next_healthcheck = Some(now);
                locked.call_maintenance(now);
            });
        }
    }

    /// Changes the maximum. Growing serves those who wait at once; shrinking
    /// destroys idle resources first, and the rest as it comes back.
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

    /// Changes the minimum. The pool makes what is missing in the background. What is more than a
    /// smaller minimum stays until its idle timeout.
    ///
    /// # Errors
    ///
    /// `min` is more than the present maximum.
    pub fn set_min(&self, min: usize) -> Result<(), ConfigError> {
        self.core.locked(|locked| {
            check_min(min, locked.state.max)?;
            locked.state.min = min;
            locked.refill_later();
            Ok(())
        })
    }

    /// Changes how many acquires may wait ([`max_waiting`](Builder::max_waiting)); `None` for
    /// no limit. Those who wait already go on waiting.
    pub fn set_max_waiting(&self, limit: Option<usize>) {
        self.core.state().max_waiting = limit.unwrap_or(usize::MAX);
    }

    /// The breaker's state.
    pub fn breaker(&self) -> BreakerState {
        self.core.state().breaker.state()
    }

    /// Closes the breaker by hand: business as usual.
    pub fn close_breaker(&self) {
        self.move_breaker(BreakerState::Closed);
    }

    /// Opens the breaker by hand: everybody who waits fails with
    /// [`AcquireError::Unavailable`] at once, and no strategy closes it again.
    pub fn open_breaker(&self) {
        self.move_breaker(BreakerState::Open);
    }

    /// Lets probes through by hand, or everybody if there is no strategy.
    pub fn half_open_breaker(&self) {
        self.move_breaker(BreakerState::HalfOpen);
    }

    fn move_breaker(&self, to: BreakerState) {
        self.core.locked(|locked| locked.move_breaker(to, true));
    }

    /// Sets the breaker's strategy, or takes it away. The state stays as it is.
    pub fn set_strategy(&self, strategy: Option<Arc<dyn Strategy>>) {
        self.core.set_strategy(strategy);
    }

    /// Calls back for every event, on the thread where it happens, outside every
    /// lock, until the subscription is dropped. While anybody listens, every
    /// acquire and release comes by the pool's lock.
    pub fn on_event(&self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Subscription {
        self.subscribe(Arc::new(callback))
    }

    /// The events from now on, as a stream.
    pub fn events(&self) -> Events {
        let events = Events::new(|callback| self.subscribe(callback));
        if self.core.state().drained {
            // There is nothing more to come.
            events.end();
        }
        events
    }

    fn subscribe(&self, callback: Arc<dyn Fn(&Event) + Send + Sync>) -> Subscription {
        let id = self.core.listeners.add(callback);
        self.core.note_listeners();
        let core: Arc<dyn Source> = self.core.clone();
        Subscription {
            source: Arc::downgrade(&core),
            id,
        }
    }

    /// A handle that does not keep the pool open.
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
        // AcqRel: the one that closes sees all that was done through the others.
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

/// A handle that neither keeps a pool open nor alive.
pub struct WeakPool<M: Manager> {
    core: Weak<Core<M>>,
}

impl<M: Manager> WeakPool<M> {
    /// The pool, if any handle to it is left.
    pub fn upgrade(&self) -> Option<Pool<M>> {
        let core = self.core.upgrade()?;
        // Acquire pairs with the release of the last drop; never up from zero,
        // where the pool is closed for good.
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
