//! The circuit breaker, moved by hand, and the reports to its strategy.

use std::sync::{Arc, Mutex};

use cenote_pool::{AcquireError, Advice, BreakerState, Failure, PoolId, Report, Strategy};

use crate::tools::*;

/// Notes every report and never opens the breaker.
#[derive(Default)]
pub struct Recorder {
    pub successes: Mutex<Vec<PoolId>>,
    pub failures: Mutex<Vec<Failure>>,
}

impl Recorder {
    /// How many successes and failures were reported.
    pub fn counts(&self) -> (usize, usize) {
        let successes = self.successes.lock().unwrap().len();
        (successes, self.failures.lock().unwrap().len())
    }
}

impl Strategy for Recorder {
    fn report_success(&self, report: &Report<'_>) {
        assert!(report.failure.is_none());
        self.successes.lock().unwrap().push(report.pool);
    }

    fn report_failure(&self, report: &Report<'_>) -> Advice {
        let failure = report.failure.unwrap().clone();
        self.failures.lock().unwrap().push(failure);
        Advice::Stay
    }
}

/// P-040, F-007
#[test]
fn every_transition_by_hand_is_seen_at_once() {
    let pool = units().build().unwrap();
    assert_eq!(pool.breaker(), BreakerState::Closed);
    pool.open_breaker();
    assert_eq!(pool.breaker(), BreakerState::Open);
    pool.half_open_breaker();
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
    pool.close_breaker();
    assert_eq!(pool.breaker(), BreakerState::Closed);
    assert_eq!(pool.status().breaker, BreakerState::Closed);
}

/// P-041, P-042a, P-042b
#[test]
fn open_breaker_refuses_despite_idle_resources_and_keeps_them() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(2).open()).unwrap();
    pool.open_breaker();
    let refused = now(pool.acquire()).unwrap_err();
    assert!(matches!(refused, AcquireError::Unavailable(_)));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert!(pool.try_acquire_idle().is_none());
    pool.close_breaker();
    assert_eq!(*now(pool.try_acquire()).unwrap().unwrap(), 1);
    assert_eq!((log.made(), log.gone().len()), (2, 0));
}

/// P-043, for a breaker without a strategy.
#[test]
fn a_recovering_breaker_without_a_strategy_admits_every_acquire() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    pool.half_open_breaker();
    let (first, second) = (now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap());
    drop((first, second));
    assert_eq!(counts(&pool), (2, 2, 0));
    assert_eq!(pool.breaker(), BreakerState::HalfOpen);
}

/// The decision: deactivating wakes every parked waiter with `Unavailable`.
#[test]
fn deactivating_fails_every_waiter() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    pool.open_breaker();
    assert_eq!(pool.status().waiting, 0);
    for mut waiter in waiters {
        assert!(waiter.is_woken());
        assert!(matches!(waiter.done(), Err(AcquireError::Unavailable(_))));
    }
    drop(lease);
    assert_eq!(counts(&pool), (1, 1, 0));
}

/// B-002, surprise 2: a waiter that finds the breaker open passes its place on.
#[test]
fn reservation_cancelled_by_an_open_breaker_stays_usable() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    pool.open_breaker();
    assert!(matches!(waiter.done(), Err(AcquireError::Unavailable(_))));
    pool.close_breaker();
    assert_eq!((pool.status().idle, pool.status().reserved), (1, 0));
    assert_eq!(*now(pool.try_acquire()).unwrap().unwrap(), 1);
    assert_eq!(log.made(), 1);
}

/// P-044, F-011
#[test]
fn a_strategy_comes_and_goes_without_a_report() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let recorder = Arc::new(Recorder::default());
    pool.set_strategy(Some(recorder.clone()));
    assert_eq!(recorder.counts(), (0, 0));
    pool.set_strategy(None);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(recorder.counts(), (0, 0));
    assert_eq!(Arc::strong_count(&recorder), 1);
}

/// P-045a, P-045b
#[test]
fn a_clean_release_reports_one_success_in_the_name_of_its_pool() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let recorder = Arc::new(Recorder::default());
    pool.set_strategy(Some(recorder.clone()));
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(recorder.counts(), (0, 0));
    drop(lease);
    assert_eq!(*recorder.successes.lock().unwrap(), [pool.id()]);
    assert_eq!(recorder.counts(), (1, 0));
}

/// P-052a, P-052b, B-028
#[test]
fn a_refused_release_reports_one_failure_with_a_fixed_text() {
    let log = Log::default();
    let recorder = Arc::new(Recorder::default());
    let pool = numbers(&log, &Manual::new())
        .before_release(|_: &mut usize| false)
        .build()
        .unwrap();
    pool.set_strategy(Some(recorder.clone()));
    drop(now(pool.acquire()).unwrap());
    assert_eq!(recorder.counts(), (0, 1));
    let failure = recorder.failures.lock().unwrap()[0].clone();
    assert_eq!(failure, Failure::Rejected(None));
    let text = "a resource failed validation on release";
    assert_eq!(failure.to_string(), text);
}

#[test]
fn a_failed_creation_is_reported_with_its_error() {
    let log = Log::default();
    let recorder = Arc::new(Recorder::default());
    let pool = numbers(&log, &Manual::new())
        .create(|| async { Err(Oops("down")) })
        .build()
        .unwrap();
    pool.set_strategy(Some(recorder.clone()));
    assert!(now(pool.acquire()).is_err());
    let failures = recorder.failures.lock().unwrap();
    assert_eq!(failures[..], [Failure::Create("down".into())]);
}

/// The decision: on a closed pool breaker reports are skipped. And discarding
/// says nothing of the thing behind the pool.
#[test]
fn neither_a_closed_pool_nor_a_discarded_lease_reports_anything() {
    let log = Log::default();
    let recorder = Arc::new(Recorder::default());
    let pool = number_pool(&log, &Manual::new(), 2);
    pool.set_strategy(Some(recorder.clone()));
    let (first, second) = (now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap());
    cenote_pool::Lease::discard(first);
    now(pool.close()).unwrap();
    drop(second);
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(recorder.counts(), (0, 0));
}
