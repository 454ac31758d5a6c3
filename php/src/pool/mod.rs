//! `Async\Pool`: a [`cenote_pool::Pool`] whose hooks are PHP code.

mod bound;
mod manager;

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cenote_pool::{
    AcquireError, AcquireOptions, BreakerState, DestroyError, Lease, OpenError, OwnedLease, Phase,
    Pool,
};

use crate::api::{answer, borrow, guarded};
use crate::engine::{
    self, Call, Class, Exception, ExceptionClass, Gc, Object, RawCall, Status, Value, ZendObject,
    Zval,
};
use crate::pool::manager::{Key, PhpManager, PhpRuntime, PhpStrategy, Thrown};
use crate::scheduler::{Interrupt, block_on, scheduler};
use crate::timer::{Sleep, now};

/// A hook may take as long as it likes: PHP code has its own time limits.
const CLEANUP_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Default)]
pub(crate) struct Hooks {
    /// `None` for the pool of a PDO handle.
    pub(crate) factory: Option<Call>,
    pub(crate) destructor: Option<Call>,
    pub(crate) healthcheck: Option<Call>,
    pub(crate) before_acquire: Option<Call>,
    pub(crate) before_release: Option<Call>,
}

#[derive(Default)]
struct Table {
    values: Vec<Option<Value>>,
    free: Vec<usize>,
}

/// The Rust value of an `Async\Pool` object.
pub(crate) struct PhpPool {
    pub(crate) hooks: Hooks,
    pool: OnceCell<Pool<PhpManager>>,
    /// All resources, so that the garbage collector sees the idle ones.
    table: RefCell<Table>,
    leases: RefCell<Vec<OwnedLease<PhpManager>>>,
    strategy: RefCell<Option<Object>>,
    /// What a destructor threw in the call that runs now: that call throws it.
    destroy_error: RefCell<Option<Exception>>,
    /// What a hook threw last, for the strategy.
    refusal: RefCell<Option<Exception>>,
    reporting: Cell<bool>,
    wants_open: Cell<bool>,
    /// The PHP object. Not owned: it owns this.
    object: Cell<*mut ZendObject>,
    /// The handle whose pool this shows: PDO itself hands its connections out.
    view: Option<cenote::Db>,
}

impl PhpPool {
    // ---- for the hooks ---------------------------------------------------------

    pub(crate) fn insert(&self, value: Value) -> Key {
        let mut table = self.table.borrow_mut();
        match table.free.pop() {
            Some(index) => {
                table.values[index] = Some(value);
                Key(index)
            }
            None => {
                table.values.push(Some(value));
                Key(table.values.len() - 1)
            }
        }
    }

    pub(crate) fn remove(&self, key: Key) -> Option<Value> {
        let mut table = self.table.borrow_mut();
        let value = table.values.get_mut(key.0)?.take()?;
        table.free.push(key.0);
        Some(value)
    }

    pub(crate) fn resource(&self, key: Key) -> Option<Value> {
        let table = self.table.borrow();
        let value = table.values.get(key.0)?.as_ref()?;
        Some(Value::copy_of(value.raw()))
    }

    pub(crate) fn strategy(&self) -> Option<Object> {
        self.strategy.borrow().clone()
    }

    pub(crate) fn object(&self) -> Option<Object> {
        NonNull::new(self.object.get()).map(Object::copy_of)
    }

    pub(crate) fn note_refusal(&self, exception: Exception) {
        let old = self.refusal.replace(Some(exception));
        drop(old);
    }

    pub(crate) fn take_refusal(&self) -> Option<Exception> {
        self.refusal.borrow_mut().take()
    }

    /// Keeps what a destructor threw for the call that waits for it; if none does,
    /// it goes to the error log.
    pub(crate) fn note_destroy_error(&self, exception: &Exception, is_waited_for: bool) {
        if is_waited_for {
            let first = self.destroy_error.borrow().is_none();
            if first {
                *self.destroy_error.borrow_mut() = Some(exception.clone());
            }
        } else {
            exception.log("a hook of an Async\\Pool threw in the background");
        }
    }

