//! Hooks: when they run, and what their answers lead to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_pool::{AcquireError, DestroyReason, Event, FnPool, Hook, Info, Manager, Pool, with};

use crate::tools::*;

/// P-008a, P-008b, P-008c
#[test]
fn refused_resource_is_replaced_in_the_same_acquire() {
    let log = Log::default();
    let checks = log.clone();
    let builder = numbers(&log, &Manual::new()).min(1).max(2);
    let pool = now(builder
        .before_acquire(move |number: &mut usize| {
            checks.line(format!("check {number}"));
            checks.lines().len() > 1
        })
        .open())
    .unwrap();
    let lease = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(*lease, 2);
    assert_eq!(log.gone(), [1]);
    assert_eq!(log.lines(), ["check 1"]);
    drop(lease);
    let lease = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(*lease, 2);
    assert_eq!(log.lines(), ["check 1", "check 2"]);
}

/// P-009a, P-009b, B-030
#[test]
fn resource_refused_on_release_is_destroyed_before_it_returns() {
    let log = Log::default();
    let (asked, gone) = (log.clone(), log.clone());
    let pool = numbers(&log, &Manual::new())
        .before_release(move |number: &mut usize| {
            asked.line(format!("ask {number}"));
            false
        })
        .destroy(move |number| gone.line(format!("destroy {number}")))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(log.lines(), ["ask 1", "destroy 1"]);
    assert_eq!(counts(&pool), (0, 0, 0));
}

/// P-021a, P-021b
#[test]
fn before_acquire_error_is_a_refusal_and_stays_in_the_pool() {
    let log = Log::default();
    let builder = numbers(&log, &Manual::new()).min(1);
    let pool = now(builder
        .before_acquire(|_: &mut usize| Err::<(), _>(Oops("stale")))
        .open())
    .unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::HookFailed { hook, error, .. } = event {
            told.line(format!("{hook:?}: {error}"));
        }
    })
    .forever();
    let lease = now(pool.try_acquire()).unwrap().unwrap();
    assert_eq!(*lease, 2);
    assert_eq!(log.gone(), [1]);
    assert_eq!(log.lines(), [format!("{:?}: stale", Hook::BeforeAcquire)]);
}

/// P-022
#[test]
fn an_error_of_before_release_is_a_refusal_and_release_succeeds() {
    let log = Log::default();
    let pool = numbers(&log, &Manual::new())
        .before_release(|_: &mut usize| Err::<bool, _>("dirty"))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(log.gone(), [1]);
    assert_eq!(counts(&pool), (0, 0, 0));
    let reason = DestroyReason::ReleaseRejected;
    assert_eq!(pool.counters().destroyed_for(reason), 1);
}

/// P-027
#[test]
fn every_hook_runs_once_and_in_order() {
    let log = Log::default();
    let [made, taken, back, gone] = [(); 4].map(|()| log.clone());
    let builder = numbers(&log, &Manual::new()).min(1).create(move || {
        made.line("create");
        async { Ok(1) }
    });
    let pool = now(builder
        .before_acquire(move |_: &mut usize| taken.line("before_acquire"))
        .before_release(move |_: &mut usize| back.line("before_release"))
        .destroy(move |_| gone.line("destroy"))
        .open())
    .unwrap();
    drop(now(pool.acquire()).unwrap());
    now(pool.close()).unwrap();
    let order = ["create", "before_acquire", "before_release", "destroy"];
    assert_eq!(log.lines(), order);
}

/// P-051, B-038, B-040: by the decision, acquire goes on with the next resource
/// and the events have the destructor's error.
#[test]
fn failing_destructor_of_a_refused_resource_stops_no_acquire() {
    let log = Log::default();
    let builder = numbers(&log, &Manual::new()).min(1).max(1);
    let pool = now(builder
        .before_acquire(|_: &mut usize| false)
        .destroy(|_| Err(Oops("stuck")))
        .open())
    .unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::Destroyed { reason, error, .. } = event {
            let error = error.as_deref().unwrap_or("nothing");
            told.line(format!("{reason:?}: {error}"));
        }
    })
    .forever();
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 2);
    assert_eq!(log.lines().len(), 1);
    assert!(log.lines()[0].starts_with("AcquireRejected: "));
    assert!(log.lines()[0].ends_with("stuck"));
}

