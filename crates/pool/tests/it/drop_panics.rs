//! H3: values of the user that panic when they are dropped, and a runtime that panics when it is called.
//! Each test counts drops: nothing is dropped twice, nothing is lost, and no panic leaves the pool.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use cenote_pool::{
    AcquireError, Advice, Builder, DestroyReason, Event, FnManager, FnPool, Info, Lease, Manager,
    Pool, Report, Runtime, Strategy, Task, Verdict, with,
};

use crate::tools::*;

/// Counts the bombs that exist.
#[derive(Clone, Default)]
struct Bombs(Arc<AtomicIsize>);

impl Bombs {
    fn new_one(&self) -> Bomb {
        self.0.fetch_add(1, Ordering::SeqCst);
        Bomb(self.clone())
    }

    /// Every bomb was dropped exactly once.
    #[track_caller]
    fn are_gone(&self) {
        assert_eq!(self.0.load(Ordering::SeqCst), 0, "bombs that are left");
    }
}

/// Panics when it is dropped.
struct Bomb(Bombs);

impl Drop for Bomb {
    fn drop(&mut self) {
        let left = self.0.0.fetch_sub(1, Ordering::SeqCst);
        if left <= 0 {
            eprintln!("a bomb was dropped twice");
            std::process::abort();
        }
        assert!(std::thread::panicking(), "a bomb went off");
    }
}

/// An error that panics when it is dropped.
struct Boom(#[allow(dead_code, reason = "only dropped")] Bomb);

impl fmt::Debug for Boom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Boom")
    }
}

impl fmt::Display for Boom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("boom")
    }
}

impl std::error::Error for Boom {}

/// Numbers whose destructor always fails with a bomb.
fn failing_destroy(log: &Log, manual: &Manual, bombs: &Bombs) -> Builder<FnManager<usize, Boom>> {
    let (make, gone, bombs) = (log.clone(), log.clone(), bombs.clone());
    Pool::from_fn(move || {
        let number = make.make();
        async move { Ok(number) }
    })
    .destroy(move |number| {
        gone.destroy(number);
        Err(Boom(bombs.new_one()))
    })
    .runtime(manual.clone())
}

/// No place is lost: every one can be leased at the same time.
#[track_caller]
fn places_are_there<M: Manager>(pool: &Pool<M>, manual: &Manual)
where
    M::Error: fmt::Debug,
{
    let max = pool.status().max;
    let leases: Vec<_> = (0..max)
        .map(|_| hand(pool.acquire()).waits_for(manual).unwrap())
        .collect();
    assert_eq!(counts(pool), (max, 0, max));
    drop(leases);
}

/// Waits for ever with a bomb in hand.
async fn hang_with(bomb: Bomb) {
    let _bomb = bomb;
    std::future::pending::<()>().await;
}

/// The panic of the error left the acquire between the drop of its hook and the note of that, so
/// the hook was dropped again with the acquire.
#[test]
fn h3_deadline_in_the_hook_drops_the_hook_once() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let pool = failing_destroy(&log, &manual, &bombs)
        .max(1)
        .before_acquire_async(with(bombs.clone(), async |bombs: &Bombs, _: &mut usize| {
            hang_with(bombs.new_one()).await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire_with(at_most(millis(10))));
    acquire.waits();
    manual.advance_millis(10);
    assert!(matches!(acquire.done(), Err(AcquireError::Timeout(_))));
    drop(acquire);
    bombs.are_gone();
    assert_eq!((log.gone(), counts(&pool)), (vec![1], (0, 0, 0)));
    drop(hand(pool.acquire()).done().unwrap());
}

#[test]
fn h3_cancel_in_the_hook_drops_the_hook_once() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let pool = failing_destroy(&log, &manual, &bombs)
        .max(1)
        .before_acquire_async(with(bombs.clone(), async |bombs: &Bombs, _: &mut usize| {
            hang_with(bombs.new_one()).await;
        }))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    drop(acquire);
    bombs.are_gone();
    assert_eq!((log.gone(), counts(&pool)), (vec![1], (0, 0, 0)));
}

