//! What is on loan to C: a slot and a ticket for each lease, so that one that is
//! given back twice, or belongs elsewhere, is seen without a lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rust_pool::OwnedLease;

use crate::callbacks::Callbacks;
use crate::error::{CENOTE_ERR_FOREIGN, CENOTE_ERR_NOT_ACQUIRED, Fault};

/// A resource on loan. Give it back once, by cenote_release or cenote_discard, on any
/// thread. It may be copied; the first copy that is given back counts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_lease {
    /// What the create callback made.
    pub resource: *mut c_void,
    /// Not for you.
    pub ticket: u64,
    /// Not for you.
    pub slot: u32,
    /// Not for you.
    pub pool: u32,
}

impl cenote_lease {
    /// What an acquire that failed leaves behind.
    pub(crate) const NOTHING: cenote_lease = cenote_lease {
        resource: null_mut(),
        ticket: 0,
        slot: 0,
        pool: 0,
    };
}

/// One resource, seen from C. On cache lines of its own, because threads that have
/// different ones should not disturb each other.
#[repr(align(128))]
pub(crate) struct Loan {
    /// Odd while it is on loan; grows with every lease and every return.
    ticket: AtomicU64,
    resource: AtomicPtr<c_void>,
    /// Whether there is a resource, which is not about to be destroyed.
    there: AtomicBool,
    /// The pool's own lease. Belongs to whoever made the ticket odd, until somebody
    /// makes it even, who takes it out.
    lease: UnsafeCell<Option<OwnedLease<Callbacks>>>,
}

// SAFETY: the cell has one owner at a time, see `lease`; the rest are atomics. What is
// in it may be sent, and is only moved in and out.
unsafe impl Sync for Loan {}
// SAFETY: an owned lease may be sent.
unsafe impl Send for Loan {}

impl Loan {
    /// What the create callback made.
    #[inline]
    pub(crate) fn resource(&self) -> *mut c_void {
        // Relaxed: whoever asks got the loan by something that orders it.
        self.resource.load(Ordering::Relaxed)
    }

    /// The present ticket.
    pub(crate) fn ticket(&self) -> u64 {
        // Relaxed: as above.
        self.ticket.load(Ordering::Relaxed)
    }
}

/// The first chunk has so many loans, each further one twice as many.
const FIRST: usize = 16;
const CHUNKS: usize = 24;

/// All resources of a pool. Loans never move, and live as long as this.
pub(crate) struct Loans {
    /// The number of the pool in its leases, never zero.
    pool: u32,
    chunks: [AtomicPtr<Loan>; CHUNKS],
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    /// Those with a lower number exist.
    used: u32,
}

/// Where a slot is: which chunk, and where in it.
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
        // Acquire pairs with the release in `add`: the chunk is there whole.
        let chunk = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: `place` gives a position inside the chunk, which has
        // `FIRST << chunk` loans.
        let loan = unsafe { chunk.add(at) };
        // SAFETY: it is freed with `self` only.
        Some(unsafe { &*loan })
    }

    /// A slot for a new resource; `None` if there are too many.
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
        // Release: whoever sees that it is there sees what it is.
        loan.there.store(true, Ordering::Release);
        Some(slot)
    }

    /// The resource is about to be destroyed: nobody is shown it any more.
    pub(crate) fn hide(&self, slot: u32) {
        if let Some(loan) = self.get(slot) {
            loan.there.store(false, Ordering::Relaxed);
        }
    }

    /// The resource is gone: its slot is free.
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
        // Relaxed: nobody else writes it while this lease is ours.
        let ticket = loan.ticket.load(Ordering::Relaxed) + 1;
        let loan = std::ptr::from_ref(loan);
        // SAFETY: the loan lives as long as the pool, which the lease keeps alive
        // wherever it is.
        let loan = unsafe { &*loan };
        // SAFETY: the ticket is even, and the lease is ours: so is the cell.
        unsafe { *loan.lease.get() = Some(lease) };
        // Release pairs with the acquire in `take_back`: the lease is in the cell.
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
    /// It is from another pool, was given back already, or never acquired.
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

    /// Every resource that is not on loan.
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
    Fault::new(CENOTE_ERR_FOREIGN, "the lease is from another pool")
}

#[cold]
fn not_acquired() -> Fault {
    Fault::new(
        CENOTE_ERR_NOT_ACQUIRED,
        "the lease was given back already, or never acquired",
    )
}
