//! Models of the races that matter, through the public interface, so that they
//! hold whatever the store behind it looks like. Run by `ci/test.sh`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p cenote-pool --no-default-features --test loom
//! ```
//!
//! Under loom every atomic, lock and cell of the slots and of the queue is
//! loom's: it tries every schedule within the preemption bound, and reports a
//! lost wake-up as a deadlock and a cell used by two threads as a race.
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cenote_pool::{AcquireError, FnPool, Pool, Runtime, Task};
use loom::future::block_on;
use loom::thread;

/// Time stands still, and background work is dropped: a pool has to be right
/// without either.
struct Inert;

impl Runtime for Inert {
    fn now(&self) -> Instant {
        static NOW: OnceLock<Instant> = OnceLock::new();
        #[allow(clippy::disallowed_methods, reason = "one fixed moment")]
        *NOW.get_or_init(Instant::now)
    }

    fn coarse_now(&self) -> u64 {
        0
    }

    fn sleep(&self, _: Instant) -> Task {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, task: Task) {
        drop(task);
    }
}

/// Time is moved by hand, and background work waits until it is asked for: so
/// there is a maintenance task, and it looks when the model says.
#[derive(Clone, Default)]
struct ByHand {
    seconds: Arc<AtomicUsize>,
    tasks: Arc<Mutex<Vec<Task>>>,
}

impl ByHand {
    fn a_second_passes(&self) {
        self.seconds.fetch_add(1, Ordering::SeqCst);
    }

    /// The maintenance task, which a pool starts when somebody waits.
    fn maintenance(&self) -> Task {
        let mut tasks = self.tasks.lock().unwrap();
        assert_eq!(tasks.len(), 1, "the pool has nothing else to run");
        tasks.remove(0)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::SeqCst) as u64)
    }
}

impl Runtime for ByHand {
    fn now(&self) -> Instant {
        Inert.now() + self.elapsed()
    }

    fn coarse_now(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap()
    }

    fn sleep(&self, _: Instant) -> Task {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, task: Task) {
        self.tasks.lock().unwrap().push(task);
    }
}

#[derive(Debug)]
struct Never;

impl std::fmt::Display for Never {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("never")
    }
}

impl std::error::Error for Never {}

/// What was made and destroyed. Plain atomics: they are witnesses, not part of
/// the model.
#[derive(Default)]
struct Tally {
    made: AtomicUsize,
    gone: AtomicUsize,
}

impl Tally {
    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

type Numbers = FnPool<usize, Never>;

fn pool(max: usize) -> (Numbers, Arc<Tally>) {
    pool_on(max, Inert)
}

fn pool_on(max: usize, runtime: impl Runtime) -> (Numbers, Arc<Tally>) {
    let tally = Arc::new(Tally::default());
    let (made, gone) = (Arc::clone(&tally), Arc::clone(&tally));
    let pool = Pool::from_fn(move || {
        let number = made.made.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Never>(number) }
    })
    .destroy(move |_| {
        gone.gone.fetch_add(1, Ordering::SeqCst);
    })
    .max(max)
    .runtime(runtime)
    .build()
    .unwrap();
    (pool, tally)
}

/// A pool with one resource, out on an owned lease or idle.
fn warm(max: usize) -> (Numbers, Arc<Tally>) {
    let (pool, tally) = pool(max);
    drop(block_on(pool.acquire()).unwrap());
    (pool, tally)
}

/// Polls once, then drops: an acquire that is cancelled.
fn poll_once_then_cancel(pool: &Numbers) -> bool {
    let mut acquire = pin!(pool.acquire());
    let mut context = Context::from_waker(Waker::noop());
    match acquire.as_mut().poll(&mut context) {
        Poll::Ready(lease) => lease.is_ok(),
        Poll::Pending => false,
    }
}

/// Polls once, without anybody to wake.
fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}

#[test]
fn a_new_waiter_never_misses_a_release() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        drop(lease);
        waiter.join().unwrap();
        assert_eq!((tally.made(), pool.status().idle), (1, 1));
    });
}