/// Every way out of the pool, with a destructor whose error panics when it is dropped.
#[test]
fn h3_panicking_errors_of_destroy_are_contained() {
    type Way = fn(FnPool<usize, Boom>, &Manual);
    let ways: &[(&str, Way)] = &[
        ("discard", |pool, _| {
            Lease::discard(now(pool.acquire()).unwrap())
        }),
        ("return after close", |pool, _| {
            let lease = now(pool.acquire_owned()).unwrap();
            let _ = now(pool.close()).map_err(std::mem::forget);
            drop(lease);
        }),
        ("drop of the last handle", |pool, _| {
            drop(now(pool.acquire()).unwrap());
            drop(pool);
        }),
        ("close that is dropped at once", |pool, _| {
            drop(now(pool.acquire()).unwrap());
            drop(pool.close());
        }),
        ("shrink", |pool, _| {
            let leases = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
            pool.resize(1).unwrap();
            drop(leases);
        }),
        ("lifetime", |pool, manual| {
            drop(now(pool.acquire()).unwrap());
            manual.advance_millis(100_000);
        }),
        ("replacement", |pool, manual| {
            drop(now(pool.acquire()).unwrap());
            pool.replace_all();
            manual.run();
        }),
    ];
    for (name, way) in ways {
        let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
        let pool = failing_destroy(&log, &manual, &bombs)
            .max(2)
            .max_lifetime(millis(50_000))
            .build()
            .unwrap();
        way(pool.clone(), &manual);
        drop(pool);
        manual.run();
        assert_eq!(log.gone().len(), log.made(), "{name}");
        bombs.are_gone();
    }
}

#[test]
fn h3_refusal_by_a_hook_survives_the_error_of_destroy() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let pool = failing_destroy(&log, &manual, &bombs)
        .max(1)
        .before_acquire(|number: &mut usize| number.is_multiple_of(2))
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(*now(pool.acquire()).unwrap(), 2);
    let pool = failing_destroy(&log, &manual, &bombs)
        .max(1)
        .before_acquire(|_: &mut usize| false)
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    assert_eq!(*now(pool.try_acquire()).unwrap().unwrap(), 4);
    assert!(pool.try_acquire_idle().is_none());
    bombs.are_gone();
}

/// A manager whose hooks fail with bombs where a test asks for it.
struct Failing {
    bombs: Bombs,
    at: &'static str,
    made: AtomicUsize,
}

impl Failing {
    fn answer(&self, at: &str) -> Result<bool, Boom> {
        match self.at == at {
            true => Err(Boom(self.bombs.new_one())),
            false => Ok(true),
        }
    }
}

impl Manager for Failing {
    type Resource = usize;
    type Error = Boom;

    async fn create(&self) -> Result<usize, Boom> {
        self.answer("create")?;
        Ok(self.made.fetch_add(1, Ordering::SeqCst))
    }

    async fn healthcheck(&self, _: &mut usize, _: Info<'_>) -> Result<bool, Boom> {
        self.answer("healthcheck")
    }

    async fn before_acquire(&self, number: &mut usize, _: Info<'_>) -> Result<bool, Boom> {
        match *number {
            0 => self.answer("before_acquire"),
            _ => Ok(true),
        }
    }

    fn before_release(&self, number: &mut usize, _: Info<'_>) -> Verdict {
        match *number {
            0 => Verdict::Later,
            _ => Verdict::Keep,
        }
    }

    async fn recycle(&self, _: &mut usize, _: Info<'_>) -> Result<bool, Boom> {
        self.answer("recycle")
    }
}

#[test]
fn h3_errors_of_every_hook_may_panic_when_dropped() {
    for at in ["before_acquire", "recycle", "healthcheck", "create"] {
        let (manual, bombs) = (Manual::new(), Bombs::default());
        let failing = Failing {
            bombs: bombs.clone(),
            at,
            made: AtomicUsize::new(0),
        };
        let pool = Pool::builder(failing)
            .max(2)
            .no_backoff()
            .healthcheck_interval(millis(100))
            .runtime(manual.clone())
            .build()
            .unwrap();
        for _ in 0..3 {
            match hand(pool.acquire()).waits_for(&manual) {
                Ok(lease) => drop(lease),
                Err(error) => std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(error)))),
            }
            manual.run();
        }
        manual.advance_millis(250);
        drop(pool);
        manual.run();
        bombs.are_gone();
    }
}

