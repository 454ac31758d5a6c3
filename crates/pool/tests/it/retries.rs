//! Retries of failed creations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{AcquireError, Builder, ConsecutiveFailures, FnManager, Pool};

use crate::tools::*;

/// Creations fail with this error until the given one.
fn failing(
    manual: &Manual,
    error: &'static str,
    good: usize,
) -> (Arc<AtomicUsize>, Builder<FnManager<usize, Oops>>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let builder = Pool::from_fn(move || {
        let call = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if call < good {
                Err(Oops(error))
            } else {
                Ok(call)
            }
        }
    });
    let builder = builder.runtime(manual.clone()).max(2).retry_creations();
    let builder = builder.is_permanent(|error| error.0 == "login refused");
    (calls, builder)
}

#[test]
fn acquire_with_a_deadline_creates_until_it_succeeds() {
    let manual = Manual::new();
    let (calls, builder) = failing(&manual, "server starts", 4);
    let pool = builder.build().unwrap();
    let mut acquire = hand(pool.acquire_with(at_most(Duration::from_secs(5))));
    acquire.waits();
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a back-off comes first");
    // 100, 200 and 400 ms of back-off, or as little as half of it.
    for _ in 0..700 {
        manual.advance_millis(1);
        if let Poll::Ready(lease) = acquire.poll() {
            assert_eq!(*lease.unwrap(), 4);
            return;
        }
    }
    panic!("it was never served: {}", pool.status());
}

#[test]
fn permanent_error_is_not_retried() {
    let manual = Manual::new();
    let (calls, builder) = failing(&manual, "login refused", 4);
    let pool = builder.build().unwrap();
    let error = now(pool.acquire_with(at_most(Duration::from_secs(5)))).unwrap_err();
    assert!(matches!(error, AcquireError::Create(_)), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn acquire_without_a_deadline_ends_with_the_first_error() {
    let manual = Manual::new();
    let (_, builder) = failing(&manual, "server starts", 4);
    let pool = builder.build().unwrap();
    let error = now(pool.acquire()).unwrap_err();
    assert!(matches!(error, AcquireError::Create(_)), "{error}");
}

#[test]
fn try_acquire_ends_with_the_first_error() {
    let manual = Manual::new();
    let (_, builder) = failing(&manual, "server starts", 4);
    let pool = builder.acquire_timeout(Duration::from_secs(5)).build();
    let error = now(pool.unwrap().try_acquire()).unwrap_err();
    assert!(matches!(error, AcquireError::Create(_)), "{error}");
}

/// The error itself says more than a deadline that passed.
#[test]
fn deadline_before_the_back_off_ends_gives_the_error() {
    let manual = Manual::new();
    let (calls, builder) = failing(&manual, "server starts", 4);
    let builder = builder.backoff(Duration::from_secs(2), Duration::from_secs(2));
    let pool = builder.build().unwrap();
    let error = now(pool.acquire_with(at_most(millis(900)))).unwrap_err();
    assert!(matches!(error, AcquireError::Create(_)), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn breaker_that_opens_ends_the_retries() {
    let manual = Manual::new();
    let (calls, builder) = failing(&manual, "server starts", usize::MAX);
    let pool = builder
        .breaker(ConsecutiveFailures::new(2))
        .build()
        .unwrap();
    let mut acquire = hand(pool.acquire_with(at_most(Duration::from_secs(60))));
    acquire.waits();
    manual.advance_millis(100);
    let error = acquire.done().unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable(_)), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// A panic in the question counts as a yes.
#[test]
fn panic_in_is_permanent_ends_the_retries() {
    let manual = Manual::new();
    let (_, builder) = failing(&manual, "server starts", 4);
    let builder = builder.is_permanent(|_| panic!("expected"));
    let pool = builder.build().unwrap();
    let error = now(pool.acquire_with(at_most(Duration::from_secs(5)))).unwrap_err();
    assert!(matches!(error, AcquireError::Create(_)), "{error}");
}

#[test]
fn retries_need_a_back_off() {
    let manual = Manual::new();
    let (_, builder) = failing(&manual, "server starts", 4);
    let error = builder.no_backoff().build().unwrap_err();
    assert_eq!(error.field, "retry_creations");
}

/// Off by default: each failed creation has an acquire that gets its error.
#[test]
fn without_the_option_the_first_error_ends_an_acquire() {
    let (log, manual) = (Log::default(), Manual::new());
    let builder = numbers(&log, &manual).create(|| async { Err(Oops("down")) });
    let pool = builder.build().unwrap();
    let error = now(pool.acquire_with(at_most(Duration::from_secs(5)))).unwrap_err();
    assert!(
        matches!(error, AcquireError::Create(Oops("down"))),
        "{error}"
    );
}
