//! Many threads, cancellations, failing hooks, resizing and a moving breaker,
//! all at once; and at the end nothing is missing.
//!
//! `CENOTE_STRESS_SECONDS` sets how long it runs (default: 5, at most 30).
#![cfg(not(loom))]
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cenote_pool::{AcquireError, AcquireOptions, FnPool, Lease, Order, OwnedLease, Pool, Verdict};

#[derive(Debug)]
struct Oops;

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("oops")
    }
}

impl std::error::Error for Oops {}

/// A resource that notices if two hold it at once.
struct Exclusive {
    held: AtomicBool,
}

/// A fast generator, one for each task; the seed is printed on failure.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Default)]
struct Tally {
    made: AtomicUsize,
    gone: AtomicUsize,
    served: AtomicUsize,
    calls: AtomicU64,
}

#[allow(clippy::disallowed_methods, reason = "the tasks of the test itself")]
fn spawn<F>(future: F) -> tokio::task::JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(future)
}

/// Every n-th call, over all threads.
fn every(tally: &Tally, n: u64) -> bool {
    tally
        .calls
        .fetch_add(1, Ordering::Relaxed)
        .is_multiple_of(n)
}

fn pool(tally: &Arc<Tally>, order: Order) -> FnPool<Exclusive, Oops> {
    let (make, gone) = (Arc::clone(tally), Arc::clone(tally));
    let (acquire, release) = (Arc::clone(tally), Arc::clone(tally));
    Pool::from_fn(move || {
        let tally = Arc::clone(&make);
        async move {
            if every(&tally, 5) {
                tokio::task::yield_now().await;
            }
            if every(&tally, 7) {
                return Err(Oops);
            }
            if every(&tally, 31) {
                panic!("expected: a factory panics");
            }
            tally.made.fetch_add(1, Ordering::SeqCst);
            Ok(Exclusive {
                held: AtomicBool::new(false),
            })
        }
    })
    .destroy(move |_| {
        gone.gone.fetch_add(1, Ordering::SeqCst);
    })
    .before_acquire_async(cenote_pool::with(
        acquire,
        async |tally: &Arc<Tally>, _: &mut Exclusive| {
            if every(tally, 50) {
                tokio::task::yield_now().await;
            }
            !every(tally, 211)
        },
    ))
    .before_release(move |_: &mut Exclusive| {
        if every(&release, 307) {
            Verdict::Discard
        } else if every(&release, 401) {
            Verdict::Later
        } else {
            Verdict::Keep
        }
    })
    .max(8)
    .order(order)
    .no_backoff()
    .no_slow_acquire_warning()
    .idle_timeout(Duration::from_millis(200))
    .max_lifetime(Duration::from_millis(300))
    .healthcheck_interval(Duration::from_millis(50))
    .build()
    .unwrap()
}

async fn use_lease(resource: &Exclusive, dice: &mut Dice) {
    assert!(!resource.held.swap(true, Ordering::SeqCst), "held twice");
    for _ in 0..dice.roll(3) {
        tokio::task::yield_now().await;
    }
    assert!(resource.held.swap(false, Ordering::SeqCst), "held twice");
}

/// Polls a future a few times, then drops it.
async fn polled_a_few_times<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx)));
        if let std::task::Poll::Ready(output) = polled.await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn round(pool: &FnPool<Exclusive, Oops>, tally: &Tally, dice: &mut Dice) {
    let lease = match dice.roll(8) {
        0 => {
            let polls = dice.roll(4);
            match polled_a_few_times(pool.acquire(), polls).await {
                Some(lease) => lease,
                None => return,
            }
        }
        1 => {
            pool.acquire_with(
                AcquireOptions::new().timeout(Duration::from_millis(1 + dice.roll(5))),
            )
            .await
        }
        2 => match pool.try_acquire().await {
            Ok(Some(lease)) => Ok(lease),
            Ok(None) => return,
            Err(error) => Err(error),
        },
        3 => match pool.try_acquire_idle() {
            Some(lease) => Ok(lease),
            None => return,
        },
        _ => pool.acquire().await,
    };
    let lease = match lease {
        Ok(lease) => lease,
        Err(AcquireError::Closed) => panic!("nobody closed it"),
        Err(_) => return,
    };
    tally.served.fetch_add(1, Ordering::Relaxed);
    match dice.roll(60) {
        0 => Lease::discard(lease),
        1 => {
            let (resource, place) = Lease::detach(lease);
            tokio::task::yield_now().await;
            drop(place.attach(resource));
        }
        2 => panic!("expected: a task panics with a lease"),
        3 => Lease::release(lease).await,
        4..20 => {
            let lease = Lease::into_owned(lease);
            use_lease(&lease, dice).await;
            OwnedLease::release(lease).await;
        }
        _ => use_lease(&lease, dice).await,
    }
}