/// The refill's place went with the panic of its error.
#[test]
fn h3_refill_that_fails_keeps_its_place() {
    let (manual, bombs) = (Manual::new(), Bombs::default());
    let made = bombs.clone();
    let pool: FnPool<usize, Boom> = Pool::from_fn(move || {
        let boom = Boom(made.new_one());
        async move { Err(boom) }
    })
    .min(1)
    .max(1)
    .runtime(manual.clone())
    .build()
    .unwrap();
    let mut acquire = hand(pool.acquire());
    if let Poll::Ready(error) = acquire.poll() {
        std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(error))));
    }
    manual.advance_millis(20_000);
    assert!(pool.counters().create_failed > 1);
    assert_eq!(pool.status().total, 0);
    bombs.are_gone();
}

/// Each destructor that is under way when a close is dropped ends on its own.
#[test]
fn h3_dropped_close_leaves_every_destructor_to_the_runtime() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let (gone, booms) = (log.clone(), bombs.clone());
    let pool = failing_destroy(&log, &manual, &bombs)
        .max(3)
        .destroy_async(move |number| {
            let (gone, boom) = (gone.clone(), Boom(booms.new_one()));
            async move {
                yield_now().await;
                gone.destroy(number);
                Err(boom)
            }
        })
        .build()
        .unwrap();
    let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
    drop(leases);
    let mut close = hand(pool.close());
    close.waits();
    drop(close);
    manual.run();
    assert_eq!(log.gone(), [1, 2, 3]);
    bombs.are_gone();
}

/// Errors that a close had collected when it was dropped.
#[test]
fn h3_dropped_close_contains_the_errors_it_has_collected() {
    for drains in [false, true] {
        let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
        let (gone, booms) = (log.clone(), bombs.clone());
        let pool = failing_destroy(&log, &manual, &bombs)
            .max(3)
            .destroy_async(move |number| {
                let (gone, boom) = (gone.clone(), Boom(booms.new_one()));
                async move {
                    if number == 3 {
                        yield_now().await;
                    }
                    gone.destroy(number);
                    Err(boom)
                }
            })
            .build()
            .unwrap();
        let leases: Vec<_> = (0..3).map(|_| now(pool.acquire()).unwrap()).collect();
        drop(leases);
        match drains {
            true => hand(pool.close_and_drain(millis(10))).waits(),
            false => hand(pool.close()).waits(),
        }
        manual.run();
        assert_eq!(log.gone(), [1, 2, 3]);
        bombs.are_gone();
    }
}

/// A closed pool destroys what is made for it afterwards.
#[test]
fn h3_resource_made_for_a_closed_pool_is_destroyed_quietly() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let gate = Gate::new();
    let (make, pass) = (log.clone(), gate.clone());
    let pool = failing_destroy(&log, &manual, &bombs)
        .create(move || {
            let (make, pass) = (make.clone(), pass.pass());
            async move {
                if make.make() > 1 {
                    pass.await;
                }
                Ok(make.made())
            }
        })
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    pool.replace_all();
    manual.run();
    let lease = now(pool.acquire()).unwrap();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    std::mem::forget(now(pool.close()));
    gate.open();
    manual.run();
    drop(lease);
    drop(acquire);
    assert_eq!(log.gone().len(), 3);
    assert_eq!(pool.status().total, 0);
    drop(pool);
    bombs.are_gone();
}

/// The waker of a task that panics when it is dropped.
fn mined_waker(bombs: &Bombs) -> Waker {
    struct Mined(#[allow(dead_code, reason = "only dropped")] Bomb);

    impl Wake for Mined {
        fn wake(self: Arc<Self>) {}
        fn wake_by_ref(self: &Arc<Self>) {}
    }

    Waker::from(Arc::new(Mined(bombs.new_one())))
}

/// Polls with a waker whose last clone is dropped by the pool.
fn poll_mined<F: Future>(future: &mut Pin<Box<F>>, bombs: &Bombs) -> Poll<F::Output> {
    let waker = std::mem::ManuallyDrop::new(mined_waker(bombs));
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    // The one in hand goes first, so that the pool has the last.
    std::mem::forget(catch_unwind(AssertUnwindSafe(|| {
        drop(std::mem::ManuallyDrop::into_inner(waker));
    })));
    polled
}

/// A resource in hand went with the panic of the waker that was not needed.
#[test]
fn h3_wakers_that_panic_when_dropped_lose_nothing() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiter = Box::pin(pool.acquire());
    // The second waker takes the place of the first, and the third finds the resource.
    assert!(poll_mined(&mut waiter, &bombs).is_pending());
    assert!(poll_mined(&mut waiter, &bombs).is_pending());
    drop(lease);
    let Poll::Ready(lease) = poll_mined(&mut waiter, &bombs) else {
        panic!("it is served");
    };
    // One that waits is dropped; one waits for the end, and is dropped or done.
    let mut cancelled = Box::pin(pool.acquire());
    assert!(poll_mined(&mut cancelled, &bombs).is_pending());
    drop(cancelled);
    let mut closed = Box::pin(pool.closed());
    assert!(poll_mined(&mut closed, &bombs).is_pending());
    assert!(poll_mined(&mut closed, &bombs).is_pending());
    drop(closed);
    let mut events = pool.events();
    let mut next = Box::pin(events.next());
    assert!(poll_mined(&mut next, &bombs).is_pending());
    assert!(poll_mined(&mut next, &bombs).is_pending());
    drop(lease);
    assert!(poll_mined(&mut next, &bombs).is_ready());
    drop(next);
    drop(events);
    bombs.are_gone();
    all_places_are_there(&pool, &manual);
}

