//! How other pools fail, as tests of this one.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote_pool::{
    AcquireError, Advice, DestroyReason, Event, FnPool, Hook, Lease, Pool, Report, Strategy, with,
};

use crate::support::*;

/// Takes every place, which shows that none was lost, and nothing more.
#[track_caller]
fn all_places_are_there(pool: &FnPool<usize, Oops>, manual: &Manual) {
    let max = pool.status().max;
    let leases: Vec<_> = (0..max)
        .map(|_| hand(pool.acquire()).waits_for(manual).unwrap())
        .collect();
    assert_eq!(counts(pool), (max, 0, max));
    assert!(now(pool.try_acquire()).unwrap().is_none());
    drop(leases);
}

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

#[test]
fn a_waiter_is_served_at_once_against_one_that_takes_its_own_back() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let greedy = now(pool.acquire()).unwrap();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    drop(greedy);
    let mut greedy = hand(pool.acquire());
    greedy.waits();
    drop(waiter.done().unwrap());
    drop(greedy.done().unwrap());
}

#[test]
fn a_waiter_is_served_at_once_on_many_threads_too() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let pool = units().max(1).build().unwrap();
    let (served, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let lease = pool.acquire_blocking().unwrap();
    let waiter = tokio.spawn({
        let (pool, served) = (pool.clone(), Arc::clone(&served));
        async move {
            let _lease = pool.acquire().await.unwrap();
            served.store(true, Ordering::SeqCst);
        }
    });
    while pool.status().waiting == 0 {
        std::thread::yield_now();
    }
    drop(lease);
    // Whoever comes now comes after the one that waits.
    while !served.load(Ordering::SeqCst) {
        drop(pool.acquire_blocking().unwrap());
        turns.fetch_add(1, Ordering::SeqCst);
    }
    tokio.block_on(waiter).unwrap();
    assert!(turns.load(Ordering::SeqCst) <= 1, "{turns:?} turns before");
}

#[test]
fn a_shrink_destroys_what_comes_back_until_the_new_max_is_met() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 5);
    let mut leases: Vec<_> = (0..5).map(|_| now(pool.acquire()).unwrap()).collect();
    pool.resize(2).unwrap();
    for left in (0..5).rev() {
        assert!(now(pool.try_acquire()).unwrap().is_none());
        leases.pop();
        // Five are out: the first three to come back go, the others stay.
        let total = left.max(2);
        assert_eq!(counts(&pool), (total, total - left, left));
        if left < 2 {
            break;
        }
    }
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Shrunk), 3);
    drop(leases);
    let both = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
    assert!(now(pool.try_acquire()).unwrap().is_none());
    assert_eq!((log.made(), both.len()), (5, 2));
}

#[test]
fn a_shrink_with_waiters_never_lets_more_than_the_old_max_live() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let (gone, wait) = (log.clone(), gate.clone());
    let builder = numbers(&log, &manual).max(4);
    let pool = builder
        .destroy_async(move |number| {
            let (gone, pass) = (gone.clone(), wait.pass());
            async move {
                pass.await;
                gone.destroy(number);
            }
        })
        .build()
        .unwrap();
    let mut leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut waiters: Vec<_> = (0..3).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    pool.resize(1).unwrap();
    pool.resize(4).unwrap();
    pool.resize(2).unwrap();
    // Two go into their slow destructors, and still count.
    leases.truncate(2);
    assert_eq!(pool.status().total, 4);
    waiters.iter_mut().for_each(Hand::waits);
    leases.truncate(1);
    // Now it is the waiters' turn: two live, as the new max says.
    let first = waiters[0].done().unwrap();
    waiters[1].waits();
    assert_eq!((pool.status().total, pool.status().active), (4, 4));
    gate.open();
    manual.run();
    assert_eq!(counts(&pool), (2, 0, 2));
    waiters[1].waits();
    drop((leases, first));
    drop(waiters[1].done().unwrap());
    drop(waiters[2].done().unwrap());
    assert_eq!((log.made(), pool.status().total), (4, 2));
}

