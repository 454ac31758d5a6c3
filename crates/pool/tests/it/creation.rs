//! Creations: jobs of the pool, limited, backed off, and never lost.

use cenote_pool::{AcquireError, Builder, Event, FnManager, with};

use crate::tools::*;

/// A factory that waits at the gate, and fails for the numbers given.
fn gated_failing(
    log: &Log,
    manual: &Manual,
    gate: &Gate,
    fails: fn(usize) -> bool,
) -> Builder<FnManager<usize, Oops>> {
    let (make, gate) = (log.clone(), gate.clone());
    numbers(log, manual).create(move || {
        let (number, pass) = (make.make(), gate.pass());
        async move {
            pass.await;
            match fails(number) {
                true => Err(Oops("down")),
                false => Ok(number),
            }
        }
    })
}

/// Records every failed creation: its error, and whether an acquire returned it.
fn note_failures(pool: &cenote_pool::FnPool<usize, Oops>, log: &Log) {
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::CreateFailed { error, delivered } = event {
            told.line(format!("{error} {delivered}"));
        }
    })
    .forever();
}

#[test]
fn a_creation_outlives_its_acquire_and_serves_the_next_waiter() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let (mut starter, mut waiter) = (hand(pool.acquire()), hand(pool.acquire()));
    starter.waits();
    waiter.waits();
    drop(starter);
    gate.open();
    manual.run();
    assert!(waiter.is_woken());
    assert_eq!((*waiter.done().unwrap(), gate.arrived()), (1, 1));
}

#[test]
fn the_first_release_or_creation_serves_the_oldest_waiter() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(2).build().unwrap();
    gate.let_one_pass();
    let lease = now(pool.acquire()).unwrap();
    // The first starts a creation, the second has none to start.
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    assert_eq!(gate.arrived(), 2);
    drop(lease);
    assert!(first.is_woken() && !second.is_woken());
    let lease = first.done().unwrap();
    assert_eq!(*lease, 1);
    // Its creation serves the waiter that is oldest by now.
    gate.let_one_pass();
    manual.run();
    assert_eq!(*second.done().unwrap(), 2);
}

#[test]
fn the_error_of_a_creation_goes_to_its_starter() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_failing(&log, &manual, &gate, |_| true);
    let pool = pool.max(2).build().unwrap();
    note_failures(&pool, &log);
    let mut starter = hand(pool.acquire());
    starter.waits();
    gate.open();
    manual.run();
    let error = starter.done().unwrap_err();
    assert!(matches!(error, AcquireError::Create(Oops("down"))));
    assert_eq!(log.lines(), ["down true"]);
}

#[test]
fn error_of_a_creation_whose_starter_left_goes_to_the_events() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_failing(&log, &manual, &gate, |_| true);
    let pool = pool.max(2).build().unwrap();
    note_failures(&pool, &log);
    let mut starter = hand(pool.acquire());
    starter.waits();
    drop(starter);
    gate.open();
    manual.run();
    assert_eq!(log.lines(), ["down false"]);
    let last = pool.last_creation_error().unwrap();
    assert_eq!((&*last.message, last.in_a_row), ("down", 1));
    assert_eq!(pool.counters().create_failed, 1);
}

#[test]
fn error_of_a_creation_no_longer_needed_goes_to_the_events() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let hook = Gate::new();
    let pool = gated_failing(&log, &manual, &gate, |number| number == 2)
        .max(2)
        .before_acquire_async(with(hook.clone(), async |hook: &Gate, _: &mut usize| {
            hook.pass().await;
        }))
        .build()
        .unwrap();
    note_failures(&pool, &log);
    gate.let_one_pass();
    let lease = now(pool.acquire()).unwrap();
    let mut starter = hand(pool.acquire());
    starter.waits();
    drop(lease);
    // It has the returned one, in the acquire hook, when its creation fails.
    starter.waits();
    gate.let_one_pass();
    manual.run();
    hook.open();
    assert_eq!(*starter.done().unwrap(), 1);
    assert_eq!(log.lines(), ["down false"]);
}

