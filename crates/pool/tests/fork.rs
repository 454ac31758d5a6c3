//! `fork`: pools made in the child work, and pools that the child inherits are closed there.
#![cfg(all(unix, not(loom)))]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cenote_pool::{AcquireError, AcquireOptions, FnPool, Lease, Pool, Runtime, ThreadRuntime};

/// Runs this in a child process, which must end by itself. A panic in it fails the test.
#[track_caller]
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child runs only what it is given here, and ends without unwinding further.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork"),
        0 => {
            // SAFETY: takes no memory. It ends a child that hangs.
            unsafe { libc::alarm(20) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` may be written.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child hung or panicked (its wait status)");
        }
    }
}

/// Resources that the destructor counts.
fn pool_of(destroyed: &Arc<AtomicUsize>, max: usize) -> FnPool<usize, Infallible> {
    let (made, gone) = (AtomicUsize::new(0), Arc::clone(destroyed));
    Pool::from_fn(move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        async move { Ok(number) }
    })
    .destroy(move |_| {
        gone.fetch_add(1, Ordering::SeqCst);
    })
    .max(max)
    .runtime(ThreadRuntime::new())
    .build()
    .unwrap()
}

/// A pool does its work here: queue, deadline, background tasks.
fn works() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let pool = pool_of(&destroyed, 1);
    let lease = pool.acquire_blocking().unwrap();
    let late = pool.acquire_blocking_with(AcquireOptions::new().timeout(Duration::from_millis(5)));
    assert!(matches!(late.map(drop), Err(AcquireError::Timeout(_))));
    // Only the built-in thread can wake this one.
    let late = smol::future::block_on(
        pool.acquire_with(AcquireOptions::new().timeout(Duration::from_millis(5))),
    );
    assert!(matches!(late.map(drop), Err(AcquireError::Timeout(_))));
    let (send, receive) = std::sync::mpsc::channel();
    ThreadRuntime::new().spawn(Box::pin(async move { send.send(()).unwrap() }));
    receive.recv().unwrap();
    drop(lease);
    drop(pool);
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
}

#[test]
fn h4_pool_made_in_a_child_works() {
    // The parent's built-in thread exists.
    works();
    in_child(|| {
        works();
        // So does a child of the child.
        in_child(works);
    });
    works();
}

/// The parent's locks change hands while it forks.
#[test]
fn h4_child_of_a_busy_parent_works() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let pool = pool_of(&destroyed, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    drop(pool.acquire_blocking_with(
                        AcquireOptions::new().timeout(Duration::from_millis(1)),
                    ));
                    drop(pool_of(&destroyed, 1));
                }
            });
        }
        for _ in 0..50 {
            in_child(|| {
                refuses(&pool);
                works();
            });
        }
        stop.store(true, Ordering::SeqCst);
    });
    drop(pool.acquire_blocking().unwrap());
}

/// An inherited pool is closed, and every call on it ends.
fn refuses(pool: &FnPool<usize, Infallible>) {
    let forked = pool.acquire_blocking();
    assert!(matches!(&forked, Err(AcquireError::Forked)), "{forked:?}");
    let forked = smol::future::block_on(
        pool.acquire_with(AcquireOptions::new().timeout(Duration::from_secs(60))),
    );
    assert!(matches!(forked, Err(AcquireError::Forked)));
    assert!(
        smol::future::block_on(pool.try_acquire())
            .unwrap()
            .is_none()
    );
    assert!(pool.try_acquire_idle().is_none());
    assert!(pool.is_closed() && pool.status().idle == 0);
    pool.resize(3).unwrap();
    pool.replace_all();
    let _ = (pool.counters(), pool.holders());
    smol::future::block_on(pool.close()).unwrap();
}

#[test]
fn h4_inherited_pool_is_closed_in_the_child() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let pool = pool_of(&destroyed, 3);
    let held = pool.acquire_blocking().unwrap();
    let owned = smol::future::block_on(pool.acquire_owned()).unwrap();
    drop(pool.acquire_blocking().unwrap());
    let (first, second) = (*held, *owned);
    let (mut held, mut owned) = (Some(held), Some(owned));
    in_child(|| {
        refuses(&pool);
        // What it inherited is the parent's: it is neither returned nor destroyed.
        drop(held.take());
        drop(owned.take());
        assert_eq!(
            (pool.status().idle, destroyed.load(Ordering::SeqCst)),
            (0, 0)
        );
        drop(pool.clone());
        works();
    });
    // The parent goes on with all three.
    assert_eq!(*held.unwrap(), first);
    assert_eq!(*owned.unwrap(), second);
    assert_eq!((pool.status().idle, pool.is_closed()), (3, false));
    assert_eq!(destroyed.load(Ordering::SeqCst), 0);
}

#[test]
fn h4_inherited_pool_may_be_dropped_in_the_child() {
    let destroyed = Arc::new(AtomicUsize::new(0));
    let pool = pool_of(&destroyed, 1);
    let lease = pool.acquire_blocking().unwrap();
    let mut waiter = Box::pin(pool.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiter.as_mut().poll(&mut context).is_pending());
    let mut inherited = Some((waiter, lease));
    in_child(|| {
        let (mut waiter, lease) = inherited.take().unwrap();
        let polled = waiter.as_mut().poll(&mut context);
        assert!(matches!(polled, Poll::Ready(Err(AcquireError::Forked))));
        Lease::discard(lease);
        let another = pin!(pool.acquire());
        assert!(another.poll(&mut context).is_ready());
        assert_eq!(destroyed.load(Ordering::SeqCst), 0);
    });
    let (waiter, lease) = inherited.unwrap();
    drop(lease);
    drop(smol::future::block_on(waiter).unwrap());
}

/// What an inherited pool must not do in the child: wait for a lock of a thread that is not there, or call the
/// parent's listeners.
#[test]
fn h4_inherited_lease_and_listener_are_left_alone() {
    let pool = pool_of(&Arc::new(AtomicUsize::new(0)), 3);
    let (calls, parent) = (Arc::new(AtomicUsize::new(0)), std::process::id());
    let heard = Arc::clone(&calls);
    let mut listener = Some(pool.on_event(move |_| {
        if std::process::id() != parent {
            heard.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let mut held = Some(pool.acquire_blocking().unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    drop(pool.acquire_blocking().unwrap());
                }
            });
        }
        let forks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..40 {
                in_child(|| {
                    Lease::discard(held.take().unwrap());
                    drop(listener.take());
                    assert_eq!(calls.load(Ordering::SeqCst), 0);
                });
            }
        }));
        stop.store(true, Ordering::SeqCst);
        forks.unwrap();
    });
}
