//! Evicting by a predicate, and what hooks and predicates know of a resource.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cenote_pool::{
    AcquireError, ConsecutiveFailures, DestroyReason, Event, Hook, Info, Manager, Phase, Pool,
    Verdict, informed, with,
};

use crate::tools::*;

#[test]
fn retain_judges_idle_resources_before_it_returns() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual).min(2).max(4).build().unwrap();
    let leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    pool.retain(|number, _| *number == 3);
    assert_eq!(log.gone(), [1, 2, 4]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Evicted), 3);
    // Refills to the minimum.
    manual.advance_millis(10);
    assert_eq!((log.made(), counts(&pool)), (5, (2, 2, 0)));
    all_places_are_there(&pool, &manual);
}

#[test]
fn retain_judges_a_busy_resource_when_it_comes_back() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    let busy = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
    let asked = log.clone();
    pool.retain(move |number, _| {
        asked.line(number.to_string());
        *number != 1
    });
    assert!(log.lines().is_empty());
    // Made later: not judged.
    drop(now(pool.acquire()).unwrap());
    assert!(log.lines().is_empty());
    drop(busy);
    assert_eq!(
        (log.lines(), log.gone()),
        (vec!["1".into(), "2".into()], vec![1])
    );
    // Judged once.
    drop([now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()]);
    assert_eq!((log.lines().len(), log.gone()), (2, vec![1]));
    all_places_are_there(&pool, &manual);
}

#[test]
fn retain_judges_before_a_waiter_gets_the_resource() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    pool.retain(|number, _| *number > 1);
    drop(lease);
    assert_eq!((*waiter.done().unwrap(), log.gone()), (2, vec![1]));
    all_places_are_there(&pool, &manual);
}

#[test]
fn retain_reaches_a_reserved_resource_when_its_lease_ends() {
    for collects in [true, false] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, 1);
        let lease = now(pool.acquire()).unwrap();
        let mut waiter = hand(pool.acquire());
        waiter.waits();
        drop(lease);
        assert_eq!(pool.status().reserved, 1);
        pool.retain(|_, _| false);
        if collects {
            let lease = waiter.done().unwrap();
            assert_eq!((*lease, log.gone()), (1, vec![]));
            drop(lease);
        }
        drop(waiter);
        assert_eq!(log.gone(), [1]);
        all_places_are_there(&pool, &manual);
    }
}

#[test]
fn each_predicate_judges_what_was_there_when_it_came() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    let first = now(pool.acquire()).unwrap();
    let [one, two] = [log.clone(), log.clone()];
    pool.retain(move |number, _| {
        one.line(format!("a{number}"));
        true
    });
    let second = now(pool.acquire()).unwrap();
    pool.retain(move |number, _| {
        two.line(format!("b{number}"));
        true
    });
    drop(second);
    drop(first);
    assert_eq!(log.lines(), ["b2", "a1", "b1"]);
    all_places_are_there(&pool, &manual);
}

/// A lock that was held would wait for itself.
#[test]
fn predicates_run_outside_the_lock_and_are_dropped_when_done() {
    must_end(|| {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, 2);
        let used = Arc::new(());
        let [busy, idle] = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
        drop(idle);
        let (weak, held) = (pool.downgrade(), Arc::clone(&used));
        pool.retain(move |_, _| {
            let _ = &held;
            let pool = weak.upgrade().unwrap();
            let _ = (pool.status(), pool.holders(), pool.counters());
            pool.retain(|_, _| true);
            drop(now(pool.try_acquire()).unwrap());
            true
        });
        assert_eq!(Arc::strong_count(&used), 2);
        drop(busy);
        assert_eq!(Arc::strong_count(&used), 1);
        // It also goes with the last resource, judged or not.
        let busy = now(pool.acquire()).unwrap();
        let held = Arc::clone(&used);
        pool.retain(move |_, _| Arc::strong_count(&held) > 0);
        cenote_pool::Lease::discard(busy);
        assert_eq!(Arc::strong_count(&used), 1);
    });
}