/// A watched pool takes by the lock, which clones the waker first.
#[test]
fn h3_unneeded_panicking_waker_costs_no_place() {
    let (log, manual, bombs) = (Log::default(), Manual::new(), Bombs::default());
    let pool = number_pool(&log, &manual, 1);
    pool.on_event(|_| {}).forever();
    for _ in 0..2 {
        let mut acquire = Box::pin(pool.acquire());
        let Poll::Ready(Ok(lease)) = poll_mined(&mut acquire, &bombs) else {
            panic!("it need not wait");
        };
        drop(lease);
    }
    bombs.are_gone();
    all_places_are_there(&pool, &manual);
}

/// What panics in this runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Spawn,
    EnterBefore,
    EnterAfter,
    Domain,
    NeedsDriving,
}

/// A runtime one of whose methods panics while it is switched on.
#[derive(Clone)]
struct Faulty {
    manual: Manual,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Faulty {
    fn new(manual: &Manual) -> Self {
        Faulty {
            manual: manual.clone(),
            fault: Arc::default(),
        }
    }

    fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap() = fault;
    }

    fn at(&self, here: Fault) {
        let fault = *self.fault.lock().unwrap();
        assert_ne!(fault, Some(here), "a faulty runtime");
    }
}

impl Runtime for Faulty {
    fn now(&self) -> Instant {
        self.manual.now()
    }

    fn coarse_now(&self) -> u64 {
        self.manual.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        self.manual.sleep(until)
    }

    fn spawn(&self, task: Task) {
        self.at(Fault::Spawn);
        self.manual.spawn(task);
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        self.at(Fault::EnterBefore);
        f();
        self.at(Fault::EnterAfter);
    }

    fn domain(&self) -> Option<u64> {
        self.at(Fault::Domain);
        Some(1)
    }

    fn needs_driving(&self) -> bool {
        self.at(Fault::NeedsDriving);
        false
    }
}

/// Whatever the runtime does, a place comes back, and a panic of the runtime leaves no drop.
#[test]
fn h3_runtime_that_panics_costs_no_place() {
    for fault in [
        Fault::Spawn,
        Fault::EnterBefore,
        Fault::EnterAfter,
        Fault::Domain,
        Fault::NeedsDriving,
    ] {
        let (log, manual) = (Log::default(), Manual::new());
        let faulty = Faulty::new(&manual);
        let gone = log.clone();
        let pool = numbers(&log, &manual)
            .max(2)
            .no_backoff()
            .create({
                let make = log.clone();
                move || {
                    let number = make.make();
                    async move {
                        yield_now().await;
                        Ok(number)
                    }
                }
            })
            .destroy_async(move |number| {
                let gone = gone.clone();
                async move {
                    yield_now().await;
                    gone.destroy(number);
                }
            })
            .before_release_async(async |_: &mut usize| yield_now().await)
            .runtime(faulty.clone())
            .build()
            .unwrap();
        let leases = [
            hand(pool.acquire()).waits_for(&manual).unwrap(),
            hand(pool.acquire()).waits_for(&manual).unwrap(),
        ];
        faulty.set(Some(fault));
        let [kept, discarded] = leases;
        drop(kept);
        Lease::discard(discarded);
        manual.run();
        let mut acquire = hand(pool.acquire());
        for _ in 0..10 {
            let polled = catch_unwind(AssertUnwindSafe(|| acquire.poll()));
            assert!(polled.is_ok(), "{fault:?}");
            if polled.is_ok_and(|polled| polled.is_ready()) {
                break;
            }
            manual.run();
        }
        drop(acquire);
        pool.replace_all();
        manual.run();
        faulty.set(None);
        manual.advance_millis(10_000);
        places_are_there(&pool, &manual);
        manual.run();
        let _ = hand(pool.close_and_drain(millis(1000))).waits_for(&manual);
        assert_eq!(pool.status().total, 0, "{fault:?}");
    }
}

