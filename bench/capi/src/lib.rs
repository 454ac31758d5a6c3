//! Checkouts in Rust, of a pool made of closures, for `bench.c` to compare with its own.

use std::convert::Infallible;
use std::ffi::c_long;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cenote_pool::{FnPool, Pool, ThreadRuntime};

/// Makes `rounds` checkouts of a pool without hooks.
#[unsafe(no_mangle)]
pub extern "C" fn rust_plain(rounds: c_long) {
    let pool: FnPool<u64, Infallible> = Pool::from_fn(|| async { Ok(0) })
        .runtime(ThreadRuntime::new())
        .build()
        .expect("valid");
    for _ in 0..rounds {
        *now(pool.acquire()).expect("idle") += 1;
    }
}

/// Makes `rounds` checkouts of a pool with hooks for acquire and release.
#[unsafe(no_mangle)]
pub extern "C" fn rust_hooks(rounds: c_long) {
    let pool: FnPool<u64, Infallible> = Pool::from_fn(|| async { Ok(0) })
        .runtime(ThreadRuntime::new())
        .before_acquire(|uses: &mut u64| black_box(*uses) < u64::MAX)
        .before_release(|uses: &mut u64| black_box(*uses) < u64::MAX)
        .build()
        .expect("valid");
    for _ in 0..rounds {
        *now(pool.acquire()).expect("idle") += 1;
    }
}

/// Makes `rounds` checkouts that block the thread while they wait, as those of C do.
#[unsafe(no_mangle)]
pub extern "C" fn rust_blocking(rounds: c_long) {
    let pool: FnPool<u64, Infallible> = Pool::from_fn(|| async { Ok(0) })
        .runtime(ThreadRuntime::new())
        .build()
        .expect("valid");
    for _ in 0..rounds {
        *pool.acquire_blocking().expect("idle") += 1;
    }
}

/// Returns the output of a future that is ready at its first poll.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("nobody else uses the pool"),
    }
}
