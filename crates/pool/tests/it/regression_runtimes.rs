//! Guards the pool's dealings with executors: wakers that are anybody's code, and
//! runtimes that die, stand still, or are not the one that the caller is on.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use cenote_pool::{FnPool, Lease};

use crate::tools::*;

/// Every look at `closed` that was given up used to leave its waker in the pool.
#[test]
fn a_wait_for_the_close_that_is_given_up_leaves_no_waker_behind() {
    struct Idle;

    impl Wake for Idle {
        fn wake(self: Arc<Self>) {}
    }

    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 1);
    for _ in 0..100 {
        let idle = Arc::new(Idle);
        let waker = Waker::from(Arc::clone(&idle));
        let mut closed = Box::pin(pool.closed());
        let polled = closed.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        drop(closed);
        drop(waker);
        assert_eq!(Arc::strong_count(&idle), 1);
    }
}

thread_local! {
    /// The pool that this thread's nosy wakers look at.
    static WATCHED: RefCell<Option<FnPool<usize, Oops>>> = const { RefCell::new(None) };
}

/// A waker that looks at the pool whatever is done with it.
static NOSY: RawWakerVTable = RawWakerVTable::new(
    |_| {
        look();
        RawWaker::new(std::ptr::null(), &NOSY)
    },
    |_| look(),
    |_| look(),
    |_| look(),
);

fn look() {
    WATCHED.with_borrow(|pool| {
        let _ = pool.as_ref().map(FnPool::status);
    });
}

/// A waker that took another one's place, or that of an acquire whose hook refused,
/// used to be cloned under the pool's lock, which the waker's own code may need.
#[test]
fn waker_may_look_at_the_pool_when_cloned_used_or_dropped() {
    must_end(|| {
        let (log, manual) = (Log::default(), Manual::new());
        let builder = numbers(&log, &manual).max(1);
        let pool = builder.before_acquire(|_: &mut usize| false);
        let pool = pool.build().unwrap();
        WATCHED.set(Some(pool.clone()));
        // SAFETY: its functions do not use the pointer and may be called anywhere.
        let nosy = unsafe { Waker::new(std::ptr::null(), &NOSY) };
        let mut nosy = Context::from_waker(&nosy);
        let mut plain = Context::from_waker(Waker::noop());
        drop(now(pool.acquire()).unwrap());
        // Refused by the hook, and on with a new one.
        let mut refused = Box::pin(pool.acquire());
        let Poll::Ready(Ok(lease)) = refused.as_mut().poll(&mut nosy) else {
            panic!("there is a place");
        };
        // Polled by one task, then by another.
        let mut waiters = [(); 3].map(|()| Box::pin(pool.acquire()));
        for waiter in &mut waiters {
            assert!(waiter.as_mut().poll(&mut nosy).is_pending());
            assert!(waiter.as_mut().poll(&mut plain).is_pending());
            assert!(waiter.as_mut().poll(&mut nosy).is_pending());
        }
        let [mut first, cancelled, _last] = waiters;
        drop(cancelled);
        Lease::discard(lease);
        assert!(first.as_mut().poll(&mut nosy).is_ready());
        WATCHED.set(None);
    });
}

/// Only waiters with a deadline used to learn that the maintenance task was gone; the one
/// who waits for the back-off needs it as well.
#[test]
fn a_waiter_in_back_off_outlives_the_maintenance_executor() {
    let (log, manual) = (Log::default(), Manual::new());
    let make = log.clone();
    let pool = numbers(&log, &manual)
        .create(move || {
            let number = make.make();
            async move {
                match number {
                    1 => Err(Oops("down")),
                    _ => Ok(number),
                }
            }
        })
        .max(1)
        .build()
        .unwrap();
    assert!(now(pool.acquire()).is_err());
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    manual.run();
    manual.die();
    manual.revive();
    if waiter.is_woken() {
        waiter.waits();
    }
    manual.advance_millis(60_000);
    assert!(waiter.is_woken(), "{}", pool.status());
    assert_eq!(*waiter.waits_for(&manual).unwrap(), 2);
}

