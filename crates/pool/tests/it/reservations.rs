//! Reservations that nobody collects: a future that was woken and is not polled.

use crate::tools::*;

#[test]
fn resource_that_is_not_collected_goes_to_the_next_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    let [first, second, third] = &mut waiters[..] else {
        unreachable!();
    };
    drop(lease);
    manual.advance_millis(49);
    assert!(!second.is_woken());
    manual.advance_millis(1);
    assert!(second.is_woken() && !third.is_woken());
    let lease = second.done().unwrap();
    // The first was not forgotten: it is the next, before the third.
    first.waits();
    drop(lease);
    assert!(first.is_woken() && !third.is_woken());
    drop(first.done().unwrap());
    drop(third.done().unwrap());
    assert_eq!(log.made(), 1);
}

#[test]
fn resource_stays_reserved_without_another_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut first = hand(pool.acquire());
    first.waits();
    drop(lease);
    manual.advance_millis(5000);
    assert_eq!(pool.status().reserved, 1);
    // Somebody who comes later gets it at once.
    drop(now(pool.acquire()).unwrap());
    assert_eq!(pool.status().reserved, 0);
    assert_eq!(*first.waits_for(&manual).unwrap(), 1);
}

#[test]
fn uncollected_right_to_create_goes_to_the_next_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    cenote_pool::Lease::discard(lease);
    manual.advance_millis(49);
    assert!(first.is_woken() && !second.is_woken());
    manual.advance_millis(1);
    assert!(second.is_woken());
    // It creates, and gets that: the first is passed over until it is polled.
    let lease = second.done().unwrap();
    assert_eq!(*lease, 2);
    first.waits();
    drop(lease);
    assert_eq!(*first.done().unwrap(), 2);
    assert_eq!(log.made(), 2);
}

#[test]
fn many_uncollected_reservations_all_find_a_taker() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut asleep: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    let mut awake: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    asleep.iter_mut().for_each(Hand::waits);
    awake.iter_mut().for_each(Hand::waits);
    drop(leases);
    assert!(awake.iter().all(|waiter| !waiter.is_woken()));
    let mut served = 0;
    for _ in 0..2 {
        manual.advance_millis(50);
        awake.retain_mut(|waiter| {
            let done = waiter.poll().is_ready();
            served += usize::from(done);
            !done
        });
    }
    assert_eq!(served, 3);
    for waiter in &mut asleep {
        assert!(waiter.waits_for(&manual).is_ok());
    }
    assert_eq!((log.made(), counts(&pool)), (3, (3, 3, 0)));
}

#[test]
fn a_new_creation_that_is_not_collected_is_not_lost() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    gate.open();
    manual.run();
    assert!(first.is_woken() && !second.is_woken());
    manual.advance_millis(1000);
    assert_eq!(*second.done().unwrap(), 1);
    assert_eq!(*first.done().unwrap(), 1);
}
