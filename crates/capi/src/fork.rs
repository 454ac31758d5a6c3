//! Makes `fork` safe: in the child no lock of this library is held by a thread that does not
//! exist there. (`cenote-pool` does the same for the pools' locks.)

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::handle::{self, FreeGuard};
use crate::host::{self, HostsGuard};

/// The locks that the forking thread holds during the fork.
struct UnderWay(UnsafeCell<Option<(FreeGuard, HostsGuard)>>);

// SAFETY: only the thread that forks uses it, in the handlers below. A second one that forks
// waits for the locks, which the first one holds from `prepare` on.
unsafe impl Sync for UnderWay {}

static UNDER_WAY: UnderWay = UnderWay(UnsafeCell::new(None));

/// Registers the fork handlers, once.
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
