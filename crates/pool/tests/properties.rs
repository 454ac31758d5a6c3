//! Random sequences of everything a pool can be asked, against a simple model,
//! with every invariant checked after every step.
//!
//! `CENOTE_PROPERTY_CASES` sets how many sequences are run (default: 10,000).
#![cfg(not(loom))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Once};
use std::task::{Poll, Waker};
use std::time::Duration;

use cenote_pool::{
    AcquireError, BreakerState, ConsecutiveFailures, FnManager, FnPool, Order, OwnedLease, Pool,
    Verdict,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use self::support::{Hand, Log, Manual, Oops, at_most, hand};

/// What the next call of a hook does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Work,
    Fail,
    Panic,
    /// Waits until [`Step::OpenGates`].
    Wait,
}

#[derive(Clone, Debug)]
enum Step {
    Acquire,
    AcquireWithin(u64),
    TryAcquire,
    TryAcquireIdle,
    Poll(usize),
    Cancel(usize),
    Release(usize),
    ReleaseAsync(usize),
    Discard(usize),
    DetachAndAttach(usize),
    DetachForGood(usize),
    NextCreate(Act),
    NextAcquireHook(Act),
    NextReleaseHook(Act),
    NextRecycle(Act),
    OpenGates,
    Resize(usize),
    Renew,
    Deactivate,
    Recover,
    Activate,
    Advance(u64),
    DropTasks,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        2 => Just(Act::Work), 2 => Just(Act::Fail), 1 => Just(Act::Panic), 2 => Just(Act::Wait)
    ];
    prop_oneof![
        12 => Just(Step::Acquire),
        3 => (1u64..50).prop_map(Step::AcquireWithin),
        2 => Just(Step::TryAcquire),
        2 => Just(Step::TryAcquireIdle),
        12 => any::<usize>().prop_map(Step::Poll),
        5 => any::<usize>().prop_map(Step::Cancel),
        12 => any::<usize>().prop_map(Step::Release),
        2 => any::<usize>().prop_map(Step::ReleaseAsync),
        2 => any::<usize>().prop_map(Step::Discard),
        1 => any::<usize>().prop_map(Step::DetachAndAttach),
        1 => any::<usize>().prop_map(Step::DetachForGood),
        3 => act.clone().prop_map(Step::NextCreate),
        2 => act.clone().prop_map(Step::NextAcquireHook),
        2 => act.clone().prop_map(Step::NextReleaseHook),
        2 => act.prop_map(Step::NextRecycle),
        4 => Just(Step::OpenGates),
        2 => (1usize..5).prop_map(Step::Resize),
        1 => Just(Step::Renew),
        1 => Just(Step::Deactivate),
        1 => Just(Step::Recover),
        2 => Just(Step::Activate),
        3 => (1u64..2000).prop_map(Step::Advance),
        1 => Just(Step::DropTasks),
        1 => Just(Step::Close),
    ]
}

/// The remote control of the hooks.
#[derive(Clone, Default)]
struct Control {
    inner: Arc<Mutex<Acts>>,
}

#[derive(Default)]
struct Acts {
    create: VecDeque<Act>,
    acquire: VecDeque<Act>,
    release: VecDeque<Act>,
    recycle: VecDeque<Act>,
    gates_open: u64,
    waiting: Vec<Waker>,
}

impl Control {
    fn next(&self, of: fn(&mut Acts) -> &mut VecDeque<Act>) -> Act {
        of(&mut self.inner.lock().unwrap())
            .pop_front()
            .unwrap_or(Act::Work)
    }

    fn push(&self, of: fn(&mut Acts) -> &mut VecDeque<Act>, act: Act) {
        of(&mut self.inner.lock().unwrap()).push_back(act);
    }

