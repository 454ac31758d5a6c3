//! How other pools fail, as tests of this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_pool::{DestroyReason, FnPool, Lease, with};

use crate::tools::*;

#[test]
fn waiter_is_served_before_a_holder_that_takes_its_own_back() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let greedy = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(greedy);
    let mut greedy = hand(pool.acquire());
    greedy.waits();
    drop(waiter.done().unwrap());
    drop(greedy.done().unwrap());
}

#[test]
fn a_waiter_is_served_at_once_on_many_threads_too() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let pool = units().max(1).build().unwrap();
    let (served, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let lease = pool.acquire_blocking().unwrap();
    let waiter = tokio.spawn({
        let (pool, served) = (pool.clone(), Arc::clone(&served));
        async move {
            let _lease = pool.acquire().await.unwrap();
            served.store(true, Ordering::SeqCst);
        }
    });
    while pool.status().waiting == 0 {
        std::thread::yield_now();
    }
    drop(lease);
    // A new acquire is queued behind the waiter.
    while !served.load(Ordering::SeqCst) {
        drop(pool.acquire_blocking().unwrap());
        turns.fetch_add(1, Ordering::SeqCst);
    }
    tokio.block_on(waiter).unwrap();
    assert!(turns.load(Ordering::SeqCst) <= 1, "{turns:?} turns before");
}

#[test]
fn a_shrink_destroys_what_comes_back_until_the_new_max_is_met() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 5);
    let mut leases: Vec<_> = (0..5).map(|_| now(pool.acquire()).unwrap()).collect();
    pool.resize(2).unwrap();
    for left in (0..5).rev() {
        assert!(now(pool.try_acquire()).unwrap().is_none());
        leases.pop();
        // Five are out: the first three to come back go, the others stay.
        let total = left.max(2);
        assert_eq!(counts(&pool), (total, total - left, left));
        if left < 2 {
            break;
        }
    }
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Shrunk), 3);
    drop(leases);
    let both = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert_eq!((log.made(), both.len()), (5, 2));
}

#[test]
fn a_shrink_with_waiters_never_lets_more_than_the_old_max_live() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let (gone, wait) = (log.clone(), gate.clone());
    let builder = numbers(&log, &manual).max(4);
    let pool = builder
        .destroy_async(move |number| {
            let (gone, pass) = (gone.clone(), wait.pass());
            async move {
                pass.await;
                gone.destroy(number);
            }
        })
        .build()
        .unwrap();
    let mut leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    pool.resize(1).unwrap();
    pool.resize(4).unwrap();
    pool.resize(2).unwrap();
    // Two go into their slow destructors, and still count.
    leases.truncate(2);
    assert_eq!(pool.status().total, 4);
    waiters.iter_mut().for_each(Hand::waits);
    leases.truncate(1);
    // Now it is the waiters' turn: two live, as the new max says.
    let first = waiters[0].done().unwrap();
    waiters[1].waits();
    assert_eq!((pool.status().total, pool.status().active), (4, 4));
    gate.open();
    manual.run();
    assert_eq!(counts(&pool), (2, 0, 2));
    waiters[1].waits();
    drop((leases, first));
    drop(waiters[1].done().unwrap());
    drop(waiters[2].done().unwrap());
    assert_eq!((log.made(), pool.status().total), (4, 2));
}

#[test]
fn growing_serves_waiters_at_once() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let _lease = now(pool.acquire()).unwrap();
    let (mut w1, mut w2) = (hand(pool.acquire()), hand(pool.acquire()));
    w1.waits();
    w2.waits();
    pool.resize(3).unwrap();
    assert!(w1.is_woken() && w2.is_woken());
    assert_eq!((*w1.done().unwrap(), *w2.done().unwrap()), (2, 3));
}

#[test]
fn shrinking_destroys_idle_ones_at_once_oldest_first() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(0).max(4).open()).unwrap();
    let leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    pool.resize(1).unwrap();
    assert_eq!(log.gone(), [1, 2, 3]);
    assert_eq!(counts(&pool), (1, 1, 0));
}

/// An acquire hook that waits at the gate and says no then.
fn refusing_pool(log: &Log, manual: &Manual, gate: &Gate) -> FnPool<usize, Oops> {
    let builder = numbers(log, manual).max(1);
    let hook = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
        false
    });
    builder.before_acquire_async(hook).build().unwrap()
}

#[test]
fn failed_check_of_the_only_resource_serves_the_queue_in_order() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = refusing_pool(&log, &manual, &gate);
    drop(now(pool.acquire()).unwrap());
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    gate.let_one_pass();
    // The one whose resource was refused was there first.
    let lease = first.done().unwrap();
    assert_eq!(*lease, 2);
    second.waits();
    Lease::discard(lease);
    assert_eq!(*second.done().unwrap(), 3);
}

#[test]
fn a_check_that_is_cancelled_frees_its_place_for_the_queue() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = refusing_pool(&log, &manual, &gate);
    drop(now(pool.acquire()).unwrap());
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    drop(first);
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Abandoned), 1);
    assert!(second.is_woken());
    assert_eq!(*second.done().unwrap(), 2);
}

#[test]
fn an_acquire_dropped_after_any_number_of_polls_loses_nothing() {
    // What the acquire meets: an idle resource and its hook, an empty pool, or
    // a resource that comes back while it waits.
    for (idle, held) in [(true, false), (false, false), (false, true)] {
        for polls in 0..8 {
            for run in [false, true] {
                let (log, manual) = (Log::default(), Manual::new());
                let make = log.clone();
                let pool = numbers(&log, &manual)
                    .max(1)
                    .create(move || {
                        let make = make.clone();
                        async move {
                            yield_now().await;
                            yield_now().await;
                            Ok(make.make())
                        }
                    })
                    .before_acquire_async(async |_: &mut usize| {
                        yield_now().await;
                        yield_now().await;
                    })
                    .before_release_async(async |_: &mut usize| yield_now().await)
                    .build()
                    .unwrap();
                let mut lease = None;
                if idle || held {
                    lease = Some(hand(pool.acquire()).waits_for(&manual).unwrap());
                }
                if idle {
                    lease = None;
                    manual.run();
                }
                let mut acquire = hand(pool.acquire());
                for poll in 0..polls {
                    if acquire.poll().is_ready() {
                        break;
                    }
                    if poll == 1 {
                        lease = None;
                    }
                    if run {
                        manual.run();
                    }
                }
                drop(acquire);
                drop(lease);
                manual.run();
                let status = pool.status();
                assert_eq!(status.total, status.idle, "{idle} {held} {polls} {run}");
                assert_eq!((status.waiting, status.reserved), (0, 0));
                assert_eq!(log.made() - log.gone().len(), status.idle);
                all_places_are_there(&pool, &manual);
            }
        }
    }
}
