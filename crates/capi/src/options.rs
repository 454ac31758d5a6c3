//! The options of a pool, and how structs that may grow are read and written.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rust_pool::{Builder, Order};

use crate::breaker::{CStrategy, NO_STRATEGY, cenote_strategy};
use crate::callbacks::{
    Callbacks, Resource, cenote_create_fn, cenote_dispose_fn, cenote_permanent_fn,
    cenote_resource_fn,
};
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_ERR_CONFIG, CENOTE_OK, Fault, boundary, rust_text};
use crate::handle::Handle;
use crate::host::{Host, HostRuntime, cenote_runtime};

/// The resource that this thread used last, if it is idle; otherwise the one whose last lease
/// began first. The fastest order, and the default.
pub const CENOTE_ORDER_AFFINE: u32 = 0;
/// The resource that was released first: spreads the load evenly.
pub const CENOTE_ORDER_FIFO: u32 = 1;
/// The resource that was released last: the others reach their idle timeout, so the pool can
/// shrink.
pub const CENOTE_ORDER_LIFO: u32 = 2;

/// The options of a pool. Call cenote_options_init first, which sets every default, then change
/// what you need. The struct and what it points to are copied, except `data`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_options {
    /// sizeof(cenote_options), set by cenote_options_init.
    pub size: usize,
    /// A name for messages. NULL: none.
    pub name: *const c_char,
    /// Passed to the callbacks below. Without a host, callbacks may run on several threads at
    /// once, each for another resource.
    pub data: *mut c_void,
    /// Creates a resource. The only required callback.
    pub create: cenote_create_fn,
    /// Destroys a resource that leaves the pool. cenote_pool_close returns its failure; otherwise
    /// an event reports it. NULL: nothing to do.
    pub destroy: cenote_resource_fn,
    /// Checks an idle resource every healthcheck_interval_ms. The pool destroys a rejected
    /// resource and refills up to `min`. NULL: no check.
    pub healthcheck: cenote_resource_fn,
    /// Checks an idle resource, not a new one, before an acquire gets it. The pool destroys a
    /// rejected resource, and the acquire continues with the next. NULL: no check.
    pub before_acquire: cenote_resource_fn,
    /// Checks a resource that is released. The pool destroys a rejected resource, and the breaker
    /// counts a failure. Must not block for long. NULL: no check.
    pub before_release: cenote_resource_fn,
    /// Called once with `data` when the pool no longer uses it: no reference, lease or waiter is
    /// left. Only if cenote_pool_new succeeded. NULL: no call.
    pub dispose: cenote_dispose_fn,
    /// The minimum number of resources: cenote_pool_new creates them, and the pool refills in the
    /// background. Default: 0. At most `max`.
    pub min: usize,
    /// The maximum number of resources. Default: 10. At least 1.
    pub max: usize,
    /// Which idle resource an acquire gets: one of CENOTE_ORDER_*.
    pub order: u32,
    /// How many creations may run at once. Default: 0, limited only by `max`.
    pub concurrent_creations: u32,
    /// The interval of the healthcheck, in milliseconds. Default: 0, never.
    pub healthcheck_interval_ms: u64,
    /// The time after which the pool destroys an idle resource, down to `min` resources, in
    /// milliseconds. The actual time is up to a quarter longer. Default: 0, no limit.
    pub idle_timeout_ms: u64,
    /// The lifetime of a resource, in milliseconds, plus or minus the jitter. The actual time is up
    /// to a quarter longer, and a leased resource stays until its release. Default: 0, no limit.
    pub max_lifetime_ms: u64,
    /// The jitter of lifetimes, as a fraction up or down. Default: 0.1. At least 0.0, below 1.0.
    pub lifetime_jitter: f64,
    /// The back-off after a failed creation, in milliseconds; it doubles up to
    /// backoff_longest_ms. During the back-off acquires queue, and cenote_try_acquire returns
    /// CENOTE_EMPTY unless a resource is idle. Default: 100. 0: none.
    pub backoff_first_ms: u64,
    /// The longest back-off, in milliseconds. Default: 5000.
    pub backoff_longest_ms: u64,
    /// The age in milliseconds at which an event reports a lease, once. Default: 0, off.
    pub leak_warning_ms: u64,
    /// The host's event loop. NULL: one background thread of this library, which all pools
    /// without a host share.
    pub runtime: *const cenote_runtime,
    /// The strategy of the circuit breaker. NULL: none, only your calls change its state.
    pub strategy: *const cenote_strategy,
    /// How many acquires may wait in the queue; a further one fails with CENOTE_ERR_QUEUE_FULL.
    /// With 0 no acquire queues. Default: SIZE_MAX, no limit.
    pub max_waiting: usize,
    /// How long an acquire waits for the host's thread to run before_acquire, in milliseconds,
    /// before it continues with another resource. A running callback is not interrupted.
    /// Default: 0, until the acquire times out.
    pub before_acquire_timeout_ms: u64,
    /// Whether an acquire with a time limit retries a failed creation after the back-off. 0 or 1.
    /// Default: 0.
    pub retry_creations: u32,
    /// Reserved; set to 0.
    pub reserved: u32,
    /// Returns whether a code of create is permanent, so that an acquire does not retry: for example
    /// a refused login, whose retries would lock the account. NULL: no code is.
    pub is_permanent: cenote_permanent_fn,
}