/// P-056, B-019
#[test]
fn a_resource_in_a_slow_hook_is_counted_all_the_time() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(with(
            manual.clone(),
            async |manual: &Manual, _: &mut usize| {
                manual.sleep_for(millis(30)).await;
            },
        ))
        .before_release_async(with(
            manual.clone(),
            async |manual: &Manual, _: &mut usize| {
                manual.sleep_for(millis(30)).await;
            },
        ))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut next = hand(pool.acquire());
    for sample in 0..6 {
        // Three samples in the release hook, three in the acquire hook.
        next.waits();
        assert_eq!(counts(&pool), (1, 0, 1), "sample {sample}");
        manual.advance_millis(10);
    }
    drop(next.done().unwrap());
    for sample in 6..9 {
        assert_eq!(counts(&pool), (1, 0, 1), "sample {sample}");
        manual.advance_millis(10);
    }
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(log.made(), 1);
}

/// P-048a, P-048b, B-036
#[test]
fn health_check_sees_every_idle_resource_and_ends_with_the_pool() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(2).max(4);
    let pool = now(builder
        .healthcheck_interval(millis(30))
        .healthcheck(move |number: &mut usize| {
            checks.line(number.to_string());
            *number != 1
        })
        .open())
    .unwrap();
    manual.advance_millis(120);
    assert_eq!(log.lines()[..2], ["1", "2"]);
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Unhealthy), 1);
    // Refilled to min, although upstream never asserts it.
    assert_eq!(counts(&pool), (2, 2, 0));
    now(pool.close()).unwrap();
    let checked = log.lines().len();
    manual.advance_millis(120);
    assert_eq!(log.lines().len(), checked);
    assert_eq!(manual.tasks(), 0);
}

/// P-049a, P-049b
#[test]
fn health_check_error_destroys_its_resource_and_continues() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(2).max(4);
    let pool = now(builder
        .healthcheck_interval(millis(25))
        .healthcheck(move |number: &mut usize| {
            checks.line(number.to_string());
            match *number {
                1 => Err(Oops("sick")),
                _ => Ok(()),
            }
        })
        .open())
    .unwrap();
    manual.advance_millis(100);
    assert_eq!(log.gone(), [1]);
    // Number 2 was looked at in every round, also after the error in the first.
    let seen = log.lines().iter().filter(|line| *line == "2").count();
    assert_eq!(seen, 4);
    now(pool.close()).unwrap();
}

/// B-040
#[test]
fn a_health_check_goes_on_when_a_destructor_fails() {
    let (log, manual) = (Log::default(), Manual::new());
    let (checks, gone) = (log.clone(), log.clone());
    let builder = numbers(&log, &manual).min(2).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck(move |number: &mut usize| {
            checks.line(number.to_string());
            false
        })
        .destroy(move |number| {
            gone.destroy(number);
            Err(Oops("stuck"))
        })
        .open())
    .unwrap();
    manual.advance_millis(10);
    assert_eq!(log.lines(), ["1", "2"]);
    assert_eq!(log.gone(), [1, 2]);
    assert_eq!(counts(&pool), (2, 2, 0));
}

