//! `close_and_drain`, `closed`, and the end of the event stream.

use cenote_pool::{DestroyError, Event};

use crate::tools::*;

#[test]
fn a_drain_waits_for_the_last_lease() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let (first, second) = (now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap());
    let mut drain = hand(pool.close_and_drain(millis(100)));
    drain.waits();
    assert!(pool.is_closed());
    drop(first);
    drain.waits();
    drop(second);
    assert!(drain.is_woken());
    drain.done().unwrap();
    assert_eq!(log.gone(), [1, 2]);
}

#[test]
fn a_drain_that_times_out_lists_the_remaining_holders() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let line = line!() + 1;
    let lease = now(pool.acquire()).unwrap();
    let mut drain = hand(pool.close_and_drain(millis(100)));
    drain.waits();
    manual.advance_millis(100);
    let error = drain.done().unwrap_err();
    assert_eq!((error.still_in_use, error.left.len()), (1, 1));
    assert_eq!(error.left[0].caller.line(), line);
    assert_eq!(error.left[0].held_for, millis(100));
    assert!(error.to_string().contains("draining.rs"), "{error}");
    // The lease is still good, and goes when it comes back.
    assert_eq!(*lease, 1);
    drop(lease);
    assert_eq!(log.gone(), [1]);
}

#[test]
fn a_drain_gives_the_errors_of_destructors_that_ran() {
    let log = Log::default();
    let builder = numbers(&log, &Manual::new()).min(1);
    let pool = now(builder.destroy(|_| Err(Oops("stuck"))).open()).unwrap();
    let error = now(pool.close_and_drain(millis(100))).unwrap_err();
    assert_eq!(error.still_in_use, 0);
    assert!(matches!(
        error.errors[..],
        [DestroyError::Failed(Oops("stuck"))]
    ));
}

#[test]
fn a_drain_that_runs_out_of_time_keeps_the_errors_it_has() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).min(2);
    let clock = manual.clone();
    let pool = now(builder
        .destroy_async(move |number| {
            let slow = clock.sleep_for(millis(1000));
            async move {
                if number == 1 {
                    return Err(Oops("stuck"));
                }
                slow.await;
                Ok(())
            }
        })
        .open())
    .unwrap();
    let mut drain = hand(pool.close_and_drain(millis(100)));
    drain.waits();
    manual.advance_millis(100);
    let error = drain.done().unwrap_err();
    assert!(matches!(
        error.errors[..],
        [DestroyError::Failed(Oops("stuck"))]
    ));
}

#[test]
fn a_creation_that_fails_after_close_completes_the_drain() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let wait = gate.clone();
    let builder = numbers(&log, &manual).create(move || {
        let pass = wait.pass();
        async move {
            pass.await;
            Err(Oops("no"))
        }
    });
    let pool = builder.build().unwrap();
    let mut events = pool.events();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    let mut drain = hand(pool.close_and_drain(millis(100)));
    drain.waits();
    gate.open();
    manual.run();
    assert_eq!(pool.status().total, 0);
    assert!(drain.is_woken(), "the drain was not told");
    drain.done().unwrap();
    let mut last = None;
    while let std::task::Poll::Ready(Some(event)) = hand(events.next()).poll() {
        last = Some(event);
    }
    assert!(matches!(last, Some(Event::Drained)), "last is {last:?}");
}

#[test]
fn closed_resolves_for_every_task_that_awaits_it() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let (mut one, mut two) = (hand(pool.closed()), hand(pool.closed()));
    one.waits();
    two.waits();
    now(pool.close()).unwrap();
    assert!(one.is_woken() && two.is_woken());
    one.done();
    two.done();
    now(pool.closed());
}

#[test]
fn event_stream_ends_when_the_pool_is_drained_not_when_closed() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let lease = now(pool.acquire()).unwrap();
    let mut events = pool.events();
    now(pool.close()).unwrap();
    assert!(matches!(now(events.next()), Some(Event::Closed)));
    let mut next = hand(events.next());
    next.waits();
    drop(lease);
    assert!(matches!(next.done(), Some(Event::Destroyed { .. })));
    drop(next);
    assert!(matches!(now(events.next()), Some(Event::Drained)));
    assert!(now(events.next()).is_none());
}
