//! What an adversarial review of the pool found: refills under a limit, drops that panic, retired probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote_pool::{BreakerState, ConsecutiveFailures, Lease, Runtime, Task, Verdict};

use crate::tools::*;

#[test]
fn refill_under_a_creation_limit_goes_on() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(4).concurrent_creations(1);
    let pool = builder.build().unwrap();
    pool.set_min(3).unwrap();
    manual.advance(Duration::from_secs(20));
    assert_eq!(counts(&pool), (3, 3, 0));
}

#[test]
fn refill_under_a_creation_limit_needs_no_create_timeout() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).min(6).max(8);
    let pool = builder
        .concurrent_creations(1)
        .no_create_timeout()
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.advance(Duration::from_secs(20));
    assert_eq!(counts(&pool).0, 6);
}

#[test]
fn place_that_a_cancelled_waiter_was_offered_is_refilled() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).min(1).max(1).no_create_timeout();
    let pool = builder.build().unwrap();
    let lease = now(pool.acquire()).unwrap();
    // Past the patience of the first reservation, so that nothing else is due.
    manual.advance_millis(200);
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    Lease::discard(lease);
    assert!(waiter.is_woken());
    drop(waiter);
    manual.advance(Duration::from_secs(20));
    assert_eq!(counts(&pool), (1, 1, 0));
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a bomb went off");
    }
}

#[test]
fn h3_is_permanent_that_panics_when_dropped_is_contained() {
    let (log, manual) = (Log::default(), Manual::new());
    let bomb = Bomb;
    let is_permanent = move |_: &Oops| {
        let _ = &bomb;
        false
    };
    let pool = numbers(&log, &manual)
        .max(1)
        .is_permanent(is_permanent)
        .build()
        .unwrap();
    drop(pool);
}

struct BombRuntime(Manual, Bomb);

impl Runtime for BombRuntime {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn coarse_now(&self) -> u64 {
        self.0.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        self.0.sleep(until)
    }

    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}

#[test]
fn h3_runtime_that_panics_on_drop_with_a_place_is_contained() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .runtime(BombRuntime(manual.clone(), Bomb))
        .build()
        .unwrap();
    let (_, place) = Lease::detach(now(pool.acquire()).unwrap());
    drop(pool);
    manual.advance_millis(10);
    drop(place);
}

#[test]
fn retired_probes_close_the_breaker() {
    let (log, manual) = (Log::default(), Manual::new());
    let is_down = Arc::new(AtomicBool::new(true));
    let (down, made) = (Arc::clone(&is_down), log.clone());
    let pool = numbers(&log, &manual)
        .create(move || {
            let (down, made) = (Arc::clone(&down), made.clone());
            async move {
                match down.load(Ordering::SeqCst) {
                    true => Err(Oops("down")),
                    false => Ok(made.make()),
                }
            }
        })
        .max(4)
        .no_backoff()
        .before_release(|_: &mut usize| Verdict::Retire)
        .breaker(ConsecutiveFailures::new(1).with_cool_down(millis(100)))
        .build()
        .unwrap();
    assert!(now(pool.acquire()).is_err());
    is_down.store(false, Ordering::SeqCst);
    for _ in 0..10 {
        manual.advance_millis(150);
        drop(now(pool.acquire()).unwrap());
        manual.run();
    }
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

#[test]
fn retain_does_not_make_idle_resources_young() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(2)
        .idle_timeout(millis(100))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    for _ in 0..100 {
        manual.advance_millis(50);
        pool.retain(|_, _| true);
    }
    assert_eq!(counts(&pool).0, 0, "idle for 5 s, the limit is 100 ms");
}