const DEFAULTS: cenote_options = cenote_options {
    size: mem::size_of::<cenote_options>(),
    name: std::ptr::null(),
    data: std::ptr::null_mut(),
    create: None,
    destroy: None,
    healthcheck: None,
    before_acquire: None,
    before_release: None,
    dispose: None,
    min: 0,
    max: 10,
    order: CENOTE_ORDER_AFFINE,
    concurrent_creations: 0,
    healthcheck_interval_ms: 0,
    idle_timeout_ms: 0,
    max_lifetime_ms: 0,
    lifetime_jitter: 0.1,
    backoff_first_ms: 100,
    backoff_longest_ms: 5000,
    leak_warning_ms: 0,
    runtime: std::ptr::null(),
    strategy: std::ptr::null(),
    max_waiting: usize::MAX,
    before_acquire_timeout_ms: 0,
    retry_creations: 0,
    reserved: 0,
    is_permanent: None,
};

/// The default of every option.
pub(crate) fn defaults() -> cenote_options {
    DEFAULTS
}

/// Sets every option to its default. `size` is your sizeof(cenote_options): so the struct can
/// grow in later versions without recompiling your program.
///
/// Returns CENOTE_OK or CENOTE_ERR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_options_init(options: *mut cenote_options, size: usize) -> c_int {
    boundary(|| {
        let mut defaults = DEFAULTS;
        defaults.size = size;
        // SAFETY: NULL, or C's promise that so many bytes may be written.
        unsafe { write_sized(options, "options", size, defaults) }?;
        Ok(CENOTE_OK)
    })
}

/// Reads a struct whose first field is the caller's size of it. Fields beyond the caller's size
/// keep their defaults; bytes beyond our size must be zero.
///
/// # Safety
///
/// `from` is NULL, or points to as many bytes as its first field says.
pub(crate) unsafe fn read_sized<T: Copy>(
    from: *const T,
    name: &str,
    defaults: T,
) -> Result<T, Fault> {
    if from.is_null() {
        return Err(Fault::null(name));
    }
    // SAFETY: not NULL; every such struct begins with its size.
    let size = unsafe { from.cast::<usize>().read() };
    check_size::<T>(name, size)?;
    let mut read = defaults;
    let ours = mem::size_of::<T>();
    let bytes = from.cast::<u8>();
    // SAFETY: both have at least so many bytes. Every field of these structs is a number
    // or a pointer that may be null, so any bytes are a value.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut read).cast::<u8>(), ours) };
    for at in ours..size {
        // SAFETY: within what the caller says there is.
        let byte = unsafe { bytes.add(at) };
        // SAFETY: as above.
        if unsafe { byte.read() } != 0 {
            let text =
                format!("{name} sets options that this version of the library does not have");
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        }
    }
    Ok(read)
}

/// Writes as many bytes of a struct as the caller's size allows; zeroes the caller's other bytes.
///
/// # Safety
///
/// `to` is NULL, or `size` bytes there are writable.
pub(crate) unsafe fn write_sized<T: Copy>(
    to: *mut T,
    name: &str,
    size: usize,
    value: T,
) -> Result<(), Fault> {
    if to.is_null() {
        return Err(Fault::null(name));
    }
    check_size::<T>(name, size)?;
    // SAFETY: the caller's promise on the size.
    unsafe { std::ptr::write_bytes(to.cast::<u8>(), 0, size) };
    let ours = mem::size_of::<T>();
    let value = (&raw const value).cast::<u8>();
    // SAFETY: at least so many bytes are there, see `check_size`.
    unsafe { std::ptr::copy_nonoverlapping(value, to.cast::<u8>(), ours) };
    Ok(())
}

