//! Creations that hang: nobody starves while places are free, and no place is lost for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{AcquireError, Builder, FnManager, FnPool, Pool, Runtime, Task};

use crate::tools::*;

/// A builder whose first `hanging` creations never end; counts the calls.
fn hanging(manual: &Manual, hanging: usize) -> (Arc<AtomicUsize>, Builder<FnManager<usize, Oops>>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let builder = Pool::from_fn(move || {
        let call = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if call <= hanging {
                std::future::pending::<()>().await;
            }
            Ok(call)
        }
    });
    (calls, builder.runtime(manual.clone()))
}

/// Acquires within 100 ms of the manual clock.
fn try_for_100_millis(pool: &FnPool<usize, Oops>, manual: &Manual) -> Option<usize> {
    let mut acquire = hand(pool.acquire_with(at_most(millis(100))));
    for _ in 0..=100 {
        if let Poll::Ready(lease) = acquire.poll() {
            return lease.ok().map(|lease| *lease);
        }
        manual.advance_millis(1);
    }
    panic!("the deadline of 100 ms passed: {}", pool.status());
}

/// One hung creation counted for the head of the queue for ever: nine places stayed free
/// while everybody timed out.
#[test]
fn h1_hung_creation_does_not_starve() {
    let manual = Manual::new();
    let (calls, builder) = hanging(&manual, 1);
    let pool = builder.max(10).build().unwrap();
    let served = (0..100)
        .filter(|_| try_for_100_millis(&pool, &manual).is_some())
        .count();
    assert!(served >= 88, "only {served} of 100 were served");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// A waiter for which the orphaned creation counts is served when that second is over, and not at the
/// deadline of the acquire that is gone.
#[test]
fn h1_waiter_behind_an_orphaned_creation_waits_one_second() {
    let manual = Manual::new();
    let (_, builder) = hanging(&manual, 1);
    let pool = builder.max(10).build().unwrap();
    let mut gone = hand(pool.acquire_with(at_most(millis(5000))));
    gone.waits();
    manual.advance_millis(100);
    drop(gone);
    let mut waiter = hand(pool.acquire_with(at_most(millis(5000))));
    waiter.waits();
    manual.advance_millis(1050);
    assert!(waiter.is_woken());
    drop(waiter.done().unwrap());
}

/// The same while the first acquire, which gave up, is not dropped: it is polled no more.
#[test]
fn h1_abandoned_acquire_with_a_hung_creation_starves_no_waiter() {
    let manual = Manual::new();
    let (_, builder) = hanging(&manual, 1);
    let pool = builder.max(2).concurrent_creations(1).build().unwrap();
    let mut abandoned = hand(pool.acquire_with(at_most(millis(100))));
    abandoned.waits();
    manual.advance_millis(1200);
    assert_eq!(try_for_100_millis(&pool, &manual), Some(2));
    assert!(matches!(abandoned.done(), Err(AcquireError::Timeout(_))));
}

/// A hung creation also used up the limit on concurrent creations.
#[test]
fn h1_hung_creation_leaves_the_creation_limit() {
    let manual = Manual::new();
    let (calls, builder) = hanging(&manual, 3);
    let pool = builder.max(4).concurrent_creations(1).build().unwrap();
    let served = (0..60).find_map(|_| try_for_100_millis(&pool, &manual));
    assert_eq!((served, calls.load(Ordering::SeqCst)), (Some(4), 4));
}

/// A refill that hangs is nobody's creation: it must not keep acquires from creating.
#[test]
fn h1_hung_refill_leaves_the_creation_limit() {
    let manual = Manual::new();
    let (_, builder) = hanging(&manual, 1);
    let builder = builder.min(1).max(3).concurrent_creations(1);
    let pool = builder.build().unwrap();
    // The first acquire starts the maintenance, which refills; both want to create.
    let mut first = hand(pool.acquire_with(at_most(millis(50))));
    let _ = first.poll();
    manual.advance_millis(60);
    drop(first);
    let served = (0..30).find_map(|_| try_for_100_millis(&pool, &manual));
    assert!(served.is_some(), "{}", pool.status());
}

/// A hung creation keeps its place until the create timeout, which is 30 s by default.
#[test]
fn h1_hung_creation_frees_its_place_after_30_seconds() {
    let manual = Manual::new();
    let (calls, builder) = hanging(&manual, 1);
    let pool = builder.max(1).build().unwrap();
    assert_eq!(try_for_100_millis(&pool, &manual), None);
    manual.advance(Duration::from_millis(29_899));
    assert_eq!(pool.status().creating, 1);
    manual.advance_millis(1);
    assert_eq!(pool.status().total, 0);
    // The failure begins a back-off of at most 100 ms.
    manual.advance_millis(100);
    assert_eq!(try_for_100_millis(&pool, &manual), Some(2));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// A runtime whose tasks go to an executor that nobody drives, except for the maintenance.
#[derive(Clone)]
struct Undriven {
    manual: Manual,
    spawned: Arc<AtomicUsize>,
    stuck: Arc<std::sync::Mutex<Vec<Task>>>,
    stuck_from: usize,
}

impl Runtime for Undriven {
    fn now(&self) -> Instant {
        Runtime::now(&self.manual)
    }

    fn coarse_now(&self) -> u64 {
        self.manual.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        self.manual.sleep(until)
    }

    fn spawn(&self, task: Task) {
        let nth = self.spawned.fetch_add(1, Ordering::SeqCst);
        if nth == self.stuck_from {
            self.stuck.lock().unwrap().push(task);
        } else {
            self.manual.spawn(task);
        }
    }
}

/// The create timeout's own timer hung with the creation, on an executor that nobody drives.
#[test]
fn h1_creation_on_an_undriven_runtime_frees_its_place() {
    for waits_for_ever in [false, true] {
        let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
        // An acquire with a deadline starts the maintenance before the creation.
        let stuck_from = usize::from(!waits_for_ever);
        let runtime = Undriven {
            manual: manual.clone(),
            spawned: Arc::default(),
            stuck: Arc::default(),
            stuck_from,
        };
        let builder = gated_numbers(&log, &manual, &gate).max(1);
        let pool = builder.runtime(runtime.clone()).build().unwrap();
        if waits_for_ever {
            hand(pool.acquire()).waits();
        } else {
            let mut first = hand(pool.acquire_with(at_most(millis(100))));
            first.waits();
            manual.advance_millis(100);
            assert!(matches!(first.done(), Err(AcquireError::Timeout(_))));
        }
        manual.advance(Duration::from_secs(31));
        gate.open();
        let mut second = hand(pool.acquire_with(at_most(Duration::from_secs(1))));
        let lease = second.waits_for(&manual).unwrap();
        assert_eq!(*lease, 1, "{}", pool.status());
        // The executor runs again, and the creation ends after all: too late for its place.
        let mut stuck = runtime.stuck.lock().unwrap().pop().unwrap();
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(stuck.as_mut().poll(context).is_ready());
        assert_eq!((log.made(), log.gone()), (2, vec![2]));
        assert_eq!(counts(&pool), (1, 0, 1));
        drop(lease);
        all_places_are_there(&pool, &manual);
    }
}

/// An acquire without a deadline learns of it when its creation takes too long, wherever that
/// was to run.
#[test]
fn h1_creation_on_an_undriven_runtime_fails_its_acquire() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let runtime = Undriven {
        manual: manual.clone(),
        spawned: Arc::default(),
        stuck: Arc::default(),
        stuck_from: 0,
    };
    let builder = gated_numbers(&log, &manual, &gate).max(1);
    let pool = builder.runtime(runtime).build().unwrap();
    let mut acquire = hand(pool.acquire());
    acquire.waits();
    manual.advance(Duration::from_secs(30));
    let Poll::Ready(Err(AcquireError::CreateFailed(why))) = acquire.poll() else {
        panic!("it waits for ever: {}", pool.status());
    };
    assert!(why.contains("create timeout of 30 s"), "{why}");
}