#[test]
fn no_more_creations_run_at_once_than_allowed() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = gated_numbers(&log, &manual, &gate).max(5);
    let pool = builder.concurrent_creations(2).build().unwrap();
    let mut acquires: Vec<_> = (0..5).map(|_| hand(pool.acquire())).collect();
    acquires.iter_mut().for_each(Hand::waits);
    assert_eq!((gate.arrived(), pool.status().creating), (2, 2));
    // One that would not queue finds nothing to create.
    assert!(now(pool.try_acquire()).unwrap().is_none());
    for made in 1..=5 {
        gate.let_one_pass();
        manual.run();
        let lease = acquires.remove(0).done().unwrap();
        assert_eq!(*lease, made);
        std::mem::forget(lease);
        for acquire in &mut acquires {
            acquire.waits();
        }
        assert_eq!(gate.arrived(), (made + 2).min(5));
    }
}

#[test]
fn during_back_off_acquire_waits_and_try_acquire_finds_nothing() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let builder = gated_failing(&log, &manual, &gate, |number| number <= 2);
    let builder = builder.backoff(millis(100), millis(1000));
    let pool = builder.build().unwrap();
    assert!(now(pool.acquire()).is_err());
    // The pause is 50 to 100 ms.
    assert!(now(pool.try_acquire()).unwrap().is_none());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.advance_millis(49);
    waiter.waits();
    assert_eq!(log.made(), 1);
    manual.advance_millis(51);
    assert!(waiter.is_woken());
    assert!(matches!(waiter.done(), Err(AcquireError::Create(_))));
    assert_eq!(pool.last_creation_error().unwrap().in_a_row, 2);
    // Now it is 100 to 200 ms.
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.advance_millis(99);
    waiter.waits();
    assert_eq!(log.made(), 2);
    manual.advance_millis(101);
    assert_eq!(*waiter.done().unwrap(), 3);
    assert!(pool.last_creation_error().is_none());
}

#[test]
fn a_success_ends_the_back_off() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let builder = gated_failing(&log, &manual, &gate, |number| number == 1);
    let pool = builder.backoff(millis(100), millis(1000)).build().unwrap();
    assert!(now(pool.acquire()).is_err());
    manual.advance_millis(100);
    let first = now(pool.acquire()).unwrap();
    // No pause is left: this one is made at once.
    assert_eq!((*first, *now(pool.acquire()).unwrap()), (2, 3));
}

#[test]
fn a_returned_resource_serves_during_the_back_off() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let builder = gated_failing(&log, &manual, &gate, |number| number == 2);
    let pool = builder.max(2).build().unwrap();
    let lease = now(pool.acquire()).unwrap();
    assert!(now(pool.acquire()).is_err());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(lease);
    assert_eq!(*waiter.done().unwrap(), 1);
}

#[test]
fn without_back_off_every_acquire_tries_at_once() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let builder = gated_failing(&log, &manual, &gate, |number| number <= 3);
    let pool = builder.no_backoff().build().unwrap();
    for in_a_row in 1..=3 {
        assert!(now(pool.acquire()).is_err());
        assert_eq!(pool.last_creation_error().unwrap().in_a_row, in_a_row);
    }
    assert_eq!(*now(pool.acquire()).unwrap(), 4);
}

#[test]
fn a_creation_over_its_time_limit_fails_with_a_timeout() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = gated_numbers(&log, &manual, &gate).max(1);
    let pool = builder.create_timeout(millis(50)).build().unwrap();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    manual.advance_millis(50);
    let AcquireError::CreateFailed(why) = acquire.done().unwrap_err() else {
        panic!("not a failed creation");
    };
    assert!(why.contains("create timeout of 50 ms"), "{why}");
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn try_acquire_does_not_queue_when_its_resource_is_refused_late() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let destroyed = Gate::new();
    let wait = destroyed.clone();
    let pool = numbers(&log, &manual)
        .max(1)
        .acquire_timeout(millis(1000))
        .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
            false
        }))
        .destroy_async(move |_| wait.pass())
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut attempt = hand(pool.try_acquire());
    attempt.waits();
    gate.open();
    // The only place is taken by the slow destructor: it waits for that alone.
    attempt.waits();
    assert_eq!(pool.status().waiting, 0);
    destroyed.open();
    assert_eq!(*attempt.done().unwrap().unwrap(), 2);
}
