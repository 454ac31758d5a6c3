//! Futures that were woken and are not polled do not stop those that are.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use cenote_pool::{FnPool, Runtime, Task};

use crate::tools::*;

type Acquire<'p> = std::pin::Pin<
    Box<
        dyn Future<
                Output = Result<
                    cenote_pool::Lease<'p, cenote_pool::FnManager<usize, Oops>>,
                    cenote_pool::AcquireError<Oops>,
                >,
            > + 'p,
    >,
>;

/// A pool whose slots are all reserved for futures that nobody polls, and `more` of them in
/// the queue.
fn beside_sleepers<'p>(pool: &'p FnPool<usize, Oops>, more: usize) -> Vec<Hand<Acquire<'p>>> {
    let max = pool.status().max;
    let leases: Vec<_> = (0..max).map(|_| now(pool.acquire()).unwrap()).collect();
    let sleepers = (0..max + more).map(|_| {
        let mut sleeper = hand(Box::pin(pool.acquire()) as Acquire<'p>);
        sleeper.waits();
        sleeper
    });
    let sleepers = sleepers.collect();
    drop(leases);
    sleepers
}

/// S+1 futures that nobody polled passed S slots among themselves for ever.
#[test]
fn h2_more_unpolled_waiters_than_slots_starve_no_other() {
    for max in [1, 2, 5] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, max);
        let sleepers = beside_sleepers(&pool, 1);
        let mut live = hand(pool.acquire());
        live.waits();
        manual.advance_millis(100);
        assert!(live.is_woken(), "{}", pool.status());
        drop(live.done().unwrap());
        // What a sleeper lost goes around among those who are polled.
        for _ in 0..1000 {
            drop(hand(pool.acquire()).waits_for(&manual).unwrap());
        }
        // The sleepers are served when they wake, in the order of arrival.
        for mut sleeper in sleepers {
            drop(sleeper.waits_for(&manual).unwrap());
        }
        assert_eq!((log.made(), counts(&pool)), (max, (max, max, 0)));
    }
}

/// One future that nobody polled limited a pool of one to one checkout a second.
#[test]
fn h2_one_sleeper_does_not_limit_a_pool_of_one() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let mut sleepers = beside_sleepers(&pool, 0);
    manual.advance_millis(60);
    let began = Runtime::now(&manual);
    for _ in 0..100 {
        let (mut one, mut other) = (hand(pool.acquire()), hand(pool.acquire()));
        let lease = one.waits_for(&manual).unwrap();
        other.waits();
        drop(lease);
        drop(other.waits_for(&manual).unwrap());
    }
    assert_eq!(Runtime::now(&manual), began, "200 checkouts took no time");
    drop(sleepers[0].done().unwrap());
}

/// How many checkouts a pool serves in 100 s where every future is polled `delay` after it
/// was woken, and gives its resource back at once.
fn served_with_late_polls(slots: usize, waiters: usize, delay: u64) -> usize {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, slots);
    let leases: Vec<_> = (0..slots).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut acquires: Vec<_> = (0..waiters).map(|_| hand(pool.acquire())).collect();
    acquires.iter_mut().for_each(Hand::waits);
    drop(leases);
    // Those that were woken, and when they are polled.
    let mut due: VecDeque<(u64, usize)> = VecDeque::new();
    let mut listed = vec![false; waiters];
    let mut served = 0;
    for at in 0..100_000_u64 {
        for (index, acquire) in acquires.iter().enumerate() {
            if acquire.is_woken() && !std::mem::replace(&mut listed[index], true) {
                due.push_back((at + delay, index));
            }
        }
        while let Some(&(when, index)) = due.front()
            && when <= at
        {
            due.pop_front();
            listed[index] = false;
            if let Poll::Ready(lease) = acquires[index].poll() {
                drop(lease.unwrap());
                served += 1;
                acquires[index] = hand(pool.acquire());
                // If it is served at once, it comes again after another delay.
                if let Poll::Ready(lease) = acquires[index].poll() {
                    drop(lease.unwrap());
                    served += 1;
                    acquires[index] = hand(pool.acquire());
                    listed[index] = true;
                    due.push_back((at + delay, index));
                }
            }
        }
        manual.advance_millis(1);
    }
    served
}

/// Served 0 of 90.
#[test]
fn h2_polls_late_by_1100_ms_are_served_by_one_slot() {
    let served = served_with_late_polls(1, 8, 1100);
    assert!(served >= 80, "served {served} of 90");
}

/// Served 18 of 363.
#[test]
fn h2_polls_late_by_1100_ms_are_served_by_four_slots() {
    let served = served_with_late_polls(4, 16, 1100);
    assert!(served >= 330, "served {served} of 363");
}

