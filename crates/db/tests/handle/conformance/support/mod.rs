//! What the tests share: a small database, queries on it, and waiting without sleeping.

#![allow(dead_code)] // Not every module asks for everything.

mod clock;
mod gate;
mod plain;
mod probe;

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use cenote::pool::DestroyReason;
use cenote::sqlite::Sqlite;
use cenote::{Builder, Db, Outcome, PooledConnection, Result};
use tempfile::TempDir;

pub(crate) use clock::Clock;
pub(crate) use gate::{ENDLESS, GATED, Gate};
pub(crate) use plain::{block_on_plain_thread, run_in};
pub(crate) use probe::{Fault, Probe, Step, Wire};

/// A folder with a database file, deleted on drop.
pub(crate) struct TestDatabase {
    folder: TempDir,
}

impl TestDatabase {
    pub(crate) fn new() -> Self {
        TestDatabase {
            folder: tempfile::tempdir().expect("a folder for temporary files"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn dsn(&self) -> String {
        format!("sqlite:{}", self.path("shop.db"))
    }

    /// Every connection has a number: see [`connection_id`].
    pub(crate) fn builder(&self) -> Builder {
        numbered(Db::builder(&self.dsn()))
    }

    /// The same with a driver of the test's own.
    pub(crate) fn builder_with(&self, driver: impl cenote::driver::Driver) -> Builder {
        numbered(Db::builder_with(driver, &self.dsn()))
    }
}

/// Gives every connection a number, in a temporary table of its own.
pub(crate) fn numbered(builder: Builder) -> Builder {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    builder.on_connect(async |conn: &mut PooledConnection| {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let sql =
            format!("CREATE TEMP TABLE connection (id); INSERT INTO connection VALUES ({id})");
        conn.exec(&sql).await
    })
}

/// An open database with the table `t (id, n)`.
pub(crate) struct Shop {
    pub(crate) db: Db,
    pub(crate) database: TestDatabase,
}

impl Deref for Shop {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl Shop {
    pub(crate) async fn open(database: TestDatabase, builder: Builder) -> Self {
        // By another handle, so that the shop's own has no connection yet.
        let maker = Db::open(&database.dsn()).await.expect("it opens");
        let create = "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, n INTEGER)";
        maker.exec(create, ()).await.expect("a table is made");
        maker.close().await.expect("it closes");
        let db = builder.open().await.expect("it opens");
        Shop { db, database }
    }
}

/// Opens a shop with at most `max` connections.
pub(crate) async fn shop(max: usize) -> Shop {
    shop_with(|builder| builder.max(max)).await
}

pub(crate) async fn shop_with(describe: impl FnOnce(Builder) -> Builder) -> Shop {
    let database = TestDatabase::new();
    let builder = describe(database.builder());
    Shop::open(database, builder).await
}

/// A shop whose connections can be watched and disturbed.
pub(crate) async fn watched_shop(
    describe: impl FnOnce(Builder) -> Builder,
) -> (Shop, std::sync::Arc<Wire>) {
    let database = TestDatabase::new();
    let (driver, wire) = Probe::new(Sqlite::new());
    let builder = describe(database.builder_with(driver));
    (Shop::open(database, builder).await, wire)
}

/// A shop whose time is moved by hand.
pub(crate) async fn timed_shop(describe: impl FnOnce(Builder) -> Builder) -> (Shop, Clock) {
    let clock = Clock::new();
    let runtime = clock.clone();
    let shop = shop_with(|builder| describe(builder.runtime(runtime))).await;
    (shop, clock)
}

/// A shop whose SQL can stop and be watched: see [`Gate`].
pub(crate) async fn gated_shop(describe: impl FnOnce(Builder) -> Builder) -> (Shop, Gate) {
    let database = TestDatabase::new();
    let (driver, gate) = Gate::add_to(Sqlite::new());
    let builder = describe(database.builder_with(driver));
    (Shop::open(database, builder).await, gate)
}

pub(crate) async fn insert(db: &Db, n: i64) -> Result<Outcome> {
    db.exec("INSERT INTO t (n) VALUES (?)", (n,)).await
}

/// The numbers that are in the table, in order.
pub(crate) async fn numbers(db: &Db) -> Vec<i64> {
    let all = db.query_as("SELECT n FROM t ORDER BY n", ()).await;
    all.expect("the table can be read")
}

pub(crate) async fn count(db: &Db) -> i64 {
    let count = db.query_as_one("SELECT count(*) FROM t", ()).await;
    count.expect("the table can be read")
}

pub(crate) const WHO: &str = "SELECT id FROM connection";

/// The number of the connection that a call of this kind runs on now.
pub(crate) async fn connection_id(db: &Db) -> Result<i64> {
    db.query_as_one(WHO, ()).await
}

/// Yields until the condition is true.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "it never came about: {what}");
}

/// Waits until this many connections were replaced.
pub(crate) async fn replaced(db: &Db, connections: u64) {
    let pool = db.pool().expect("it has a pool");
    let gone = || pool.counters().destroyed_for(DestroyReason::Replaced);
    until("connections are replaced", || gone() >= connections).await;
}

/// Yields until no connection is in use or being created.
pub(crate) async fn quiet(db: &Db) {
    until("all connections are back", || {
        let status = db.status();
        status.active == 0 && status.creating == 0
    })
    .await;
}

/// Fails a test instead of letting it hang.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(20), future).await;
    done.unwrap_or_else(|_| panic!("it hangs: {what}"))
}

/// Spawns a task that is no coroutine.
#[allow(
    clippy::disallowed_methods,
    reason = "the tasks of users do not go through the pool's runtime"
)]
pub(crate) fn bare_spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::task::spawn(future)
}

/// Polls a future once, with the waker of the task around it.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Polls a future that is known to have to wait.
pub(crate) async fn begins_to_wait<F: Future>(future: Pin<&mut F>) {
    assert!(poll_once(future).await.is_pending(), "it should wait");
}
