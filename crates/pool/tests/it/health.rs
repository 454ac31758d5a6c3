//! The health check, the idle timeout and the background task that does them.

use cenote_pool::{DestroyReason, Info, Manager, Order, Pool, with};

use crate::tools::*;

#[test]
fn the_health_check_leaves_leased_resources_alone() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(2).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
        .open())
    .unwrap();
    let lease = now(pool.acquire()).unwrap();
    assert_eq!(*lease, 1);
    manual.advance_millis(20);
    assert_eq!(log.lines(), ["2", "2"]);
    drop(lease);
    manual.advance_millis(10);
    assert_eq!(log.lines().len(), 4);
}

#[test]
fn check_idle_brings_the_next_round_forward() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(2).max(2);
    let pool = now(builder
        .healthcheck_interval(millis(100))
        .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
        .open())
    .unwrap();
    manual.advance_millis(10);
    assert_eq!(log.lines().len(), 0);
    pool.check_idle();
    manual.run();
    assert_eq!(log.lines(), ["1", "2"]);
    // The interval begins anew.
    manual.advance_millis(99);
    assert_eq!(log.lines().len(), 2);
    manual.advance_millis(1);
    assert_eq!(log.lines().len(), 4);
    now(pool.close()).unwrap();
    pool.check_idle();
    manual.run();
    assert_eq!(log.lines().len(), 4);
}

#[test]
fn check_idle_does_nothing_in_a_pool_without_an_interval() {
    let (log, manual) = (Log::default(), Manual::new());
    let checks = log.clone();
    let builder = numbers(&log, &manual).min(1).max(1);
    let pool = now(builder
        .healthcheck(move |number: &mut usize| checks.line(number.to_string()))
        .open())
    .unwrap();
    pool.check_idle();
    manual.run();
    assert_eq!(log.lines().len(), 0);
}

#[test]
fn checked_resource_counts_and_serves_the_waiter_when_it_passes() {
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
    assert_eq!((gate.arrived(), counts(&pool)), (1, (1, 0, 1)));
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    gate.let_one_pass();
    manual.run();
    assert!(waiter.is_woken());
    assert_eq!(*waiter.done().unwrap(), 1);
}

#[test]
fn a_failed_health_check_gives_its_place_to_the_waiter() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = numbers(&log, &manual).max(1);
    let check = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
        false
    });
    let pool = builder
        .healthcheck_interval(millis(10))
        .healthcheck_async(check)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(10);
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    gate.let_one_pass();
    manual.run();
    assert!(waiter.is_woken());
    assert_eq!(*waiter.done().unwrap(), 2);
    assert_eq!(log.gone(), [1]);
}

#[test]
fn slow_health_check_delays_no_deadline_and_never_overlaps() {
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
    let mut waiter = hand(pool.acquire_with(at_most(millis(25))));
    waiter.waits();
    manual.advance_millis(25);
    assert!(waiter.done().is_err());
    assert_eq!(gate.arrived(), 1);
}

#[test]
fn health_check_past_the_cleanup_timeout_destroys_its_resource() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let builder = numbers(&log, &manual).min(1).max(1);
    let check = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
    });
    let pool = now(builder
        .healthcheck_interval(millis(10))
        .cleanup_timeout(millis(50))
        .healthcheck_async(check)
        .open())
    .unwrap();
    manual.advance_millis(59);
    assert_eq!(log.gone(), []);
    manual.advance_millis(1);
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.status().total, 1);
}

#[test]
fn the_pool_refills_to_min_after_any_loss() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = now(numbers(&log, &manual).min(2).max(4).open()).unwrap();
    manual.run();
    for expected in 3..6 {
        cenote_pool::Lease::discard(now(pool.acquire()).unwrap());
        manual.run();
        assert_eq!(counts(&pool), (2, 2, 0));
        assert_eq!(log.made(), expected);
    }
}

#[test]
fn pool_that_was_only_built_fills_to_min_at_its_first_acquire() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual).min(3).max(4).build().unwrap();
    manual.run();
    assert_eq!((log.made(), manual.tasks()), (0, 0));
    drop(now(pool.acquire()).unwrap());
    manual.run();
    assert_eq!(counts(&pool), (3, 3, 0));
}