/// What a live Tokio runtime must do, and one that is gone or stands still cannot.
#[cfg(feature = "tokio")]
mod on_tokio {
    use std::convert::Infallible;
    use std::sync::mpsc::channel;

    use cenote_pool::{AcquireError, Builder, FnManager, OwnedLease, Pool};
    use tokio::runtime::{Builder as TokioBuilder, Runtime};

    use super::*;

    fn current_thread() -> Runtime {
        let mut builder = TokioBuilder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    fn one_worker() -> Runtime {
        let mut builder = TokioBuilder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().unwrap()
    }

    /// Ends only where there is a Tokio runtime with timers.
    async fn needs_tokio() {
        let late = tokio::time::timeout(millis(1), std::future::pending::<()>()).await;
        assert!(late.is_err());
    }

    /// Resources that only Tokio can make.
    fn tokio_numbers() -> Builder<FnManager<usize, Infallible>> {
        Pool::from_fn(|| async {
            needs_tokio().await;
            Ok(1)
        })
    }

    /// Waits in vain on a plain thread.
    fn blocking_times_out(pool: &FnPool<usize, Infallible>) {
        let pool = pool.clone();
        must_end(move || {
            let late = pool.acquire_blocking_with(at_most(millis(20)));
            assert!(matches!(late, Err(AcquireError::Timeout(_))));
        });
    }

    /// The deadline used to be the business of a maintenance task that nobody polled.
    #[test]
    fn a_blocking_acquire_times_out_on_an_undriven_runtime() {
        let tokio = current_thread();
        let pool = tokio_numbers().max(1).build().unwrap();
        let lease = tokio.block_on(pool.acquire_owned()).unwrap();
        blocking_times_out(&pool);
        drop(lease);
    }

    /// As above; here the maintenance task's runtime does not exist any more.
    #[test]
    fn a_blocking_acquire_times_out_when_the_runtime_is_gone() {
        let tokio = one_worker();
        let pool = tokio_numbers().max(1).build().unwrap();
        let lease = tokio.block_on(pool.acquire_owned()).unwrap();
        drop(tokio);
        blocking_times_out(&pool);
        drop(lease);
    }

    /// The maintenance task lives on the first runtime, which nobody drives; a waiter on the
    /// second one used to wait for ever.
    #[test]
    fn acquire_times_out_while_maintenance_is_blocked_elsewhere() {
        let first = current_thread();
        let pool = tokio_numbers().max(1).build().unwrap();
        let lease = first.block_on(async {
            let lease = pool.acquire_owned().await.unwrap();
            assert!(pool.acquire_with(at_most(millis(10))).await.is_err());
            lease
        });
        let waiting = pool.clone();
        must_end(move || {
            let late = current_thread().block_on(waiting.acquire_with(at_most(millis(20))));
            assert!(matches!(late, Err(AcquireError::Timeout(_))));
        });
        drop(lease);
    }

    /// A factory polled on a plain thread used to panic for want of a runtime.
    #[test]
    fn blocking_acquire_creates_in_the_runtime_that_the_pool_knows() {
        let tokio = one_worker();
        let pool = tokio_numbers().max(2).build().unwrap();
        let held = tokio.block_on(pool.acquire_owned()).unwrap();
        let inner = pool.clone();
        must_end(move || drop(inner.acquire_blocking().unwrap()));
        assert_eq!(pool.status().total, 2);
        drop(held);
    }

    /// As above, for the destructor of a lease that a plain thread gives up.
    #[test]
    fn a_destructor_runs_in_the_runtime_that_the_pool_knows() {
        let (tokio, (send, destroyed)) = (one_worker(), channel());
        let pool = tokio_numbers()
            .destroy_async(move |number| {
                let send = send.clone();
                async move {
                    needs_tokio().await;
                    send.send(number).unwrap();
                }
            })
            .max(2)
            .build()
            .unwrap();
        let held = tokio.block_on(pool.acquire_owned()).unwrap();
        must_end(move || OwnedLease::discard(held));
        assert_eq!(destroyed.recv_timeout(millis(10_000)), Ok(1));
    }
}
