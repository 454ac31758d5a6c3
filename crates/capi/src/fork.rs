//! `fork`: the child finds none of the library's own locks taken by a thread that it does not have.
//! (The pools' locks are the business of `cenote-pool`.)

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::handle::{self, FreeGuard};
use crate::host::{self, HostsGuard};

/// What the thread that forks holds meanwhile.
struct UnderWay(UnsafeCell<Option<(FreeGuard, HostsGuard)>>);

// SAFETY: only the thread that forks uses it, in the handlers below. A second one that forks
// waits for the locks, which the first one holds from `prepare` on.
unsafe impl Sync for UnderWay {}

static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// Makes sure that a fork comes by here.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Relaxed: one caller registers; the others need not wait for it.
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the functions live as long as the process: the library is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(resume)) };
    }
}

extern "C" fn prepare() {
    let locks = (handle::lock_free(), host::hosts());
    // SAFETY: see `UnderWay`.
    unsafe { *UNDER_WAY.0.get() = Some(locks) };
}

extern "C" fn resume() {
    // SAFETY: see `UnderWay`.
    drop(unsafe { (*UNDER_WAY.0.get()).take() });
}
