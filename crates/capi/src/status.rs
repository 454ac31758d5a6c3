//! Numbers: what a pool holds, and what it has done.

use std::ffi::c_int;

use crate::breaker::number;
use crate::error::{CENOTE_OK, Fault, boundary};
use crate::handle::{self, cenote_pool};
use crate::options::write_sized;

/// What a pool holds at one moment, and what it has done so far. In every sample
/// total = idle + active + creating, and total is at most max.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_status {
    /// sizeof(cenote_status); set it before the call.
    pub size: usize,
    /// Places in use: idle, active and creating.
    pub total: u64,
    /// Resources in the pool, those reserved for a waiter that was woken included.
    pub idle: u64,
    /// Resources on loan, in a callback, or being destroyed.
    pub active: u64,
    /// Resources being made.
    pub creating: u64,
    /// Of the idle ones: set aside for a waiter that was woken and has not run yet.
    pub reserved: u64,
    /// Acquires that wait and were given nothing yet.
    pub waiting: u64,
    /// The most resources there may be.
    pub max: u64,
    /// The fewest resources the pool keeps up.
    pub min: u64,
    /// Leases handed out so far.
    pub acquired: u64,
    /// Acquires that had to queue so far.
    pub waited: u64,
    /// Acquires that ran out of time so far.
    pub timed_out: u64,
    /// Acquires that were cancelled while they queued so far.
    pub cancelled: u64,
    /// Resources made so far.
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

/// Writes what the pool holds and has done. Set `status->size` before.
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

/// Returns how many resources there are: idle, active and being made; or
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_total(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.total)
}

/// Returns how many resources are idle; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_idle(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.idle)
}

/// Returns how many resources are on loan, in a callback or being destroyed; or
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_pool_active(pool: *mut cenote_pool) -> c_int {
    count(pool, |status| status.active)
}

/// Returns how many acquires wait; or CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
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
