//! The circuit breaker with a strategy: it opens, cools down, probes, recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cenote_pool::{
    AcquireError, Advice, BreakerState, ConsecutiveFailures, Event, FailureRate, FnPool, Lease,
    Report, Strategy,
};

use crate::tools::*;

/// Opens at every failure; recovers on request.
#[derive(Default)]
struct Touchy {
    healthy: AtomicBool,
    asked: AtomicU32,
    probes: u32,
}

impl Strategy for Touchy {
    fn report_success(&self, _: &Report<'_>) {}

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        Advice::Open
    }

    fn should_recover(&self, _: Instant) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.healthy.load(Ordering::SeqCst)
    }

    fn cool_down(&self) -> Duration {
        millis(100)
    }

    fn probes(&self) -> u32 {
        self.probes.max(1)
    }
}

/// A pool whose releases are refused while `sick`.
fn pool_with(
    strategy: Arc<dyn Strategy>,
    sick: &Arc<AtomicBool>,
) -> (Log, Manual, FnPool<usize, Oops>) {
    let (log, manual, sick) = (Log::default(), Manual::new(), Arc::clone(sick));
    let builder = numbers(&log, &manual).max(4);
    let pool = builder
        .before_release(move |_: &mut usize| !sick.load(Ordering::SeqCst))
        .build()
        .unwrap();
    pool.set_strategy(Some(strategy));
    (log, manual, pool)
}

fn sick() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

#[test]
fn advice_to_open_fails_every_waiter() {
    let (_, _, pool) = pool_with(Arc::new(Touchy::default()), &sick());
    pool.resize(1).unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    assert_eq!(pool.breaker(), BreakerState::Open);
    assert!(matches!(waiter.done(), Err(AcquireError::Unavailable(_))));
}

#[test]
fn a_failed_creation_can_open_the_breaker() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .create(|| async { Err(Oops("down")) })
        .breaker(ConsecutiveFailures::new(2))
        .no_backoff()
        .build()
        .unwrap();
    assert!(matches!(now(pool.acquire()), Err(AcquireError::Create(_))));
    assert_eq!(pool.breaker(), BreakerState::Closed);
    assert!(matches!(now(pool.acquire()), Err(AcquireError::Create(_))));
    assert_eq!(pool.breaker(), BreakerState::Open);
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::Unavailable(_))
    ));
}

#[test]
fn after_the_cool_down_maintenance_probes_and_probes_again() {
    let strategy = Arc::new(Touchy::default());
    let (_, manual, pool) = pool_with(strategy.clone(), &sick());
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(99);
    assert_eq!(strategy.asked.load(Ordering::SeqCst), 0);
    manual.advance_millis(1);
    assert_eq!(strategy.asked.load(Ordering::SeqCst), 1);
    assert_eq!(pool.breaker(), BreakerState::Open);
    strategy.healthy.store(true, Ordering::SeqCst);
    manual.advance_millis(99);
    assert_eq!(strategy.asked.load(Ordering::SeqCst), 1);
    manual.advance_millis(1);
    assert_eq!(strategy.asked.load(Ordering::SeqCst), 2);
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
}

#[test]
fn the_next_acquire_asks_too() {
    let strategy = Arc::new(Touchy::default());
    strategy.healthy.store(true, Ordering::SeqCst);
    let sick = sick();
    let (_, manual, pool) = pool_with(strategy, &sick);
    drop(now(pool.acquire()).unwrap());
    // No executor, so no maintenance task: only the acquire can ask.
    manual.die();
    manual.advance_millis(100);
    assert_eq!(pool.breaker(), BreakerState::Open);
    sick.store(false, Ordering::SeqCst);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

#[test]
fn while_recovering_only_the_probes_are_admitted() {
    let sick = sick();
    let strategy = Touchy {
        probes: 2,
        ..Touchy::default()
    };
    let (_, _, pool) = pool_with(Arc::new(strategy), &sick);
    pool.half_open_breaker();
    let (one, two) = (now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap());
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::Unavailable(_))
    ));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    sick.store(false, Ordering::SeqCst);
    drop(one);
    // One success of two: another probe may go.
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
    drop(two);
    assert_eq!(pool.breaker(), BreakerState::Closed);
    assert!(now(pool.acquire()).is_ok());
}

#[test]
fn a_failed_probe_opens_the_breaker_for_another_cool_down() {
    let strategy = Arc::new(Touchy::default());
    strategy.healthy.store(true, Ordering::SeqCst);
    let (_, manual, pool) = pool_with(strategy, &sick());
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(100);
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Open);
    manual.advance_millis(99);
    assert_eq!(pool.breaker(), BreakerState::Open);
    manual.advance_millis(1);
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
}