    pub(crate) fn destroy_error(&self) -> Option<Exception> {
        self.destroy_error.borrow().clone()
    }

    pub(crate) fn begin_report(&self) {
        self.reporting.set(true);
        self.wants_open.set(false);
    }

    pub(crate) fn end_report(&self) -> bool {
        self.reporting.set(false);
        self.wants_open.get()
    }

    // ---- for PHP -----------------------------------------------------------------

    /// Returns an object that shows the pool of a PDO handle.
    pub(crate) fn view(db: cenote::Db) -> Object {
        let pool = Rc::new(PhpPool {
            hooks: Hooks::default(),
            pool: OnceCell::new(),
            table: RefCell::default(),
            leases: RefCell::default(),
            strategy: RefCell::new(None),
            destroy_error: RefCell::new(None),
            refusal: RefCell::new(None),
            reporting: Cell::new(false),
            wants_open: Cell::new(false),
            object: Cell::new(std::ptr::null_mut()),
            view: Some(db),
        });
        let data = Rc::into_raw(Rc::clone(&pool)).cast_mut().cast();
        let object = Object::new(Class::Pool, data);
        pool.object.set(object.as_ptr());
        object
    }

    /// Refuses what only the owner of a pool may do.
    fn check_own(&self) -> Result<(), Interrupt> {
        match self.view {
            None => Ok(()),
            Some(_) => Err(Interrupt::Throw(Exception::new(
                ExceptionClass::Pool,
                "the pool belongs to a PDO handle, which hands its connections out itself; close it by \
                 dropping the handle",
                None,
            ))),
        }
    }

    fn status(&self) -> cenote_pool::Status {
        match &self.view {
            Some(db) => db.status(),
            None => self.pool().status(),
        }
    }

    fn is_closed(&self) -> bool {
        match &self.view {
            Some(db) => db.pool().is_none_or(Pool::is_closed),
            None => self.pool().is_closed(),
        }
    }

    fn breaker(&self) -> BreakerState {
        match &self.view {
            Some(db) => db.pool().map_or(BreakerState::Closed, Pool::breaker),
            None => self.pool().breaker(),
        }
    }

    fn pool(&self) -> &Pool<PhpManager> {
        self.pool.get().expect("the constructor has set it")
    }

    /// Runs an operation to its end, and throws what a destructor threw meanwhile.
    fn finish<T>(&self, result: Result<T, Interrupt>) -> Result<T, Interrupt> {
        // The next call must not throw it.
        let thrown = self.destroy_error.borrow_mut().take();
        let scheduler = scheduler();
        let result = result?;
        scheduler.check_stop()?;
        match thrown {
            Some(exception) => {
                drop(result);
                Err(Interrupt::Throw(exception))
            }
            None => Ok(result),
        }
    }

    fn acquire(&self, timeout: Duration) -> Result<Value, Interrupt> {
        self.check_own()?;
        let pool = self.pool();
        let acquired = match timeout.is_zero() {
            true => block_on(pool.acquire_owned()),
            false => block_on(Timed::new(pool, timeout)),
        };
        let lease = match self.finish(acquired)? {
            Ok(lease) => lease,
            Err(error) => return Err(Interrupt::Throw(exception_of(error))),
        };
        self.hand_out(lease)
    }

    fn try_acquire(&self) -> Result<Value, Interrupt> {
        self.check_own()?;
        let pool = self.pool();
        let acquired = block_on(async {
            let lease = pool.try_acquire().await?;
            Ok(lease.map(Lease::into_owned))
        });
        match self.finish(acquired)? {
            Ok(Some(lease)) => self.hand_out(lease),
            Ok(None) => Ok(Value::null()),
            Err(error) => Err(Interrupt::Throw(exception_of(error))),
        }
    }

