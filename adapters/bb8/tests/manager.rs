//! A bb8 manager behaves on cenote-pool as on its own pool, and checks less if asked to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bb8::ManageConnection;
use cenote_bb8::FromBb8;
use cenote_pool::{AcquireError, DestroyReason, Pool, TokioRuntime};

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server refused")
    }
}

impl std::error::Error for Refused {}

#[derive(Default)]
struct Calls {
    checks: AtomicUsize,
    invalid: AtomicBool,
    fail_connect: AtomicBool,
}

struct Lines(Arc<Calls>);

/// A connection that says whether it is broken.
struct Line {
    broken: bool,
}

impl ManageConnection for Lines {
    type Connection = Line;
    type Error = Refused;

    async fn connect(&self) -> Result<Line, Refused> {
        match self.0.fail_connect.load(Ordering::SeqCst) {
            true => Err(Refused),
            false => Ok(Line { broken: false }),
        }
    }

    async fn is_valid(&self, _: &mut Line) -> Result<(), Refused> {
        self.0.checks.fetch_add(1, Ordering::SeqCst);
        match self.0.invalid.load(Ordering::SeqCst) {
            true => Err(Refused),
            false => Ok(()),
        }
    }

    fn has_broken(&self, line: &mut Line) -> bool {
        line.broken
    }
}

fn pool(calls: &Arc<Calls>) -> Pool<FromBb8<Lines>> {
    let builder = Pool::builder(FromBb8::new(Lines(Arc::clone(calls)))).max(1);
    builder.build().expect("valid")
}

#[tokio::test]
async fn every_acquire_of_an_idle_connection_checks_it() {
    let calls = Arc::new(Calls::default());
    let own = bb8::Pool::builder().max_size(1).min_idle(0);
    let theirs = Arc::new(Calls::default());
    let own = own.build(Lines(Arc::clone(&theirs))).await.expect("valid");
    let pool = pool(&calls);
    // The first acquire creates the connection; bb8 checks a new one too.
    drop(own.get().await.expect("a line"));
    drop(pool.acquire().await.expect("a line"));
    let (before_theirs, before) = (
        theirs.checks.load(Ordering::SeqCst),
        calls.checks.load(Ordering::SeqCst),
    );
    assert_eq!(before, 0);
    for _ in 0..3 {
        drop(own.get().await.expect("a line"));
        drop(pool.acquire().await.expect("a line"));
    }
    assert_eq!(theirs.checks.load(Ordering::SeqCst) - before_theirs, 3);
    assert_eq!(calls.checks.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn invalid_connection_is_replaced_in_the_same_acquire() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    drop(pool.acquire().await.expect("a line"));
    calls.invalid.store(true, Ordering::SeqCst);
    drop(pool.acquire().await.expect("a new line"));
    assert_eq!(pool.counters().created, 2);
    assert_eq!(
        pool.counters()
            .destroyed_for(DestroyReason::AcquireRejected),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn check_after_spares_connections_in_recent_use() {
    let calls = Arc::new(Calls::default());
    let manager = FromBb8::new(Lines(Arc::clone(&calls))).check_after(Duration::from_secs(1));
    let pool = Pool::builder(manager)
        .max(1)
        .runtime(TokioRuntime::new().follows_paused_clock())
        .build()
        .expect("valid");
    for _ in 0..3 {
        drop(pool.acquire().await.expect("a line"));
    }
    assert_eq!(calls.checks.load(Ordering::SeqCst), 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(pool.acquire().await.expect("a line"));
    assert_eq!(calls.checks.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn broken_connection_is_destroyed_on_release() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    pool.acquire().await.expect("a line").broken = true;
    assert_eq!(pool.status().total, 0);
    assert_eq!(
        pool.counters()
            .destroyed_for(DestroyReason::ReleaseRejected),
        1
    );
}

#[tokio::test]
async fn connection_of_a_panicked_holder_is_destroyed() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    let holder = tokio::spawn({
        let pool = pool.clone();
        async move {
            let _line = pool.acquire().await.expect("a line");
            panic!("on purpose");
        }
    });
    assert!(holder.await.is_err());
    assert_eq!(pool.status().total, 0);
}

#[tokio::test]
async fn error_of_connect_reaches_the_caller_at_once() {
    let calls = Arc::new(Calls::default());
    calls.fail_connect.store(true, Ordering::SeqCst);
    let error = pool(&calls).acquire().await.err().expect("connect fails");
    assert!(matches!(error, AcquireError::Create(Refused)), "{error:?}");
}

/// Its error is not an `Error`.
struct Plain;

impl ManageConnection for Plain {
    type Connection = ();
    type Error = String;

    async fn connect(&self) -> Result<(), String> {
        Err("no room".to_owned())
    }

    async fn is_valid(&self, (): &mut ()) -> Result<(), String> {
        Ok(())
    }

    fn has_broken(&self, (): &mut ()) -> bool {
        false
    }
}

#[tokio::test]
async fn errors_that_are_no_errors_are_converted() {
    let manager = FromBb8::map_errors(Plain, std::io::Error::other::<String>);
    let pool = Pool::builder(manager).build().expect("valid");
    let error = pool.acquire().await.expect_err("connect fails");
    assert!(error.to_string().contains("no room"), "{error}");
}
