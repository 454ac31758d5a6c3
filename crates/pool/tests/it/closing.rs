//! Closing, and what it leaves alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote_pool::{AcquireError, DestroyError, DestroyReason};

use crate::tools::*;

/// P-005a, P-005b
#[test]
fn close_destroys_the_idle_ones_oldest_first_before_it_returns() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(2).open()).unwrap();
    assert!(!pool.is_closed());
    now(pool.close()).unwrap();
    assert!(pool.is_closed());
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn close_orders_by_last_use_and_not_by_number() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = now(numbers(&log, &manual).min(3).open()).unwrap();
    manual.advance_millis(10);
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(10);
    now(pool.close()).unwrap();
    assert_eq!(log.gone(), [2, 3, 1]);
}

/// P-006, P-014, P-055b
#[test]
fn closed_pool_fails_every_acquire_and_try_acquire_is_none() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 2);
    now(pool.close()).unwrap();
    assert!(matches!(now(pool.acquire()), Err(AcquireError::Closed)));
    assert!(matches!(
        now(pool.acquire_owned()),
        Err(AcquireError::Closed)
    ));
    assert!(matches!(pool.acquire_blocking(), Err(AcquireError::Closed)));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert!(pool.try_acquire_idle().is_none());
    assert_eq!(log.made(), 0);
}

/// P-013a, P-013b
#[test]
fn closing_twice_destroys_once() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(1).open()).unwrap();
    now(pool.close()).unwrap();
    now(pool.close()).unwrap();
    assert_eq!(log.gone(), [1]);
}

/// P-015a, P-015b, and the decision that only `destroy` runs on a closed pool.
#[test]
fn lease_outlives_close_and_its_resource_is_destroyed_on_return() {
    let log = Log::default();
    let hook = log.clone();
    let pool = numbers(&log, &Manual::new())
        .before_release(move |_: &mut usize| hook.line("before_release"))
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    now(pool.close()).unwrap();
    assert_eq!(log.gone(), []);
    assert_eq!(*lease, 1);
    drop(lease);
    assert_eq!(log.gone(), [1]);
    assert_eq!(log.lines(), [""; 0]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Closed), 1);
}

/// P-018, B-037, B-038
#[test]
fn close_destroys_everything_and_gives_every_destructors_error() {
    let log = Log::default();
    let gone = log.clone();
    let builder = numbers(&log, &Manual::new()).min(4).max(4);
    let pool = now(builder
        .destroy(move |number| {
            gone.destroy(number);
            match number {
                1 => Err(Oops("first")),
                3 => panic!("third"),
                4 => Err(Oops("fourth")),
                _ => Ok(()),
            }
        })
        .open())
    .unwrap();
    let error = now(pool.close()).unwrap_err();
    assert_eq!(log.gone(), [1, 2, 3, 4]);
    let [first, third, fourth] = &error.errors[..] else {
        panic!("{} errors", error.errors.len());
    };
    assert!(matches!(first, DestroyError::Failed(Oops("first"))));
    assert!(matches!(third, DestroyError::Broken(why) if why.contains("third")));
    assert!(matches!(fourth, DestroyError::Failed(Oops("fourth"))));
    assert!(error.left.is_empty());
    assert_eq!(counts(&pool), (0, 0, 0));
    assert!(pool.is_closed());
}

/// P-028
#[test]
fn dropping_the_last_handle_destroys_in_order_at_once() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(2).open()).unwrap();
    let clone = pool.clone();
    drop(pool);
    assert_eq!(log.gone(), []);
    drop(clone);
    assert_eq!(log.gone(), [1, 2]);
}

/// P-032a, P-032b, P-036
#[test]
fn close_fails_every_waiter_and_waits_for_none() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let _lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    // Returns although no waiter was polled meanwhile.
    now(pool.close()).unwrap();
    assert_eq!(pool.status().waiting, 0);
    for mut waiter in waiters {
        assert!(waiter.is_woken());
        assert!(matches!(waiter.done(), Err(AcquireError::Closed)));
    }
}

/// P-057, B-009
#[test]
fn pool_dropped_during_a_panic_leaves_that_panic_unchanged() {
    for failing in [false, true] {
        let log = Log::default();
        let gone = log.clone();
        let builder = numbers(&log, &Manual::new()).min(2);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _pool = now(builder
                .destroy(move |number| {
                    gone.destroy(number);
                    assert!(!failing, "the destructor's own");
                    Err(Oops("the destructor's own"))
                })
                .open())
            .unwrap();
            panic!("the original");
        }))
        .unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the original"));
        assert_eq!(log.gone(), [1, 2]);
    }
}

/// B-009: neither does a lease that comes back while a panic unwinds.
#[test]
fn lease_dropped_during_a_panic_returns_and_hooks_mask_nothing() {
    let log = Log::default();
    let builder = numbers(&log, &Manual::new()).max(1);
    let pool = builder
        .before_release(|_: &mut usize| -> bool { panic!("the hook's own") })
        .build()
        .unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _lease = now(pool.acquire()).unwrap();
        panic!("the original");
    }))
    .unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the original"));
    assert_eq!(log.gone(), [1]);
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

/// P-063a, P-063b
#[test]
fn close_also_takes_what_was_reserved_for_a_waiter() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    assert_eq!(pool.status().reserved, 1);
    now(pool.close()).unwrap();
    assert!(matches!(waiter.done(), Err(AcquireError::Closed)));
    assert_eq!((log.made(), log.gone()), (1, vec![1]));
    assert_eq!(counts(&pool), (0, 0, 0));
}

/// B-017
#[test]
fn the_pool_may_go_while_a_release_is_in_its_async_half() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .before_release_async(cenote_pool::with(
            gate.clone(),
            async |gate: &Gate, _: &mut usize| gate.pass().await,
        ))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.run();
    drop(pool);
    assert_eq!(log.gone(), []);
    gate.open();
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(manual.tasks(), 0);
}

#[test]
fn a_resource_made_after_close_is_destroyed() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).build().unwrap();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    now(pool.close()).unwrap();
    assert!(matches!(acquire.done(), Err(AcquireError::Closed)));
    gate.open();
    manual.run();
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn cancelling_a_close_leaves_the_rest_to_the_runtime() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let (gone, wait) = (log.clone(), gate.clone());
    let builder = numbers(&log, &manual).min(2);
    let pool = now(builder
        .destroy_async(move |number| {
            let (gone, pass) = (gone.clone(), wait.pass());
            async move {
                pass.await;
                gone.destroy(number);
            }
        })
        .open())
    .unwrap();
    let mut close = hand(pool.close());
    close.waits();
    assert!(pool.is_closed());
    drop(close);
    gate.open();
    manual.run();
    // Those under way went on without the close, and so did the others.
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(counts(&pool), (0, 0, 0));
}
