//! Guards the queue and what it hands out: places that nobody collects, the order and
//! the age of resources, resizes, and closes that take no longer than they must.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{FnPool, Lease, Order, Pool, with};

use crate::tools::*;

/// The maintenance task revoked an uncollected place only if another acquire was already waiting; a later
/// acquire was never offered it.
#[test]
fn an_uncollected_place_goes_to_a_later_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut sleepy = hand(pool.acquire());
    sleepy.waits();
    Lease::discard(lease);
    assert!(sleepy.is_woken());
    manual.advance_millis(1500);
    // It creates at once in the place that the other does not use.
    let mut late = hand(pool.acquire());
    assert_eq!(*late.done().unwrap(), 2);
    assert_eq!(pool.counters().revoked, 1);
    assert_eq!(*sleepy.done().unwrap(), 2);
}

/// Three resources that came back in the order 1, 2, 3; by now the first one has
/// passed its health check and the second one is in it.
fn pool_amid_health_checks(order: Order) -> FnPool<usize, Oops> {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(3)
        .order(order)
        .healthcheck_interval(millis(1000))
        .healthcheck_async(with(
            manual.clone(),
            async |manual: &Manual, _: &mut usize| {
                manual.sleep_for(millis(100)).await;
                true
            },
        ))
        .build()
        .unwrap();
    let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    manual.advance_millis(1150);
    assert_eq!(pool.status().idle, 2);
    pool
}

/// A health check used to count as a use, and turned the order round.
#[test]
fn a_health_check_does_not_move_a_resource_to_the_end_of_a_fifo() {
    let pool = pool_amid_health_checks(Order::Fifo);
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
}

/// As above: the one just checked used to come first.
#[test]
fn a_health_check_does_not_move_a_resource_to_the_top_of_a_lifo() {
    let pool = pool_amid_health_checks(Order::Lifo);
    assert_eq!(*now(pool.acquire()).unwrap(), 3);
}

/// A stream that was opened after the end used to wait for an end still to come.
#[test]
fn events_of_a_pool_that_is_closed_and_drained_end_at_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    now(pool.close()).unwrap();
    let mut events = pool.events();
    assert!(now(events.next()).is_none());
}

/// It used to say that there is nothing, as the refused one still had the place.
#[test]
fn try_acquire_creates_in_place_of_a_resource_its_hook_refused() {
    let (log, manual) = (Log::default(), Manual::new());
    let (gone, clock) = (log.clone(), manual.clone());
    let pool = numbers(&log, &manual)
        .max(1)
        .destroy_async(move |number| {
            let (gone, slow) = (gone.clone(), clock.sleep_for(millis(50)));
            async move {
                slow.await;
                gone.destroy(number);
            }
        })
        .before_acquire(|_: &mut usize| false)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut attempt = hand(pool.try_acquire());
    attempt.waits();
    assert_eq!(log.made(), 1);
    manual.advance_millis(50);
    let lease = attempt.waits_for(&manual).unwrap();
    assert_eq!(lease.as_deref(), Some(&2));
    assert_eq!(log.gone(), [1]);
}

/// It used to destroy one after the other: ten times the cleanup timeout.
#[test]
fn a_close_waits_for_all_hung_destructors_at_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(10)
        .cleanup_timeout(millis(5000))
        .destroy_async(|_| std::future::pending::<()>())
        .build()
        .unwrap();
    let leases: Vec<_> = (0..10).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    let mut close = hand(pool.close());
    close.waits();
    manual.advance_millis(4999);
    close.waits();
    manual.advance_millis(1);
    assert_eq!(close.waits_for(&manual).unwrap_err().errors.len(), 10);
    assert_eq!(pool.status().total, 0);
}

/// The maintenance task sees that a resource is idle one round after it came back, and counts
/// from there; its rounds used to be too long for that.
#[test]
fn an_idle_resource_goes_at_most_a_quarter_late() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(2)
        .idle_timeout(millis(1100))
        .leak_warning(millis(1000))
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    manual.advance_millis(1001);
    drop(lease);
    manual.advance_millis(1376);
    assert_eq!((log.gone(), pool.status().idle), (vec![1], 0));
}

/// The end of such a life is beyond what the clock can say: that was a panic.
#[test]
fn the_longest_lifetime_there_is_means_for_ever() {
    for jitter in [0.0, 0.1] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = numbers(&log, &manual)
            .max(1)
            .max_lifetime(Duration::MAX)
            .lifetime_jitter(jitter)
            .build()
            .unwrap();
        for _ in 0..2 {
            assert_eq!(*now(pool.acquire()).unwrap(), 1);
            manual.advance(Duration::from_secs(1_000_000));
        }
        all_places_are_there(&pool, &manual);
    }
}

/// A shrink takes a reservation back; the lease that comes back then used to stay idle
/// while somebody waited.
#[test]
fn shrink_that_revokes_a_reservation_leaves_no_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let first = now(pool.acquire_owned()).unwrap();
    let second = now(pool.acquire_owned()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(Duration::from_secs(100))));
    waiter.waits();
    // The first one is reserved for the waiter, the second one is idle.
    drop(first);
    drop(second);
    let second = now(pool.acquire_owned()).unwrap();
    pool.resize(1).unwrap();
    assert_eq!(pool.status().reserved, 0);
    waiter.waits();
    drop(second);
    drop(waiter.done().unwrap());
    assert_eq!(counts(&pool), (1, 1, 0));
}

