//! Lifetimes, and replacement.

use cenote_pool::{DestroyReason, FnPool, Order};

use crate::tools::*;

/// A pool whose resources live for 100 ms exactly, looked at every 25 ms.
fn mortal(log: &Log, manual: &Manual, gate: &Gate, max: usize) -> FnPool<usize, Oops> {
    let builder = gated_numbers(log, manual, gate).max(max);
    let builder = builder.max_lifetime(millis(100)).lifetime_jitter(0.0);
    builder.build().unwrap()
}

#[test]
fn with_free_places_the_new_one_comes_before_the_old_one_goes() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = mortal(&log, &manual, &gate, 2);
    gate.let_one_pass();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(99);
    assert_eq!((gate.arrived(), counts(&pool)), (1, (1, 1, 0)));
    manual.advance_millis(26);
    // The replacement is under way, and the old one still serves.
    assert_eq!((gate.arrived(), pool.status().creating), (2, 1));
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
    assert_eq!(log.gone(), []);
    gate.let_one_pass();
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
    let reason = DestroyReason::Lifetime;
    assert_eq!(pool.counters().destroyed_for(reason), 1);
}

#[test]
fn without_room_the_old_one_goes_first() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let pool = mortal(&log, &manual, &gate, 1);
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(125);
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (0, 0, 0));
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

#[test]
fn a_leased_resource_is_left_alone_until_it_comes_back() {
    for max in [1, 2] {
        let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
        gate.open();
        let pool = mortal(&log, &manual, &gate, max);
        let lease = now(pool.acquire()).unwrap();
        manual.advance_millis(175);
        assert_eq!((*lease, log.gone()), (1, vec![]));
        // With room its successor is there already.
        assert_eq!(log.made(), max);
        drop(lease);
        assert_eq!(log.gone(), [1]);
        assert_eq!(*now(pool.acquire()).unwrap(), 2);
    }
}

#[test]
fn a_crowd_is_served_with_a_resource_for_as_long_as_that_lives() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let pool = mortal(&log, &manual, &gate, 1);
    let mut lease = now(pool.acquire()).unwrap();
    let mut crowd: Vec<_> = (0..6).map(|_| hand(pool.acquire())).collect();
    crowd.iter_mut().for_each(|waiter| waiter.waits());
    let mut crowd = crowd.into_iter();
    for served in 1..=3 {
        manual.advance_millis(33);
        drop(lease);
        lease = crowd.next().unwrap().done().unwrap();
        assert_eq!((*lease, served, log.gone()), (1, served, vec![]));
    }
    // 99 ms old, and then over its lifetime.
    manual.advance_millis(26);
    drop(lease);
    assert_eq!(log.gone(), [1]);
    let lease = crowd.next().unwrap().waits_for(&manual).unwrap();
    assert_eq!(*lease, 2);
}

#[test]
fn resource_that_expires_on_hand_off_serves_its_waiter_once() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let pool = mortal(&log, &manual, &gate, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut crowd: Vec<_> = (0..6).map(|_| hand(pool.acquire())).collect();
    crowd.iter_mut().for_each(|waiter| waiter.waits());
    manual.advance_millis(80);
    drop(lease);
    // It is reserved for the first of them, who does not come for it yet.
    manual.advance_millis(46);
    let mut crowd = crowd.into_iter();
    let late = crowd.next().unwrap().done().unwrap();
    assert_eq!((*late, log.gone()), (1, vec![]));
    drop(late);
    assert_eq!(log.gone(), [1]);
    assert_eq!(*crowd.next().unwrap().waits_for(&manual).unwrap(), 2);
}

/// One that dies at 100 ms, with a factory that fails from the second call to
/// the given one.
fn failing_until(log: &Log, manual: &Manual, good: usize, order: Order) -> FnPool<usize, Oops> {
    let make = log.clone();
    let builder = numbers(log, manual).create(move || {
        let number = make.make();
        async move {
            if number > 1 && number < good {
                return Err(Oops("down"));
            }
            Ok(number)
        }
    });
    let builder = builder.max(2).order(order).backoff(millis(60), millis(60));
    let builder = builder.max_lifetime(millis(100)).lifetime_jitter(0.0);
    builder.build().unwrap()
}

#[test]
fn expired_resource_stays_until_its_replacement_can_be_created() {
    for order in [Order::Affine, Order::Fifo] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = failing_until(&log, &manual, 5, order);
        drop(now(pool.acquire()).unwrap());
        // The replacement fails at 100 ms, and again later; in between the
        // back-off forbids another try, which is no reason to break anything.
        for _ in 0..40 {
            manual.advance_millis(25);
            if log.made() == 5 {
                break;
            }
            assert_eq!(*now(pool.acquire()).unwrap(), 1, "{order:?}");
            assert_eq!(log.gone(), [], "{order:?}");
        }
        assert_eq!((log.made(), log.gone()), (5, vec![1]), "{order:?}");
        assert_eq!(*now(pool.acquire()).unwrap(), 5);
    }
}

#[test]
fn lifetimes_of_resources_made_together_differ() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(64);
    let pool = builder
        .max_lifetime(millis(1000))
        .lifetime_jitter(0.5)
        .build()
        .unwrap();
    let leases: Vec<_> = (0..64).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    // At least 500 ms, at most 1500 ms and a quarter of a lifetime.
    manual.advance_millis(499);
    assert_eq!(log.gone().len(), 0);
    manual.advance_millis(501);
    let half = log.gone().len();
    assert!(half > 0 && half < 64, "{half} of 64 expired together");
    manual.advance_millis(750);
    assert!((1..=64).all(|number| log.gone().contains(&number)));
}
