//! Panics in whatever the pool calls: never a place lost, never a panic passed on.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_pool::{AcquireError, Advice, Event, Hook, Lease, Pool, Report, Strategy, with};

use crate::tools::*;

#[test]
fn one_panic_in_create_does_not_kill_the_pool() {
    let (log, manual) = (Log::default(), Manual::new());
    let make = log.clone();
    let builder = numbers(&log, &manual).max(1).no_backoff();
    let pool = builder
        .create(move || {
            let number = make.make();
            // One before there is a future, one in it.
            assert_ne!(number, 1, "in the call");
            async move {
                yield_now().await;
                assert_ne!(number, 2, "in the future");
                Ok(number)
            }
        })
        .build()
        .unwrap();
    for place in ["in the call", "in the future"] {
        let error = hand(pool.acquire()).waits_for(&manual).unwrap_err();
        assert!(matches!(error, AcquireError::CreateFailed(why) if why.contains(place)));
        assert_eq!(counts(&pool), (0, 0, 0));
    }
    assert_eq!(*hand(pool.acquire()).waits_for(&manual).unwrap(), 3);
}

/// Panics when it is asked for the first time.
#[derive(Clone, Default)]
struct Mine(Arc<AtomicBool>);

impl Mine {
    fn step(&self) {
        assert!(self.0.swap(true, Ordering::SeqCst), "a mine");
    }
}

impl Strategy for Mine {
    fn report_success(&self, _: &Report<'_>) {
        self.step();
    }

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        self.step();
        Advice::Stay
    }
}

#[test]
fn a_panic_in_any_callback_never_loses_a_place() {
    for mined in [
        "acquire", "release", "recycle", "destroy", "strategy", "event",
    ] {
        let (log, manual, mine) = (Log::default(), Manual::new(), Mine::default());
        let hook = mine.clone();
        let builder = numbers(&log, &manual).max(2);
        let builder = match mined {
            "acquire" => builder.before_acquire(move |_: &mut usize| hook.step()),
            "release" => builder.before_release(move |_: &mut usize| hook.step()),
            "recycle" => {
                builder.before_release_async(with(hook, async |hook: &Mine, _: &mut usize| {
                    yield_now().await;
                    hook.step();
                }))
            }
            "destroy" => builder.destroy(move |_| hook.step()),
            "strategy" => builder.breaker(hook),
            _ => builder,
        };
        let pool = builder.build().unwrap();
        if mined == "event" {
            let hook = mine.clone();
            pool.on_event(move |_| hook.step()).forever();
        }
        for _ in 0..3 {
            let lease = hand(pool.acquire()).waits_for(&manual).unwrap();
            if mined == "destroy" {
                Lease::discard(lease);
            } else {
                drop(lease);
            }
            manual.run();
        }
        assert!(mine.0.load(Ordering::SeqCst), "{mined} was never called");
        let status = pool.status();
        assert_eq!(status.total, status.idle, "{mined}: {status}");
        all_places_are_there(&pool, &manual);
    }
}

#[test]
fn a_panic_in_the_health_check_costs_only_its_resource() {
    let (log, manual, mine) = (Log::default(), Manual::new(), Mine::default());
    let builder = numbers(&log, &manual).min(2).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck(move |_: &mut usize| mine.step())
        .open())
    .unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::HookFailed { hook, error, .. } = event {
            assert_eq!(*hook, Hook::Healthcheck);
            told.line(&**error);
        }
    })
    .forever();
    manual.advance_millis(35);
    assert_eq!(log.lines(), ["panicked: a mine"]);
    assert_eq!(log.gone(), [1]);
    all_places_are_there(&pool, &manual);
}

/// A resource whose own drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "the bomb went off");
    }
}

#[test]
fn a_resource_that_panics_when_dropped_gives_its_place_back() {
    let manual = Manual::new();
    let bombs = || Pool::from_fn(|| async { Ok::<_, Infallible>(Bomb) });
    let pool = bombs().max(1).runtime(manual.clone()).build().unwrap();
    Lease::discard(now(pool.acquire()).unwrap());
    assert_eq!(pool.status().total, 0);
    drop(now(pool.acquire()).unwrap());
    let error = now(pool.close()).unwrap_err();
    assert!(error.errors[0].to_string().contains("the bomb went off"));
    assert_eq!(pool.status().total, 0);
}

#[test]
fn late_destructor_may_panic_on_drop_and_frees_its_place() {
    let manual = Manual::new();
    let builder = Pool::from_fn(|| async { Ok::<_, Infallible>(Bomb) });
    let clock = manual.clone();
    let pool = builder
        .max(1)
        .runtime(manual.clone())
        .cleanup_timeout(millis(10))
        .destroy_async(move |bomb| {
            let slow = clock.sleep_for(millis(1000));
            async move {
                slow.await;
                std::mem::forget(bomb);
            }
        })
        .build()
        .unwrap();
    let told = Log::default();
    let log = told.clone();
    pool.on_event(move |event| {
        if let Event::Destroyed { error, .. } = event {
            log.line(error.as_deref().unwrap_or("nothing"));
        }
    })
    .forever();
    Lease::discard(now(pool.acquire()).unwrap());
    assert_eq!(pool.status().total, 1);
    manual.advance_millis(10);
    assert_eq!(pool.status().total, 0);
    assert_eq!(told.lines().len(), 1);
    std::mem::forget(Lease::detach(now(pool.acquire()).unwrap()).0);
}
