//! The function table: an extension that is loaded at run time calls the library through it,
//! without linking to it. A host can replace the table with its own.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::acquire::{cenote_acquire, cenote_discard, cenote_release, cenote_try_acquire};
use crate::breaker::{
    cenote_breaker_activate, cenote_breaker_deactivate, cenote_breaker_open_after,
    cenote_breaker_open_at_rate, cenote_breaker_recover, cenote_breaker_set_strategy,
    cenote_breaker_state, cenote_strategy,
};
use crate::callbacks::cenote_dispose_fn;
use crate::error::{
    CENOTE_ERR_ARGUMENT, CENOTE_OK, Fault, boundary, cenote_clear_error, cenote_code_text,
    cenote_last_error_code, cenote_last_error_detail, cenote_last_error_text,
    cenote_set_error_text,
};
use crate::event::{
    cenote_event_add_callback, cenote_event_del_callback, cenote_event_dispose, cenote_event_fn,
    cenote_event_start, cenote_event_stop,
};
use crate::handle::{self, cenote_pool};
use crate::info::{cenote_info, cenote_resource_info};
use crate::loans::cenote_lease;
use crate::options::{cenote_options, cenote_options_init};
use crate::pool::{
    cenote_pool_close, cenote_pool_close_and_drain, cenote_pool_new, cenote_pool_ref,
    cenote_pool_replace_all, cenote_pool_resize, cenote_pool_set_min, cenote_pool_unref,
    cenote_pool_visit, cenote_visit_fn,
};
use crate::retain::{cenote_keep_fn, cenote_pool_retain};
use crate::status::{
    cenote_pool_active, cenote_pool_idle, cenote_pool_is_closed, cenote_pool_status,
    cenote_pool_total, cenote_pool_waiting, cenote_status,
};
use crate::waiter::{cenote_acquire_async, cenote_done_fn, cenote_waiter_cancel};

/// The version of the table that this header describes. It changes only if programs compiled
/// earlier would no longer work; new functions are added at the end.
pub const CENOTE_API_VERSION: u32 = 1;

/// The functions for the events of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_event_table {
    /// sizeof(cenote_event_table) in the library that provides the table.
    pub size: usize,
    /// cenote_event_add_callback.
    pub add_callback: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            callback: cenote_event_fn,
            data: *mut c_void,
            dispose: cenote_dispose_fn,
            id: *mut u64,
        ) -> c_int,
    >,
    /// cenote_event_del_callback.
    pub del_callback: Option<unsafe extern "C" fn(pool: *mut cenote_pool, id: u64) -> c_int>,
    /// cenote_event_start.
    pub start: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_event_stop.
    pub stop: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_event_dispose.
    pub dispose: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
}

