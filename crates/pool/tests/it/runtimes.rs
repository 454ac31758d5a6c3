//! The pool on the executors there are: Tokio, smol, and none at all.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use cenote_pool::{
    AcquireError, Builder, FnManager, FnPool, OwnedLease, Pool, Runtime, Task, ThreadRuntime,
};

use crate::tools::{Log, Oops, at_most, millis, must_end, units, yield_now};

/// smol, as a user would bring it.
struct Smol;

impl Runtime for Smol {
    #[allow(
        clippy::disallowed_methods,
        reason = "a runtime is where time comes from"
    )]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn coarse_now(&self) -> u64 {
        0
    }

    fn sleep(&self, until: Instant) -> Task {
        Box::pin(async move {
            smol::Timer::at(until).await;
        })
    }

    fn spawn(&self, task: Task) {
        smol::spawn(task).detach();
    }
}

/// Numbers, with hooks that all give way once, so that all need the executor.
fn slow_numbers(log: &Log) -> Builder<FnManager<usize, Infallible>> {
    let (make, gone) = (log.clone(), log.clone());
    Pool::from_fn(move || {
        let make = make.clone();
        async move {
            yield_now().await;
            Ok(make.make())
        }
    })
    .before_acquire_async(async |_: &mut usize| yield_now().await)
    .before_release_async(async |_: &mut usize| yield_now().await)
    .destroy_async(move |number| {
        let gone = gone.clone();
        async move {
            yield_now().await;
            gone.destroy(number);
        }
    })
    .max(1)
}

/// Polls a future once; it waits.
fn waits<F: Future>(future: std::pin::Pin<&mut F>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(future.poll(&mut context), Poll::Pending));
}

/// Everything that waits, on a real executor: creation, queue, cancel, hooks,
/// deadline, close.
async fn waiting_paths(runtime: impl Runtime) {
    let log = Log::default();
    let pool = slow_numbers(&log).runtime(runtime).build().unwrap();
    let lease = pool.acquire().await.unwrap();
    assert_eq!(*lease, 1);
    let late = pool.acquire_with(at_most(millis(1))).await;
    assert!(matches!(late, Err(AcquireError::Timeout(_))));
    {
        let mut first = pin!(pool.acquire());
        let mut second = pin!(pool.acquire());
        waits(first.as_mut());
        waits(second.as_mut());
        {
            let mut cancelled = pin!(pool.acquire());
            waits(cancelled.as_mut());
        }
        drop(lease);
        drop(first.await.unwrap());
        drop(second.await.unwrap());
    }
    cenote_pool::Lease::discard(pool.acquire().await.unwrap());
    let lease = pool.acquire().await.unwrap();
    assert_eq!((*lease, log.gone()), (2, vec![1]));
    let mut waiter = pin!(pool.acquire());
    waits(waiter.as_mut());
    pool.close().await.unwrap();
    assert!(matches!(waiter.await, Err(AcquireError::Closed)));
    drop(lease);
    pool.close_and_drain(millis(60_000)).await.unwrap();
    assert_eq!(log.gone(), [1, 2]);
}

#[test]
fn the_waiting_paths_work_on_smol() {
    smol::block_on(waiting_paths(Smol));
}

#[test]
fn the_waiting_paths_work_on_the_built_in_thread() {
    smol::block_on(waiting_paths(ThreadRuntime::new()));
}

#[test]
fn a_plain_thread_waits_for_another_one() {
    let pool = units()
        .max(1)
        .runtime(ThreadRuntime::new())
        .build()
        .unwrap();
    let lease = pool.acquire_blocking().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(pool.acquire_blocking().unwrap()));
        while pool.status().waiting == 0 {
            std::thread::yield_now();
        }
        drop(lease);
        waiter.join().unwrap();
    });
    assert_eq!(pool.counters().acquired, 2);
}

#[test]
fn a_plain_thread_gives_up_at_its_deadline() {
    let pool = units()
        .max(1)
        .runtime(ThreadRuntime::new())
        .build()
        .unwrap();
    let _lease = pool.acquire_blocking().unwrap();
    let late = pool.acquire_blocking_with(at_most(millis(1)));
    assert!(matches!(late, Err(AcquireError::Timeout(_))));
}