    fn hand_out(&self, lease: OwnedLease<PhpManager>) -> Result<Value, Interrupt> {
        let value = self
            .resource(*lease)
            .expect("a leased resource is in the table");
        self.leases.borrow_mut().push(lease);
        Ok(value)
    }

    /// Finds the lease of a resource: of this object, or of a value that is identical.
    fn take_lease(&self, resource: &Zval) -> Option<OwnedLease<PhpManager>> {
        let mut leases = self.leases.borrow_mut();
        let table = self.table.borrow();
        let value = |lease: &OwnedLease<PhpManager>| table.values.get(lease.0)?.as_ref();
        let index = match resource.object() {
            Some(object) => leases.iter().rposition(|lease| {
                value(lease).is_some_and(|value| value.raw().object() == Some(object))
            }),
            None => leases
                .iter()
                .rposition(|lease| value(lease).is_some_and(|value| value.is_identical(resource))),
        };
        index.map(|index| leases.swap_remove(index))
    }

    fn release(&self, resource: &Zval) -> Result<(), Interrupt> {
        self.check_own()?;
        let Some(lease) = self.take_lease(resource) else {
            return Err(Interrupt::Throw(Exception::new(
                ExceptionClass::Pool,
                "the resource is not in use: it belongs to another pool, was changed, or was released \
                 already",
                None,
            )));
        };
        if self.hooks.before_release.is_none() {
            drop(lease);
            return self.finish(Ok(()));
        }
        let released = block_on(OwnedLease::release(lease));
        self.finish(released)
    }

    fn close(&self) -> Result<(), Interrupt> {
        self.check_own()?;
        let closed = block_on(self.pool().close());
        let closed = self.finish(closed.map(Result::err))?;
        let Some(error) = closed else { return Ok(()) };
        match error.errors.into_iter().next() {
            Some(DestroyError::Failed(thrown)) => Err(Interrupt::Throw(thrown.exception().clone())),
            Some(other) => Err(Interrupt::Throw(Exception::new(
                ExceptionClass::Pool,
                &other.to_string(),
                None,
            ))),
            None => Ok(()),
        }
    }

    fn move_breaker(&self, state: i32) -> Result<(), Interrupt> {
        self.check_own()?;
        match state {
            0 => self.pool().close_breaker(),
            1 if self.reporting.get() => self.wants_open.set(true),
            1 => self.pool().open_breaker(),
            _ => self.pool().half_open_breaker(),
        }
        self.finish(Ok(()))
    }

    fn set_strategy(self: &Rc<Self>, strategy: Option<Object>) {
        let is_set = strategy.is_some();
        let old = self.strategy.replace(strategy);
        let strategy: Option<Arc<dyn cenote_pool::Strategy>> = match is_set {
            true => Some(Arc::new(PhpStrategy::new(Rc::downgrade(self)))),
            false => None,
        };
        self.pool().set_strategy(strategy);
        drop(old);
    }

    /// PHP frees the object. Resources in use stay with those who use them.
    pub(crate) fn free(pool: Rc<Self>) {
        pool.object.set(std::ptr::null_mut());
        for lease in pool.leases.take() {
            let (key, place) = OwnedLease::detach(lease);
            let value = pool.remove(key);
            drop((place, value));
        }
        drop(pool);
    }

    pub(crate) fn report_to_gc(&self, gc: &Gc) {
        let hooks = &self.hooks;
        let optional = [
            &hooks.factory,
            &hooks.destructor,
            &hooks.healthcheck,
            &hooks.before_acquire,
            &hooks.before_release,
        ];
        for call in optional.into_iter().flatten() {
            gc.call(call);
        }
        for value in self.table.borrow().values.iter().flatten() {
            gc.value(value);
        }
        if let Some(strategy) = &*self.strategy.borrow() {
            gc.object(strategy);
        }
    }
}