#[test]
fn two_acquires_without_waiting_never_share_a_resource() {
    loom::model(|| {
        let (pool, tally) = warm(2);
        let other = {
            let pool = pool.clone();
            thread::spawn(move || {
                let mut lease = block_on(pool.acquire()).unwrap();
                *lease += 10;
            })
        };
        {
            let mut lease = block_on(pool.acquire()).unwrap();
            *lease += 10;
        }
        other.join().unwrap();
        let status = pool.status();
        assert_eq!(status.total, tally.made());
        assert_eq!(status.idle, status.total);
    });
}

#[test]
fn a_cancelled_waiter_passes_its_place_on() {
    loom::model(|| {
        let (pool, _) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let cancelled = {
            let pool = pool.clone();
            thread::spawn(move || {
                poll_once_then_cancel(&pool);
            })
        };
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        drop(lease);
        waiter.join().unwrap();
        cancelled.join().unwrap();
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn a_creation_and_a_release_serve_two_waiters() {
    loom::model(|| {
        let (pool, tally) = pool(1);
        let other = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        drop(block_on(pool.acquire()).unwrap());
        other.join().unwrap();
        assert_eq!((tally.made(), pool.status().idle), (1, 1));
    });
}

#[test]
fn closing_while_a_lease_comes_back_destroys_it_once() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let closer = {
            let pool = pool.clone();
            thread::spawn(move || block_on(pool.close()).unwrap())
        };
        drop(lease);
        closer.join().unwrap();
        assert_eq!((tally.made(), tally.gone(), pool.status().total), (1, 1, 0));
    });
}

#[test]
fn close_during_an_acquire_gives_a_lease_or_an_error() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let taker = {
            let pool = pool.clone();
            thread::spawn(move || match block_on(pool.acquire()) {
                Ok(lease) => drop(lease),
                Err(error) => assert!(matches!(error, AcquireError::Closed)),
            })
        };
        block_on(pool.close()).unwrap();
        taker.join().unwrap();
        assert_eq!(tally.gone(), tally.made());
        assert_eq!(pool.status().total, 0);
    });
}

#[test]
fn closing_wakes_a_new_waiter() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || {
                let error = block_on(pool.acquire()).unwrap_err();
                assert!(matches!(error, AcquireError::Closed));
            })
        };
        block_on(pool.close()).unwrap();
        waiter.join().unwrap();
        drop(lease);
        assert_eq!((tally.gone(), pool.status().total), (1, 0));
    });
}

#[test]
fn a_breaker_that_opens_fails_or_serves_a_new_waiter() {
    loom::model(|| {
        let (pool, _) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || match block_on(pool.acquire()) {
                Ok(lease) => drop(lease),
                Err(error) => assert!(matches!(error, AcquireError::Unavailable(_))),
            })
        };
        let breaker = {
            let pool = pool.clone();
            thread::spawn(move || pool.open_breaker())
        };
        drop(lease);
        waiter.join().unwrap();
        breaker.join().unwrap();
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
        assert!(pool.try_acquire_idle().is_none());
    });
}

#[test]
fn shrinking_while_leases_come_back_ends_at_the_new_maximum() {
    loom::model(|| {
        let (pool, tally) = pool(2);
        let one = block_on(pool.acquire_owned()).unwrap();
        let two = block_on(pool.acquire_owned()).unwrap();
        let returns = thread::spawn(move || drop(one));
        let resizes = {
            let pool = pool.clone();
            thread::spawn(move || pool.resize(1).unwrap())
        };
        drop(two);
        returns.join().unwrap();
        resizes.join().unwrap();
        assert_eq!((pool.status().total, tally.gone()), (1, 1));
        assert_eq!(pool.status().idle, 1);
    });
}