    fn open_gates(&self) {
        let wakers = {
            let mut acts = self.inner.lock().unwrap();
            acts.gates_open += 1;
            std::mem::take(&mut acts.waiting)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn gate(&self) -> impl Future<Output = ()> + Send + use<> {
        let control = self.clone();
        let closed_at = control.inner.lock().unwrap().gates_open;
        std::future::poll_fn(move |cx| {
            let mut acts = control.inner.lock().unwrap();
            if acts.gates_open > closed_at {
                return Poll::Ready(());
            }
            acts.waiting.push(cx.waker().clone());
            Poll::Pending
        })
    }

    async fn perform(&self, act: Act) -> Result<bool, Oops> {
        match act {
            Act::Work => Ok(true),
            Act::Fail => Err(Oops("told to fail")),
            Act::Panic => panic!("expected: told to panic"),
            Act::Wait => {
                self.gate().await;
                Ok(true)
            }
        }
    }
}

type Numbers = FnPool<usize, Oops>;
type Acquiring = Pin<Box<dyn Future<Output = Result<Lease, AcquireError<Oops>>> + Send>>;
type Lease = OwnedLease<FnManager<usize, Oops>>;

struct Waiting {
    acquire: Hand<Acquiring>,
    /// Its number in the order of arrival; `None` for those that never queue.
    arrived: Option<usize>,
}

/// The pool under test, and what the model knows about it.
struct World {
    pool: Numbers,
    manual: Manual,
    log: Log,
    control: Control,
    waiting: Vec<Waiting>,
    leases: Vec<Lease>,
    arrivals: usize,
    max: usize,
    /// The largest maximum that a shrink may still be working off.
    bound: usize,
    closed: bool,
    /// A hook refused or held up a resource, or a reservation may have run out
    /// of patience: then one who came later may rightly be served first.
    overtaking: bool,
    /// Detached for good: the carrier's own, never destroyed by the pool.
    taken_away: usize,
}

impl World {
    fn new(order: Order, max: usize, waits_on_release: bool, breaks: bool) -> Self {
        let (log, manual, control) = (Log::default(), Manual::new(), Control::default());
        let create = (log.clone(), control.clone());
        let gone = log.clone();
        let (on_acquire, on_release, on_recycle) =
            (control.clone(), control.clone(), control.clone());
        let builder = Pool::from_fn(move || {
            let (log, control) = create.clone();
            async move {
                let act = control.next(|acts| &mut acts.create);
                control.perform(act).await?;
                Ok(log.make())
            }
        })
        .destroy(move |number| gone.destroy(number))
        .before_acquire_async(cenote_pool::with(
            on_acquire,
            async |control: &Control, _: &mut usize| {
                let act = control.next(|acts| &mut acts.acquire);
                control.perform(act).await
            },
        ));
        let builder = if waits_on_release {
            builder.before_release_async(cenote_pool::with(
                on_recycle,
                async |control: &Control, _: &mut usize| {
                    let act = control.next(|acts| &mut acts.recycle);
                    control.perform(act).await
                },
            ))
        } else {
            builder.before_release(move |_: &mut usize| {
                match on_release.next(|acts| &mut acts.release) {
                    Act::Work | Act::Wait => Verdict::Keep,
                    Act::Fail => Verdict::Discard,
                    Act::Panic => panic!("expected: told to panic"),
                }
            })
        };
        let builder = if breaks {
            let strategy = ConsecutiveFailures::new(2);
            builder.breaker(strategy.with_cool_down(Duration::from_millis(300)))
        } else {
            builder
        };
        let pool = builder
            .max(max)
            .order(order)
            .no_backoff()
            .cleanup_timeout(Duration::from_millis(500))
            .runtime(manual.clone())
            .build()
            .unwrap();
        World {
            pool,
            manual,
            log,
            control,
            waiting: Vec::new(),
            leases: Vec::new(),
            arrivals: 0,
            max,
            bound: max,
            closed: false,
            overtaking: false,
            taken_away: 0,
        }
    }

    fn arrive(&mut self, acquire: Acquiring, queues: bool) {
        let arrived = queues.then(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let acquire = hand(acquire);
        self.waiting.push(Waiting { acquire, arrived });
        self.poll(self.waiting.len() - 1);
    }

    fn poll(&mut self, at: usize) {
        match self.waiting[at].acquire.poll() {
            Poll::Pending => {}
            Poll::Ready(result) => {
                let waiting = self.waiting.remove(at);
                let Ok(lease) = result else { return };
                self.leases.push(lease);
                // Nobody passes by: all who came before were given something.
                let Some(me) = waiting.arrived else { return };
                for other in &self.waiting {
                    if !self.overtaking && other.arrived.is_some_and(|arrived| arrived < me) {
                        assert!(
                            other.acquire.is_woken(),
                            "served before one who came earlier"
                        );
                    }
                }
            }
        }
    }

    fn lease(&mut self, at: usize) -> Option<Lease> {
        let len = self.leases.len();
        (len > 0).then(|| self.leases.swap_remove(at % len))
    }

    fn take(&mut self, step: Step) {
        let pool = self.pool.clone();
        match step {
            Step::Acquire => {
                self.arrive(Box::pin(async move { pool.acquire_owned().await }), true);
            }
            Step::AcquireWithin(millis) => {
                let limit = Duration::from_millis(millis);
                let acquire = async move {
                    let lease = pool.acquire_with(at_most(limit)).await?;
                    Ok(cenote_pool::Lease::into_owned(lease))
                };
                self.arrive(Box::pin(acquire), true);
            }
            Step::TryAcquire => {
                let acquire = async move {
                    match pool.try_acquire().await? {
                        Some(lease) => Ok(cenote_pool::Lease::into_owned(lease)),
                        None => Err(AcquireError::CreateFailed("nothing is available".into())),
                    }
                };
                self.arrive(Box::pin(acquire), false);
            }
            Step::TryAcquireIdle => {
                let lease = pool.try_acquire_idle().map(cenote_pool::Lease::into_owned);
                self.leases.extend(lease);
            }
            Step::Poll(at) if !self.waiting.is_empty() => self.poll(at % self.waiting.len()),
            Step::Cancel(at) if !self.waiting.is_empty() => {
                drop(self.waiting.remove(at % self.waiting.len()));
            }
            Step::Poll(_) | Step::Cancel(_) => {}
            Step::Release(at) => drop(self.lease(at)),
            Step::ReleaseAsync(at) => {
                if let Some(lease) = self.lease(at) {
                    // Polled once, then dropped if it waits: a cancelled release.
                    let _ = hand(OwnedLease::release(lease)).poll();
                }
            }
            Step::Discard(at) => {
                if let Some(lease) = self.lease(at) {
                    OwnedLease::discard(lease);
                }
            }
            Step::DetachAndAttach(at) => {
                if let Some(lease) = self.lease(at) {
                    let (number, place) = OwnedLease::detach(lease);
                    self.leases.push(place.attach(number));
                }
            }
            Step::DetachForGood(at) => {
                if let Some(lease) = self.lease(at) {
                    drop(OwnedLease::detach(lease));
                    self.taken_away += 1;
                }
            }
            Step::NextCreate(act) => self.control.push(|acts| &mut acts.create, act),
            Step::NextAcquireHook(act) => {
                self.overtaking = true;
                self.control.push(|acts| &mut acts.acquire, act);
            }
            Step::NextReleaseHook(act) => self.control.push(|acts| &mut acts.release, act),
            Step::NextRecycle(act) => self.control.push(|acts| &mut acts.recycle, act),
            Step::OpenGates => {
                self.control.open_gates();
                self.manual.run();
            }
            Step::Resize(max) => {
                self.bound = self.bound.max(max);
                self.max = max;
                pool.resize(max).unwrap();
            }
            Step::Renew => pool.replace_all(),
            Step::Deactivate => pool.open_breaker(),
            Step::Recover => pool.half_open_breaker(),
            Step::Activate => pool.close_breaker(),
            Step::Advance(millis) => {
                self.overtaking = true;
                self.manual.advance(Duration::from_millis(millis));
            }
            Step::DropTasks => {
                self.manual.die();
                self.manual.revive();
            }
            Step::Close => {
                self.closed = true;
                support::now(pool.close()).unwrap();
            }
        }
    }

    fn check(&mut self) {
        let status = self.pool.status();
        let counters = self.pool.counters();
        assert_eq!(status.total, status.idle + status.active + status.creating);
        assert!(
            status.total <= self.bound,
            "{status} is above {}",
            self.bound
        );
        if status.total <= self.max {
            // The shrink is worked off: from here on the new maximum binds.
            self.bound = self.max;
        }
        assert!(status.active >= self.leases.len(), "{status}");
        assert!(status.reserved <= status.idle, "{status}");
        assert_eq!(status.closed, self.closed);
        // What was made is here or gone, and nothing is there twice.
        let here = u64::try_from(status.total - status.creating).unwrap();
        assert_eq!(counters.created, counters.destroyed + here);
        let gone = self.log.gone();
        let distinct: std::collections::BTreeSet<_> = gone.iter().collect();
        assert_eq!(distinct.len(), gone.len(), "destroyed twice");
        let mut held: Vec<usize> = self.leases.iter().map(|lease| **lease).collect();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), self.leases.len(), "one resource in two leases");
        assert!(
            held.iter().all(|number| !distinct.contains(number)),
            "leased and destroyed"
        );
        // Nobody waits while there is something for them.
        if status.waiting > 0 {
            assert_eq!(status.idle, status.reserved, "{status}");
            assert!(
                status.total >= self.max || status.creating >= status.waiting,
                "{status}: somebody waits and there is room"
            );
            assert_eq!(status.breaker, self.pool.breaker());
            assert_ne!(status.breaker, BreakerState::Open);
        }
        if self.closed {
            assert_eq!((status.idle, status.waiting), (0, 0), "{status}");
        }
    }

    /// Lets everything come to rest: nothing may be left behind.
    fn finish(mut self) {
        for _ in 0..self.waiting.len() {
            self.leases.clear();
            for at in (0..self.waiting.len()).rev() {
                self.poll(at);
            }
            self.check();
        }
        self.leases.clear();
        self.overtaking = true;
        for _ in 0..200 {
            self.control.open_gates();
            self.manual.advance(Duration::from_millis(600));
            for at in (0..self.waiting.len()).rev() {
                self.poll(at);
            }
            self.leases.clear();
            self.check();
            let status = self.pool.status();
            if self.waiting.is_empty() && status.total == status.idle && status.reserved == 0 {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "{} starve", self.waiting.len());
        let status = self.pool.status();
        assert_eq!(status.total, status.idle, "{status}");
        assert_eq!((status.waiting, status.reserved), (0, 0), "{status}");
        support::now(self.pool.close()).unwrap();
        assert_eq!(self.pool.status().total, 0);
        assert_eq!(self.log.made(), self.log.gone().len() + self.taken_away);
    }
}

/// Panics that the tests ask for are not worth a message each.
fn quiet_expected_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let expected = info
                .payload()
                .downcast_ref::<&'static str>()
                .is_some_and(|said| said.starts_with("expected:"));
            if !expected {
                loud(info);
            }
        }));
    });
}

#[test]
fn a_pool_keeps_its_invariants_in_random_sequences() {
    quiet_expected_panics();
    let cases = std::env::var("CENOTE_PROPERTY_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(10_000);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let order = prop_oneof![Just(Order::Affine), Just(Order::Fifo), Just(Order::Lifo)];
    let input = (
        order,
        1usize..4,
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(step(), 1..60),
    );
    let run = TestRunner::new(config).run(&input, |(order, max, waits, breaks, steps)| {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut world = World::new(order, max, waits, breaks);
            for step in steps {
                world.take(step);
                world.check();
            }
            world.finish();
        }));
        result.map_err(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            TestCaseError::fail(said.unwrap_or_default())
        })
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}