#[test]
fn the_built_in_thread_must_not_be_blocked() {
    let pool = units().runtime(ThreadRuntime::new()).build().unwrap();
    let (inner, (send, receive)) = (pool.clone(), std::sync::mpsc::channel());
    ThreadRuntime::new().spawn(Box::pin(async move {
        let result = inner.acquire_blocking().map(drop);
        send.send(matches!(result, Err(AcquireError::WouldBlockExecutor)))
            .unwrap();
    }));
    assert!(receive.recv().unwrap());
}

/// F-001, on many threads.
#[test]
fn status_is_sound_in_every_sample() {
    let builder = units().max(3).runtime(ThreadRuntime::new());
    let pool = builder.before_release(|(): &mut ()| true).build().unwrap();
    std::thread::scope(|scope| {
        let work = || {
            for round in 0..2000 {
                let lease = pool.acquire_blocking().unwrap();
                if round % 7 == 0 {
                    cenote_pool::Lease::discard(lease);
                }
            }
        };
        let workers = [(); 4].map(|()| scope.spawn(work));
        while !workers.iter().all(|worker| worker.is_finished()) {
            let status = pool.status();
            let parts = status.idle + status.active + status.creating;
            assert_eq!(status.total, parts, "{status}");
            assert!(
                status.total <= 3 && status.reserved <= status.idle,
                "{status}"
            );
        }
    });
    assert_eq!(pool.counters().acquired, 8000);
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use cenote_pool::{DestroyReason, OwnedLease, TokioRuntime, within};
    use tokio::runtime::Builder;

    use super::*;

    fn current_thread() -> tokio::runtime::Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn the_waiting_paths_work_on_tokio() {
        current_thread().block_on(waiting_paths(TokioRuntime::new()));
        let many = Builder::new_multi_thread().enable_time().build();
        many.unwrap().block_on(waiting_paths(TokioRuntime::new()));
        // One that was built without timers has those of the built-in thread.
        let bare = Builder::new_current_thread().build().unwrap();
        bare.block_on(waiting_paths(TokioRuntime::new()));
    }

    #[test]
    fn a_tokio_pool_works_in_a_program_without_tokio() {
        smol::block_on(waiting_paths(TokioRuntime::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_follow_a_paused_clock() {
        let runtime = TokioRuntime::new().follows_paused_clock();
        let pool = units().max(1).runtime(runtime).build().unwrap();
        let _lease = pool.acquire().await.unwrap();
        let began = tokio::time::Instant::now();
        let minute = millis(60_000);
        let Err(AcquireError::Timeout(timeout)) = pool.acquire_with(at_most(minute)).await else {
            panic!("not a timeout");
        };
        // Tokio's timers are exact to a millisecond.
        assert!(timeout.waited >= minute && timeout.waited <= minute + millis(2));
        assert!(began.elapsed() >= minute);
        let held_for = timeout.oldest_holders[0].held_for;
        assert!(held_for >= minute && held_for <= minute + millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn health_checks_follow_a_paused_clock() {
        let log = Log::default();
        let checks = log.clone();
        let pool = units()
            .min(1)
            .healthcheck_interval(millis(30_000))
            .healthcheck(move |(): &mut ()| checks.line("checked"))
            .open()
            .await
            .unwrap();
        for expected in 0..3 {
            assert_eq!(log.lines().len(), expected);
            for _ in 0..3 {
                // The maintenance task sleeps by now; after that, let it work.
                tokio::task::yield_now().await;
            }
            tokio::time::advance(millis(30_001)).await;
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(pool.status().idle, 1);
    }

    /// Whether a maintenance task that went to sleep for half a minute wakes up when Tokio's clock, paused only
    /// then, says that this time has passed.
    async fn maintenance_sleeps_by_tokio(runtime: TokioRuntime) -> bool {
        let log = Log::default();
        let checks = log.clone();
        let _pool = units()
            .min(1)
            .healthcheck_interval(millis(30_000))
            .healthcheck(move |(): &mut ()| checks.line("checked"))
            .runtime(runtime)
            .open()
            .await
            .unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(millis(30_001)).await;
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        !log.lines().is_empty()
    }

    #[tokio::test]
    async fn the_long_sleep_of_maintenance_sets_no_tokio_timer() {
        assert!(!maintenance_sleeps_by_tokio(TokioRuntime::new()).await);
    }

    #[tokio::test]
    async fn a_clock_that_is_paused_later_is_followed_on_request() {
        assert!(maintenance_sleeps_by_tokio(TokioRuntime::new().follows_paused_clock()).await);
    }

    #[test]
    fn blocking_on_a_tokio_thread_is_an_error_that_says_what_to_do() {
        let pool = units().build().unwrap();
        current_thread().block_on(async {
            let error = pool.acquire_blocking().unwrap_err();
            assert!(matches!(error, AcquireError::WouldBlockExecutor));
            assert!(error.to_string().contains("await acquire"), "{error}");
        });
        assert!(pool.acquire_blocking().is_ok());
    }

    #[test]
    fn a_static_pool_serves_one_tokio_runtime_after_the_other() {
        let log = Log::default();
        let pool = slow_numbers(&log).max(2).min(1).build().unwrap();
        for turn in 1..=3 {
            let tokio = current_thread();
            tokio.block_on(async {
                let lease = pool.acquire().await.unwrap();
                assert!(*lease >= turn);
                let other = pool.acquire_with(at_most(millis(60_000))).await.unwrap();
                cenote_pool::Lease::release(other).await;
                cenote_pool::Lease::release(lease).await;
            });
            // What was made there went with it.
            drop(tokio);
            assert_eq!(pool.status().total, 0, "turn {turn}");
        }
        let reason = DestroyReason::RuntimeGone;
        assert!(pool.counters().destroyed_for(reason) >= 3);
    }

    #[test]
    fn resources_without_io_may_outlive_their_tokio_runtime() {
        let log = Log::default();
        let runtime = TokioRuntime::new().resources_outlive_it();
        let pool = slow_numbers(&log).runtime(runtime).build().unwrap();
        for _ in 0..2 {
            current_thread().block_on(async {
                let lease = pool.acquire().await.unwrap();
                assert_eq!(*lease, 1);
                cenote_pool::Lease::release(lease).await;
            });
        }
        assert_eq!((log.made(), pool.status().idle), (1, 1));
    }

    #[test]
    fn a_lease_may_be_dropped_when_its_tokio_runtime_is_gone() {
        for keeps in [false, true] {
            let log = Log::default();
            let mut builder = slow_numbers(&log);
            if keeps {
                builder = builder.before_release(|_: &mut usize| true);
            }
            let runtime = TokioRuntime::new().resources_outlive_it();
            let pool = builder.runtime(runtime).build().unwrap();
            let tokio = current_thread();
            let lease = tokio.block_on(pool.acquire_owned()).unwrap();
            drop(tokio);
            std::thread::spawn(move || drop(lease)).join().unwrap();
            // The async half has nowhere to run, so the resource goes.
            let idle = usize::from(keeps);
            assert_eq!((pool.status().idle, pool.status().total), (idle, idle));
        }
    }

    #[test]
    fn an_owned_lease_may_be_dropped_when_pool_and_runtime_are_gone() {
        let log = Log::default();
        let gone = log.clone();
        let builder = slow_numbers(&log).destroy(move |number| gone.destroy(number));
        let pool = builder.build().unwrap();
        let tokio = current_thread();
        let lease: OwnedLease<_> = tokio.block_on(pool.acquire_owned()).unwrap();
        drop(pool);
        drop(tokio);
        assert_eq!(*lease, 1);
        drop(lease);
        assert_eq!(log.gone(), [1]);
    }

    #[test]
    fn a_handle_dropped_without_a_runtime_closes_the_pool() {
        let log = Log::default();
        let gone = log.clone();
        let builder = slow_numbers(&log).destroy(move |number| gone.destroy(number));
        let runtime = TokioRuntime::new().resources_outlive_it();
        let builder = builder.min(1).runtime(runtime);
        let pool = current_thread().block_on(builder.open()).unwrap();
        drop(pool);
        assert_eq!(log.gone(), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn within_ends_a_future_at_its_limit_and_not_before() {
        let tokio = TokioRuntime::new();
        let sleep = || tokio.sleep(tokio.now() + millis(100));
        assert_eq!(within(&tokio, Some(millis(99)), sleep()).await, None);
        assert_eq!(within(&tokio, Some(millis(101)), sleep()).await, Some(()));
        assert_eq!(within(&tokio, None, sleep()).await, Some(()));
        let ready = std::future::ready(1);
        assert_eq!(within(&super::Odd, Some(millis(0)), ready).await, Some(1));
    }
}

/// A runtime in which every method answers otherwise than its default does.
struct Odd;

impl Runtime for Odd {
    fn now(&self) -> Instant {
        ThreadRuntime::new().now() + millis(5000)
    }

    fn coarse_now(&self) -> u64 {
        7
    }

    fn sleep(&self, _: Instant) -> Task {
        Box::pin(std::future::pending())
    }

    fn sleep_aside(&self, _: Instant) -> Task {
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, mut task: Task) {
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
    }

    fn enter(&self, f: &mut dyn FnMut()) {
        f();
        f();
    }

    fn needs_driving(&self) -> bool {
        true
    }

    fn must_not_block(&self) -> bool {
        true
    }

    fn domain(&self) -> Option<u64> {
        Some(9)
    }
}

#[test]
fn shared_runtime_answers_as_the_one_inside() {
    let before = ThreadRuntime::new().now();
    let shared: Arc<dyn Runtime> = Arc::new(Odd);
    // As a pool takes it: a runtime of its own, whose every method has to be passed on.
    let runtime: &dyn Runtime = &shared;
    assert!(runtime.now() >= before + millis(5000));
    assert_eq!(runtime.coarse_now(), 7);
    let mut context = Context::from_waker(Waker::noop());
    let poll = |mut task: Task, cx: &mut Context<'_>| task.as_mut().poll(cx).is_ready();
    assert!(!poll(runtime.sleep(before), &mut context));
    assert!(poll(runtime.sleep_aside(before), &mut context));
    let (ran, runs) = (Arc::new(AtomicBool::new(false)), &mut 0);
    let seen = Arc::clone(&ran);
    runtime.spawn(Box::pin(async move { seen.store(true, Relaxed) }));
    assert!(ran.load(Relaxed));
    runtime.enter(&mut || *runs += 1);
    assert_eq!((*runs, runtime.domain()), (2, Some(9)));
    assert!(runtime.needs_driving() && runtime.must_not_block());
}

/// The hook's own park used up the token of the wake-up, and the thread slept for ever.
#[test]
fn h11_wake_is_not_lost_if_a_hook_parks_the_thread() {
    must_end(|| {
        let pool = Pool::from_fn(|| async {
            let mut is_first = true;
            std::future::poll_fn(move |cx| {
                if !std::mem::replace(&mut is_first, false) {
                    return Poll::Ready(Ok::<_, Infallible>(()));
                }
                let waker = cx.waker().clone();
                let waking = std::thread::spawn(move || waker.wake());
                waking.join().unwrap();
                std::thread::park_timeout(millis(1));
                Poll::Pending
            })
            .await
        })
        .runtime(ThreadRuntime::new())
        .build()
        .unwrap();
        drop(pool.acquire_blocking().unwrap());
    });
}

/// `Handle::enter` panicked in the destructor of a thread-local, which aborted the process.
#[test]
fn h7_lease_in_a_thread_local_outlives_its_closed_pool() {
    type Kept = OwnedLease<FnManager<usize, Oops>>;
    thread_local! {
        static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
    }

    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    for closes in [true, false] {
        let log = Log::default();
        let (make, gone) = (log.clone(), log.clone());
        let pool: FnPool<usize, Oops> = Pool::from_fn(move || {
            let number = make.make();
            async move { Ok(number) }
        })
        .max(2)
        .destroy_async(move |number| {
            let gone = gone.clone();
            async move {
                let _tokio = tokio::runtime::Handle::current();
                tokio::task::yield_now().await;
                gone.destroy(number);
            }
        })
        .before_release_async(async |number: &mut usize| {
            let _tokio = tokio::runtime::Handle::current();
            tokio::task::yield_now().await;
            *number != 2
        })
        .build()
        .unwrap();
        let leases = tokio.block_on(async {
            let leases = [pool.acquire_owned().await, pool.acquire_owned().await];
            leases.map(Result::unwrap)
        });
        let handle = tokio.handle().clone();
        let ended = std::thread::spawn(move || {
            // Locals are destroyed in the reverse order of their first use: Tokio's goes first.
            KEPT.with(|kept| kept.borrow_mut().extend(leases));
            drop(handle.enter());
        });
        if closes {
            tokio.block_on(pool.close()).unwrap();
        }
        ended.join().unwrap();
        let limit = std::time::Duration::from_secs(10);
        match closes {
            true => {
                tokio.block_on(pool.close_and_drain(limit)).unwrap();
                assert_eq!(log.gone().len(), 2);
            }
            false => {
                let again = tokio.block_on(async { [pool.acquire().await, pool.acquire().await] });
                assert!(again.iter().all(Result::is_ok));
                assert_eq!(log.gone(), [2]);
            }
        }
    }
}