/// All functions of the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_api {
    /// sizeof(cenote_api) in the library that provides the table; larger than yours if the
    /// library is newer.
    pub size: usize,
    /// CENOTE_API_VERSION of the library that provides the table.
    pub version: usize,
    /// The functions for the events of a pool.
    pub events: *const cenote_event_table,
    /// cenote_options_init.
    pub options_init:
        Option<unsafe extern "C" fn(options: *mut cenote_options, size: usize) -> c_int>,
    /// cenote_pool_new.
    pub pool_new: Option<
        unsafe extern "C" fn(options: *const cenote_options, pool: *mut *mut cenote_pool) -> c_int,
    >,
    /// Wraps a pool in an object of the host's language. The object owns a reference. The
    /// library's own table adds a reference and returns the handle itself.
    pub pool_object:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, object: *mut *mut c_void) -> c_int>,
    /// cenote_pool_ref.
    pub pool_ref: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_unref.
    pub pool_unref: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_close.
    pub pool_close: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_close_and_drain.
    pub pool_close_and_drain:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, timeout_ms: i64) -> c_int>,
    /// cenote_pool_resize.
    pub pool_resize: Option<unsafe extern "C" fn(pool: *mut cenote_pool, max: usize) -> c_int>,
    /// cenote_pool_replace_all.
    pub pool_replace_all: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_visit.
    pub pool_visit: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            visit: cenote_visit_fn,
            data: *mut c_void,
        ) -> c_int,
    >,
    /// cenote_pool_status.
    pub pool_status:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, status: *mut cenote_status) -> c_int>,
    /// cenote_pool_total.
    pub pool_total: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_idle.
    pub pool_idle: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_active.
    pub pool_active: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_waiting.
    pub pool_waiting: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_pool_is_closed.
    pub pool_is_closed: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_acquire.
    pub acquire: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            timeout_ms: i64,
            lease: *mut cenote_lease,
        ) -> c_int,
    >,
    /// cenote_try_acquire.
    pub try_acquire:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int>,
    /// cenote_acquire_async.
    pub acquire_async: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            timeout_ms: i64,
            on_done: cenote_done_fn,
            data: *mut c_void,
            waiter: *mut u64,
        ) -> c_int,
    >,
    /// cenote_waiter_cancel.
    pub waiter_cancel: Option<unsafe extern "C" fn(pool: *mut cenote_pool, waiter: u64) -> c_int>,
    /// cenote_release.
    pub release:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int>,
    /// cenote_discard.
    pub discard:
        Option<unsafe extern "C" fn(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int>,
    /// cenote_breaker_state.
    pub breaker_state: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_breaker_activate.
    pub breaker_activate: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_breaker_deactivate.
    pub breaker_deactivate: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_breaker_recover.
    pub breaker_recover: Option<unsafe extern "C" fn(pool: *mut cenote_pool) -> c_int>,
    /// cenote_breaker_set_strategy.
    pub breaker_set_strategy: Option<
        unsafe extern "C" fn(pool: *mut cenote_pool, strategy: *const cenote_strategy) -> c_int,
    >,
    /// cenote_breaker_open_after.
    pub breaker_open_after: Option<
        unsafe extern "C" fn(pool: *mut cenote_pool, limit: u32, cool_down_ms: u64) -> c_int,
    >,
    /// cenote_breaker_open_at_rate.
    pub breaker_open_at_rate: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            rate: f64,
            window_ms: u64,
            at_least: u32,
            cool_down_ms: u64,
        ) -> c_int,
    >,
    /// cenote_last_error_code.
    pub last_error_code: Option<extern "C" fn() -> c_int>,
    /// cenote_last_error_detail.
    pub last_error_detail: Option<extern "C" fn() -> c_int>,
    /// cenote_last_error_text.
    pub last_error_text: Option<extern "C" fn() -> *const c_char>,
    /// cenote_clear_error.
    pub clear_error: Option<extern "C" fn()>,
    /// cenote_set_error_text.
    pub set_error_text: Option<unsafe extern "C" fn(text: *const c_char)>,
    /// cenote_code_text.
    pub code_text: Option<extern "C" fn(code: c_int) -> *const c_char>,
    /// cenote_pool_set_min.
    pub pool_set_min: Option<unsafe extern "C" fn(pool: *mut cenote_pool, min: usize) -> c_int>,
    /// cenote_pool_retain.
    pub pool_retain: Option<
        unsafe extern "C" fn(
            pool: *mut cenote_pool,
            keep: cenote_keep_fn,
            data: *mut c_void,
            dispose: cenote_dispose_fn,
        ) -> c_int,
    >,
    /// cenote_resource_info.
    pub resource_info: Option<unsafe extern "C" fn(info: *mut cenote_info) -> c_int>,
}

// SAFETY: a table is never changed, and functions may be called on any thread.
unsafe impl Sync for cenote_api {}

static EVENTS: cenote_event_table = cenote_event_table {
    size: mem::size_of::<cenote_event_table>(),
    add_callback: Some(cenote_event_add_callback),
    del_callback: Some(cenote_event_del_callback),
    start: Some(cenote_event_start),
    stop: Some(cenote_event_stop),
    dispose: Some(cenote_event_dispose),
};

static OURS: cenote_api = cenote_api {
    size: mem::size_of::<cenote_api>(),
    // Widening, of a constant.
    version: CENOTE_API_VERSION as usize,
    events: &raw const EVENTS,
    options_init: Some(cenote_options_init),
    pool_new: Some(cenote_pool_new),
    pool_object: Some(pool_object),
    pool_ref: Some(cenote_pool_ref),
    pool_unref: Some(cenote_pool_unref),
    pool_close: Some(cenote_pool_close),
    pool_close_and_drain: Some(cenote_pool_close_and_drain),
    pool_resize: Some(cenote_pool_resize),
    pool_replace_all: Some(cenote_pool_replace_all),
    pool_visit: Some(cenote_pool_visit),
    pool_status: Some(cenote_pool_status),
    pool_total: Some(cenote_pool_total),
    pool_idle: Some(cenote_pool_idle),
    pool_active: Some(cenote_pool_active),
    pool_waiting: Some(cenote_pool_waiting),
    pool_is_closed: Some(cenote_pool_is_closed),
    acquire: Some(cenote_acquire),
    try_acquire: Some(cenote_try_acquire),
    acquire_async: Some(cenote_acquire_async),
    waiter_cancel: Some(cenote_waiter_cancel),
    release: Some(cenote_release),
    discard: Some(cenote_discard),
    breaker_state: Some(cenote_breaker_state),
    breaker_activate: Some(cenote_breaker_activate),
    breaker_deactivate: Some(cenote_breaker_deactivate),
    breaker_recover: Some(cenote_breaker_recover),
    breaker_set_strategy: Some(cenote_breaker_set_strategy),
    breaker_open_after: Some(cenote_breaker_open_after),
    breaker_open_at_rate: Some(cenote_breaker_open_at_rate),
    last_error_code: Some(cenote_last_error_code),
    last_error_detail: Some(cenote_last_error_detail),
    last_error_text: Some(cenote_last_error_text),
    clear_error: Some(cenote_clear_error),
    set_error_text: Some(cenote_set_error_text),
    code_text: Some(cenote_code_text),
    pool_set_min: Some(cenote_pool_set_min),
    pool_retain: Some(cenote_pool_retain),
    resource_info: Some(cenote_resource_info),
};