/// Later than any patience: each late poll takes what is there.
#[test]
fn h2_polls_late_by_7_seconds_make_progress() {
    let served = served_with_late_polls(1, 8, 7000);
    assert!(served >= 10, "served {served} of 14");
}

/// A runtime with a coarse clock that stands still.
#[derive(Clone)]
struct StoppedClock(Manual);

impl Runtime for StoppedClock {
    fn now(&self) -> Instant {
        Runtime::now(&self.0)
    }

    fn coarse_now(&self) -> u64 {
        7
    }

    fn sleep(&self, until: Instant) -> Task {
        self.0.sleep(until)
    }

    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}

/// By such a clock no reservation ever grew old.
#[test]
fn h2_stopped_coarse_clock_does_not_disable_revocation() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).runtime(StoppedClock(manual.clone()));
    let pool = builder.max(2).build().unwrap();
    let _sleepers = beside_sleepers(&pool, 1);
    let mut live = hand(pool.acquire());
    live.waits();
    manual.advance_millis(300);
    assert!(live.is_woken(), "{}", pool.status());
    drop(live.done().unwrap());
}

/// A stream of acquires, four at a time, that is not polled while the loop's body runs: what
/// `buffer_unordered` does.
struct Buffered<'p> {
    pool: &'p FnPool<usize, Oops>,
    left: usize,
    running: VecDeque<Hand<Acquire<'p>>>,
}

impl Buffered<'_> {
    fn poll_next(&mut self) -> Poll<Option<usize>> {
        while self.running.len() < 4 && self.left > 0 {
            self.left -= 1;
            self.running.push_back(hand(Box::pin(self.pool.acquire())));
        }
        if self.running.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.running.len() {
            if let Poll::Ready(lease) = self.running[at].poll() {
                self.running.remove(at);
                return Poll::Ready(Some(*lease.unwrap()));
            }
        }
        Poll::Pending
    }
}

/// The futures in the buffer hold reservations, and are not polled until the body has a
/// resource of its own.
#[test]
fn h2_buffer_unordered_with_acquire_in_the_body_gets_on() {
    for max in [1, 2] {
        let (log, manual) = (Log::default(), Manual::new());
        let pool = number_pool(&log, &manual, max);
        let holder = now(pool.acquire()).unwrap();
        let mut holder = Some(holder);
        let mut stream = Buffered {
            pool: &pool,
            left: 20,
            running: VecDeque::new(),
        };
        let mut bodies = 0;
        let began = Runtime::now(&manual);
        loop {
            match stream.poll_next() {
                Poll::Ready(None) => break,
                Poll::Ready(Some(_)) => {
                    let mut body = hand(pool.acquire());
                    for step in 0.. {
                        if let Poll::Ready(lease) = body.poll() {
                            drop(lease.unwrap());
                            bodies += 1;
                            break;
                        }
                        assert!(step < 1000, "the body waits for ever: {}", pool.status());
                        manual.advance_millis(1);
                    }
                }
                Poll::Pending => {
                    drop(holder.take());
                    manual.advance_millis(1);
                }
            }
        }
        assert_eq!(bodies, 20);
        let took = Runtime::now(&manual).duration_since(began);
        assert!(took < Duration::from_secs(3), "it took {took:?}");
    }
}

/// A task that acquires, uses a resource for a millisecond, and does it again.
struct Looping<'p> {
    acquire: Hand<Acquire<'p>>,
    lease: Option<cenote_pool::Lease<'p, cenote_pool::FnManager<usize, Oops>>>,
    served: usize,
}

impl<'p> Looping<'p> {
    fn new(pool: &'p FnPool<usize, Oops>) -> Self {
        let acquire = hand(Box::pin(pool.acquire()) as Acquire<'p>);
        Looping {
            acquire,
            lease: None,
            served: 0,
        }
    }

    fn step(&mut self, pool: &'p FnPool<usize, Oops>) {
        if self.lease.take().is_some() {
            self.acquire = hand(Box::pin(pool.acquire()));
        }
        if let Poll::Ready(lease) = self.acquire.poll() {
            self.lease = Some(lease.unwrap());
            self.served += 1;
        }
    }
}

fn all_step<'p>(pool: &'p FnPool<usize, Oops>, manual: &Manual, workers: &mut [Vec<Looping<'p>>]) {
    for task in workers.iter_mut().flatten() {
        task.step(pool);
    }
    manual.advance_millis(1);
}

/// How many so many tasks are served in a second by eight slots.
fn served_in_a_second_by(tasks: usize) -> usize {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 8);
    let mut worker = [(0..tasks).map(|_| Looping::new(&pool)).collect::<Vec<_>>()];
    for _ in 0..1000 {
        all_step(&pool, &manual, &mut worker);
    }
    worker[0].iter().map(|task| task.served).sum()
}

