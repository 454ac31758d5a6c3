//! Making, sharing, changing and ending pools.

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

/// Is shown a resource.
pub type cenote_visit_fn = Option<unsafe extern "C" fn(data: *mut c_void, resource: *mut c_void)>;

/// Makes a pool and its first `min` resources, one after another, and writes its handle,
/// which is one reference. The first creation that fails ends it, and what was made is
/// destroyed.
///
/// Returns CENOTE_OK; CENOTE_ERR_ARGUMENT, CENOTE_ERR_CONFIG, whose text names the
/// option and its value, CENOTE_ERR_CREATE, or CENOTE_ERR_CANCELLED if a host's loop
/// takes no more work: then `pool` is NULL, and `dispose` is not called.
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
        // SAFETY: what the options point to is valid, says C.
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
    // Relaxed: only has to be unique. 0 is no pool; it comes again after four billion.
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
    // From here on it is C's, so `dispose` functions are due.
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

/// Adds a reference to a pool. Every reference is given up by cenote_pool_unref, once.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
/// was given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_ref(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        handle::add_ref(pool)?;
        Ok(CENOTE_OK)
    })
}

/// Gives up a reference to a pool. With the last one the pool is closed: what is idle is
/// destroyed, what is out when it is released, which works as long as anything is out.
/// Then `dispose` is called, and the handle is out of date. Calls that are under way, on
/// other threads or around this one, end like those on a pool that was closed.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference
/// was given up already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_unref(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        if let Some(body) = handle::give_up(pool)? {
            body.close();
        }
        Ok(CENOTE_OK)
    })
}

/// Closes a pool: everybody who waits fails with CENOTE_ERR_CLOSED, and what is idle is
/// destroyed, oldest first, before this returns. What is out stays valid, and is
/// destroyed when it is released. Closing again does nothing. The handle stays valid.
///
/// Returns CENOTE_OK; CENOTE_ERR_DESTROY if a destroy callback failed, with the first
/// one's code and text (everything is destroyed all the same); CENOTE_ERR_HANDLE,
/// CENOTE_ERR_CLOSED if the last reference was given up, or CENOTE_ERR_CANCELLED if a
/// host's loop takes no more work.
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
            // Callbacks do not wait, and so neither does this.
            None => wait(&body, None, pin!(pool.close())).unwrap_or(Ok(())),
        };
        closed.map_err(|error| why_not_closed(&error))?;
        Ok(CENOTE_OK)
    })
}

/// Closes a pool like cenote_pool_close, and waits until everything that is out has come
/// back, for at most `timeout_ms` milliseconds; CENOTE_FOREVER is without limit, and 0 or less does not
/// wait.
///
/// Returns as cenote_pool_close; CENOTE_ERR_IN_USE if not everything came back, whose
/// text says how much; CENOTE_ERR_TIMEOUT if a host's loop did not answer in time;
/// CENOTE_ERR_WOULD_BLOCK on the thread that callbacks run on,
/// where the pool is closed, too (listen for CENOTE_EVENT_DRAINED there).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_close_and_drain(
    pool: *mut cenote_pool,
    timeout_ms: i64,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let pool = body.pool();
        // Ten thousand years are for ever.
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
                    "the pool is closed, but {} are out, and waiting here would stop their return",
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

/// Changes the maximum. Growing serves those who wait at once; shrinking destroys idle
/// resources first, and the rest as it comes back.
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

/// Changes the minimum. The pool makes what is missing in the background; what is more than a
/// smaller minimum stays until its idle timeout.
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

/// Replaces every resource there is now, in the background: a new one is made first, and takes
/// over when an old one is idle or comes back. For rotated credentials and fail-overs.
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

/// Shows every resource that is not on loan to `visit`, for a garbage collector that has to
/// know what the pool alone holds on to. Meant for a host whose threads stand still: on
/// others, a resource may be taken or destroyed while it is being shown.
///
/// Returns how many it has shown; CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or
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