#[test]
fn failed_refill_is_reported_and_retried_after_the_back_off() {
    let (log, manual) = (Log::default(), Manual::new());
    let make = log.clone();
    let builder = numbers(&log, &manual).min(1).max(2);
    let pool = now(builder
        .create(move || {
            let number = make.make();
            async move {
                match number {
                    2 => Err(Oops("down")),
                    _ => Ok(number),
                }
            }
        })
        .open())
    .unwrap();
    let told = log.clone();
    pool.on_event(move |event| {
        if let cenote_pool::Event::CreateFailed { error, delivered } = event {
            told.line(format!("{error} {delivered}"));
        }
    })
    .forever();
    cenote_pool::Lease::discard(now(pool.acquire()).unwrap());
    manual.run();
    assert_eq!(log.lines(), ["down false"]);
    assert_eq!(&*pool.last_creation_error().unwrap().message, "down");
    assert_eq!(counts(&pool), (0, 0, 0));
    manual.advance_millis(100);
    assert_eq!(counts(&pool), (1, 1, 0));
    assert!(pool.last_creation_error().is_none());
}

#[test]
fn what_is_idle_for_too_long_goes_but_min_stay() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).min(1).max(4);
    let pool = builder.idle_timeout(millis(100)).build().unwrap();
    let leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    manual.advance_millis(500);
    // Leased ones have no idle time.
    assert_eq!(log.gone(), []);
    drop(leases);
    manual.advance_millis(99);
    assert_eq!(log.gone(), []);
    manual.advance_millis(26);
    assert_eq!(log.gone().len(), 3);
    assert_eq!(counts(&pool), (1, 1, 0));
    manual.advance_millis(1000);
    assert_eq!(counts(&pool), (1, 1, 0));
    let reason = DestroyReason::IdleTimeout;
    assert_eq!(pool.counters().destroyed_for(reason), 3);
    assert_eq!(log.made(), 4);
}

#[test]
fn use_starts_the_idle_time_again_and_a_health_check_does_not() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(1);
    let pool = builder
        .idle_timeout(millis(100))
        .healthcheck_interval(millis(30))
        .build()
        .unwrap();
    for _ in 0..5 {
        drop(now(pool.acquire()).unwrap());
        manual.advance_millis(80);
    }
    assert_eq!(log.gone(), []);
    manual.advance_millis(45);
    assert_eq!(log.gone(), [1]);
}

#[test]
fn a_lifo_pool_shrinks_while_it_is_used() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).max(3).order(Order::Lifo);
    let pool = builder.idle_timeout(millis(100)).build().unwrap();
    drop([(); 3].map(|()| now(pool.acquire()).unwrap()));
    for _ in 0..10 {
        drop(now(pool.acquire()).unwrap());
        manual.advance_millis(20);
    }
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(log.gone(), [1, 2]);
}

/// The static way: a manager with all of its methods.
struct Counting(Log);

impl Manager for Counting {
    type Resource = usize;
    type Error = Oops;

    async fn create(&self) -> Result<usize, Oops> {
        Ok(self.0.make())
    }

    async fn destroy(&self, number: usize) -> Result<(), Oops> {
        self.0.destroy(number);
        Ok(())
    }

    async fn healthcheck(&self, number: &mut usize, _: Info<'_>) -> Result<bool, Oops> {
        self.0.line(format!("health {number}"));
        Ok(true)
    }

    async fn before_acquire(&self, number: &mut usize, _: Info<'_>) -> Result<bool, Oops> {
        self.0.line(format!("acquire {number}"));
        Ok(true)
    }

    fn before_release(&self, number: &mut usize, _: Info<'_>) -> cenote_pool::Verdict {
        self.0.line(format!("release {number}"));
        cenote_pool::Verdict::Later
    }

    async fn recycle(&self, number: &mut usize, _: Info<'_>) -> Result<bool, Oops> {
        self.0.line(format!("recycle {number}"));
        Ok(*number != 1)
    }
}

#[test]
fn manager_methods_are_called_unless_a_closure_overrides_them() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = Pool::builder(Counting(log.clone())).runtime(manual.clone());
    let pool = builder
        .healthcheck_interval(millis(10))
        .before_acquire(|_: &mut usize| true)
        .build()
        .unwrap();
    for number in [1, 2] {
        assert_eq!(*now(pool.acquire()).unwrap(), number);
        manual.run();
    }
    drop(now(pool.acquire()).unwrap());
    manual.run();
    manual.advance_millis(10);
    let lines = log.lines();
    assert_eq!(
        lines[..],
        [
            "release 1",
            "recycle 1",
            "release 2",
            "recycle 2",
            "release 2",
            "recycle 2",
            "health 2"
        ]
    );
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.manager().0.made(), 2);
}
