//! A deadpool manager behaves on cenote-pool as on its own pool.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote_deadpool::FromDeadpool;
use cenote_pool::{AcquireError, DestroyReason, Pool};
use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server refused")
    }
}

impl Error for Refused {}

/// What the manager was called with.
#[derive(Default)]
struct Calls {
    metrics: Mutex<Vec<Metrics>>,
    detached: AtomicUsize,
    refuse: AtomicBool,
    fail_create: AtomicBool,
}

struct Numbers(Arc<Calls>);

impl managed::Manager for Numbers {
    type Type = u64;
    type Error = Refused;

    async fn create(&self) -> Result<u64, Refused> {
        match self.0.fail_create.load(Ordering::SeqCst) {
            true => Err(Refused),
            false => Ok(7),
        }
    }

    async fn recycle(&self, _: &mut u64, metrics: &Metrics) -> RecycleResult<Refused> {
        self.0.metrics.lock().expect("no panic").push(*metrics);
        match self.0.refuse.load(Ordering::SeqCst) {
            true => Err(RecycleError::message("worn out")),
            false => Ok(()),
        }
    }

    fn detach(&self, _: &mut u64) {
        self.0.detached.fetch_add(1, Ordering::SeqCst);
    }
}

fn counts(calls: &Calls) -> Vec<(usize, bool)> {
    let metrics = calls.metrics.lock().expect("no panic");
    let described = metrics
        .iter()
        .map(|it| (it.recycle_count, it.recycled.is_some()));
    described.collect()
}

#[tokio::test]
async fn metrics_count_as_on_the_own_pool_of_deadpool() {
    let (theirs, ours) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let own = managed::Pool::<Numbers>::builder(Numbers(Arc::clone(&theirs)));
    let own = own.max_size(1).build().expect("valid");
    let pool = Pool::builder(FromDeadpool::new(Numbers(Arc::clone(&ours)))).max(1);
    let pool = pool.build().expect("valid");
    for _ in 0..4 {
        drop(own.get().await.expect("a number"));
        assert_eq!(*pool.acquire().await.expect("a number"), 7);
    }
    assert_eq!(counts(&theirs), [(0, false), (1, true), (2, true)]);
    assert_eq!(counts(&ours), counts(&theirs));

    let metrics = ours.metrics.lock().expect("no panic");
    let recycled = metrics[2].recycled.expect("used before");
    assert!(recycled + Duration::from_millis(50) >= metrics[2].created);
    assert_eq!(metrics[0].created, metrics[2].created);
}

#[tokio::test]
async fn refused_resource_is_detached_and_replaced() {
    let calls = Arc::new(Calls::default());
    let pool = Pool::builder(FromDeadpool::new(Numbers(Arc::clone(&calls)))).max(1);
    let pool = pool.build().expect("valid");
    drop(pool.acquire().await.expect("a number"));
    calls.refuse.store(true, Ordering::SeqCst);
    drop(pool.acquire().await.expect("a new number"));
    assert_eq!(calls.detached.load(Ordering::SeqCst), 1);
    assert_eq!(pool.counters().created, 2);
    assert_eq!(
        pool.counters()
            .destroyed_for(DestroyReason::AcquireRejected),
        1
    );
}

#[tokio::test]
async fn error_of_create_reaches_the_caller() {
    let calls = Arc::new(Calls::default());
    calls.fail_create.store(true, Ordering::SeqCst);
    let pool = Pool::builder(FromDeadpool::new(Numbers(calls)))
        .build()
        .expect("valid");
    let error = pool.acquire().await.expect_err("create fails");
    let AcquireError::Create(cenote_deadpool::Error::Backend(Refused)) = &error else {
        panic!("{error:?}");
    };
    assert!(error.to_string().contains("the server refused"), "{error}");
}

#[tokio::test]
async fn health_check_recycles_idle_resources() {
    let calls = Arc::new(Calls::default());
    let pool = Pool::builder(FromDeadpool::new(Numbers(Arc::clone(&calls))))
        .max(1)
        .healthcheck_interval(Duration::from_secs(3600))
        .build()
        .expect("valid");
    drop(pool.acquire().await.expect("a number"));
    calls.refuse.store(true, Ordering::SeqCst);
    pool.check_idle();
    let unhealthy = async {
        while pool.counters().destroyed_for(DestroyReason::Unhealthy) == 0 {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), unhealthy).await;
    waited.expect("the idle resource is checked");
    assert_eq!(calls.detached.load(Ordering::SeqCst), 1);
}

/// Its error is not an `Error`.
struct Plain;

impl managed::Manager for Plain {
    type Type = u64;
    type Error = String;

    async fn create(&self) -> Result<u64, String> {
        Err("no room".to_owned())
    }

    async fn recycle(&self, _: &mut u64, _: &Metrics) -> RecycleResult<String> {
        Ok(())
    }
}

#[tokio::test]
async fn errors_that_are_no_errors_are_converted() {
    let manager = FromDeadpool::map_errors(Plain, std::io::Error::other::<String>);
    let pool = Pool::builder(manager).build().expect("valid");
    let error = pool.acquire().await.expect_err("create fails");
    assert!(error.to_string().contains("no room"), "{error}");
}
