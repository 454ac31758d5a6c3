//! Random schedules against a pool: futures that are polled late or never, creations that
//! hang, fail, or run on an executor that nobody drives, executors that die. After every step
//! the invariants hold; again and again somebody who is polled has to be served.
//!
//! `CENOTE_HOSTILE_STEPS` sets how many steps are taken (default: 60,000).
#![cfg(not(loom))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{AcquireError, FnManager, FnPool, Lease, Order, OwnedLease, Pool, Runtime, Task};

use self::support::{Hand, Log, Manual, Oops, at_most, hand};

/// Steps in one pool's life.
const STEPS: usize = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn upto(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the next creation does.
#[derive(Clone, Copy)]
enum Act {
    Work,
    Fail,
    Hang,
    Slow(u64),
    /// Goes to an executor that nobody drives.
    Stick,
}

#[derive(Default)]
struct Acts {
    next: Mutex<VecDeque<Act>>,
    /// The creation that is spawned next goes to an executor that nobody drives.
    sticks: AtomicBool,
    /// An acquire is being polled: what is created then is spawned next.
    in_acquire: AtomicBool,
}

impl Acts {
    fn poll(&self, acquire: &mut Hand<Acquiring>) -> Poll<Acquired> {
        self.in_acquire.store(true, Ordering::SeqCst);
        let polled = acquire.poll();
        self.in_acquire.store(false, Ordering::SeqCst);
        self.sticks.store(false, Ordering::SeqCst);
        polled
    }
}

/// A manual runtime, beside an executor that is driven only now and then.
#[derive(Clone)]
struct TwoExecutors {
    manual: Manual,
    acts: Arc<Acts>,
    stuck: Arc<Mutex<Vec<Task>>>,
    coarse_stands_still: bool,
}

impl Runtime for TwoExecutors {
    fn now(&self) -> Instant {
        Runtime::now(&self.manual)
    }

    fn coarse_now(&self) -> u64 {
        match self.coarse_stands_still {
            true => 1,
            // As coarse as the real one.
            false => self.manual.coarse_now() / 4_000_000 * 4_000_000,
        }
    }

    fn sleep(&self, until: Instant) -> Task {
        self.manual.sleep(until)
    }

    fn spawn(&self, task: Task) {
        if self.acts.sticks.swap(false, Ordering::SeqCst) {
            self.stuck.lock().unwrap().push(task);
        } else {
            self.manual.spawn(task);
        }
    }
}

type Owned = OwnedLease<FnManager<usize, Oops>>;
type Acquired = Result<Option<Owned>, AcquireError<Oops>>;
type Acquiring = Pin<Box<dyn Future<Output = Acquired> + Send>>;

struct Waiting {
    acquire: Hand<Acquiring>,
    /// Its number in the order of arrival, if it queues.
    arrived: Option<usize>,
    /// How long after its wake it is polled; never if `None`.
    delay: Option<u64>,
    due: Option<u64>,
}

struct World {
    pool: FnPool<usize, Oops>,
    runtime: TwoExecutors,
    log: Log,
    waiting: Vec<Waiting>,
    leases: Vec<Owned>,
    arrivals: usize,
    clock: u64,
    max: usize,
    bound: usize,
    dies: bool,
    served: Arc<AtomicUsize>,
}

impl World {
    fn new(random: &mut Random, served: &Arc<AtomicUsize>) -> Self {
        let (log, manual, acts) = (Log::default(), Manual::new(), Arc::new(Acts::default()));
        let runtime = TwoExecutors {
            manual: manual.clone(),
            acts: Arc::clone(&acts),
            stuck: Arc::default(),
            coarse_stands_still: random.one_in(5),
        };
        let (make, gone) = (log.clone(), log.clone());
        let mut builder = Pool::from_fn(move || {
            let act = acts.next.lock().unwrap().pop_front().unwrap_or(Act::Work);
            if matches!(act, Act::Stick) && acts.in_acquire.load(Ordering::SeqCst) {
                acts.sticks.store(true, Ordering::SeqCst);
            }
            let (make, manual) = (make.clone(), manual.clone());
            async move {
                match act {
                    Act::Work => {}
                    Act::Fail => return Err(Oops("refused")),
                    Act::Hang => std::future::pending::<()>().await,
                    Act::Slow(time) => manual.sleep_for(Duration::from_millis(time)).await,
                    Act::Stick => manual.sleep_for(Duration::from_millis(1)).await,
                }
                Ok(make.make())
            }
        })
        .destroy(move |number| gone.destroy(number))
        .create_timeout(Duration::from_secs(2))
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
        .runtime(runtime.clone());
        let max = 1 + random.upto(4);
        if random.one_in(3) {
            builder = builder.retry_creations();
        }
        if random.one_in(2) {
            builder = builder.concurrent_creations(1 + random.upto(2));
        }
        if random.one_in(3) {
            builder = builder.max_waiting(random.upto(6));
        }
        if random.one_in(4) {
            builder = builder.min(random.upto(max + 1));
        }
        let order = [Order::Affine, Order::Affine, Order::Fifo, Order::Lifo];
        let order = order[random.upto(4)];
        World {
            pool: builder.max(max).order(order).build().unwrap(),
            runtime,
            log,
            waiting: Vec::new(),
            leases: Vec::new(),
            arrivals: 0,
            clock: 0,
            max,
            bound: max,
            dies: random.one_in(2),
            served: Arc::clone(served),
        }
    }

    fn arrive(&mut self, random: &mut Random) {
        let pool = self.pool.clone();
        let queues = !random.one_in(8);
        let within = random.one_in(3).then(|| 1 + random.below(3000));
        let acquire: Acquiring = Box::pin(async move {
            if !queues {
                let lease = pool.try_acquire().await?;
                return Ok(lease.map(Lease::into_owned));
            }
            match within {
                None => pool.acquire_owned().await.map(Some),
                Some(millis) => {
                    let limit = Duration::from_millis(millis);
                    pool.acquire_with(at_most(limit))
                        .await
                        .map(Lease::into_owned)
                        .map(Some)
                }
            }
        });
        let arrived = queues.then(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let delay = match random.below(10) {
            0..5 => Some(0),
            5..7 => Some(random.below(100)),
            7 => Some(random.below(3000)),
            8 => Some(5000 + random.below(5000)),
            _ => None,
        };
        self.waiting.push(Waiting {
            acquire: hand(acquire),
            arrived,
            delay,
            due: None,
        });
        self.poll(self.waiting.len() - 1);
    }

    fn poll(&mut self, at: usize) {
        let waiting = &mut self.waiting[at];
        waiting.due = None;
        let Poll::Ready(result) = self.runtime.acts.poll(&mut waiting.acquire) else {
            return;
        };
        let waiting = self.waiting.remove(at);
        let Ok(Some(lease)) = result else { return };
        self.served.fetch_add(1, Ordering::SeqCst);
        self.leases.push(lease);
        // I8: all who came before and are polled in time were given something.
        let Some(me) = waiting.arrived else { return };
        for other in &self.waiting {
            let before = other.arrived.is_some_and(|arrived| arrived < me);
            let in_time = other.delay == Some(0);
            assert!(
                !before || !in_time || other.acquire.is_woken(),
                "served before one that came earlier"
            );
        }
    }

    /// Polls those whose time has come.
    fn poll_due(&mut self) {
        loop {
            for waiting in &mut self.waiting {
                if waiting.due.is_none() && waiting.acquire.is_woken() {
                    waiting.due = waiting.delay.map(|delay| self.clock + delay);
                }
            }
            let clock = self.clock;
            let due = |waiting: &Waiting| waiting.due.is_some_and(|due| due <= clock);
            let Some(at) = self.waiting.iter().position(due) else {
                return;
            };
            self.poll(at);
            self.check();
        }
    }

    fn advance(&mut self, millis: u64) {
        let until = self.clock + millis;
        while self.clock < until {
            let next = self.waiting.iter().filter_map(|waiting| waiting.due).min();
            // In small steps, so that those who are polled in time are.
            let next = next.unwrap_or(until).clamp(self.clock + 1, until);
            let next = next.min(self.clock + 20);
            let step = Duration::from_millis(next - self.clock);
            self.runtime.manual.advance(step);
            self.clock = next;
            self.poll_due();
        }
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(40) {
            0..10 => self.arrive(random),
            10..18 => self.release(random),
            18..20 => {
                if !self.leases.is_empty() {
                    let at = random.upto(self.leases.len());
                    OwnedLease::discard(self.leases.swap_remove(at));
                }
            }
            20..23 => {
                if !self.waiting.is_empty() {
                    let at = random.upto(self.waiting.len());
                    drop(self.waiting.remove(at));
                }
            }
            23..27 => {
                let act = match random.below(6) {
                    0 => Act::Hang,
                    1 => Act::Fail,
                    2 | 3 => Act::Slow(random.below(1500)),
                    4 => Act::Stick,
                    _ => Act::Work,
                };
                self.runtime.acts.next.lock().unwrap().push_back(act);
            }
            27 => {
                let max = 1 + random.upto(4);
                if self.pool.resize(max).is_ok() {
                    self.bound = self.bound.max(max);
                    self.max = max;
                }
            }
            28 => {
                // The other executor runs again, or is dropped.
                let stuck = std::mem::take(&mut *self.runtime.stuck.lock().unwrap());
                if random.one_in(2) {
                    drop(stuck);
                } else {
                    stuck
                        .into_iter()
                        .for_each(|task| self.runtime.manual.spawn(task));
                }
            }
            29 if self.dies && random.one_in(4) => {
                self.runtime.manual.die();
                self.runtime.manual.revive();
            }
            30..33 => self.advance(50 + random.below(500)),
            _ => self.advance(1 + random.below(20)),
        }
        self.poll_due();
        self.check();
    }

    fn release(&mut self, random: &mut Random) {
        if !self.leases.is_empty() {
            let at = random.upto(self.leases.len());
            drop(self.leases.swap_remove(at));
        }
    }

    fn check(&mut self) {
        let status = self.pool.status();
        assert_eq!(status.total, status.idle + status.active + status.creating);
        assert!(
            status.total <= self.bound,
            "{status} is above {}",
            self.bound
        );
        if status.total <= self.max {
            self.bound = self.max;
        }
        assert!(status.active >= self.leases.len(), "{status}");
        let counters = self.pool.counters();
        let here = u64::try_from(status.total - status.creating).unwrap();
        assert_eq!(counters.created, counters.destroyed + here, "I7");
        if status.waiting > 0 {
            assert_eq!(status.idle, status.reserved, "I2: {status}");
        }
        let mut held: Vec<usize> = self.leases.iter().map(|lease| **lease).collect();
        held.sort_unstable();
        held.dedup();
        assert_eq!(held.len(), self.leases.len(), "one resource in two leases");
    }

    /// Somebody who is polled is served, whatever the others do; soon, once nobody holds
    /// anything and creations work.
    fn serves_a_live_one(&mut self) {
        self.runtime.acts.next.lock().unwrap().clear();
        let pool = self.pool.clone();
        let mut live: Option<Hand<Acquiring>> = None;
        // A creation that hangs ends after 2 s. Everybody ahead may cost one patience.
        let ahead = u64::try_from(self.waiting.len()).unwrap();
        let limit = self.clock + 10_000 + 10_000 * ahead;
        while self.clock < limit {
            self.leases.clear();
            let acquire = live.get_or_insert_with(|| {
                let pool = pool.clone();
                hand(Box::pin(
                    async move { pool.acquire_owned().await.map(Some) },
                ))
            });
            match self.runtime.acts.poll(acquire) {
                Poll::Ready(Ok(_)) => return,
                // The queue is full, or its executor died with its creation: it tries again.
                Poll::Ready(Err(_)) => live = None,
                Poll::Pending => {}
            }
            self.check();
            self.advance(10);
        }
        panic!("a live acquire starves: {}", self.pool.status());
    }

    /// Everybody is polled, or has gone: nothing is left behind.
    fn finish(mut self) {
        self.serves_a_live_one();
        for waiting in &mut self.waiting {
            waiting.delay = Some(0);
        }
        for _ in 0..200 {
            self.leases.clear();
            self.advance(100);
            if self.waiting.is_empty() {
                break;
            }
        }
        assert!(
            self.waiting.is_empty(),
            "{} starve: {}",
            self.waiting.len(),
            self.pool.status()
        );
        self.leases.clear();
        self.runtime.stuck.lock().unwrap().clear();
        self.advance(3000);
        let status = self.pool.status();
        assert_eq!(status.total, status.idle, "{status}");
        assert_eq!((status.waiting, status.reserved), (0, 0), "{status}");
        support::now(self.pool.close()).unwrap();
        self.runtime.manual.advance(Duration::from_secs(3));
        assert_eq!(self.pool.status().total, 0);
        assert_eq!(self.log.made(), self.log.gone().len());
    }
}

#[test]
fn hostile_schedules_starve_no_polled_waiter() {
    let steps = std::env::var("CENOTE_HOSTILE_STEPS")
        .ok()
        .and_then(|steps| steps.parse().ok())
        .unwrap_or(60_000);
    let first: u64 = std::env::var("CENOTE_HOSTILE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let served = Arc::new(AtomicUsize::new(0));
    let mut taken = 0;
    for seed in first.. {
        if taken >= steps {
            break;
        }
        let run = std::panic::AssertUnwindSafe(|| {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let mut world = World::new(&mut random, &served);
            for step in 1..=STEPS {
                world.step(&mut random);
                if step % 100 == 0 {
                    world.serves_a_live_one();
                }
            }
            world.finish();
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("CENOTE_HOSTILE_SEED={seed} fails");
            std::panic::resume_unwind(panic);
        }
        taken += STEPS;
    }
    assert!(served.load(Ordering::SeqCst) > taken / 50);
}
