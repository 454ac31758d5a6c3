//! The sizes and counters of a pool.

use std::ffi::c_int;

use crate::breaker::number;
use crate::error::{CENOTE_OK, Fault, boundary};
use crate::handle::{self, cenote_pool};
use crate::options::write_sized;

/// The sizes of a pool at one moment, and its counters. In every sample
/// total = idle + active + creating, and total is at most max.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_status {
    /// sizeof(cenote_status); set it before the call.
    pub size: usize,
    /// Idle, active and creating resources.
    pub total: u64,
    /// Idle resources, including those reserved for a waiter that was woken.
    pub idle: u64,
    /// Resources that are leased, in a callback or being destroyed.
    pub active: u64,
    /// Resources being created.
    pub creating: u64,
    /// Idle resources reserved for a waiter that was woken and has not run yet.
    pub reserved: u64,
    /// Acquires that wait and have no resource yet.
    pub waiting: u64,
    /// The maximum number of resources.
    pub max: u64,
    /// The minimum number of resources.
    pub min: u64,
    /// Successful acquires so far.
    pub acquired: u64,
    /// Acquires that queued so far.
    pub waited: u64,
    /// Acquires that timed out so far.
    pub timed_out: u64,
    /// Acquires that were cancelled while they queued so far.
    pub cancelled: u64,
    /// Resources created so far.
    pub created: u64,
    /// Creations that failed so far.
    pub create_failed: u64,
    /// Resources that left the pool so far, for any reason.
    pub destroyed: u64,
    /// The breaker's state: one of CENOTE_BREAKER_*.
    pub breaker: u32,
    /// 1 if the pool was closed, else 0.
    pub closed: u32,
}

/// Writes the sizes and counters of a pool. Set `status->size` before the call.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_status(
    pool: *mut cenote_pool,
    status: *mut cenote_status,
) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        if status.is_null() {
            return Err(Fault::null("status"));
        }
        // SAFETY: not NULL; the first field is the size, which C has set.
        let size = unsafe { status.cast::<usize>().read() };
        let now = body.pool().status();
        let counters = body.pool().counters();
        let numbers = cenote_status {
            size,
            total: wide(now.total),
            idle: wide(now.idle),
            active: wide(now.active),
            creating: wide(now.creating),
            reserved: wide(now.reserved),
            waiting: wide(now.waiting),
            max: wide(now.max),
            min: wide(now.min),
            acquired: counters.acquired,
            waited: counters.waited,
            timed_out: counters.timed_out,
            cancelled: counters.cancelled,
            created: counters.created,
            create_failed: counters.create_failed,
            destroyed: counters.destroyed,
            breaker: number(now.breaker),
            closed: u32::from(now.closed),
        };
        // SAFETY: C's promise on the size.
        unsafe { write_sized(status, "status", size, numbers) }?;
        Ok(CENOTE_OK)
    })
}

/// Returns the number of resources: idle, active and being created; or
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_total(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.total)
}

/// Returns the number of idle resources; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_idle(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.idle)
}

/// Returns the number of resources that are leased, in a callback or being destroyed; or
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_active(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.active)
}

/// Returns the number of waiting acquires; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_waiting(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.waiting)
}

/// Returns 1 if the pool was closed, else 0; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_is_closed(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| usize::from(status.closed))
}

fn count(pool: *mut cenote_pool, what: fn(&rust_pool::Status) -> usize) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let count = what(&body.pool().status());
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
