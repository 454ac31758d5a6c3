//! Deadlines and back-off pass wherever an acquire is polled, even if nobody drives Tokio.
#![cfg(feature = "tokio")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote_pool::{
    AcquireError, Builder, CloseError, FnManager, FnPool, OwnedLease, Phase, Pool, TokioRuntime,
};
use tokio::runtime::Runtime;

use crate::tools::*;

fn current_thread() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

type Held = OwnedLease<FnManager<(), Oops>>;

fn pool_of(create: Builder<FnManager<(), Oops>>) -> FnPool<(), Oops> {
    let runtime = TokioRuntime::new().resources_outlive_it();
    create.runtime(runtime).max(1).build().unwrap()
}

fn plain() -> Builder<FnManager<(), Oops>> {
    Pool::from_fn(|| async { Ok(()) })
}

/// A pool whose only resource is out and whose maintenance task lives on this runtime.
fn busy_pool(tokio: &Runtime) -> (FnPool<(), Oops>, Held) {
    let pool = pool_of(plain());
    let lease = tokio.block_on(async {
        let lease = pool.acquire_owned().await.unwrap();
        let late = pool.acquire_with(at_most(millis(1))).await;
        assert!(matches!(late, Err(AcquireError::Timeout(_))));
        lease
    });
    (pool, lease)
}

fn times_out(pool: &FnPool<(), Oops>) {
    let late = smol::block_on(pool.acquire_with(at_most(millis(20))));
    assert!(matches!(late, Err(AcquireError::Timeout(_))));
}

#[test]
fn h5_deadline_passes_on_an_undriven_runtime() {
    must_end(|| {
        let tokio = current_thread();
        let (pool, _lease) = busy_pool(&tokio);
        times_out(&pool);
    });
}

#[test]
fn h5_deadline_passes_after_tokio_was_dropped() {
    must_end(|| {
        let tokio = current_thread();
        let (pool, _lease) = busy_pool(&tokio);
        drop(tokio);
        times_out(&pool);
        times_out(&pool);
    });
}

#[test]
fn h5_deadline_passes_under_the_guard_of_an_idle_runtime() {
    must_end(|| {
        let tokio = current_thread();
        let _guard = tokio.enter();
        let pool = pool_of(plain());
        let _lease = smol::block_on(pool.acquire()).unwrap();
        times_out(&pool);
    });
}

#[test]
fn h5_deadline_passes_in_a_task_that_blocks_its_runtime() {
    must_end(|| {
        let tokio = current_thread();
        let (pool, _lease) = busy_pool(&tokio);
        tokio.block_on(async { times_out(&pool) });
        let inner = pool.clone();
        let task = tokio.spawn(async move { times_out(&inner) });
        tokio.block_on(task).unwrap();
    });
}

#[test]
fn h5_deadline_of_a_hook_passes_on_an_undriven_runtime() {
    must_end(|| {
        let tokio = current_thread();
        let hangs = async |(): &mut ()| std::future::pending::<()>().await;
        let pool = pool_of(plain().before_acquire_async(hangs));
        tokio.block_on(async { drop(pool.acquire().await.unwrap()) });
        let late = smol::block_on(pool.acquire_with(at_most(millis(20))));
        let Err(AcquireError::Timeout(timeout)) = late else {
            panic!("not a timeout");
        };
        assert_eq!(timeout.phase, Phase::Checking);
    });
}

#[test]
fn h5_drain_ends_in_time_on_an_undriven_runtime() {
    must_end(|| {
        let tokio = current_thread();
        let (pool, lease) = busy_pool(&tokio);
        let _guard = tokio.enter();
        let closed = smol::block_on(pool.close_and_drain(millis(20)));
        let Err(CloseError { still_in_use, .. }) = closed else {
            panic!("a lease is out");
        };
        assert_eq!(still_in_use, 1);
        drop(lease);
    });
}

/// The first creation fails; the acquire waits for the back-off without a deadline.
fn waits_for_back_off(drops_tokio: bool) {
    must_end(move || {
        let tokio = current_thread();
        let tries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let pool = pool_of(Pool::from_fn(move || {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match first {
                    true => Err(Oops("down")),
                    false => Ok(()),
                }
            }
        }));
        let failed = tokio.block_on(pool.acquire_owned());
        assert!(matches!(failed, Err(AcquireError::Create(Oops("down")))));
        let tokio = (!drops_tokio).then_some(tokio);
        drop(smol::block_on(pool.acquire()).unwrap());
        assert_eq!(tries.load(Ordering::SeqCst), 2);
        drop(tokio);
    });
}

#[test]
fn h6_back_off_ends_on_an_undriven_runtime() {
    waits_for_back_off(false);
}

#[test]
fn h6_back_off_ends_after_tokio_was_dropped() {
    waits_for_back_off(true);
}

#[test]
fn blocking_is_allowed_where_no_task_is_polled() {
    must_end(|| {
        let tokio = current_thread();
        let pool = pool_of(plain());
        {
            let _guard = tokio.enter();
            drop(pool.acquire_blocking().unwrap());
        }
        tokio.block_on(async {
            assert!(matches!(
                pool.acquire_blocking(),
                Err(AcquireError::WouldBlockExecutor)
            ));
            let inner = pool.clone();
            let on_thread = tokio::task::spawn_blocking(move || {
                drop(inner.acquire_blocking().unwrap());
            });
            on_thread.await.unwrap();
            // Asking has cost the task nothing of its budget.
            assert!(tokio::task::coop::has_budget_remaining());
        });
        let many = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        many.block_on(async {
            assert!(pool.acquire_blocking().is_err());
            tokio::task::block_in_place(|| drop(pool.acquire_blocking().unwrap()));
        });
    });
}

#[test]
fn limit_ends_a_future_that_uses_up_every_tokio_budget() {
    must_end(|| {
        let tokio = current_thread();
        let endless = async {
            loop {
                // Pending at every 128th turn, and woken at once.
                tokio::task::coop::consume_budget().await;
            }
        };
        let task = tokio.spawn(async {
            let runtime = TokioRuntime::new();
            let never: Option<()> = cenote_pool::within(&runtime, Some(millis(5)), endless).await;
            never
        });
        assert_eq!(tokio.block_on(task).unwrap(), None);
    });
}