/// The first spawn that panicked took the places of all other refills with it.
#[test]
fn h3_refills_survive_a_spawn_that_panics() {
    let (log, manual) = (Log::default(), Manual::new());
    let faulty = Faulty::new(&manual);
    let pool = numbers(&log, &manual)
        .min(3)
        .max(3)
        .runtime(faulty.clone())
        .build()
        .unwrap();
    let lease = now(pool.acquire()).unwrap();
    faulty.set(Some(Fault::Spawn));
    manual.run();
    faulty.set(None);
    drop(lease);
    drop(now(pool.acquire()).unwrap());
    manual.advance_millis(20_000);
    assert_eq!(counts(&pool), (3, 3, 0));
    all_places_are_there(&pool, &manual);
}

/// A strategy, a listener and a manager that panic when they are dropped.
struct Owner(#[allow(dead_code, reason = "only dropped")] Mutex<Bomb>);

impl Owner {
    fn new(bombs: &Bombs) -> Self {
        Owner(Mutex::new(bombs.new_one()))
    }
}

impl Strategy for Owner {
    fn report_success(&self, _: &Report<'_>) {}

    fn report_failure(&self, _: &Report<'_>) -> Advice {
        Advice::Stay
    }
}

impl Manager for Owner {
    type Resource = ();
    type Error = Oops;

    async fn create(&self) -> Result<(), Oops> {
        Ok(())
    }
}

#[test]
fn h3_whatever_the_pool_owns_may_panic_when_dropped() {
    let (manual, bombs) = (Manual::new(), Bombs::default());
    let owned = Owner::new(&bombs);
    let pool = Pool::builder(Owner::new(&bombs))
        .breaker(Owner::new(&bombs))
        .healthcheck(move |(): &mut ()| {
            let _ = &owned;
        })
        .runtime(manual.clone())
        .build()
        .unwrap();
    let lease = now(pool.acquire_owned()).unwrap();
    // The strategy is removed while it receives a report.
    let weak = pool.downgrade();
    let heard = Owner::new(&bombs);
    let subscription = Arc::new(Mutex::new(None));
    let itself = Arc::clone(&subscription);
    let callback = pool.on_event(move |event| {
        let _ = &heard;
        if let (Event::Released { .. }, Some(pool)) = (event, weak.upgrade()) {
            pool.set_strategy(None);
            drop(itself.lock().unwrap().take());
        }
    });
    *subscription.lock().unwrap() = Some(callback);
    drop(lease);
    assert_eq!(counts(&pool), (1, 1, 0));
    let lease = now(pool.acquire_owned()).unwrap();
    drop(pool);
    drop(lease);
    manual.run();
    bombs.are_gone();
}

/// A resource without a destructor of its own, wherever the pool drops it.
#[test]
fn h3_resources_that_panic_when_dropped_are_dropped_once() {
    let (manual, bombs) = (Manual::new(), Bombs::default());
    let make = bombs.clone();
    let pool: FnPool<Bomb, Oops> = Pool::from_fn(move || {
        let bomb = make.new_one();
        async move { Ok(bomb) }
    })
    .max(2)
    .before_acquire_async(async |_: &mut Bomb| std::future::pending::<()>().await)
    .runtime(manual.clone())
    .build()
    .unwrap();
    Lease::discard(now(pool.acquire()).unwrap());
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire_with(at_most(millis(10))));
    acquire.waits();
    manual.advance_millis(10);
    assert!(acquire.done().is_err());
    drop(acquire);
    drop(now(pool.acquire()).unwrap());
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    drop(acquire);
    assert_eq!(pool.counters().destroyed_for(DestroyReason::Abandoned), 2);
    drop(now(pool.acquire()).unwrap());
    pool.replace_all();
    manual.run();
    drop(pool);
    manual.run();
    bombs.are_gone();
}