#[test]
fn predicate_that_panics_evicts_and_is_reported() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    drop(now(pool.acquire()).unwrap());
    let told = log.clone();
    pool.on_event(move |event| {
        if let Event::HookFailed { hook, error, .. } = event {
            told.line(format!("{hook:?}: {error}"));
        }
    })
    .forever();
    pool.retain(|_, _| panic!("a mine"));
    let line = format!("{:?}: panicked: a mine", Hook::Retain);
    assert_eq!((log.lines(), log.gone()), (vec![line], vec![1]));
    all_places_are_there(&pool, &manual);
}

#[test]
fn closed_pool_asks_no_predicate() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let asked = log.clone();
    let ask = move |_: &usize, _: Info<'_>| {
        asked.line("asked");
        true
    };
    pool.retain(ask.clone());
    now(pool.close()).unwrap();
    pool.retain(ask);
    drop(lease);
    assert_eq!((log.lines(), log.gone()), (vec![], vec![1]));
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Closed), 1);
}

/// A manager that writes down what its hooks know, and retires a resource after two uses.
struct Curious(Log);

impl Curious {
    fn note(&self, hook: &str, info: Info<'_>) {
        let (age, uses, unused) = (info.age(), info.uses(), info.unused_for());
        assert_eq!(info.last_used() + unused, info.created() + age);
        self.0.line(format!(
            "{hook} {} {} {uses} {}",
            info.id(),
            age.as_millis(),
            unused.as_millis()
        ));
    }
}

impl Manager for Curious {
    type Resource = usize;
    type Error = Oops;

    async fn create(&self) -> Result<usize, Oops> {
        Ok(self.0.make())
    }

    async fn healthcheck(&self, _: &mut usize, info: Info<'_>) -> Result<bool, Oops> {
        self.note("health", info);
        Ok(true)
    }

    async fn before_acquire(&self, _: &mut usize, info: Info<'_>) -> Result<bool, Oops> {
        yield_now().await;
        self.note("acquire", info);
        Ok(true)
    }

    fn before_release(&self, _: &mut usize, info: Info<'_>) -> Verdict {
        self.note("release", info);
        match info.uses() {
            1 => Verdict::Later,
            _ => Verdict::Retire,
        }
    }

    async fn recycle(&self, _: &mut usize, info: Info<'_>) -> Result<bool, Oops> {
        self.note("recycle", info);
        Ok(true)
    }
}

#[test]
fn hooks_know_age_uses_and_time_since_the_last_lease() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = Pool::builder(Curious(log.clone()))
        .max(1)
        .breaker(ConsecutiveFailures::new(1))
        .healthcheck_interval(millis(100))
        .runtime(manual.clone())
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    manual.advance_millis(10);
    drop(lease);
    manual.advance_millis(90);
    let lease = hand(pool.acquire()).waits_for(&manual).unwrap();
    manual.advance_millis(5);
    drop(lease);
    assert_eq!(
        log.lines(),
        [
            "release #1 10 1 10",
            "recycle #1 10 1 10",
            "health #1 100 1 100",
            "acquire #1 100 1 100",
            "release #1 105 2 5",
        ]
    );
    // Retired, which is no failure: the breaker stays closed.
    let lease = now(pool.acquire()).unwrap();
    assert_eq!((*lease, cenote_pool::Lease::id(&lease).get()), (2, 2));
    drop(lease);
    assert_eq!(log.lines()[5], "release #2 0 1 0");
    let evicted = log.clone();
    pool.retain(move |_, info| {
        evicted.line(format!("{info:?}"));
        info.uses() > 1
    });
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Evicted), 1);
}