/// P-053a, P-053b, B-025
#[test]
fn hooks_and_strategy_go_when_the_last_handle_goes() {
    struct Silent(#[allow(dead_code, reason = "held to be counted")] Arc<()>);
    impl cenote_pool::Strategy for Silent {
        fn report_success(&self, _: &cenote_pool::Report<'_>) {}
        fn report_failure(&self, _: &cenote_pool::Report<'_>) -> cenote_pool::Advice {
            cenote_pool::Advice::Stay
        }
    }
    let (log, manual, token) = (Log::default(), Manual::new(), Arc::new(()));
    let [a, b, c, d, e] = [(); 5].map(|()| Arc::clone(&token));
    let builder = numbers(&log, &manual).min(1).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .before_acquire(move |_: &mut usize| drop(Arc::clone(&a)))
        .before_release(move |_: &mut usize| drop(Arc::clone(&b)))
        .healthcheck(move |_: &mut usize| drop(Arc::clone(&c)))
        .destroy(move |_| drop(Arc::clone(&d)))
        .breaker(Silent(e))
        .open())
    .unwrap();
    manual.advance_millis(25);
    drop(now(pool.acquire()).unwrap());
    assert_eq!(Arc::strong_count(&token), 6);
    drop(pool);
    manual.run();
    assert_eq!(Arc::strong_count(&token), 1);
    assert_eq!(manual.tasks(), 0);
}

/// The acquire used to get a lease of the closed pool, whose drain then waited for it.
#[test]
fn h12_acquire_in_its_hook_fails_when_the_pool_closes() {
    for with_deadline in [false, true] {
        let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
        let pool = numbers(&log, &manual)
            .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
                gate.pass().await;
            }))
            .build()
            .unwrap();
        drop(now(pool.acquire()).unwrap());
        let limit = if with_deadline {
            millis(1000)
        } else {
            Duration::MAX
        };
        let mut acquire = hand(pool.acquire_with(at_most(limit)));
        acquire.waits();
        now(pool.close()).unwrap();
        gate.open();
        assert!(matches!(acquire.done(), Err(AcquireError::Closed)));
        assert_eq!(log.gone(), [1]);
        assert_eq!(pool.counters().destroyed_for(DestroyReason::Closed), 1);
    }
}

/// The same for a manager's own hook, and for a hook that closes the pool itself.
#[test]
fn h12_manager_hook_and_plain_hook_give_no_lease_after_close() {
    struct Slow(Gate);

    impl Manager for Slow {
        type Resource = ();
        type Error = Oops;

        async fn create(&self) -> Result<(), Oops> {
            Ok(())
        }

        async fn before_acquire(&self, (): &mut (), _: Info<'_>) -> Result<bool, Oops> {
            self.0.pass().await;
            Ok(true)
        }
    }

    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = Pool::builder(Slow(gate.clone()))
        .runtime(manual.clone())
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    now(pool.close()).unwrap();
    gate.open();
    assert!(matches!(acquire.done(), Err(AcquireError::Closed)));

    let handle = Arc::new(Mutex::new(None::<FnPool<usize, Oops>>));
    let itself = Arc::clone(&handle);
    let pool = numbers(&log, &manual)
        .before_acquire(move |_: &mut usize| {
            let pool = itself.lock().unwrap().take();
            pool.is_some_and(|pool| now(pool.close()).is_ok())
        })
        .build()
        .unwrap();
    *handle.lock().unwrap() = Some(pool.clone());
    drop(now(pool.acquire()).unwrap());
    assert!(matches!(now(pool.acquire()), Err(AcquireError::Closed)));
    assert_eq!(log.gone(), [1]);
}

/// The resource used to be away until the runtime had run a task, even if nothing had to wait.
#[test]
fn h9_async_half_of_a_release_is_polled_at_once() {
    let (log, manual) = (Log::default(), Manual::new());
    let lines = log.clone();
    let pool = numbers(&log, &manual)
        .max(1)
        .before_release_async(with(lines, async |log: &Log, number: &mut usize| {
            log.line(format!("clean {number}"));
        }))
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    let tasks = manual.tasks();
    drop(lease);
    assert_eq!(
        (log.lines(), manual.tasks()),
        (vec!["clean 1".into()], tasks)
    );
    assert_eq!(*waiter.done().unwrap(), 1);
}
