//! Deadlines, and the kinds of "no".

use cenote_pool::{AcquireError, Phase, with};

use crate::tools::*;

/// P-031, P-038a, P-038b, P-055a
#[test]
fn acquire_that_waits_too_long_times_out_and_leaves_nothing() {
    for wait in [50, 1] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, 1);
        let lease = now(pool.acquire()).unwrap();
        let mut waiter = hand(pool.acquire_with(at_most(millis(wait))));
        waiter.waits();
        manual.advance(millis(wait) - std::time::Duration::from_nanos(1));
        waiter.waits();
        manual.advance_millis(1);
        assert!(waiter.is_woken());
        // A kind of its own: neither of the kinds that speak of the pool.
        let AcquireError::Timeout(timeout) = waiter.done().unwrap_err() else {
            panic!("not a timeout");
        };
        assert_eq!(timeout.phase, Phase::Waiting);
        assert_eq!(pool.status().waiting, 0);
        drop(lease);
        assert_eq!(*now(pool.try_acquire()).unwrap().unwrap(), 1);
        assert_eq!(pool.counters().timed_out, 1);
    }
}

/// P-055b, P-006, surprise 7
#[test]
fn each_of_the_four_refusals_has_its_own_error() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    assert!(now(pool.try_acquire()).unwrap().is_none());
    let mut late = hand(pool.acquire_with(at_most(millis(1))));
    late.waits();
    manual.advance_millis(1);
    assert!(matches!(late.done(), Err(AcquireError::Timeout(_))));
    pool.open_breaker();
    assert!(matches!(
        now(pool.acquire()),
        Err(AcquireError::Unavailable(_))
    ));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    now(pool.close()).unwrap();
    assert!(matches!(now(pool.acquire()), Err(AcquireError::Closed)));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    drop(lease);
}

/// P-055c
#[test]
fn acquire_works_outside_any_task() {
    let pool = units().build().unwrap();
    smol::block_on(async { drop(pool.acquire().await.unwrap()) });
    let tokio = tokio::runtime::Builder::new_current_thread();
    let tokio = { tokio }.build().unwrap();
    tokio.block_on(async { drop(pool.acquire().await.unwrap()) });
    drop(pool.acquire_blocking().unwrap());
    assert_eq!(pool.counters().acquired, 3);
}

#[test]
fn the_pools_own_timeout_holds_unless_the_call_has_one() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder.acquire_timeout(millis(20)).build().unwrap();
    let _lease = now(pool.acquire()).unwrap();
    let mut usual = hand(pool.acquire());
    let mut own = hand(pool.acquire_with(at_most(millis(40))));
    usual.waits();
    own.waits();
    manual.advance_millis(20);
    assert!(matches!(usual.done(), Err(AcquireError::Timeout(_))));
    own.waits();
    manual.advance_millis(20);
    assert!(matches!(own.done(), Err(AcquireError::Timeout(_))));
}

/// B-002: a waiter that leaves by timeout passes its right to create on.
#[test]
fn a_waiter_that_times_out_hands_its_right_to_create_on() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut w1 = hand(pool.acquire_with(at_most(millis(50))));
    let mut w2 = hand(pool.acquire());
    w1.waits();
    w2.waits();
    cenote_pool::Lease::discard(lease);
    // Not polled: it does not know yet that it may create.
    assert!(w1.is_woken() && !w2.is_woken());
    manual.advance_millis(50);
    assert!(w2.is_woken());
    assert_eq!(*w2.done().unwrap(), 2);
    assert!(matches!(w1.done(), Err(AcquireError::Timeout(_))));
}

#[test]
fn resource_granted_in_time_counts_even_if_collected_late() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(millis(50))));
    waiter.waits();
    drop(lease);
    manual.advance_millis(60);
    assert_eq!(*waiter.done().unwrap(), 1);
}

/// Decision: one deadline covers the whole acquire.
#[test]
fn deadline_covers_the_hook_of_a_resource_granted_in_time() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(millis(50))));
    waiter.waits();
    drop(lease);
    // Granted at 0 ms, looked at only at 60 ms: by then its time is over, and
    // the hook must not have for ever.
    manual.advance_millis(60);
    let mut outcome = waiter.poll();
    if outcome.is_pending() {
        manual.advance_millis(50);
        outcome = waiter.poll();
    }
    let std::task::Poll::Ready(Err(AcquireError::Timeout(timeout))) = outcome else {
        panic!("it waits for ever");
    };
    assert_eq!(timeout.phase, Phase::Checking);
}

/// Decision: one deadline covers the whole acquire.
#[test]
fn a_reservation_that_was_taken_back_still_has_its_deadline() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut w1 = hand(pool.acquire_with(at_most(millis(500))));
    let mut w2 = hand(pool.acquire());
    w1.waits();
    w2.waits();
    drop(lease);
    manual.advance_millis(1100);
    // W1 did not collect in time: W2 has it now, and W1 is late.
    let _second = w2.done().unwrap();
    let mut outcome = w1.poll();
    if outcome.is_pending() {
        manual.advance_millis(500);
        outcome = w1.poll();
    }
    assert!(
        matches!(
            outcome,
            std::task::Poll::Ready(Err(AcquireError::Timeout(_)))
        ),
        "it waits for ever"
    );
}

/// Decision: the deadline runs once, it does not start again after a refusal.
#[test]
fn the_deadline_runs_once_over_waiting_creating_and_checking() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(with(
            manual.clone(),
            async |manual: &Manual, _: &mut usize| {
                manual.sleep_for(millis(40)).await;
                false
            },
        ))
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(millis(60))));
    waiter.waits();
    manual.advance_millis(30);
    drop(lease);
    waiter.waits();
    manual.advance_millis(30);
    let AcquireError::Timeout(timeout) = waiter.done().unwrap_err() else {
        panic!("not a timeout");
    };
    assert_eq!(
        (timeout.phase, timeout.waited),
        (Phase::Checking, millis(60))
    );
    // The resource was in the hook, so nobody knows its state.
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (0, 0, 0));
}
