//! The short paths do what the full ones do: two copies of a pool's state go through the same random
//! steps, one by the short paths wherever they apply, and stay equal.

use std::fmt::Write;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use super::{AcquireMode, Arrival, Clock, Deferred, Locked, Meta, PolledWaker, Progress, State};
use crate::acquire::wait::Wait;
use crate::breaker::BreakerState;
use crate::config::Config;
use crate::core::claims::ClaimKey;
use crate::core::slot::Slots;
use crate::core::waiters::WaiterKey;
use crate::observe::events::DestroyReason;
use crate::runtime::{Runtime, Task, ThreadRuntime};

/// A clock that moves by hand.
struct HandClock {
    start: Instant,
    elapsed: AtomicU64,
}

impl Runtime for HandClock {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.coarse_now())
    }

    fn coarse_now(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }

    fn sleep(&self, _: Instant) -> Task {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, _: Task) {}
}

/// Wakes nobody. (`Waker::noop` would not do: its clones are not always equal to it.)
struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enter { timeout: Option<u64> },
    Release(usize),
    Poll(usize),
    Leave(usize),
    Created(usize),
    Advance(u64),
    Retire(usize),
    Watch(bool),
    LimitQueue(usize),
    Breaker(BreakerState),
}

/// A pool's state with those who use it, without the code around it.
struct World {
    state: State<()>,
    slots: Slots<u64>,
    clock: Arc<HandClock>,
    waker: Waker,
    leased: Vec<usize>,
    waiting: Vec<WaiterKey>,
    creating: Vec<(WaiterKey, ClaimKey)>,
    by_short_paths: bool,
    joins: u64,
    hand_offs: u64,
}

const MAX: usize = 3;

impl World {
    fn new(clock: &Arc<HandClock>, waker: &Waker, by_short_paths: bool) -> Self {
        let config = Config {
            max: MAX,
            slow_acquire_warning: Some(Duration::from_millis(100)),
            ..Config::default()
        };
        World {
            state: State::new(&config),
            slots: Slots::new(),
            clock: Arc::clone(clock),
            waker: waker.clone(),
            leased: Vec::new(),
            waiting: Vec::new(),
            creating: Vec::new(),
            by_short_paths,
            joins: 0,
            hand_offs: 0,
        }
    }

    /// As `Core::locked` does it.
    fn locked<R>(&mut self, change: impl FnOnce(&mut Locked<'_, u64, ()>) -> R) -> R {
        let mut deferred = Deferred::default();
        let mut locked = Locked {
            state: &mut self.state,
            slots: &self.slots,
            clock: Clock::new(&*self.clock),
            deferred: &mut deferred,
        };
        let result = change(&mut locked);
        self.state.short_paths = self.state.allows_short_paths();
        let retiring = deferred
            .rare
            .take()
            .map_or(Vec::new(), |rare| rare.retiring);
        for (index, reason) in retiring {
            self.vacate(index, reason);
        }
        result
    }

    fn vacate(&mut self, index: usize, reason: DestroyReason) {
        // SAFETY: a slot that is to be destroyed is owned by the pool.
        unsafe { self.slots.at(index).take_out() };
        self.locked(|locked| locked.vacate(index, reason));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Enter { timeout } => self.enter(timeout.map(Duration::from_millis)),
            Step::Release(which) if !self.leased.is_empty() => {
                let index = self.leased.remove(which % self.leased.len());
                self.release(index);
            }
            Step::Poll(which) if !self.waiting.is_empty() => {
                let key = self.waiting.remove(which % self.waiting.len());
                self.poll(key);
            }
            Step::Leave(which) if !self.waiting.is_empty() => {
                let key = self.waiting.remove(which % self.waiting.len());
                // It may have a reservation, which goes to the next.
                self.locked(|locked| locked.leave(key));
            }
            Step::Created(which) if !self.creating.is_empty() => {
                let (key, claim) = self.creating.remove(which % self.creating.len());
                self.create(key, claim);
            }
            Step::Advance(_) => self.maintain(),
            Step::Retire(which) if !self.state.metas.is_empty() => {
                let id = self.state.metas[which % self.state.metas.len()].id;
                self.locked(|locked| {
                    locked.retire_where(|meta| (meta.id == id).then_some(DestroyReason::Evicted));
                });
            }
            Step::Watch(observed) => self.locked(|locked| {
                locked.state.observed = observed;
                locked.state.heard = observed;
                locked.state.update_watch_flags(locked.slots);
            }),
            Step::LimitQueue(limit) => self.state.max_waiting = limit,
            Step::Breaker(to) => self.locked(|locked| locked.move_breaker(to, true)),
            Step::Release(_)
            | Step::Poll(_)
            | Step::Leave(_)
            | Step::Created(_)
            | Step::Retire(_) => {}
        }
    }

