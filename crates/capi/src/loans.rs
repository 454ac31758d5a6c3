//! The leases that C holds: each has a slot and a ticket, so the library detects a double
//! release and a lease of another pool without a lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rust_pool::OwnedLease;

use crate::callbacks::Callbacks;
use crate::error::{CENOTE_ERR_FOREIGN, CENOTE_ERR_NOT_ACQUIRED, Fault};

/// A lease of a resource. Return it once, with cenote_release or cenote_discard, on any thread.
/// It may be copied; only the first copy returned counts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_lease {
    /// The resource that the create callback created.
    pub resource: *mut c_void,
    /// Private.
    pub ticket: u64,
    /// Private.
    pub slot: u32,
    /// Private.
    pub pool: u32,
}

impl cenote_lease {
    /// The value that a failed acquire writes.
    pub(crate) const NOTHING: cenote_lease = cenote_lease {
        resource: null_mut(),
        ticket: 0,
        slot: 0,
        pool: 0,
    };
}

/// One resource that C can lease. On cache lines of its own, to avoid false sharing between
/// threads.
#[repr(align(128))]
pub(crate) struct Loan {
    /// Odd while C holds the resource; each acquire and each release adds 1.
    ticket: AtomicU64,
    resource: AtomicPtr<c_void>,
    /// Whether the slot has a resource that is not being destroyed.
    there: AtomicBool,
    /// The pool's own lease. The thread that makes the ticket odd writes it; the thread that
    /// makes the ticket even takes it out.
    lease: UnsafeCell<Option<OwnedLease<Callbacks>>>,
}

// SAFETY: the cell has one owner at a time, see `lease`; the rest are atomics. What is
// in it may be sent, and is only moved in and out.
unsafe impl Sync for Loan {}
// SAFETY: an owned lease may be sent.
unsafe impl Send for Loan {}

impl Loan {
    /// Returns the resource that the create callback created.
    #[inline]
    pub(crate) fn resource(&self) -> *mut c_void {
        // Relaxed: the caller got the loan through a synchronised access.
        self.resource.load(Ordering::Relaxed)
    }

    /// Returns the current ticket.
    pub(crate) fn ticket(&self) -> u64 {
        // Relaxed: as above.
        self.ticket.load(Ordering::Relaxed)
    }
}

/// The number of loans in the first chunk; each further chunk has twice as many.
const FIRST: usize = 16;
const CHUNKS: usize = 24;

