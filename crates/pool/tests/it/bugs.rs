//! Bugs that others had, rule by rule, where no other test has the rule already.

use std::cell::Cell;
use std::sync::Arc;

use cenote_pool::{AcquireError, Event};

use crate::tools::*;

/// A factory that waits at the gate and fails then.
fn failing(
    log: &Log,
    manual: &Manual,
    gate: &Gate,
) -> cenote_pool::Builder<cenote_pool::FnManager<usize, Oops>> {
    let (make, gate) = (log.clone(), gate.clone());
    numbers(log, manual).create(move || {
        let (_, pass) = (make.make(), gate.pass());
        async move {
            pass.await;
            Err(Oops("down"))
        }
    })
}

/// B-001: 16 tasks on 5 places; nobody's first turn comes after another's third.
#[test]
fn no_task_starves_while_others_loop() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 5);
    let mut crew = Crew::new();
    for task in 0..16 {
        let (pool, log) = (&pool, &log);
        crew.add(async move {
            for _ in 0..10 {
                let _lease = pool.acquire().await.unwrap();
                log.line(task.to_string());
                yield_now().await;
            }
        });
    }
    crew.run();
    let lines = log.lines();
    assert_eq!(lines.len(), 160);
    let mut first_turns = lines[..16].to_vec();
    first_turns.sort_unstable();
    first_turns.dedup();
    assert_eq!(first_turns.len(), 16, "{:?}", &lines[..16]);
}

/// B-022, B-039, surprise 4
#[test]
fn failed_creation_fails_its_acquire_and_frees_the_place() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = failing(&log, &manual, &gate).max(1).no_backoff();
    let pool = pool.build().unwrap();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    assert_eq!(log.made(), 1);
    // The failures cascade: each waiter causes one creation and gets its error.
    for index in 0..3 {
        gate.let_one_pass();
        manual.run();
        assert!(waiters[index].is_woken());
        let error = waiters[index].done().unwrap_err();
        assert!(matches!(error, AcquireError::Create(Oops("down"))));
        if let Some(next) = waiters.get_mut(index + 1) {
            assert!(next.is_woken());
            next.waits();
            assert_eq!(log.made(), index + 2);
        }
    }
    assert_eq!(counts(&pool), (0, 0, 0));
    assert_eq!(pool.status().waiting, 0);
}

/// B-022, B-043
#[test]
fn more_tasks_than_places_all_finish_if_nothing_can_be_created() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let pool = failing(&log, &manual, &gate).max(2).build().unwrap();
    let failed = Cell::new(0);
    let mut crew = Crew::new();
    for _ in 0..10 {
        crew.add(async {
            assert!(pool.acquire().await.is_err());
            failed.set(failed.get() + 1);
        });
    }
    // With the default back-off, so this takes a while of the manual clock.
    crew.run_shuffled(7, &manual);
    assert_eq!(failed.get(), 10);
    assert_eq!(counts(&pool), (0, 0, 0));
}

/// B-043
#[test]
fn more_tasks_than_places_all_finish_when_everything_breaks() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(2);
    let pool = builder
        .before_release(|_: &mut usize| false)
        .build()
        .unwrap();
    let mut crew = Crew::new();
    for _ in 0..10 {
        crew.add(async {
            for _ in 0..3 {
                let _lease = pool.acquire().await.unwrap();
                yield_now().await;
            }
        });
    }
    crew.run();
    assert_eq!(crew.left(), 0);
    assert_eq!((log.made(), log.gone().len()), (30, 30));
}

/// B-023
#[test]
fn background_task_keeps_neither_pool_nor_executor_busy() {
    let (log, manual, token) = (Log::default(), Manual::new(), Arc::new(()));
    let held = Arc::clone(&token);
    let builder = numbers(&log, &manual).min(1);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck(move |_: &mut usize| drop(Arc::clone(&held)))
        .open())
    .unwrap();
    manual.advance_millis(35);
    assert_eq!(manual.tasks(), 1);
    drop(pool);
    assert_eq!(log.gone(), [1]);
    manual.run();
    assert_eq!(manual.tasks(), 0);
    assert_eq!(Arc::strong_count(&token), 1);
}

/// B-023
#[test]
#[cfg(feature = "tokio")]
fn tokio_program_ends_although_a_health_checked_pool_lives() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(async {
            let builder = units().min(1);
            let builder = builder.healthcheck_interval(millis(1));
            builder.open().await.unwrap()
        });
    // The runtime is gone, its drop did not wait, and what lived there is gone.
    assert_eq!(pool.status().idle, 0);
}

/// B-044
#[test]
fn one_failure_is_one_event() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    gate.open();
    let pool = failing(&log, &manual, &gate).max(1).build().unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::CreateFailed { error, delivered } = event {
            told.line(format!("{error} {delivered}"));
        }
    })
    .forever();
    assert!(now(pool.acquire()).is_err());
    manual.run();
    assert_eq!(log.lines(), ["down true"]);
}

/// B-030: broken things are found on every way out, not only at the front.
#[test]
fn a_resource_its_holder_calls_broken_never_comes_back() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    cenote_pool::Lease::discard(now(pool.acquire()).unwrap());
    assert_eq!(log.gone(), [1]);
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
}

/// B-035: what is cancelled while it is being made is still made, once.
#[test]
fn acquire_cancelled_while_creating_loses_no_place_or_resource() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    drop(acquire);
    assert_eq!((pool.status().creating, pool.status().total), (1, 1));
    gate.open();
    manual.run();
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(*now(pool.acquire()).unwrap(), 1);
}

/// B-029
#[test]
fn the_settings_can_be_read_back() {
    let builder = units().name("things").min(1).max(3);
    let pool = builder.acquire_timeout(millis(7)).build().unwrap();
    let config = pool.config();
    assert_eq!(config.name.as_deref(), Some("things"));
    assert_eq!((config.min, config.max), (1, 3));
    assert_eq!(config.acquire_timeout, Some(millis(7)));
}
