//! What the way without waiting costs: no allocation, no lock.
#![cfg(not(loom))]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cenote_pool::{FnManager, Info, Lease, Manager, Pool, Verdict};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("an idle resource is there at once"),
    }
}

#[track_caller]
fn allocates_nothing(what: &str, mut act: impl FnMut()) {
    // The first round may set up what a thread needs once.
    act();
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        act();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "{what} allocates");
}

/// Async hooks of a manager, which are not boxed.
struct Hooked;

impl Manager for Hooked {
    type Resource = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(0)
    }

    async fn before_acquire(&self, resource: &mut u64, _: Info<'_>) -> Result<bool, Infallible> {
        Ok(*resource < u64::MAX)
    }

    fn before_release(&self, resource: &mut u64, _: Info<'_>) -> Verdict {
        *resource += 1;
        Verdict::Keep
    }
}

#[test]
fn an_acquire_that_need_not_wait_allocates_nothing() {
    let pool = Pool::builder(Hooked).build().unwrap();
    drop(ready(pool.acquire()).unwrap());
    allocates_nothing("a borrowed lease", || drop(ready(pool.acquire()).unwrap()));
    allocates_nothing("an owned lease", || {
        drop(ready(pool.acquire_owned()).unwrap());
    });
    allocates_nothing("an explicit release", || {
        ready(Lease::release(ready(pool.acquire()).unwrap()));
    });
    allocates_nothing("try_acquire", || {
        drop(ready(pool.try_acquire()).unwrap().unwrap());
    });
}

#[test]
fn plain_closures_as_hooks_allocate_nothing_either() {
    let pool: Pool<FnManager<u64, Infallible>> = Pool::from_fn(|| async { Ok(0) })
        .before_acquire(|resource: &mut u64| *resource < u64::MAX)
        .before_release(|resource: &mut u64| *resource += 1)
        .build()
        .unwrap();
    drop(ready(pool.acquire()).unwrap());
    allocates_nothing("a lease", || drop(ready(pool.acquire()).unwrap()));
}