    fn enter(&mut self, timeout: Option<Duration>) {
        let wait = Wait::begun(timeout, self.clock.now());
        if self.by_short_paths
            && let Some(key) = self.state.join(&wait, &mut Some(self.waker.clone()))
        {
            self.state.check(&self.slots);
            self.joins += 1;
            self.waiting.push(key);
            return;
        }
        let arrival = Arrival {
            caller: wait.caller,
            began: wait.began(),
            deadline: wait.deadline(),
            hint: None,
            mode: AcquireMode::Queue,
            refused: false,
            serial: None,
        };
        let waker = self.waker.clone();
        let mut waker = PolledWaker::new(&waker, true);
        let progress = self.locked(|locked| locked.enter(&arrival, &mut waker));
        self.go_on(progress);
    }

    fn release(&mut self, index: usize) {
        let slot = self.slots.at(index);
        if self.by_short_paths && self.state.hand_off(slot, self.clock.coarse_now()).is_some() {
            self.state.check(&self.slots);
            self.hand_offs += 1;
            return;
        }
        self.locked(|locked| locked.release(index));
    }

    fn poll(&mut self, key: WaiterKey) {
        if let Some(grant) = self.state.waiters.grants().take(key) {
            let slot = self.slots.at(grant.slot as usize);
            if slot.collect(grant.ticket) {
                slot.stamp(self.clock.coarse_now());
                self.leased.push(slot.index());
                return;
            }
        }
        let waker = self.waker.clone();
        let mut waker = PolledWaker::new(&waker, true);
        let progress =
            self.locked(|locked| locked.poll_waiter(key, Location::caller(), &mut waker));
        self.go_on(progress);
    }

    fn go_on(&mut self, progress: Progress<()>) {
        match progress {
            Progress::Waiting(key) | Progress::WakerNeeded(key) => self.waiting.push(key),
            Progress::Create(key, claim) => {
                self.creating.push((key, claim));
                self.poll(key);
            }
            Progress::Taken { slot, .. } => self.leased.push(slot),
            _ => {}
        }
    }

    fn create(&mut self, key: WaiterKey, claim: ClaimKey) {
        let now = self.clock.now();
        let slot = self.slots.at(claim.slot());
        // SAFETY: a creation owns its slot.
        unsafe { slot.put(0) };
        self.locked(|locked| {
            let meta = Meta {
                id: locked.state.next_id(),
                expires: None,
                is_expired: false,
                retiring: None,
                returned: 0,
                replaced: false,
                generation: 0,
                judged: 0,
                domain: None,
                probe: None,
                seen: (0, now),
                warned: None,
                reserved_for: None,
            };
            locked.created(claim.slot(), Some(key), meta);
        });
    }

    /// As the maintenance task does it.
    fn maintain(&mut self) {
        self.locked(|locked| {
            locked.pass_time();
            let next = locked.state.next_due(locked.clock.now());
            locked.state.maintenance = Some(next);
        });
    }

    fn description(&self) -> String {
        let mut text = format!("{:?}\n{:?}\n{:?}\n", self.state, self.leased, self.waiting);
        for (_, slot) in self.slots.iter() {
            let _ = writeln!(text, "{:?} {}", slot.word(), slot.since());
        }
        text
    }
}

fn random_step(random: &mut impl FnMut(u64) -> u64) -> Step {
    let which = usize::try_from(random(1000)).unwrap_or(0);
    match random(100) {
        0..33 => Step::Enter {
            timeout: (random(2) == 0).then(|| 1 + random(3000)),
        },
        33..57 => Step::Release(which),
        57..80 => Step::Poll(which),
        80..83 => Step::Leave(which),
        83..89 => Step::Created(which),
        89..95 => Step::Advance(random(200)),
        95 => Step::Retire(which),
        96 => Step::Watch(random(2) == 0),
        97 => Step::LimitQueue(which % 20),
        98 => Step::Breaker(BreakerState::Open),
        _ => Step::Breaker(BreakerState::Closed),
    }
}

#[test]
fn short_paths_do_what_the_full_paths_do() {
    let (mut joins, mut hand_offs) = (0, 0);
    let waker = Waker::from(Arc::new(Nobody));
    for seed in 1..400u64 {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |below: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 16) % below
        };
        let clock = Arc::new(HandClock {
            start: ThreadRuntime::new().now(),
            elapsed: AtomicU64::new(0),
        });
        let (mut short, mut full) = (
            World::new(&clock, &waker, true),
            World::new(&clock, &waker, false),
        );
        let mut steps = Vec::new();
        for _ in 0..300 {
            let step = random_step(&mut random);
            steps.push(step);
            if let Step::Advance(millis) = step {
                clock
                    .elapsed
                    .fetch_add(millis * 1_000_000, Ordering::Relaxed);
            }
            let before = short.joins + short.hand_offs;
            short.take(step);
            full.take(step);
            // What differed before would differ still: it is enough to compare here.
            if short.joins + short.hand_offs > before {
                assert!(
                    short.description() == full.description(),
                    "seed {seed}, after {steps:?}:\n{}\n---- by the full paths:\n{}",
                    short.description(),
                    full.description()
                );
            }
        }
        joins += short.joins;
        hand_offs += short.hand_offs;
    }
    assert!(
        joins > 2000 && hand_offs > 800,
        "{joins} joins, {hand_offs} hand-offs"
    );
}