#[test]
fn growing_serves_those_who_wait_at_once() {
    let log = Log::default();
    let pool = number_pool(&log, &Manual::new(), 1);
    let _lease = now(pool.acquire()).unwrap();
    let (mut w1, mut w2) = (hand(pool.acquire()), hand(pool.acquire()));
    w1.waits();
    w2.waits();
    pool.resize(3).unwrap();
    assert!(w1.is_woken() && w2.is_woken());
    assert_eq!((*w1.done().unwrap(), *w2.done().unwrap()), (2, 3));
}

#[test]
fn shrinking_destroys_idle_ones_at_once_oldest_first() {
    let log = Log::default();
    let pool = now(numbers(&log, &Manual::new()).min(0).max(4).open()).unwrap();
    let leases: Vec<_> = (0..4).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    pool.resize(1).unwrap();
    assert_eq!(log.gone(), [1, 2, 3]);
    assert_eq!(counts(&pool), (1, 1, 0));
}

/// An acquire hook that waits at the gate and says no then.
fn refusing_pool(log: &Log, manual: &Manual, gate: &Gate) -> FnPool<usize, Oops> {
    let builder = numbers(log, manual).max(1);
    let hook = with(gate.clone(), async |gate: &Gate, _: &mut usize| {
        gate.pass().await;
        false
    });
    builder.before_acquire_async(hook).build().unwrap()
}

#[test]
fn a_failed_check_that_frees_the_only_place_serves_the_queue_in_order() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = refusing_pool(&log, &manual, &gate);
    drop(now(pool.acquire()).unwrap());
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    gate.let_one_pass();
    // The one whose resource was refused was there first.
    let lease = first.done().unwrap();
    assert_eq!(*lease, 2);
    second.waits();
    Lease::discard(lease);
    assert_eq!(*second.done().unwrap(), 3);
}

#[test]
fn a_check_that_is_cancelled_frees_its_place_for_the_queue() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = refusing_pool(&log, &manual, &gate);
    drop(now(pool.acquire()).unwrap());
    let (mut first, mut second) = (hand(pool.acquire()), hand(pool.acquire()));
    first.waits();
    second.waits();
    drop(first);
    assert_eq!(log.gone(), [1]);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Abandoned), 1);
    assert!(second.is_woken());
    assert_eq!(*second.done().unwrap(), 2);
}

#[test]
fn an_acquire_dropped_after_any_number_of_polls_loses_nothing() {
    // What the acquire meets: an idle resource and its hook, an empty pool, or
    // a resource that comes back while it waits.
    for (idle, held) in [(true, false), (false, false), (false, true)] {
        for polls in 0..8 {
            for run in [false, true] {
                let (log, manual) = (Log::default(), Manual::new());
                let make = log.clone();
                let pool = numbers(&log, &manual)
                    .max(1)
                    .create(move || {
                        let make = make.clone();
                        async move {
                            yield_now().await;
                            yield_now().await;
                            Ok(make.make())
                        }
                    })
                    .before_acquire_async(async |_: &mut usize| {
                        yield_now().await;
                        yield_now().await;
                    })
                    .before_release_async(async |_: &mut usize| yield_now().await)
                    .build()
                    .unwrap();
                let mut lease = None;
                if idle || held {
                    lease = Some(hand(pool.acquire()).waits_for(&manual).unwrap());
                }
                if idle {
                    lease = None;
                    manual.run();
                }
                let mut acquire = hand(pool.acquire());
                for poll in 0..polls {
                    if acquire.poll().is_ready() {
                        break;
                    }
                    if poll == 1 {
                        lease = None;
                    }
                    if run {
                        manual.run();
                    }
                }
                drop(acquire);
                drop(lease);
                manual.run();
                let status = pool.status();
                assert_eq!(status.total, status.idle, "{idle} {held} {polls} {run}");
                assert_eq!((status.waiting, status.reserved), (0, 0));
                assert_eq!(log.made() - log.gone().len(), status.idle);
                all_places_are_there(&pool, &manual);
            }
        }
    }
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
        assert_eq!(pool.status().total, pool.status().idle, "{mined}");
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
fn a_destructor_dropped_for_being_late_may_panic_and_gives_its_place_back() {
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
