//! Which idle resource is handed out next.

use cenote_pool::{FnPool, Order};

use crate::tools::*;

/// Three idle resources that came back as 2, 3, 1.
fn two_three_one(order: Order) -> (Log, FnPool<usize, Oops>) {
    let log = Log::default();
    let builder = numbers(&log, &Manual::new()).max(3).order(order);
    let pool = builder.build().unwrap();
    let [first, second, third] = [(); 3].map(|()| now(pool.acquire()).unwrap());
    assert_eq!((*first, *second, *third), (1, 2, 3));
    drop(second);
    drop(third);
    drop(first);
    (log, pool)
}

#[test]
fn fifo_hands_out_what_came_back_first() {
    let (log, pool) = two_three_one(Order::Fifo);
    let leases = [(); 3].map(|()| now(pool.acquire()).unwrap());
    assert_eq!(leases.each_ref().map(|lease| **lease), [2, 3, 1]);
    drop(leases);
    // One at a time goes round and round.
    let turns: Vec<_> = (0..6).map(|_| *now(pool.acquire()).unwrap()).collect();
    assert_eq!(turns, [2, 3, 1, 2, 3, 1]);
    assert_eq!(log.made(), 3);
}

#[test]
fn lifo_hands_out_what_came_back_last() {
    let (_, pool) = two_three_one(Order::Lifo);
    let turns: Vec<_> = (0..4).map(|_| *now(pool.acquire()).unwrap()).collect();
    assert_eq!(turns, [1, 1, 1, 1]);
    let leases = [(); 3].map(|()| now(pool.acquire()).unwrap());
    assert_eq!(leases.each_ref().map(|lease| **lease), [1, 3, 2]);
}

#[test]
fn an_exact_order_has_no_memory_of_threads() {
    let (_, pool) = two_three_one(Order::Fifo);
    let other = std::thread::scope(|scope| {
        let take = || *now(pool.acquire()).unwrap();
        scope.spawn(take).join().unwrap()
    });
    assert_eq!(other, 2);
    assert_eq!(*now(pool.acquire()).unwrap(), 3);
}

#[test]
fn by_default_a_thread_gets_what_it_used_last() {
    let (_, pool) = two_three_one(Order::Affine);
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
    let _own = now(pool.acquire()).unwrap();
    let other = std::thread::scope(|scope| {
        // Taken by this thread, so the other one has no favourite among the rest.
        let take = || [(); 2].map(|()| *now(pool.acquire()).unwrap());
        scope.spawn(take).join().unwrap()
    });
    assert_eq!(other[0], other[1]);
    assert_ne!(other[0], 1);
}

#[test]
fn thread_without_a_favourite_gets_the_least_recently_used() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    let mut leases = Vec::new();
    for _ in 0..3 {
        manual.advance_millis(10);
        leases.push(now(pool.acquire()).unwrap());
    }
    leases.reverse();
    drop(leases);
    let other = std::thread::scope(|scope| {
        let take = || {
            let all = [(); 3].map(|()| now(pool.acquire()).unwrap());
            all.each_ref().map(|lease| **lease)
        };
        scope.spawn(take).join().unwrap()
    });
    assert_eq!(other, [1, 2, 3]);
}

#[test]
fn close_checks_and_idle_timeout_see_all_of_an_ordered_pool() {
    for order in [Order::Fifo, Order::Lifo] {
        let (log, pool) = two_three_one(order);
        now(pool.close()).unwrap();
        assert_eq!(log.gone(), [2, 3, 1]);
    }
    for order in [Order::Fifo, Order::Lifo] {
        let (log, manual) = (Log::default(), Manual::new());
        let checks = log.clone();
        let builder = numbers(&log, &manual).min(3).max(3).order(order);
        let pool = now(builder
            .healthcheck_interval(millis(10))
            .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
            .open())
        .unwrap();
        manual.advance_millis(10);
        assert_eq!(log.lines(), ["1", "2", "3"]);
        // And the check has not changed the order.
        let first = *now(pool.acquire()).unwrap();
        assert_eq!(first, if order == Order::Fifo { 1 } else { 3 });
    }
}
