//! Creates, shares, resizes and closes pools.

use std::ffi::{c_int, c_void};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rust_pool::{CloseError, DestroyError, OpenError, Pool};

use crate::acquire::{elsewhere, limit, wait};
use crate::body::Body;
use crate::callbacks::{CallbackError, Callbacks, Table, UserData};
use crate::error::{
    CENOTE_ERR_CONFIG, CENOTE_ERR_DESTROY, CENOTE_ERR_IN_USE, CENOTE_ERR_WOULD_BLOCK, CENOTE_OK,
    Fault, boundary,
};
use crate::handle::{self, cenote_pool};
use crate::options::{cenote_options, defaults, read_sized, strategy_of};

/// Called with a resource.
pub type cenote_visit_fn = Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void)>;

/// Creates a pool with its first `min` resources, one after another, and writes its handle,
/// which counts as one reference. If a creation fails, the resources created so far are
/// destroyed, and there is no pool.
///
/// Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_CONFIG, whose text names the
/// option and its value, CENOTE_ERR_CREATE, or CENOTE_ERR_CANCELLED if the host's
/// event loop accepts no more work. After an error `pool` is NULL, and `dispose` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_new(
    options: *const cenote_options,
    pool: *mut *mut cenote_pool,
) -> c_int {
    boundary(|| {
        if pool.is_null() {
            return Err(Fault::null("pool"));
        }
        // SAFETY: not NULL, and C's promise that it may be written.
        unsafe { pool.write(std::ptr::null_mut()) };
        // SAFETY: NULL, or C's promise on its size.
        let options = unsafe { read_sized(options, "options", defaults()) }?;
        // SAFETY: C's promise that what the options point to is valid.
        let made = unsafe { make(&options) }?;
        // SAFETY: as above.
        unsafe { pool.write(made) };
        Ok(CENOTE_OK)
    })
}

unsafe fn make(options: &cenote_options) -> Result<*mut cenote_pool, Fault> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if options.create.is_none() {
        return Err(Fault::null("options->create"));
    }
    // SAFETY: the caller's promise.
    let strategy = unsafe { options.strategy() }?;
    let reserved = handle::reserve()?;
    // SAFETY: the caller's promise.
    let host = unsafe { options.host() }?;
    let table = Table {
        data: UserData(options.data),
        create: options.create,
        destroy: options.destroy,
        healthcheck: options.healthcheck,
        before_acquire: options.before_acquire,
        before_release: options.before_release,
        is_permanent: options.is_permanent,
    };
    // Relaxed: only has to be unique. 0 is not a pool; numbers repeat after four billion.
    let number = NEXT.fetch_add(1, Ordering::Relaxed).max(1);
    let body = Arc::new(Body::new(
        reserved.handle(),
        number,
        table,
        host.clone(),
        options.dispose,
    ));
    let builder = Pool::builder(Callbacks {
        body: Arc::clone(&body),
    });
    // SAFETY: the caller's promise.
    let builder = unsafe { options.apply(builder, host.as_ref()) }?;
    let opened = match body.elsewhere() {
        Some(host) => elsewhere(host, None, builder.open())?,
        None => match wait(&body, None, pin!(builder.open())) {
            Some(opened) => opened,
            None => return Err(Fault::would_block()),
        },
    };
    let opened = opened.map_err(|error| why_not_opened(&error))?;
    // From here on C owns the pool, so its `dispose` functions must be called.
    if let Some(table) = strategy {
        body.set_watched(true);
        opened.set_strategy(Some(Arc::new(strategy_of(
            table,
            body.handle(),
            body.host(),
        ))));
    }
    // SAFETY: nobody else knows the body, and no callback has its handle yet.
    unsafe { body.begin(opened) };
    Ok(reserved.live(Arc::as_ptr(&body)).to_c())
}

fn why_not_opened(error: &OpenError<CallbackError>) -> Fault {
    match error {
        OpenError::Config(error) => Fault::new(CENOTE_ERR_CONFIG, error.to_string()),
        OpenError::Warmup(error) => Fault::of_acquire(error),
        error => Fault::new(CENOTE_ERR_CONFIG, error.to_string()),
    }
}

/// Adds a reference to a pool. Release each reference with cenote_pool_unref, once.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
/// was released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_ref(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        handle::add_ref(pool)?;
        Ok(CENOTE_OK)
    })
}

/// Releases a reference to a pool. Releasing the last one closes the pool: idle resources are
/// destroyed at once, leased ones when they are released, which the handle still allows. After
/// the last release `dispose` is called, and the handle becomes stale. Running calls, on other
/// threads or around this one, end as on a closed pool.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
/// was already released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_unref(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        if let Some(body) = handle::give_up(pool)? {
            body.close();
        }
        Ok(CENOTE_OK)
    })
}

