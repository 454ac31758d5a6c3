//! Blocking managers on cenote-pool: nothing of theirs runs on a thread of the async runtime.

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::Duration;

use cenote_pool::{DestroyReason, Pool, ThreadRuntime, TokioRuntime};
use cenote_r2d2::{FromR2d2, run};
use r2d2::ManageConnection;

/// Panics on a thread of an async runtime, as clients do that drive a runtime of their own.
fn block() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().expect("a runtime");
    runtime.block_on(async {});
}

#[derive(Default)]
struct Calls {
    checks: AtomicUsize,
    dropped: AtomicUsize,
    invalid: AtomicBool,
}

struct Lines(Arc<Calls>);

struct Line {
    calls: Arc<Calls>,
    broken: bool,
}

impl Line {
    fn send(&mut self) -> u32 {
        block();
        42
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        block();
        self.calls.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl ManageConnection for Lines {
    type Connection = Line;
    type Error = std::io::Error;

    fn connect(&self) -> std::io::Result<Line> {
        block();
        let calls = Arc::clone(&self.0);
        Ok(Line {
            calls,
            broken: false,
        })
    }

    fn is_valid(&self, _: &mut Line) -> std::io::Result<()> {
        block();
        self.0.checks.fetch_add(1, Ordering::SeqCst);
        match self.0.invalid.load(Ordering::SeqCst) {
            true => Err(std::io::Error::other("no answer")),
            false => Ok(()),
        }
    }

    fn has_broken(&self, line: &mut Line) -> bool {
        line.broken
    }
}

fn pool(calls: &Arc<Calls>) -> Pool<FromR2d2<Lines>> {
    let builder = Pool::builder(FromR2d2::new(Lines(Arc::clone(calls)))).max(1);
    builder.build().expect("valid")
}

async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), reached).await;
    waited.expect("the condition comes true");
}

#[tokio::test]
async fn connect_check_use_and_drop_may_block() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    assert_eq!(run(&pool, Line::send).await.expect("it runs"), 42);
    assert_eq!(run(&pool, Line::send).await.expect("it runs"), 42);
    assert_eq!(calls.checks.load(Ordering::SeqCst), 1);
    assert_eq!(pool.counters().created, 1);

    calls.invalid.store(true, Ordering::SeqCst);
    assert_eq!(run(&pool, Line::send).await.expect("on a new one"), 42);
    assert_eq!(
        pool.counters()
            .destroyed_for(DestroyReason::AcquireRejected),
        1
    );
    pool.close().await.expect("it closes");
    until(|| calls.dropped.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn detached_connection_is_dropped_where_it_may_block() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    let lease = pool.acquire().await.expect("a line");
    let (connection, place) = cenote_pool::Lease::detach(lease);
    drop((connection, place));
    until(|| calls.dropped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn dropped_run_ends_its_work_and_returns_the_connection() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    run(&pool, Line::send).await.expect("it runs");
    let (resume, resumed) = mpsc::channel();
    let (began, begun) = mpsc::channel();
    let work = run(&pool, move |line: &mut Line| {
        began.send(()).expect("the test waits");
        resumed.recv().expect("the test resumes it");
        line.send()
    });
    let mut work = Box::pin(work);
    let mut cx = Context::from_waker(Waker::noop());
    let started = async {
        while begun.try_recv().is_err() {
            assert!(work.as_mut().poll(&mut cx).is_pending());
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), started).await;
    waited.expect("the work begins");
    drop(work);
    assert_eq!(pool.status().active, 1);
    resume.send(()).expect("the work waits");
    until(|| pool.status().idle == 1).await;
    assert_eq!(calls.dropped.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn panic_of_the_work_resumes_and_costs_the_connection() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    let inner = pool.clone();
    let panicked = tokio::spawn(async move {
        let work = |_: &mut Line| -> u32 { panic!("on purpose") };
        run(&inner, work).await
    });
    let payload = panicked.await.expect_err("it panics").into_panic();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    until(|| pool.status().total == 0).await;
}

#[tokio::test]
async fn broken_connection_is_destroyed_on_release() {
    let calls = Arc::new(Calls::default());
    let pool = pool(&calls);
    let breaks = run(&pool, |line: &mut Line| line.broken = true);
    breaks.await.expect("it runs");
    until(|| {
        pool.counters()
            .destroyed_for(DestroyReason::ReleaseRejected)
            == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn check_after_spares_connections_in_recent_use() {
    let calls = Arc::new(Calls::default());
    let manager = FromR2d2::new(Lines(Arc::clone(&calls))).check_after(Duration::from_secs(1));
    let pool = Pool::builder(manager)
        .max(1)
        .runtime(TokioRuntime::new().follows_paused_clock())
        .build()
        .expect("valid");
    for _ in 0..3 {
        run(&pool, Line::send).await.expect("it runs");
    }
    assert_eq!(calls.checks.load(Ordering::SeqCst), 0);
    tokio::time::advance(Duration::from_secs(2)).await;
    run(&pool, Line::send).await.expect("it runs");
    assert_eq!(calls.checks.load(Ordering::SeqCst), 1);
}

#[test]
fn plain_threads_need_no_async_runtime() {
    let calls = Arc::new(Calls::default());
    let manager = FromR2d2::new(Lines(Arc::clone(&calls)));
    let pool = Pool::builder(manager).max(1).runtime(ThreadRuntime::new());
    let pool = pool.build().expect("valid");
    let workers = (0..4).map(|_| {
        let pool = pool.clone();
        std::thread::spawn(move || pool.acquire_blocking().expect("a line").send())
    });
    for worker in workers.collect::<Vec<_>>() {
        assert_eq!(worker.join().expect("no panic"), 42);
    }
    assert_eq!(pool.counters().created, 1);
}

/// An error that is not `Sync`.
#[derive(Debug)]
struct Local(std::cell::Cell<u8>);

impl std::fmt::Display for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}", self.0.get())
    }
}

impl std::error::Error for Local {}

struct Failing;

impl ManageConnection for Failing {
    type Connection = Infallible;
    type Error = Local;

    fn connect(&self) -> Result<Infallible, Local> {
        Err(Local(std::cell::Cell::new(3)))
    }

    fn is_valid(&self, never: &mut Infallible) -> Result<(), Local> {
        match *never {}
    }

    fn has_broken(&self, never: &mut Infallible) -> bool {
        match *never {}
    }
}

#[tokio::test]
async fn errors_that_cannot_change_threads_are_converted() {
    let manager = FromR2d2::map_errors(Failing, |error| std::io::Error::other(error.to_string()));
    let pool = Pool::builder(manager).build().expect("valid");
    let error = pool.acquire().await.expect_err("connect fails");
    assert!(error.to_string().contains("code 3"), "{error}");
}
