//! Waiting: order, hand-over, reservations.

use crate::tools::*;

/// P-024x, B-034
#[test]
fn a_slow_factory_never_makes_more_than_max() {
    let (log, manual) = (Log::default(), Manual::new());
    let (make, clock) = (log.clone(), manual.clone());
    let builder = numbers(&log, &manual).max(3).create(move || {
        let (make, slow) = (make.clone(), clock.sleep_for(millis(50)));
        async move {
            slow.await;
            Ok(make.make())
        }
    });
    let pool = builder.build().unwrap();
    let mut crew = Crew::new();
    for _ in 0..10 {
        crew.add(async {
            let _lease = pool.acquire().await.unwrap();
            manual.sleep_for(millis(100)).await;
        });
    }
    for _ in 0..75 {
        crew.run();
        manual.advance_millis(1);
    }
    assert_eq!(pool.status().total, 3);
    crew.run_shuffled(1, &manual);
    assert_eq!(log.made(), 3);
    assert_eq!(counts(&pool), (3, 3, 0));
}

/// P-029, P-034
#[test]
fn an_acquire_waits_for_the_release_and_gets_that_resource() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    assert_eq!(pool.status().waiting, 1);
    drop(lease);
    assert!(waiter.is_woken());
    assert_eq!(*waiter.done().unwrap(), 1);
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(log.made(), 1);
}

/// P-030, P-035
#[test]
fn every_waiter_is_served() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut crew = Crew::new();
    for _ in 0..3 {
        crew.add(async {
            let lease = pool.acquire().await.unwrap();
            yield_now().await;
            log.line(lease.to_string());
        });
    }
    crew.run();
    assert_eq!((crew.left(), pool.status().waiting), (3, 3));
    drop(lease);
    crew.run();
    assert_eq!(crew.left(), 0);
    assert_eq!(log.lines(), ["1", "1", "1"]);
    assert_eq!((log.made(), pool.status().total), (1, 1));
}

/// P-054a, B-022, B-043
#[test]
fn a_refused_release_gives_its_place_to_a_waiter() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate)
        .max(1)
        .before_release(|number: &mut usize| *number != 1)
        .build()
        .unwrap();
    let mut first = hand(pool.acquire());
    first.waits();
    gate.let_one_pass();
    manual.run();
    let lease = first.done().unwrap();
    let (mut w1, mut w2) = (hand(pool.acquire()), hand(pool.acquire()));
    w1.waits();
    w2.waits();
    drop(lease);
    assert_eq!(log.gone(), [1]);
    assert!(w1.is_woken() && !w2.is_woken());
    w1.waits();
    gate.let_one_pass();
    manual.run();
    let lease = w1.done().unwrap();
    assert_eq!(*lease, 2);
    w2.waits();
    drop(lease);
    assert_eq!(*w2.done().unwrap(), 2);
}

/// P-058, B-001, surprise 1
#[test]
fn released_resource_goes_to_the_waiter_not_to_the_releaser() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let mut crew = Crew::new();
    for name in ["A", "B"] {
        let (pool, log) = (&pool, &log);
        crew.add(async move {
            for round in 0..3 {
                let _lease = pool.acquire().await.unwrap();
                log.line(format!("{name}{round}"));
                yield_now().await;
            }
        });
    }
    crew.run();
    assert_eq!(log.lines(), ["A0", "B0", "A1", "B1", "A2", "B2"]);
    assert_eq!(pool.status().total, 1);
}

/// P-059, B-003
#[test]
fn waiters_are_served_in_the_order_of_arrival() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let mut crew = Crew::new();
    for name in 0..6 {
        let (pool, log) = (&pool, &log);
        crew.add(async move {
            for _ in 0..3 {
                let _lease = pool.acquire().await.unwrap();
                log.line(name.to_string());
                yield_now().await;
            }
        });
    }
    crew.run();
    let round = ["0", "1", "2", "3", "4", "5"];
    assert_eq!(log.lines(), [round, round, round].concat());
}

/// B-003
#[test]
fn waiter_that_leaves_the_middle_keeps_the_others_in_order() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let mut lease = Some(now(pool.acquire()).unwrap());
    let mut waiters: Vec<_> = (0..5).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    drop(waiters.remove(1));
    drop(waiters.remove(2));
    // Left are those that came first, third and fifth.
    for index in 0..waiters.len() {
        drop(lease.take());
        let woken: Vec<_> = waiters.iter().map(Hand::is_woken).collect();
        let mut expected = vec![false; waiters.len()];
        expected[index] = true;
        assert_eq!(woken, expected);
        lease = Some(waiters[index].done().unwrap());
    }
}

/// P-060a, P-060b, B-002, surprise 2
#[test]
fn a_cancelled_waiter_hands_its_resource_on() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let (mut w1, mut w2) = (hand(pool.acquire()), hand(pool.acquire()));
    w1.waits();
    w2.waits();
    drop(lease);
    assert!(w1.is_woken() && !w2.is_woken());
    drop(w1);
    assert!(w2.is_woken());
    drop(w2.done().unwrap());
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(log.made(), 1);
}

/// B-002: the last waiter leaves, and the resource stays usable.
#[test]
fn cancelled_waiter_without_successor_leaves_its_resource_idle() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    drop(waiter);
    assert_eq!((pool.status().idle, pool.status().reserved), (1, 0));
    assert_eq!(*now(pool.try_acquire()).unwrap().unwrap(), 1);
    assert_eq!(log.made(), 1);
}

/// B-002, surprise 3
#[test]
fn a_cancelled_waiter_hands_its_right_to_create_on() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let (mut w1, mut w2) = (hand(pool.acquire()), hand(pool.acquire()));
    w1.waits();
    w2.waits();
    cenote_pool::Lease::discard(lease);
    assert!(w1.is_woken() && !w2.is_woken());
    // Nobody passes by while the place is reserved.
    assert!(now(pool.try_acquire()).unwrap().is_none());
    drop(w1);
    assert!(w2.is_woken());
    assert_eq!(*w2.done().unwrap(), 2);
    assert_eq!(log.made(), 2);
}

/// P-061, B-007, surprise 5
#[test]
fn try_acquire_does_not_take_what_is_reserved_for_a_waiter() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    assert_eq!((pool.status().idle, pool.status().reserved), (1, 1));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert!(pool.try_acquire_idle().is_none());
    drop(waiter.done().unwrap());
    assert_eq!((pool.status().idle, pool.status().reserved), (1, 0));
}

/// P-065b, B-005, surprise 5
#[test]
fn a_waiter_does_not_keep_the_surplus_from_others() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 3);
    let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(leases);
    let status = pool.status();
    assert_eq!((status.idle, status.reserved), (3, 1));
    // Diagnostics show what is reserved next to what is idle.
    assert!(format!("{pool:?}").contains("reserved: 1"));
    assert!(status.to_string().contains("1 reserved"), "{status}");
    let other = now(pool.try_acquire()).unwrap().unwrap();
    let own = waiter.done().unwrap();
    assert_ne!(*other, *own);
    assert_eq!(log.made(), 3);
}