/// The table that a host has registered; NULL if none is.
static THEIRS: AtomicPtr<cenote_api> = AtomicPtr::new(null_mut());

/// Returns the function table: the host's if one is registered, else the library's. NULL if
/// the library does not support that version. The table stays valid until the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_get_api(version: u32) -> *const cenote_api {
    if version != CENOTE_API_VERSION {
        return std::ptr::null();
    }
    // Acquire pairs with the release in `cenote_register_api`.
    let theirs = THEIRS.load(Ordering::Acquire);
    match theirs.is_null() {
        true => &raw const OURS,
        false => theirs,
    }
}

/// Registers a host's table, which later calls of cenote_get_api return; NULL unregisters it.
/// The table must have every function and stay valid until the process ends. (Call
/// cenote_get_api first, and forward to that table the functions you do not replace.)
///
/// Returns CENOTE_OK, or CENOTE_ERR_ARGUMENT if the table is too small, of another
/// version, or lacks a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_register_api(api: *const cenote_api) -> c_int {
    boundary(|| {
        if !api.is_null() {
            // SAFETY: not NULL, and C's promise that it is a table.
            unsafe { check(api) }?;
        }
        // Release pairs with the acquire in `cenote_get_api`: the contents are visible.
        THEIRS.store(api.cast_mut(), Ordering::Release);
        Ok(CENOTE_OK)
    })
}

/// Checks that a table is complete.
///
/// # Safety
///
/// `api` points to as many bytes as its first field says, and so does its `events`.
unsafe fn check(api: *const cenote_api) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { check_size("table", api) }?;
    // SAFETY: it is big enough.
    let version = unsafe { (*api).version };
    if version != CENOTE_API_VERSION as usize {
        let text = format!(
            "the table has version {version}, but the library has version {CENOTE_API_VERSION}"
        );
        return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
    }
    // SAFETY: it is big enough, and all after the first two words are pointers.
    unsafe { check_pointers("table", api, 2) }?;
    // SAFETY: as above.
    let events = unsafe { (*api).events };
    // SAFETY: not NULL, and the caller's promise.
    unsafe { check_size("table of events", events) }?;
    // SAFETY: it is big enough, and all after the first word are pointers.
    unsafe { check_pointers("table of events", events, 1) }
}

/// Checks that a table has at least the size of ours.
///
/// # Safety
///
/// `table` begins with its size.
unsafe fn check_size<T>(name: &str, table: *const T) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    let size = unsafe { table.cast::<usize>().read() };
    let ours = mem::size_of::<T>();
    if size >= ours {
        return Ok(());
    }
    let text = format!("the {name} has {size} bytes, but it needs at least {ours}");
    Err(Fault::new(CENOTE_ERR_ARGUMENT, text))
}

/// Checks that no pointer of a table is NULL, after the given number of leading words.
///
/// # Safety
///
/// `table` has as many bytes as ours, and pointers after those words.
unsafe fn check_pointers<T>(name: &str, table: *const T, first: usize) -> Result<(), Fault> {
    for at in first..mem::size_of::<T>() / mem::size_of::<usize>() {
        // SAFETY: within the table.
        let word = unsafe { table.cast::<usize>().add(at) };
        // SAFETY: as above.
        if unsafe { word.read() } == 0 {
            let text = format!("the function at word {at} of the {name} is NULL");
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        }
    }
    Ok(())
}

/// The library's own wrapper: C needs no object, so this adds a reference and returns the handle.
unsafe extern "C" fn pool_object(pool: *mut cenote_pool, object: *mut *mut c_void) -> c_int {
    boundary(|| {
        if object.is_null() {
            return Err(Fault::null("object"));
        }
        handle::add_ref(pool)?;
        // SAFETY: not NULL, and C's promise that it may be written.
        unsafe { object.write(pool.cast()) };
        Ok(CENOTE_OK)
    })
}
