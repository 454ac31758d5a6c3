//! A limit on waiters.

use cenote_pool::{AcquireError, Lease};

use crate::tools::*;

#[test]
fn newcomer_is_turned_away_when_enough_wait() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1).max_waiting(2);
    let pool = builder.build().unwrap();
    let lease = now(pool.acquire()).unwrap();
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    for timeout in [None, Some(millis(100))] {
        let error = match timeout {
            None => now(pool.acquire()).unwrap_err(),
            Some(timeout) => now(pool.acquire_with(at_most(timeout))).unwrap_err(),
        };
        let AcquireError::QueueFull { waiting, limit } = error else {
            panic!("not turned away: {error}");
        };
        assert_eq!((waiting, limit), (2, 2));
        assert!(error.to_string().contains("2 acquires wait"), "{error}");
    }
    assert_eq!((pool.status().waiting, pool.counters().rejected), (2, 2));
    // One with a reservation does not count.
    drop(lease);
    let mut third = hand(pool.acquire());
    third.waits();
    assert!(now(pool.acquire()).is_err());
    for waiter in [&mut first, &mut second, &mut third] {
        drop(waiter.done().unwrap());
    }
    drop(now(pool.acquire()).unwrap());
}

/// The short way into a queue, which is taken once there is a maintenance task, knows the limit too.
#[test]
fn limit_holds_in_a_crowd() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1).max_waiting(10);
    let pool = builder.build().unwrap();
    let mut lease = now(pool.acquire()).unwrap();
    let mut waiting: std::collections::VecDeque<_> = std::collections::VecDeque::new();
    for _ in 0..100 {
        while waiting.len() < 10 {
            let mut waiter = hand(pool.acquire());
            waiter.waits();
            waiting.push_back(waiter);
        }
        assert!(now(pool.acquire()).is_err());
        drop(lease);
        manual.run();
        lease = waiting.pop_front().unwrap().done().unwrap();
    }
    assert_eq!(pool.counters().rejected, 100);
}

#[test]
fn acquires_with_a_creation_under_way_do_not_count() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = gated_numbers(&log, &manual, &gate).max(3).max_waiting(0);
    let pool = builder.build().unwrap();
    let mut creating: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    creating.iter_mut().for_each(Hand::waits);
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::QueueFull {
            waiting: 0,
            limit: 0
        })
    ));
    gate.open();
    manual.run();
    let leases: Vec<_> = creating
        .iter_mut()
        .map(|hand| hand.done().unwrap())
        .collect();
    drop(leases);
    drop(now(pool.acquire()).unwrap());
}

#[test]
fn limit_changes_at_run_time_without_ending_holders() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    pool.set_max_waiting(Some(1));
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::QueueFull {
            waiting: 3,
            limit: 1
        })
    ));
    waiters.iter_mut().for_each(Hand::waits);
    pool.set_max_waiting(None);
    let mut last = hand(pool.acquire());
    last.waits();
    drop(lease);
    for waiter in &mut waiters {
        drop(waiter.done().unwrap());
    }
    drop(last.done().unwrap());
}

/// One whose resource the hook refused waited before: it is not turned away.
#[test]
fn refused_acquire_is_not_turned_away() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .max_waiting(0)
        .before_acquire(|number: &mut usize| *number > 1)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 2);
    Lease::discard(lease);
}