/// Closes a pool: every waiting acquire fails with CENOTE_ERR_CLOSED, and idle resources are
/// destroyed, oldest first, before this returns. Leased resources stay valid and are destroyed
/// when they are released. Closing again does nothing. The handle stays valid.
///
/// Returns CENOTE_OK; CENOTE_ERR_DESTROY if a destroy callback failed, with the code and text of
/// the first failure (the other resources are destroyed, too); CENOTE_ERR_HANDLE,
/// CENOTE_ERR_CLOSED if the last reference was released, or CENOTE_ERR_CANCELLED if the host's
/// event loop accepts no more work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_close(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let pool = body.pool();
        let closed = match body.elsewhere() {
            Some(host) => {
                let pool = pool.clone();
                elsewhere(host, None, async move { pool.close().await })?
            }
            // Callbacks never wait, so one poll completes.
            None => wait(&body, None, pin!(pool.close())).unwrap_or(Ok(())),
        };
        closed.map_err(|error| why_not_closed(&error))?;
        Ok(CENOTE_OK)
    })
}

/// Closes a pool like cenote_pool_close and waits until every lease is released, for at most
/// `timeout_ms` milliseconds. CENOTE_FOREVER sets no limit; 0 or less does not wait.
///
/// Returns the codes of cenote_pool_close; CENOTE_ERR_IN_USE if leases remain, with their number
/// in the text; CENOTE_ERR_TIMEOUT if the host's event loop did not run the call in time; on the
/// thread that callbacks run on, CENOTE_ERR_WOULD_BLOCK if leases remain: the pool is closed, and
/// CENOTE_EVENT_DRAINED reports the last release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_close_and_drain(
    pool: *mut cenote_pool,
    timeout_ms: i64,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let pool = body.pool();
        // Ten thousand years stand for no limit.
        let for_ever = std::time::Duration::from_secs(60 * 60 * 24 * 3_650_000);
        let time = limit(timeout_ms).unwrap_or(for_ever);
        let closed = match body.elsewhere() {
            Some(host) => {
                let pool = pool.clone();
                let drain = async move { pool.close_and_drain(time).await };
                Some(elsewhere(host, limit(timeout_ms), drain)?)
            }
            None => wait(&body, limit(timeout_ms), pin!(pool.close_and_drain(time))),
        };
        match closed {
            Some(closed) => closed.map_err(|error| why_not_closed(&error))?,
            None => {
                let text = format!(
                    "the pool is closed, but {} resources are in use, and waiting here would block their release",
                    pool.status().total
                );
                return Err(Fault::new(CENOTE_ERR_WOULD_BLOCK, text));
            }
        }
        Ok(CENOTE_OK)
    })
}

fn why_not_closed(error: &CloseError<CallbackError>) -> Fault {
    let mut fault = Fault::new(CENOTE_ERR_IN_USE, error.to_string());
    if error.still_in_use == 0 {
        fault.code = CENOTE_ERR_DESTROY;
    }
    if let Some(DestroyError::Failed(first)) = error.errors.first() {
        fault.detail = first.code();
        fault.text = format!("{}: {first}", fault.text);
    }
    fault
}

/// Changes the maximum. A larger maximum serves waiting acquires at once; a smaller one destroys
/// idle resources at once and leased ones when they are released.
///
/// Returns CENOTE_OK, CENOTE_ERR_CONFIG, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_resize(pool: *mut cenote_pool, max: usize) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let resized = body.pool().resize(max);
        resized.map_err(|error| Fault::new(CENOTE_ERR_CONFIG, error.to_string()))?;
        Ok(CENOTE_OK)
    })
}

/// Changes the minimum. The pool creates missing resources in the background; surplus ones stay
/// until their idle timeout.
///
/// Returns CENOTE_OK, CENOTE_ERR_CONFIG if it is more than the maximum, CENOTE_ERR_HANDLE or
/// CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_set_min(pool: *mut cenote_pool, min: usize) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let changed = body.pool().set_min(min);
        changed.map_err(|error| Fault::new(CENOTE_ERR_CONFIG, error.to_string()))?;
        Ok(CENOTE_OK)
    })
}

/// Replaces every existing resource, in the background. The pool creates each new resource before
/// it destroys an old one, which must be idle or released. For rotated credentials and fail-overs.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_replace_all(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        body.pool().replace_all();
        Ok(CENOTE_OK)
    })
}

/// Calls `visit` with every resource that is not leased, for a garbage collector that must know
/// which resources only the pool references. Meant for a host whose threads are stopped:
/// otherwise a resource may be acquired or destroyed during its visit.
///
/// Returns the number of visits; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or
/// CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_visit(
    pool: *mut cenote_pool,
    visit: cenote_visit_fn,
    data: *mut c_void,
) -> c_int {
    boundary(|| {
        let visit = visit.ok_or_else(|| Fault::null("visit"))?;
        let body = handle::open(pool)?;
        let resources = body.loans().not_on_loan();
        for &resource in &resources {
            // SAFETY: C's function with C's data, outside every lock.
            unsafe { visit(data, resource) };
        }
        Ok(c_int::try_from(resources.len()).unwrap_or(c_int::MAX))
    })
}