#[test]
fn shrink_that_revokes_a_reservation_strands_no_waiter() {
    loom::model(|| {
        let (pool, _) = pool(2);
        let one = block_on(pool.acquire_owned()).unwrap();
        let two = block_on(pool.acquire_owned()).unwrap();
        let mut waiter = Box::pin(pool.acquire_owned());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        // Reserved for the waiter, who does not look yet; nobody else waits, so
        // the other one is taken and given without the lock from here on.
        drop(one);
        drop(two);
        let two = block_on(pool.acquire_owned()).unwrap();
        let resizes = {
            let pool = pool.clone();
            thread::spawn(move || pool.resize(1).unwrap())
        };
        drop(two);
        resizes.join().unwrap();
        drop(block_on(waiter).unwrap());
        let status = pool.status();
        assert_eq!((status.total, status.idle, status.waiting), (1, 1, 0));
    });
}

#[test]
fn growing_serves_a_new_waiter() {
    loom::model(|| {
        let (pool, _) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let waiter = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        pool.resize(2).unwrap();
        waiter.join().unwrap();
        drop(lease);
        assert_eq!(pool.status().waiting, 0);
    });
}

#[test]
fn an_owned_lease_may_outlive_the_last_handle() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let returns = thread::spawn(move || drop(lease));
        drop(pool);
        returns.join().unwrap();
        assert_eq!((tally.made(), tally.gone()), (1, 1));
    });
}

#[test]
fn status_is_sound_while_leases_come_and_go() {
    loom::model(|| {
        let (pool, _) = warm(1);
        let user = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        let status = pool.status();
        assert_eq!(status.total, 1);
        assert_eq!(status.idle + status.active, 1);
        user.join().unwrap();
    });
}