/// All resources of a pool. Loans never move, and live as long as `Loans`.
pub(crate) struct Loans {
    /// The number of the pool in its leases, never zero.
    pool: u32,
    chunks: [AtomicPtr<Loan>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    /// Loans with a lower number exist.
    used: u32,
}

/// Returns the chunk of a slot and the index in that chunk.
#[inline]
fn place(slot: u32) -> (usize, usize) {
    let at = slot as usize + FIRST;
    let chunk = at.ilog2() - FIRST.ilog2();
    (chunk as usize, at - (FIRST << chunk))
}

impl Loans {
    pub(crate) fn new(pool: u32) -> Self {
        Loans {
            pool,
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            free: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Loan> {
        let (chunk, at) = place(slot);
        // Acquire pairs with the release in `add`: the chunk is complete.
        let chunk = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: `place` gives a position inside the chunk, which has
        // `FIRST << chunk` loans.
        let loan = unsafe { chunk.add(at) };
        // SAFETY: the chunk is freed with `self` only.
        Some(unsafe { &*loan })
    }

    /// Reserves a slot for a new resource; `None` if all are taken.
    pub(crate) fn add(&self, resource: *mut c_void) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match free.slots.pop() {
            Some(slot) => slot,
            None => {
                let slot = free.used;
                let (chunk, at) = place(slot);
                let home = self.chunks.get(chunk)?;
                if at == 0 {
                    let loans: Box<[Loan]> = (0..FIRST << chunk)
                        .map(|_| Loan {
                            ticket: AtomicU64::new(0),
                            resource: AtomicPtr::default(),
                            there: AtomicBool::new(false),
                            lease: UnsafeCell::new(None),
                        })
                        .collect();
                    home.store(Box::into_raw(loans).cast(), Ordering::Release);
                }
                free.used += 1;
                slot
            }
        };
        drop(free);
        let loan = self.get(slot)?;
        loan.resource.store(resource, Ordering::Relaxed);
        // Release pairs with the acquire in `not_on_loan`: a reader that sees the flag sees the resource.
        loan.there.store(true, Ordering::Release);
        Some(slot)
    }

    /// Hides a resource that is about to be destroyed from visitors.
    pub(crate) fn hide(&self, slot: u32) {
        if let Some(loan) = self.get(slot) {
            loan.there.store(false, Ordering::Relaxed);
        }
    }

    /// Frees the slot of a destroyed resource.
    pub(crate) fn remove(&self, slot: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.slots.push(slot);
    }

    /// Hands a lease to C.
    #[inline]
    pub(crate) fn lend(&self, lease: OwnedLease<Callbacks>) -> cenote_lease {
        let slot = lease.number();
        let loan = lease.loan();
        let resource = loan.resource();
        // Relaxed: no other thread writes it while this lease is ours.
        let ticket = loan.ticket.load(Ordering::Relaxed) + 1;
        let loan = std::ptr::from_ref(loan);
        // SAFETY: the loan lives as long as the pool, which the lease keeps alive
        // wherever it is.
        let loan = unsafe { &*loan };
        // SAFETY: the ticket is even, and the lease is ours: so is the cell.
        unsafe { *loan.lease.get() = Some(lease) };
        // Release pairs with the acquire in `take_back`: the cell holds the lease.
        loan.ticket.store(ticket, Ordering::Release);
        cenote_lease {
            resource,
            ticket,
            slot,
            pool: self.pool,
        }
    }

    /// Takes a lease back from C.
    ///
    /// # Errors
    ///
    /// The lease belongs to another pool, was already released, or was never acquired.
    #[inline]
    pub(crate) fn take_back(&self, lease: &cenote_lease) -> Result<OwnedLease<Callbacks>, Fault> {
        if lease.pool != self.pool {
            return Err(not_ours(lease));
        }
        let loan = self.get(lease.slot).filter(|_| lease.ticket & 1 == 1);
        let Some(loan) = loan else {
            return Err(not_acquired());
        };
        // Acquire pairs with the release in `lend`.
        let taken = loan.ticket.compare_exchange(
            lease.ticket,
            lease.ticket.wrapping_add(1),
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return Err(not_acquired());
        }
        // SAFETY: the ticket was odd, and we made it even: the cell is ours.
        let lease = unsafe { (*loan.lease.get()).take() };
        lease.ok_or_else(not_acquired)
    }

    /// Returns every resource that is not leased.
    pub(crate) fn not_on_loan(&self) -> Vec<*mut c_void> {
        let used = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .used;
        (0..used)
            .filter_map(|slot| self.get(slot))
            // Acquire pairs with the release in `add`.
            .filter(|loan| loan.there.load(Ordering::Acquire))
            .filter(|loan| loan.ticket.load(Ordering::Relaxed) & 1 == 0)
            .map(Loan::resource)
            .collect()
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        for (chunk, loans) in self.chunks.iter_mut().enumerate() {
            let loans = *loans.get_mut();
            if !loans.is_null() {
                let loans = std::ptr::slice_from_raw_parts_mut(loans, FIRST << chunk);
                // SAFETY: made by `add` from a box of this length, and dropped once.
                drop(unsafe { Box::from_raw(loans) });
            }
        }
    }
}

#[cold]
fn not_ours(lease: &cenote_lease) -> Fault {
    if lease.pool == 0 {
        return not_acquired();
    }
    Fault::new(CENOTE_ERR_FOREIGN, "the lease belongs to another pool")
}

#[cold]
fn not_acquired() -> Fault {
    Fault::new(
        CENOTE_ERR_NOT_ACQUIRED,
        "the lease was already released, or never acquired",
    )
}
