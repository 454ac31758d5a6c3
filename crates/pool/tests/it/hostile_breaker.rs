//! Breakers in trouble: probes that are held, strategies that want to be asked all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote_pool::{
    AcquireError, Advice, BreakerState, ConsecutiveFailures, FailureRate, FnPool, Lease, Report,
    Strategy,
};

use crate::tools::*;

/// A pool with an open breaker whose cool-down of 100 ms is over.
fn recovering(strategy: impl Strategy) -> (Manual, FnPool<usize, Oops>) {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual).max(4).breaker(strategy);
    let pool = pool.build().unwrap();
    pool.half_open_breaker();
    (manual, pool)
}

/// One probe that was held refused every other acquire, for as long as it was held.
#[test]
fn h8_held_probe_does_not_block_the_pool() {
    let strategy = ConsecutiveFailures::new(1).with_cool_down(millis(100));
    let (manual, pool) = recovering(strategy);
    let held = now(pool.acquire()).unwrap();
    manual.advance_millis(99);
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::Unavailable(_))
    ));
    manual.advance_millis(1);
    let probe = now(pool.acquire()).unwrap();
    // No more than the limit within a cool-down.
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::Unavailable(_))
    ));
    drop(probe);
    assert_eq!(pool.breaker(), BreakerState::Closed);
    drop(held);
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

/// An old probe's verdict still counts while the breaker recovers.
#[test]
fn h8_late_verdict_of_a_held_probe_counts() {
    let strategy = ConsecutiveFailures::new(1).with_cool_down(millis(100));
    let (manual, pool) = recovering(strategy);
    let held = now(pool.acquire()).unwrap();
    manual.advance_millis(100);
    let probe = now(pool.acquire()).unwrap();
    drop(held);
    assert_eq!(pool.breaker(), BreakerState::Closed);
    drop(probe);
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

/// Probes that are dropped without a verdict make room for others, old or not.
#[test]
fn h8_held_probes_never_add_up() {
    let strategy = ConsecutiveFailures::new(1).with_cool_down(millis(100));
    let (manual, pool) = recovering(strategy);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(now(pool.acquire()).unwrap());
        assert!(matches!(
            now(pool.acquire()),
            Err(AcquireError::Unavailable(_))
        ));
        manual.advance_millis(100);
    }
    held.into_iter().for_each(Lease::discard);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

/// Never recovers, and has no cool-down.
struct Impatient(Arc<AtomicU64>);

impl Strategy for Impatient {
    fn report_success(&self, _: &Report<'_>) {}

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        Advice::Open
    }

    fn should_recover(&self, _: Instant) -> bool {
        // Gives up in the end, so that the test fails and does not hang.
        self.0.fetch_add(1, Ordering::SeqCst) > 10_000
    }

    fn cool_down(&self) -> Duration {
        Duration::ZERO
    }
}

/// The maintenance asked such a strategy without end, and never slept.
#[test]
fn h10_cool_down_of_zero_does_not_spin_the_maintenance() {
    let (log, manual) = (Log::default(), Manual::new());
    let asked = Arc::new(AtomicU64::new(0));
    let pool = numbers(&log, &manual)
        .before_release(|_: &mut usize| false)
        .breaker(Impatient(Arc::clone(&asked)))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Open);
    manual.advance(Duration::from_secs(1));
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=11).contains(&asked), "asked {asked} times in a second");
    assert!(now(pool.acquire()).is_err());
}

/// With no cool-down an open breaker may recover at once, as before.
#[test]
fn h10_cool_down_of_zero_recovers_at_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let strategy = ConsecutiveFailures::new(1).with_cool_down(Duration::ZERO);
    let pool = numbers(&log, &manual).breaker(strategy).max(2);
    let pool = pool
        .before_release(|number: &mut usize| *number > 1)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Open);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

/// The window kept an entry for each report.
#[test]
fn h10_failure_rate_keeps_its_window_in_little_memory() {
    let (log, manual) = (Log::default(), Manual::new());
    let strategy = Arc::new(FailureRate::new(0.5, Duration::from_secs(60), 10));
    let pool = numbers(&log, &manual).max(1).build().unwrap();
    pool.set_strategy(Some(Arc::clone(&strategy) as Arc<dyn Strategy>));
    for _ in 0..100_000 {
        drop(now(pool.acquire()).unwrap());
        manual.advance(Duration::from_micros(100));
    }
    let size = format!("{strategy:?}").len();
    assert!(size < 20_000, "its state prints in {size} bytes");
}
