//! What errors and the status say to people.

use std::error::Error;
use std::fmt;

use cenote_pool::{AcquireError, ConsecutiveFailures, Pool};

use crate::tools::*;

/// An error with a cause of its own.
#[derive(Debug)]
struct Refused(Oops);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("login refused")
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// An error with all its sources, as a log prints it.
fn report(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn status_says_how_many_are_open() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 5);
    let leases: Vec<_> = (0..5).map(|_| now(pool.acquire()).unwrap()).collect();
    let mut waiter = hand(pool.acquire());
    waiter.waits();
    let status = pool.status().to_string();
    assert_eq!(status, "5 of 5 open: 0 idle, 5 busy, 0 opening; 1 waiting");
    drop(leases);
    let status = pool.status().to_string();
    let expected = "5 of 5 open: 5 idle (1 reserved), 0 busy, 0 opening; 0 waiting";
    assert_eq!(status, expected);
    drop(waiter);
    let status = pool.status().to_string();
    assert_eq!(status, "5 of 5 open: 5 idle, 0 busy, 0 opening; 0 waiting");
    pool.open_breaker();
    now(pool.close()).unwrap();
    let status = pool.status().to_string();
    let expected = "0 of 5 open: 0 idle, 0 busy, 0 opening; 0 waiting; breaker open; closed";
    assert_eq!(status, expected);
}

#[test]
fn error_names_its_cause_once() {
    let builder = || {
        Pool::from_fn(|| async { Err::<(), _>(Refused(Oops("no such user"))) })
            .runtime(Manual::new())
            .min(1)
    };
    let pool = builder().build().unwrap();
    let error = now(pool.acquire()).unwrap_err();
    let expected = "creating a resource failed: login refused: no such user";
    assert_eq!(report(&error), expected);
    assert_eq!(
        error.to_string(),
        "creating a resource failed: login refused"
    );
    let error = now(builder().open()).unwrap_err();
    let expected =
        "opening the pool failed: creating a resource failed: login refused: no such user";
    assert_eq!(report(&error), expected);
    let error = now(builder().max(0).open()).unwrap_err();
    assert_eq!(
        report(&error),
        "invalid setting: max is 0, but it must be at least 1"
    );

    let pool = Pool::from_fn(|| async { Ok(()) })
        .destroy(|()| Err(Refused(Oops("stuck"))))
        .runtime(Manual::new())
        .build()
        .unwrap();
    drop(now(pool.acquire()).unwrap());
    let error = now(pool.close()).unwrap_err();
    let expected = "the pool is closed, but 1 destructor failed: \
                    destroying a resource failed: login refused: stuck";
    assert_eq!(report(&error), expected);
}

#[test]
fn open_breaker_says_when_the_next_attempt_is() {
    let manual = Manual::new();
    let strategy = ConsecutiveFailures::new(3).with_cool_down(millis(300));
    let pool = Pool::from_fn(|| async { Err::<(), _>(Oops("down")) })
        .runtime(manual.clone())
        .no_backoff()
        .breaker(strategy)
        .build()
        .unwrap();
    for _ in 0..3 {
        assert!(matches!(now(pool.acquire()), Err(AcquireError::Create(_))));
    }
    manual.advance_millis(20);
    let error = now(pool.acquire()).unwrap_err();
    let AcquireError::Unavailable(unavailable) = &error else {
        panic!("{error}");
    };
    assert_eq!(unavailable.failures, 3);
    assert_eq!(unavailable.retry_in, Some(millis(280)));
    let expected = "circuit breaker open after 3 failures, next attempt in 280 ms";
    assert_eq!(report(&error), expected);
    pool.open_breaker();
    let error = now(pool.acquire()).unwrap_err();
    assert_eq!(error.to_string(), "circuit breaker open, opened by hand");
}

#[test]
fn half_open_breaker_says_that_its_probe_is_under_way() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = numbers(&log, &manual).max(2);
    let pool = pool.breaker(ConsecutiveFailures::new(3)).build().unwrap();
    pool.half_open_breaker();
    let _probe = now(pool.acquire()).unwrap();
    let error = now(pool.acquire()).unwrap_err();
    let expected = "circuit breaker half-open, its probes are under way; try again later";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn timeout_says_how_many_are_in_use() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let _leases = [now(pool.acquire()).unwrap(), now(pool.acquire()).unwrap()];
    let limit = std::time::Duration::from_secs(30);
    let (mut late, mut other) = (
        hand(pool.acquire_with(at_most(limit))),
        hand(pool.acquire()),
    );
    late.waits();
    other.waits();
    manual.advance(std::time::Duration::from_nanos(29_999_999_991));
    manual.advance(std::time::Duration::from_nanos(9));
    let error = late.done().unwrap_err().to_string();
    let expected = "timed out after 30 s waiting for a resource (2 of 2 in use, 1 waiting); #1 held for 30 s by ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn one_place_is_singular() {
    let (log, manual) = (Log::default(), Manual::new());
    let pool = number_pool(&log, &manual, 2);
    let mut leases = vec![
        now(pool.acquire_owned()).unwrap(),
        now(pool.acquire_owned()).unwrap(),
    ];
    let mut closing = hand(pool.close_and_drain(millis(10)));
    closing.waits();
    manual.advance_millis(10);
    let error = closing.done().unwrap_err();
    assert!(
        error.to_string().contains("2 places were still in use; "),
        "{error}"
    );
    drop(leases.pop());
    let mut closing = hand(pool.close_and_drain(millis(10)));
    closing.waits();
    manual.advance_millis(10);
    let error = closing.done().unwrap_err();
    assert!(
        error.to_string().contains("1 place was still in use; "),
        "{error}"
    );
}

#[cfg(feature = "tokio")]
#[test]
fn missing_tokio_runtime_is_named() {
    let pool = Pool::from_fn(|| tokio::net::TcpStream::connect("127.0.0.1:9"))
        .build()
        .unwrap();
    let error = pool.acquire_blocking().unwrap_err();
    let expected = "creating a resource failed: needs a Tokio runtime: acquire inside one, \
                    or build the pool with a runtime that enters one";
    assert_eq!(error.to_string(), expected);

    let without_io = tokio::runtime::Builder::new_current_thread().build();
    let error = without_io
        .unwrap()
        .block_on(async { pool.acquire().await.map(drop) })
        .unwrap_err();
    let expected = "creating a resource failed: needs a Tokio runtime with I/O and timers: \
                    call enable_all on its builder";
    assert_eq!(error.to_string(), expected);
}