#[test]
fn informed_closures_know_as_much() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_async(informed(async |_: &mut usize, info: Info<'_>| {
            info.uses() < 2
        }))
        .before_release_async(informed(async |_: &mut usize, info: Info<'_>| {
            info.age() < millis(1000)
        }))
        .build()
        .unwrap();
    for number in [1, 1, 2, 2, 3] {
        assert_eq!(*now(pool.acquire()).unwrap(), number);
    }
    let lease = now(pool.acquire()).unwrap();
    manual.advance_millis(1000);
    drop(lease);
    assert_eq!(log.gone(), [1, 2, 3]);
}

/// While a hook waits, the resource has no holder yet, and the time of its last lease stands.
#[test]
fn resource_in_its_acquire_hook_has_no_holder() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = numbers(&log, &manual)
        .before_acquire_async(with(gate.clone(), async |gate: &Gate, _: &mut usize| {
            gate.pass().await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(50);
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    assert!(pool.holders().is_empty());
    gate.open();
    let _lease = acquire.done().unwrap();
    assert_eq!(
        (pool.holders().len(), pool.holders()[0].held_for),
        (1, millis(0))
    );
}

/// The next holder used to get a resource in whatever state a panic had left it.
#[test]
fn resource_whose_holder_panicked_is_destroyed_by_default() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .breaker(ConsecutiveFailures::new(1))
        .build()
        .unwrap();
    for owned in [false, true] {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let lease = now(pool.acquire()).unwrap();
            let _lease = match owned {
                true => Ok(cenote_pool::Lease::into_owned(lease)),
                false => Err(lease),
            };
            panic!("the original");
        }));
        assert!(panic.is_err());
    }
    // Not a failure of the pool: the breaker stays closed.
    assert_eq!((log.gone(), *now(pool.acquire()).unwrap()), (vec![1, 2], 3));
    all_places_are_there(&pool, &manual);
}

#[test]
fn release_hook_decides_about_a_resource_whose_holder_panicked() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_release(|number: &mut usize| *number > 1 || !std::thread::panicking())
        .build()
        .unwrap();
    for _ in 0..2 {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _lease = now(pool.acquire()).unwrap();
            panic!("the original");
        }));
        assert!(panic.is_err());
    }
    assert_eq!((log.gone(), *now(pool.acquire()).unwrap()), (vec![1], 2));
}

#[test]
fn slow_acquire_hook_costs_its_resource_and_not_the_acquire() {
    let (log, manual) = (Log::default(), Manual::new());
    let told = log.clone();
    let pool = numbers(&log, &manual)
        .max(2)
        .before_acquire_timeout(millis(20))
        .before_acquire_async(with(
            manual.clone(),
            async |manual: &Manual, number: &mut usize| {
                // The second, which this thread used last, hangs; the first is slow but in time.
                manual
                    .sleep_for(millis(if *number == 2 { 1000 } else { 15 }))
                    .await;
            },
        ))
        .build()
        .unwrap();
    pool.on_event(move |event| {
        if let Event::HookFailed { error, .. } = event {
            told.line(&**error);
        }
    })
    .forever();
    let leases = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
    manual.advance_millis(1);
    drop(leases);
    let mut acquire = hand(pool.acquire_with(at_most(millis(100))));
    acquire.waits();
    manual.advance_millis(19);
    acquire.waits();
    manual.advance_millis(1);
    assert!(acquire.is_woken());
    acquire.waits();
    assert_eq!(log.gone(), [2]);
    assert_eq!(
        log.lines(),
        ["took longer than the before_acquire timeout of 20 ms"]
    );
    manual.advance_millis(15);
    assert_eq!(*acquire.done().unwrap(), 1);
    let reason = DestroyReason::AcquireRejected;
    assert_eq!(pool.counters().destroyed_for(reason), 1);
}

