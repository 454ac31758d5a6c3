//! Tasks that all wait at once on a pool of one that is held: what a waiter
//! costs in memory.
//!
//! Live bytes are counted by the allocator, three times on a fresh runtime with
//! one thread, each time when all tasks have been polled and are waiting:
//!
//! 1. tasks that wait for nothing: they await [`pending`];
//! 2. tasks that wait for nothing, and hold an acquire that was never polled;
//! 3. tasks that wait for the pool.
//!
//! 3 − 1 is what a waiter costs beyond the task itself; 3 − 2 is the part of it
//! that the pool allocates. The rest is the size of the acquire's future, which
//! lies in the task; Tokio rounds tasks up to 128 bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::task::yield_now;

use super::threads::own_runtime;
use crate::pools::{Patience, Subject};

/// A pool that takes longer than this counts as hung.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a waiter costs, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Beyond a task that waits for nothing.
    pub beyond_task: f64,
    /// Of that, what the pool allocates.
    pub by_pool: f64,
    /// The future that `acquire` returns.
    pub future: usize,
}

/// `None` if the pool has no such setting, or hangs.
pub fn run<P: Subject>(tasks: usize, patience: Patience) -> Option<Memory> {
    // On a thread of its own, which can be leaked if it hangs.
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(measure::<P>(tasks, patience));
    });
    result.recv_timeout(DEADLINE).ok()?
}

fn measure<P: Subject>(tasks: usize, patience: Patience) -> Option<Memory> {
    let (idle, _) = bytes::<P, _>(tasks, patience, |pool, polled| async move {
        polled.fetch_add(1, Ordering::Relaxed);
        pending::<()>().await;
        // Never reached: only keeps the pool in the task, as the others do.
        drop(pool.acquire());
    })?;
    let (holding, _) = bytes::<P, _>(tasks, patience, |pool, polled| async move {
        let acquire = pool.acquire();
        polled.fetch_add(1, Ordering::Relaxed);
        pending::<()>().await;
        drop(acquire);
    })?;
    let (waiting, future) = bytes::<P, _>(tasks, patience, |pool, polled| async move {
        polled.fetch_add(1, Ordering::Relaxed);
        drop(pool.acquire().await);
    })?;
    let each = |bytes: isize| bytes as f64 / tasks as f64;
    Some(Memory {
        beyond_task: each(waiting - idle),
        by_pool: each(waiting - holding),
        future,
    })
}

/// Returns the bytes that all tasks hold while they wait, and the size of an
/// acquire.
fn bytes<P: Subject, F: Future<Output = ()> + Send + 'static>(
    tasks: usize,
    patience: Patience,
    task: impl Fn(&'static P, Arc<AtomicUsize>) -> F,
) -> Option<(isize, usize)> {
    let runtime = own_runtime();
    let counted = runtime.block_on(async {
        let pool: &'static P = Box::leak(Box::new(P::open(1, patience).await?));
        let future = size_of_val(&pool.acquire());
        let held = pool.acquire().await.expect("the only resource");
        let polled = Arc::new(AtomicUsize::new(0));
        let before = Counting::start();
        for _ in 0..tasks {
            drop(tokio::spawn(task(pool, Arc::clone(&polled))));
        }
        // There is one thread, so a task that has counted itself has also been polled.
        while polled.load(Ordering::Relaxed) < tasks {
            yield_now().await;
        }
        let bytes = Counting::stop() - before;
        // Given back on the runtime, as some pools require.
        drop(held);
        Some((bytes, future))
    });
    drop(runtime);
    counted
}

/// The system's allocator, which counts live bytes while counting is on. At other
/// times it only reads an unchanged word, which slows no pool down.
pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

impl Counting {
    fn start() -> isize {
        COUNTS.store(true, Ordering::SeqCst);
        LIVE.load(Ordering::SeqCst)
    }

    fn stop() -> isize {
        COUNTS.store(false, Ordering::SeqCst);
        LIVE.load(Ordering::SeqCst)
    }

    fn count(bytes: isize) {
        if COUNTS.load(Ordering::Relaxed) {
            LIVE.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