/// An acquire with a timeout. The timer shows the scheduler that the program waits for something.
struct Timed<'p> {
    acquire: Pin<Box<dyn Future<Output = Acquired> + 'p>>,
    timer: Pin<Box<Sleep>>,
}

type Acquired = Result<OwnedLease<PhpManager>, AcquireError<Thrown>>;

impl<'p> Timed<'p> {
    fn new(pool: &'p Pool<PhpManager>, timeout: Duration) -> Self {
        let options = AcquireOptions::new().timeout(timeout);
        let acquire = pool.acquire_with(options);
        let until = now() + timeout + Duration::from_millis(5);
        Timed {
            acquire: Box::pin(async move { acquire.await.map(Lease::into_owned) }),
            timer: Box::pin(Sleep::new(until, true)),
        }
    }
}

impl Future for Timed<'_> {
    type Output = Acquired;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Acquired> {
        let polled = self.acquire.as_mut().poll(cx);
        if polled.is_pending() {
            let _ = self.timer.as_mut().poll(cx);
        }
        polled
    }
}

/// Returns the exception for a failed acquire.
fn exception_of(error: AcquireError<Thrown>) -> Exception {
    let (class, text) = match error {
        AcquireError::Create(thrown) => return thrown.exception().clone(),
        AcquireError::Closed => (ExceptionClass::Pool, "Pool is closed".to_owned()),
        AcquireError::Unavailable(_) => (
            ExceptionClass::Unavailable,
            "Service is unavailable (circuit breaker is open)".to_owned(),
        ),
        AcquireError::Timeout(timeout) => {
            let doing = match timeout.phase {
                Phase::Creating => "creating a resource",
                Phase::Checking => "checking a resource",
                _ => "waiting for a resource",
            };
            let status = timeout.status;
            let text = format!(
                "timed out after {} ms {doing} ({} of {} in use, {} waiting)",
                timeout.waited.as_millis(),
                status.active,
                status.max,
                status.waiting
            );
            (ExceptionClass::Timeout, text)
        }
        AcquireError::Forked => (
            ExceptionClass::Pool,
            "the pool belongs to the parent process; create another one after the fork".to_owned(),
        ),
        other => (ExceptionClass::Pool, other.to_string()),
    };
    Exception::new(class, &text, None)
}

// ---- what C calls ------------------------------------------------------------------

/// The arguments of the constructor; see `cen_pool_options`.
#[repr(C)]
struct Options {
    factory: *mut RawCall,
    destructor: *mut RawCall,
    healthcheck: *mut RawCall,
    before_acquire: *mut RawCall,
    before_release: *mut RawCall,
    min: i64,
    max: i64,
    healthcheck_interval: i64,
}