#[test]
fn slow_acquire_hook_leads_to_a_creation_or_ends_try_acquire() {
    for attempt in [false, true] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = numbers(&log, &manual)
            .max(1)
            .before_acquire_timeout(millis(20))
            .before_acquire_async(async |_: &mut usize| std::future::pending::<()>().await)
            .build()
            .unwrap();
        drop(now(pool.acquire()).unwrap());
        if attempt {
            let mut attempt = hand(pool.try_acquire());
            attempt.waits();
            manual.advance_millis(20);
            assert_eq!(*attempt.done().unwrap().unwrap(), 2);
        } else {
            let mut acquire = hand(pool.acquire());
            acquire.waits();
            manual.advance_millis(20);
            assert_eq!(*acquire.done().unwrap(), 2);
        }
        assert_eq!(log.gone(), [1]);
        assert!(pool.try_acquire_idle().is_none());
        manual.advance_millis(20);
        assert_eq!(log.gone(), [1, 2]);
    }
}

#[test]
fn deadline_comes_before_the_limit_of_the_acquire_hook() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(1)
        .before_acquire_timeout(millis(20))
        .before_acquire_async(async |_: &mut usize| std::future::pending::<()>().await)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire_with(at_most(millis(10))));
    acquire.waits();
    manual.advance_millis(10);
    match acquire.done() {
        Err(AcquireError::Timeout(timeout)) => assert_eq!(timeout.phase, Phase::Checking),
        other => panic!("{other:?}"),
    }
    assert_eq!(log.gone(), [1]);
}

#[test]
fn set_min_refills_and_lets_go() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual)
        .max(4)
        .idle_timeout(millis(100))
        .build()
        .unwrap();
    pool.set_min(3).unwrap();
    manual.advance_millis(1);
    assert_eq!((counts(&pool), pool.status().min), ((3, 3, 0), 3));
    manual.advance_millis(1000);
    assert_eq!(counts(&pool), (3, 3, 0));
    pool.set_min(1).unwrap();
    manual.advance_millis(1000);
    assert_eq!(counts(&pool), (1, 1, 0));
    assert_eq!(pool.set_min(5).unwrap_err().field, "min");
    assert_eq!(pool.status().min, 1);
    pool.set_min(4).unwrap();
    assert_eq!(pool.resize(3).unwrap_err().field, "max");
    now(pool.close()).unwrap();
    pool.set_min(2).unwrap();
    manual.advance_millis(1000);
    assert_eq!(pool.status().total, 0);
}

/// The runtime that made the refills dies: the next acquire starts the maintenance again.
#[test]
fn set_min_outlives_the_runtime() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 3);
    pool.set_min(2).unwrap();
    manual.advance_millis(1);
    manual.die();
    manual.revive();
    pool.retain(|_, _| false);
    assert_eq!(log.gone(), [1, 2]);
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(1);
    assert_eq!(counts(&pool), (2, 2, 0));
}

/// Every resource is judged exactly once by each predicate, whatever happens meanwhile.
#[test]
fn random_leases_and_predicates_miss_nothing() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 4);
    let judged = Arc::new(Mutex::new(Vec::new()));
    let rounds = Arc::new(AtomicUsize::new(0));
    let mut leases = Vec::new();
    let mut seed = 12345_u64;
    for step in 0..2000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        match seed % 8 {
            0..=3 => leases.extend(now(pool.try_acquire()).unwrap()),
            4..=6 if !leases.is_empty() => {
                let at = usize::try_from(seed / 8).unwrap() % leases.len();
                drop(leases.swap_remove(at));
            }
            _ => {
                let round = rounds.fetch_add(1, Ordering::SeqCst);
                let judged = Arc::clone(&judged);
                pool.retain(move |number, _| {
                    judged.lock().unwrap().push((round, *number));
                    !(number + round).is_multiple_of(5)
                });
            }
        }
        let status = pool.status();
        assert!(status.total <= 4, "step {step}: {status}");
    }
    drop(leases);
    let mut judged = std::mem::take(&mut *judged.lock().unwrap());
    let count = judged.len();
    judged.sort_unstable();
    judged.dedup();
    assert_eq!(judged.len(), count, "judged twice by one predicate");
    let evicted = judged
        .iter()
        .filter(|(round, number)| (number + round).is_multiple_of(5));
    assert_eq!(evicted.count(), log.gone().len());
    all_places_are_there(&pool, &manual);
}
