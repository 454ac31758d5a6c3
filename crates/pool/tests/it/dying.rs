//! An executor that dies, and takes the pool's tasks with it.

use cenote_pool::{AcquireError, DestroyReason, Lease, with};

use crate::tools::*;

#[test]
fn leases_go_back_without_an_executor() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.die();
    drop(lease);
    drop(waiter.done().unwrap());
    assert_eq!((counts(&pool), log.made()), ((1, 1, 0), 1));
}

#[test]
fn the_next_acquire_starts_the_background_task_that_died() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(1).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
        .open())
    .unwrap();
    manual.advance_millis(20);
    assert_eq!(log.lines().len(), 2);
    let lease = now(pool.acquire()).unwrap();
    manual.die();
    drop(lease);
    manual.advance_millis(100);
    assert_eq!((log.lines().len(), manual.tasks()), (2, 0));
    manual.revive();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(20);
    assert_eq!(log.lines().len(), 4);
    assert_eq!((log.made(), counts(&pool)), (1, (1, 1, 0)));
}

#[test]
fn acquire_on_a_dead_executor_does_not_stop_the_next_one() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let pool = numbers(&log, &manual)
        .min(1)
        .healthcheck_interval(millis(10))
        .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
        .build()
        .unwrap();
    manual.die();
    for _ in 0..3 {
        drop(now(pool.acquire()).unwrap());
    }
    assert_eq!(manual.tasks(), 0);
    manual.revive();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(10);
    assert_eq!(log.lines(), ["1"]);
}

#[test]
fn a_waiter_with_a_deadline_is_woken_to_start_the_clock_again() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let _lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire_with(at_most(millis(50))));
    waiter.waits();
    manual.run();
    manual.die();
    assert!(waiter.is_woken());
    manual.revive();
    waiter.waits();
    manual.advance_millis(50);
    assert!(matches!(waiter.done(), Err(AcquireError::Timeout(_))));
}

#[test]
fn release_whose_async_half_never_runs_serves_the_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .before_release_async(async |_: &mut usize| yield_now().await)
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.die();
    drop(lease);
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Abandoned), 1);
    assert_eq!(*waiter.done().unwrap(), 2);
}

#[test]
fn release_dropped_half_way_destroys_and_serves_the_waiter() {
    let (log, manual) = (Log::default(), Manual::new());
    let gate = Gate::new();
    let builder = numbers(&log, &manual).max(1);
    let hook = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
    });
    let pool = builder.before_release_async(hook).build().unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.run();
    assert_eq!(gate.arrived(), 1);
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.die();
    assert_eq!(log.gone(), [1]);
    assert_eq!(*waiter.done().unwrap(), 2);
}

#[test]
fn async_destructor_without_executor_is_polled_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let gone = log.clone();
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .destroy_async(move |number| {
            let gone = gone.clone();
            async move {
                gone.line("begun");
                yield_now().await;
                gone.destroy(number);
            }
        })
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    manual.die();
    Lease::discard(lease);
    assert_eq!((log.lines(), log.gone()), (vec!["begun".into()], vec![]));
    assert_eq!(counts(&pool), (0, 0, 0));
}

#[test]
fn a_creation_that_dies_fails_its_acquire_and_frees_its_place() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = gated_numbers(&log, &manual, &gate).max(1);
    let pool = builder.no_backoff().build().unwrap();
    let (mut starter, mut waiter) = (hand(pool.acquire()), hand(pool.acquire()));
    starter.waits();
    waiter.waits();
    manual.die();
    let AcquireError::CreateFailed(why) = starter.done().unwrap_err() else {
        panic!("not a failed creation");
    };
    assert!(why.contains("runtime dropped"), "{why}");
    assert!(waiter.is_woken());
    manual.revive();
    gate.open();
    assert_eq!(*waiter.waits_for(&manual).unwrap(), 1);
}

#[test]
fn health_check_that_dies_frees_its_place_and_the_next_one_runs() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = numbers(&log, &manual).min(1).max(1);
    let check = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
    });
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck_async(check)
        .open())
    .unwrap();
    manual.advance_millis(10);
    assert_eq!(gate.arrived(), 1);
    manual.die();
    assert_eq!((log.gone(), counts(&pool)), (vec![1], (0, 0, 0)));
    manual.revive();
    gate.open();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(10);
    assert_eq!(gate.arrived(), 2);
}

#[test]
fn a_replacement_that_dies_is_tried_again() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = gated_numbers(&log, &manual, &gate).max(2).no_backoff();
    let builder = builder.max_lifetime(millis(100)).lifetime_jitter(0.0);
    let pool = builder.build().unwrap();
    gate.let_one_pass();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(125);
    assert_eq!(pool.status().creating, 1);
    manual.die();
    assert_eq!((counts(&pool), log.gone()), ((1, 1, 0), vec![]));
    manual.revive();
    gate.open();
    manual.advance_millis(1000);
    drop(now(pool.acquire()).unwrap());
    manual.run();
    assert!(log.gone().contains(&1));
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

#[test]
fn resources_that_live_on_an_executor_go_with_it() {
    let (log, manual) = (Log::default(), Manual::new());
    manual.binds_resources();
    let pool = number_pool(&log, &manual, 3);
    let leases = [(); 3].map(|()| now(pool.acquire()).unwrap());
    let [one, two, three] = leases;
    drop(one);
    drop(two);
    manual.run();
    manual.die();
    // The idle ones at once, the leased one when it comes back.
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(*three, 3);
    drop(three);
    assert_eq!(log.gone(), [1, 2, 3]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::RuntimeGone), 3);
    manual.revive();
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 4);
    manual.run();
    drop(lease);
    assert_eq!(*now(pool.acquire()).unwrap(), 4);
}

#[test]
fn only_the_resources_of_the_executor_that_died_go() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    // The first was made where nothing binds it.
    let unbound = now(pool.acquire()).unwrap();
    manual.binds_resources();
    drop(now(pool.acquire()).unwrap());
    drop(unbound);
    manual.run();
    manual.die();
    assert_eq!(log.gone(), [2]);
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
}

#[test]
fn resource_created_on_a_dead_executor_is_not_kept() {
    let (log, manual) = (Log::default(), Manual::new());
    manual.binds_resources();
    let make = log.clone();
    let builder = numbers(&log, &manual).max(1).no_backoff();
    let pool = builder
        .create(move || {
            let number = make.make();
            assert!(number < 100, "it creates for ever");
            async move { Ok(number) }
        })
        .build()
        .unwrap();
    manual.die();
    // Only the acquire that asked may get it.
    let first = hand(pool.acquire()).poll();
    assert!(log.made() < 100, "it creates for ever");
    drop(first);
    manual.revive();
    let lease = hand(pool.acquire()).waits_for(&manual).unwrap();
    assert!(*lease > 1, "the first is bound to the dead executor");
    assert!(log.gone().contains(&1));
}

#[test]
fn close_and_drain_work_without_an_executor() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = now(numbers(&log, &manual).min(2).open()).unwrap();
    let lease = now(pool.acquire()).unwrap();
    manual.die();
    let mut drain = hand(pool.close_and_drain(millis(100)));
    drain.waits();
    drop(lease);
    drain.done().unwrap();
    assert_eq!(log.gone(), [2, 1]);
}