fn finish_with(result: Result<Value, Interrupt>, to: &mut Zval) -> Status {
    match result {
        Ok(value) => {
            value.write_to(to);
            Status::Ok
        }
        Err(interrupt) => interrupt.raise(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cenote_pool_new(object: NonNull<ZendObject>, options: &Options) -> Status {
    guarded(|| {
        let pool = Rc::new(PhpPool {
            hooks: Hooks {
                factory: Call::from_raw(options.factory),
                destructor: Call::from_raw(options.destructor),
                healthcheck: Call::from_raw(options.healthcheck),
                before_acquire: Call::from_raw(options.before_acquire),
                before_release: Call::from_raw(options.before_release),
            },
            pool: OnceCell::new(),
            table: RefCell::default(),
            leases: RefCell::default(),
            strategy: RefCell::new(None),
            destroy_error: RefCell::new(None),
            refusal: RefCell::new(None),
            reporting: Cell::new(false),
            wants_open: Cell::new(false),
            object: Cell::new(object.as_ptr()),
            view: None,
        });
        let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let manager = PhpManager::new(Rc::downgrade(&pool));
        let mut builder = Pool::builder(manager)
            .runtime(PhpRuntime)
            .min(size(options.min))
            .max(size(options.max))
            .no_backoff()
            .no_create_timeout()
            .cleanup_timeout(CLEANUP_LIMIT)
            .no_slow_acquire_warning();
        if pool.hooks.healthcheck.is_some() && options.healthcheck_interval > 0 {
            let interval = Duration::from_millis(options.healthcheck_interval.unsigned_abs());
            builder = builder.healthcheck_interval(interval);
        }
        // Only a pool with a minimum has anything to wait for.
        let opened = match options.min {
            0 => Ok(builder.build().map_err(OpenError::Config)),
            _ => block_on(builder.open()),
        };
        let opened = match pool.finish(opened) {
            Ok(opened) => opened,
            Err(interrupt) => return interrupt.raise(),
        };
        match opened {
            Ok(opened) => {
                let set = pool.pool.set(opened);
                debug_assert!(set.is_ok(), "the cell was empty");
                engine::set_object_data(object, Rc::into_raw(pool).cast_mut().cast());
                Status::Ok
            }
            Err(OpenError::Warmup(error)) => exception_of(error).throw(),
            Err(error) => engine::throw(ExceptionClass::ValueError, &error.to_string()),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_acquire(data: *mut c_void, timeout: i64, to: &mut Zval) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        let pool = unsafe { borrow::<PhpPool>(data) };
        let timeout = Duration::from_millis(timeout.unsigned_abs());
        finish_with(pool.acquire(timeout), to)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_try_acquire(data: *mut c_void, to: &mut Zval) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        let pool = unsafe { borrow::<PhpPool>(data) };
        finish_with(pool.try_acquire(), to)
    })
}

fn status(result: Result<(), Interrupt>) -> Status {
    result.map_or_else(Interrupt::raise, |()| Status::Ok)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_release(data: *mut c_void, resource: &Zval) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        status(unsafe { borrow::<PhpPool>(data) }.release(resource))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_close(data: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        status(unsafe { borrow::<PhpPool>(data) }.close())
    })
}

/// PHP destroys the object: the pool closes. An exception that is being thrown stays the one.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_destruct(data: *mut c_void) {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        let pool = unsafe { borrow::<PhpPool>(data) };
        match pool.view {
            Some(_) => Status::Ok,
            None => engine::with_exception_aside(|| status(pool.close())),
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_is_closed(data: *mut c_void) -> bool {
    answer(true, || {
        // SAFETY: C passes the value of a pool's object.
        unsafe { borrow::<PhpPool>(data) }.is_closed()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_counts(data: *mut c_void, total: &mut i64, idle: &mut i64) {
    answer((), || {
        // SAFETY: C passes the value of a pool's object.
        let status = unsafe { borrow::<PhpPool>(data) }.status();
        *total = i64::try_from(status.total).unwrap_or(i64::MAX);
        *idle = i64::try_from(status.idle).unwrap_or(i64::MAX);
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_state(data: *mut c_void) -> i32 {
    answer(0, || {
        // SAFETY: C passes the value of a pool's object.
        match unsafe { borrow::<PhpPool>(data) }.breaker() {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            _ => 2,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_move(data: *mut c_void, state: i32) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a pool's object.
        status(unsafe { borrow::<PhpPool>(data) }.move_breaker(state))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_pool_set_strategy(data: *mut c_void, strategy: *const Zval) {
    answer((), || {
        let data = data.cast::<PhpPool>().cast_const();
        // SAFETY: C passes the value of a pool's object, which holds a reference.
        unsafe { Rc::increment_strong_count(data) };
        // SAFETY: the count was raised for this one.
        let pool = unsafe { Rc::from_raw(data) };
        // SAFETY: C passes a value or null.
        let strategy = unsafe { strategy.as_ref() }.and_then(Zval::object);
        match pool.check_own() {
            Ok(()) => pool.set_strategy(strategy.map(Object::copy_of)),
            Err(interrupt) => drop(interrupt.raise()),
        }
    });
}