#[test]
fn waiter_that_leaves_while_served_leaves_nothing_reserved() {
    loom::model(|| {
        let (pool, _) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let mut waiter = Box::pin(pool.acquire_owned());
        assert!(poll(&mut waiter).is_pending());
        let returns = thread::spawn(move || drop(lease));
        // Collects, or is too early; then it leaves.
        let collected = poll(&mut waiter);
        drop(waiter);
        drop(collected);
        returns.join().unwrap();
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn collecting_while_the_pool_closes_gives_a_lease_or_an_error() {
    loom::model(|| {
        let (pool, tally) = warm(1);
        let lease = block_on(pool.acquire_owned()).unwrap();
        let mut waiter = Box::pin(pool.acquire_owned());
        assert!(poll(&mut waiter).is_pending());
        drop(lease);
        let closer = {
            let pool = pool.clone();
            thread::spawn(move || block_on(pool.close()).unwrap())
        };
        match block_on(waiter) {
            Ok(lease) => drop(lease),
            Err(error) => assert!(matches!(error, AcquireError::Closed)),
        }
        closer.join().unwrap();
        assert_eq!((tally.made(), tally.gone(), pool.status().total), (1, 1, 0));
    });
}

#[test]
fn collecting_while_a_shrink_revokes_it_still_gives_a_lease() {
    loom::model(|| {
        let (pool, tally) = pool(2);
        let one = block_on(pool.acquire_owned()).unwrap();
        let two = block_on(pool.acquire_owned()).unwrap();
        let mut waiter = Box::pin(pool.acquire_owned());
        assert!(poll(&mut waiter).is_pending());
        drop(one);
        let resizes = {
            let pool = pool.clone();
            thread::spawn(move || pool.resize(1).unwrap())
        };
        let collected = poll(&mut waiter);
        drop(two);
        match collected {
            Poll::Ready(lease) => drop(lease.unwrap()),
            Poll::Pending => drop(block_on(waiter).unwrap()),
        }
        resizes.join().unwrap();
        let status = pool.status();
        assert_eq!((status.total, status.idle, status.waiting), (1, 1, 0));
        assert_eq!(tally.gone(), 1);
    });
}

#[test]
fn reservation_collected_at_its_deadline_has_one_owner() {
    loom::model(|| {
        let runtime = ByHand::default();
        let (pool, _) = pool_on(1, runtime.clone());
        let lease = block_on(pool.acquire_owned()).unwrap();
        let (mut first, mut second) = (
            Box::pin(pool.acquire_owned()),
            Box::pin(pool.acquire_owned()),
        );
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(lease);
        runtime.a_second_passes();
        let mut maintenance = runtime.maintenance();
        let maintenance = thread::spawn(move || {
            assert!(poll(&mut maintenance).is_pending());
            maintenance
        });
        // In time, or the second has it, and the first comes after it.
        if let Poll::Ready(lease) = poll(&mut first) {
            drop(lease.unwrap());
            drop(block_on(second).unwrap());
        } else {
            drop(block_on(second).unwrap());
            drop(block_on(first).unwrap());
        }
        drop(maintenance.join().unwrap());
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn revoked_waiter_that_is_polled_meanwhile_is_served() {
    loom::model(|| {
        let runtime = ByHand::default();
        let (pool, _) = pool_on(1, runtime.clone());
        let lease = block_on(pool.acquire_owned()).unwrap();
        let (mut first, mut second) = (
            Box::pin(pool.acquire_owned()),
            Box::pin(pool.acquire_owned()),
        );
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(lease);
        runtime.a_second_passes();
        let mut maintenance = runtime.maintenance();
        assert!(poll(&mut maintenance).is_pending());
        // The second has it, the first is passed over; the first comes back while the
        // second collects.
        let collects = poll(&mut first);
        assert!(
            collects.is_ready(),
            "it takes what the second has not collected"
        );
        let returns = thread::spawn(move || drop(collects));
        drop(block_on(second).unwrap());
        returns.join().unwrap();
        drop(first);
        drop(maintenance);
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn revoked_waiter_misses_no_lease_that_comes_back_meanwhile() {
    loom::model(|| {
        let runtime = ByHand::default();
        let (pool, _) = pool_on(1, runtime.clone());
        let lease = block_on(pool.acquire_owned()).unwrap();
        let (mut first, mut second) = (
            Box::pin(pool.acquire_owned()),
            Box::pin(pool.acquire_owned()),
        );
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        drop(lease);
        runtime.a_second_passes();
        let mut maintenance = runtime.maintenance();
        assert!(poll(&mut maintenance).is_pending());
        let Poll::Ready(lease) = poll(&mut second) else {
            panic!("the second has it");
        };
        // Nobody is in the queue, so this comes back without the lock, or not.
        let lease = lease.unwrap();
        let returns = thread::spawn(move || drop(lease));
        drop(block_on(first).unwrap());
        returns.join().unwrap();
        drop(maintenance);
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn newcomer_takes_what_a_sleeper_collects_at_the_same_time() {
    loom::model(|| {
        let runtime = ByHand::default();
        let (pool, _) = pool_on(1, runtime.clone());
        let lease = block_on(pool.acquire_owned()).unwrap();
        let mut sleeper = Box::pin(pool.acquire_owned());
        assert!(poll(&mut sleeper).is_pending());
        drop(lease);
        runtime.a_second_passes();
        let mut maintenance = runtime.maintenance();
        // Overdue, and nobody else wants it.
        assert!(poll(&mut maintenance).is_pending());
        let comes = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        drop(block_on(sleeper).unwrap());
        comes.join().unwrap();
        drop(maintenance);
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
    });
}

#[test]
fn every_waiter_of_a_changing_crowd_is_served() {
    loom::model(|| {
        let runtime = ByHand::default();
        let (pool, tally) = pool_on(1, runtime.clone());
        let lease = block_on(pool.acquire_owned()).unwrap();
        let mut crowd: Vec<_> = (0..4).map(|_| Box::pin(pool.acquire_owned())).collect();
        assert!(crowd.iter_mut().all(|waiter| poll(waiter).is_pending()));
        // Reserved for the first; the others are the crowd it is handed over to.
        drop(lease);
        let joins = {
            let pool = pool.clone();
            thread::spawn(move || drop(block_on(pool.acquire()).unwrap()))
        };
        let last = crowd.pop().unwrap();
        drop(block_on(crowd.remove(0)).unwrap());
        drop(last);
        for waiter in crowd {
            drop(block_on(waiter).unwrap());
        }
        joins.join().unwrap();
        let status = pool.status();
        assert_eq!((status.idle, status.waiting, status.reserved), (1, 0, 0));
        assert_eq!(tally.made(), 1);
        drop(runtime.maintenance());
    });
}