/// Checks the caller's size. This is the first version, so no caller has a smaller struct. (The
/// next version must accept the sizes of this one.) A far larger size is an error.
fn check_size<T>(name: &str, size: usize) -> Result<(), Fault> {
    let ours = mem::size_of::<T>();
    if (ours..=ours + 4096).contains(&size) {
        return Ok(());
    }
    let text = format!(
        "the size of {name} is {size}, but the struct has at least {ours} bytes: set it to its sizeof"
    );
    Err(Fault::new(CENOTE_ERR_ARGUMENT, text))
}

impl cenote_options {
    /// Returns the host, if there is one.
    ///
    /// # Safety
    ///
    /// `runtime` is NULL or valid.
    pub(crate) unsafe fn host(&self) -> Result<Option<Arc<Host>>, Fault> {
        const NOTHING: cenote_runtime = cenote_runtime {
            size: mem::size_of::<cenote_runtime>(),
            data: std::ptr::null_mut(),
            now: None,
            timer: None,
            post: None,
            on_thread: None,
        };
        if self.runtime.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        let table = unsafe { read_sized(self.runtime, "runtime", NOTHING) }?;
        if table.timer.is_none() {
            return Err(Fault::null("runtime->timer"));
        }
        if table.post.is_none() {
            return Err(Fault::null("runtime->post"));
        }
        Ok(Some(Host::new(table)))
    }

    /// Returns the strategy, if there is one.
    ///
    /// # Safety
    ///
    /// `strategy` is NULL or valid.
    pub(crate) unsafe fn strategy(&self) -> Result<Option<cenote_strategy>, Fault> {
        if self.strategy.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { read_sized(self.strategy, "strategy", NO_STRATEGY) }.map(Some)
    }

    /// Applies all options to a builder.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a text.
    pub(crate) unsafe fn apply(
        &self,
        mut builder: Builder<Callbacks>,
        host: Option<&Arc<Host>>,
    ) -> Result<Builder<Callbacks>, Fault> {
        let order = match self.order {
            CENOTE_ORDER_AFFINE => Order::Affine,
            CENOTE_ORDER_FIFO => Order::Fifo,
            CENOTE_ORDER_LIFO => Order::Lifo,
            order => {
                let text = format!("order is {order}, but it must be one of CENOTE_ORDER_*");
                return Err(Fault::new(CENOTE_ERR_CONFIG, text));
            }
        };
        builder = builder
            .min(self.min)
            .max(self.max)
            .order(order)
            .lifetime_jitter(self.lifetime_jitter)
            .no_slow_acquire_warning();
        // SAFETY: the caller's promise.
        if let Some(name) = unsafe { rust_text(self.name) } {
            builder = builder.name(name);
        }
        if self.concurrent_creations > 0 {
            let limit = usize::try_from(self.concurrent_creations).unwrap_or(usize::MAX);
            builder = builder.concurrent_creations(limit);
        }
        if self.max_waiting < usize::MAX {
            builder = builder.max_waiting(self.max_waiting);
        }
        if let Some(timeout) = time(self.before_acquire_timeout_ms) {
            builder = builder.before_acquire_timeout(timeout);
        }
        match self.retry_creations {
            0 => {}
            1 => builder = builder.retry_creations(),
            other => {
                let text = format!("retry_creations is {other}, but it must be 0 or 1");
                return Err(Fault::new(CENOTE_ERR_CONFIG, text));
            }
        }
        if let Some(interval) = time(self.healthcheck_interval_ms) {
            builder = builder.healthcheck_interval(interval);
        }
        if let Some(timeout) = time(self.idle_timeout_ms) {
            builder = builder.idle_timeout(timeout);
        }
        if let Some(lifetime) = time(self.max_lifetime_ms) {
            builder = builder.max_lifetime(lifetime);
        }
        if let Some(after) = time(self.leak_warning_ms) {
            builder = builder.leak_warning(after);
        }
        builder = match time(self.backoff_first_ms) {
            Some(first) => builder.backoff(first, Duration::from_millis(self.backoff_longest_ms)),
            None => builder.no_backoff(),
        };
        Ok(match host {
            Some(host) => builder.runtime(HostRuntime(Arc::clone(host))),
            None => {
                let builder = builder.runtime(rust_pool::ThreadRuntime::new());
                match self.before_release {
                    None => builder,
                    // Replaces the manager's method, because a closure can report why.
                    Some(_) => {
                        builder.before_release(|resource: &mut Resource| resource.before_release())
                    }
                }
            }
        })
    }
}

/// The strategy of a new pool.
pub(crate) fn strategy_of(
    table: cenote_strategy,
    handle: Handle,
    host: Option<&Arc<Host>>,
) -> CStrategy {
    CStrategy {
        table,
        handle,
        host: host.cloned(),
    }
}

fn time(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}
