//! For tests of everything else: every handle shares its connections, and every read that may share does so at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_ON: AtomicBool = AtomicBool::new(false);
static READS: AtomicU64 = AtomicU64::new(0);

/// Makes each handle that is opened from now on share its connections, as if every text were proven to be short and no
/// connection idle.
#[doc(hidden)]
pub fn share_eagerly() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Returns how many reads such handles have run on shared connections.
#[doc(hidden)]
pub fn eagerly_shared_reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

pub(super) fn note(reads: u64) {
    READS.fetch_add(reads, Ordering::Relaxed);
}