#[test]
fn a_probe_that_ends_without_a_verdict_makes_room_for_another() {
    let (_, _, pool) = pool_with(Arc::new(Touchy::default()), &sick());
    pool.half_open_breaker();
    // Discarded, detached, or cancelled before it got anything.
    Lease::discard(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
    let (_, place) = Lease::detach(now(pool.acquire()).unwrap());
    assert!(now(pool.acquire()).is_err());
    drop(place);
    pool.resize(1).unwrap();
    let (_, place) = Lease::detach(now(pool.acquire()).unwrap());
    drop(place);
    assert!(now(pool.acquire()).is_ok());
}

#[test]
fn probe_cancelled_in_the_queue_makes_room_for_another() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(2).build().unwrap();
    pool.set_strategy(Some(Arc::new(Touchy::default())));
    pool.half_open_breaker();
    let mut probe = hand(pool.acquire());
    probe.waits();
    assert!(now(pool.acquire()).is_err());
    drop(probe);
    let mut probe = hand(pool.acquire());
    probe.waits();
    gate.open();
    manual.run();
    drop(probe.done().unwrap());
    assert_eq!(pool.breaker(), BreakerState::Closed);
}

#[test]
fn moves_by_hand_always_win() {
    let strategy = Arc::new(Touchy::default());
    strategy.healthy.store(true, Ordering::SeqCst);
    let (_, manual, pool) = pool_with(strategy.clone(), &sick());
    pool.open_breaker();
    // Opened by hand, no strategy closes it.
    manual.advance_millis(10_000);
    assert_eq!(pool.breaker(), BreakerState::Open);
    assert_eq!(strategy.asked.load(Ordering::SeqCst), 0);
    // A probe of an earlier time has no say any more.
    pool.half_open_breaker();
    let probe = now(pool.acquire()).unwrap();
    pool.open_breaker();
    pool.half_open_breaker();
    drop(probe);
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
}

#[test]
fn consecutive_failures_are_forgotten_at_a_success() {
    let sick = sick();
    let strategy = ConsecutiveFailures::new(3).with_cool_down(millis(70));
    let (_, manual, pool) = pool_with(Arc::new(strategy), &sick);
    for bad in [true, true, false, true, true] {
        sick.store(bad, Ordering::SeqCst);
        drop(now(pool.acquire()).unwrap());
        assert_eq!(pool.breaker(), BreakerState::Closed);
    }
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.breaker(), BreakerState::Open);
    manual.advance_millis(70);
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
}

#[test]
fn failure_rate_counts_in_its_window_once_reports_suffice() {
    let sick = sick();
    let strategy = FailureRate::new(0.5, millis(100), 4);
    let (_, manual, pool) = pool_with(Arc::new(strategy), &sick);
    let report = |bad| {
        sick.store(bad, Ordering::SeqCst);
        drop(now(pool.acquire()).unwrap());
        pool.breaker()
    };
    // Three failures are too few; after the window they are gone.
    for _ in 0..3 {
        assert_eq!(report(true), BreakerState::Closed);
    }
    manual.advance_millis(101);
    for bad in [false, false, false, true, true] {
        assert_eq!(report(bad), BreakerState::Closed);
    }
    // Three of six is half.
    assert_eq!(report(true), BreakerState::Open);
}

/// Panics whatever it is asked.
struct Hostile;

impl Strategy for Hostile {
    fn report_success(&self, _: &Report<'_>) {
        panic!("success");
    }

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        panic!("failure");
    }

    fn cool_down(&self) -> Duration {
        panic!("cool down");
    }
}

#[test]
fn a_strategy_that_panics_is_reported_and_otherwise_ignored() {
    let sick = sick();
    let (log, _, pool) = pool_with(Arc::new(Touchy::default()), &sick);
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::StrategyPanicked { error } = event {
            told.line(&**error);
        }
    })
    .forever();
    pool.set_strategy(Some(Arc::new(Hostile)));
    drop(now(pool.acquire()).unwrap());
    sick.store(false, Ordering::SeqCst);
    drop(now(pool.acquire()).unwrap());
    let said = ["cool down", "failure", "success"];
    assert_eq!(log.lines(), said.map(|what| format!("panicked: {what}")));
    assert_eq!(pool.breaker(), BreakerState::Closed);
    assert_eq!(counts(&pool), (1, 1, 0));
}