fn quiet_expected_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<&'static str>();
        if !said.is_some_and(|said| said.starts_with("expected:")) {
            loud(info);
        }
    }));
}

fn assert_sound(pool: &FnPool<Exclusive, Oops>, most: usize) {
    let status = pool.status();
    assert_eq!(
        status.total,
        status.idle + status.active + status.creating,
        "{status}"
    );
    assert!(status.total <= most, "{status}");
    assert!(status.reserved <= status.idle, "{status}");
}

async fn storm(order: Order, time: Duration) {
    let seed = RandomState::new().build_hasher().finish() | 1;
    println!("{order:?}: seed {seed}");
    let tally = Arc::new(Tally::default());
    let pool = pool(&tally, order);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for task in 0..64 {
        let (pool, tally, stop) = (pool.clone(), Arc::clone(&tally), Arc::clone(&stop));
        let mut dice = Dice(seed.wrapping_mul(task * 2 + 1) | 1);
        tasks.push(spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let (pool, tally) = (pool.clone(), Arc::clone(&tally));
                let mut inner = Dice(dice.roll(u64::MAX) | 1);
                let round = spawn(async move {
                    for _ in 0..20 {
                        round(&pool, &tally, &mut inner).await;
                    }
                });
                match round.await {
                    Ok(()) => {}
                    Err(error) => {
                        let panic = error.into_panic();
                        let said = panic.downcast_ref::<&'static str>().copied();
                        assert!(said.is_some_and(|said| said.starts_with("expected:")));
                    }
                }
            }
        }));
    }
    // Samples, and what an operator might do, from a plain thread.
    let operator = {
        let (pool, stop) = (pool.clone(), Arc::clone(&stop));
        let mut dice = Dice(seed);
        std::thread::spawn(move || {
            let mut samples = 0u64;
            while !stop.load(Ordering::Relaxed) {
                assert_sound(&pool, 8);
                samples += 1;
                match dice.roll(200) {
                    0 => pool
                        .resize(1 + usize::try_from(dice.roll(8)).unwrap())
                        .unwrap(),
                    1 => {
                        pool.open_breaker();
                        std::thread::yield_now();
                        pool.close_breaker();
                    }
                    2 => pool.replace_all(),
                    3 => drop(pool.on_event(|_| {})),
                    _ => std::thread::yield_now(),
                }
            }
            pool.close_breaker();
            pool.resize(8).unwrap();
            samples
        })
    };
    tokio::time::timeout(time, std::future::pending::<()>())
        .await
        .unwrap_err();
    stop.store(true, Ordering::Relaxed);
    let samples = tokio::task::spawn_blocking(|| operator.join())
        .await
        .unwrap()
        .unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    // Background work (recycling, replacements) comes to its end by itself.
    let mut rest = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..2000 {
        let status = pool.status();
        if status.total == status.idle {
            break;
        }
        rest.tick().await;
    }
    let (status, counters) = (pool.status(), pool.counters());
    println!(
        "{} served, {samples} samples, {status}; created {}, destroyed {}, timed out {}, cancelled {}",
        tally.served.load(Ordering::Relaxed),
        counters.created,
        counters.destroyed,
        counters.timed_out,
        counters.cancelled
    );
    assert_eq!(status.total, status.idle, "{status}");
    assert_eq!((status.waiting, status.reserved), (0, 0), "{status}");
    pool.close_and_drain(Duration::from_secs(10)).await.unwrap();
    let counters = pool.counters();
    assert_eq!(counters.created, counters.destroyed);
    assert_eq!(pool.status().total, 0);
    assert!(
        tally.served.load(Ordering::Relaxed) > 1000,
        "hardly anybody was served"
    );
    // A resource that was replaced has no place any more: nobody waits for its destructor. A call of
    // that is missing only where a hook was cut off half-way; there is none here.
    let counts = || {
        (
            tally.made.load(Ordering::SeqCst),
            tally.gone.load(Ordering::SeqCst),
        )
    };
    for _ in 0..2000 {
        let (made, gone) = counts();
        if made == gone {
            break;
        }
        rest.tick().await;
    }
    let (made, gone) = counts();
    assert_eq!(made, gone);
}

#[test]
fn under_all_faults_nothing_is_lost_and_every_sample_is_valid() {
    quiet_expected_panics();
    let seconds = std::env::var("CENOTE_STRESS_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(5.0f64)
        .clamp(0.5, 30.0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(8)
        .enable_all()
        .build()
        .unwrap();
    for order in [Order::Affine, Order::Fifo, Order::Lifo] {
        let time = Duration::from_secs_f64(seconds / 3.0);
        runtime.block_on(storm(order, time));
    }
}