/// Creations that ended in another order than they began cost a third one: a waiter that was served by another
/// waiter's creation left its own behind, which was not counted.
#[test]
fn two_waiters_cause_two_creations_in_whatever_order_these_end() {
    let manual = Manual::new();
    let made = Arc::new(AtomicUsize::new(0));
    let pool = Pool::from_fn({
        let (manual, made) = (manual.clone(), Arc::clone(&made));
        move || {
            let n = made.fetch_add(1, Ordering::Relaxed) + 1;
            let manual = manual.clone();
            async move {
                manual
                    .sleep_for(millis(if n == 1 { 200 } else { 100 }))
                    .await;
                Ok::<usize, Oops>(n)
            }
        }
    })
    .max(5)
    .runtime(manual.clone())
    .build()
    .unwrap();
    let mut first = hand(pool.acquire());
    let mut second = hand(pool.acquire());
    first.waits();
    second.waits();
    manual.advance_millis(120);
    let Poll::Ready(Ok(lease)) = first.poll() else {
        panic!("the first to come is served by the first to be made");
    };
    assert_eq!(*lease, 2);
    second.waits();
    manual.advance_millis(100);
    let Poll::Ready(Ok(lease)) = second.poll() else {
        panic!("what the first left behind serves the second");
    };
    assert_eq!(*lease, 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

/// The creation that a served waiter left behind may fail: the next in the queue, which
/// counted on it, gets one of its own.
#[test]
fn a_failed_abandoned_creation_is_replaced() {
    let manual = Manual::new();
    let made = Arc::new(AtomicUsize::new(0));
    let pool = Pool::from_fn({
        let (manual, made) = (manual.clone(), Arc::clone(&made));
        move || {
            let n = made.fetch_add(1, Ordering::Relaxed) + 1;
            let manual = manual.clone();
            async move {
                manual
                    .sleep_for(millis(if n == 1 { 200 } else { 100 }))
                    .await;
                if n == 1 { Err(Oops("no")) } else { Ok(n) }
            }
        }
    })
    .max(5)
    .no_backoff()
    .runtime(manual.clone())
    .build()
    .unwrap();
    let mut first = hand(pool.acquire());
    let mut second = hand(pool.acquire());
    first.waits();
    second.waits();
    manual.advance_millis(120);
    let _lease = match first.poll() {
        Poll::Ready(lease) => lease.unwrap(),
        Poll::Pending => panic!("the first to come is served by the first to be made"),
    };
    second.waits();
    for _ in 0..50 {
        manual.advance_millis(50);
        if let Poll::Ready(lease) = second.poll() {
            assert_eq!(*lease.unwrap(), 3);
            return;
        }
    }
    panic!("it was never served: {}", pool.status());
}

/// The maintenance task, which watches over lifetimes from the first resource on, made the missing ones
/// beside the opener, who then found them counted and came back before they were there.
#[test]
fn pool_with_lifetimes_is_open_once_its_first_resources_exist() {
    let manual = Manual::new();
    let made = Arc::new(AtomicUsize::new(0));
    let builder = Pool::from_fn({
        let (manual, made) = (manual.clone(), Arc::clone(&made));
        move || {
            let manual = manual.clone();
            let made = Arc::clone(&made);
            async move {
                manual.sleep_for(millis(100)).await;
                Ok::<usize, Oops>(made.fetch_add(1, Ordering::Relaxed))
            }
        }
    });
    let builder = builder.min(3).max(5).max_lifetime(Duration::from_secs(60));
    let mut opening = hand(builder.runtime(manual.clone()).open());
    for _ in 0..50 {
        if let Poll::Ready(pool) = opening.poll() {
            let pool = pool.unwrap();
            let status = pool.status();
            assert_eq!((status.total, status.idle), (3, 3));
            assert_eq!(made.load(Ordering::Relaxed), 3);
            return;
        }
        manual.advance_millis(50);
    }
    panic!("it never opened");
}

/// In a watched pool, an expired resource stayed without a flag until it was destroyed: harmless, but the check of the
/// invariants panicked in the next acquire of a debug build.
#[test]
fn an_expired_resource_is_destroyed_while_others_are_acquired() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = numbers(&log, &manual).max(2);
    let builder = builder.max_lifetime(millis(100)).lifetime_jitter(0.0);
    let way_out = gate.clone();
    let pool = builder
        .destroy_async(move |_| way_out.pass())
        .build()
        .unwrap();
    let _watched = pool.on_event(|_| {});
    gate.let_one_pass();
    let first = now(pool.acquire()).unwrap();
    manual.advance_millis(10);
    let second = now(pool.acquire()).unwrap();
    drop((first, second));
    // The first has gone, the second lives for 9 ms more and is not looked at before 24 ms are over.
    manual.advance_millis(91);
    let second = now(pool.acquire()).unwrap();
    let third = now(pool.acquire()).unwrap();
    assert_eq!((*second, *third), (2, 3));
    drop(third);
    drop(second);
    manual.advance_millis(11);
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 3, "the second is too old");
    assert_eq!(pool.status().total, 2, "and on its way out");
    drop(lease);
    assert_eq!(*now(pool.acquire()).unwrap(), 3);
}
