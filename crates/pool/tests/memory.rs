//! Memory: what a burst of waiters needed is given back.
#![cfg(not(loom))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{Log, Manual, at_most, hand, now, number_pool};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const WAITERS: usize = 100_000;

/// A waiter that is served keeps one word of 8 bytes, in tables that double.
const KEPT: usize = WAITERS * 8 * 2 + 200_000;

#[test]
fn burst_of_waiters_gives_its_memory_back() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    // A first waiter, so that the maintenance task is there before and after.
    let mut last = hand(pool.acquire_with(at_most(Duration::from_secs(3600))));
    last.waits();
    manual.run();
    let before = IN_USE.load(Ordering::Relaxed);
    for _ in 0..2 {
        let mut waiters: Vec<_> = (0..WAITERS)
            .map(|_| hand(pool.acquire_with(at_most(Duration::from_secs(30)))))
            .collect();
        waiters.iter_mut().for_each(|waiter| waiter.waits());
        let peak = IN_USE.load(Ordering::Relaxed) - before;
        assert!(peak > 10 * KEPT, "{peak} bytes for {WAITERS} waiters");
        drop(waiters);
        manual.advance(Duration::from_secs(60));
        let after = IN_USE.load(Ordering::Relaxed) - before;
        println!("{WAITERS} waiters: {peak} bytes at the peak, {after} afterwards");
        assert!(after < KEPT, "{after} bytes are kept");
    }
    // The queue works as before.
    drop(lease);
    assert!(last.is_woken());
    assert_eq!(*last.done().unwrap(), 1);
}