/// A thread-per-core server: four workers with eight tasks each share eight slots, and one
/// worker stalls while its tasks wait.
#[test]
fn h2_one_stalled_worker_does_not_stall_the_others() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 8);
    let mut workers: Vec<Vec<_>> = (0..4)
        .map(|_| (0..8).map(|_| Looping::new(&pool)).collect())
        .collect();
    while workers[0].iter().any(|task| task.lease.is_some()) || pool.status().waiting < 24 {
        all_step(&pool, &manual, &mut workers);
    }
    let before: usize = workers[1..].iter().flatten().map(|task| task.served).sum();
    for _ in 0..1000 {
        all_step(&pool, &manual, &mut workers[1..]);
    }
    let after: usize = workers[1..].iter().flatten().map(|task| task.served).sum();
    // The stalled tasks cost a slot one patience each.
    let (usual, served) = (served_in_a_second_by(24), after - before);
    assert!(served > usual / 10 * 9, "{served} instead of {usual}");
    // Those who were passed over come first when their worker goes on.
    for task in &mut workers[0] {
        task.step(&pool);
    }
    for _ in 0..20 {
        all_step(&pool, &manual, &mut workers);
    }
    assert!(workers[0].iter().all(|task| task.served > 1));
}

/// A try_acquire that is polled no more when its creation is done keeps nothing either.
#[test]
fn h2_abandoned_try_acquire_keeps_no_resource() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let mut attempt = hand(pool.try_acquire());
    attempt.waits();
    gate.open();
    manual.run();
    assert_eq!(pool.status().reserved, 1);
    let mut live = hand(pool.acquire());
    live.waits();
    manual.advance_millis(60);
    let lease = live.waits_for(&manual).unwrap();
    assert_eq!(*lease, 1);
    assert!(
        attempt.done().unwrap().is_none(),
        "there is nothing to take"
    );
    drop(lease);
}

/// One that lost its resource and comes back finds it idle, or nothing.
#[test]
fn h2_late_try_acquire_takes_what_is_idle() {
    let (log, manual, gate) = (Log::default(), Manual::new(), Gate::new());
    let pool = gated_numbers(&log, &manual, &gate).max(1).build().unwrap();
    let mut attempt = hand(pool.try_acquire());
    attempt.waits();
    gate.open();
    manual.run();
    let mut live = hand(pool.acquire());
    live.waits();
    manual.advance_millis(60);
    drop(live.waits_for(&manual).unwrap());
    assert_eq!(attempt.done().unwrap().as_deref(), Some(&1));
}

/// A revoked waiter keeps its place in the order of arrival, which counts when it is polled.
#[test]
fn h2_revoked_waiter_keeps_its_arrival_order() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    let lease = now(pool.acquire()).unwrap();
    let mut waiters: Vec<_> = (0..4).map(|_| hand(pool.acquire())).collect();
    waiters.iter_mut().for_each(Hand::waits);
    drop(lease);
    manual.advance_millis(50);
    // The first was passed over.
    let lease = waiters[1].done().unwrap();
    let mut late = hand(pool.acquire());
    late.waits();
    waiters[0].waits();
    drop(lease);
    assert!(waiters[0].is_woken() && !waiters[2].is_woken());
    drop(waiters[0].done().unwrap());
    drop(waiters[2].done().unwrap());
    drop(waiters[3].done().unwrap());
    drop(late.done().unwrap());
}

/// Counts how often the maintenance sleeps.
#[derive(Clone)]
struct CountedSleeps(Manual, Arc<AtomicU64>);

impl Runtime for CountedSleeps {
    fn now(&self) -> Instant {
        Runtime::now(&self.0)
    }

    fn coarse_now(&self) -> u64 {
        self.0.coarse_now()
    }

    fn sleep(&self, until: Instant) -> Task {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.sleep(until)
    }

    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}

/// Nobody else wants what the sleeper does not collect, so nobody needs to look.
#[test]
fn h2_lone_unpolled_waiter_sets_few_timers() {
    let (log, manual) = (Log::default(), Manual::new());
    let sleeps = Arc::new(AtomicU64::new(0));
    let runtime = CountedSleeps(manual.clone(), Arc::clone(&sleeps));
    let builder = numbers(&log, &manual).runtime(runtime);
    let pool = builder.max(1).build().unwrap();
    let mut sleepers = beside_sleepers(&pool, 0);
    manual.advance(Duration::from_secs(60));
    assert!(sleeps.load(Ordering::SeqCst) < 5, "{sleeps:?} in a minute");
    assert_eq!(pool.status().reserved, 1);
    drop(sleepers[0].done().unwrap());
}
