//! What the tests of the SQLite driver share.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod test_database;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use cenote::driver::{
    Batch, ConnectSettings, Connection, Credentials, Driver, Dsn, Options, Outcome, Param, Request,
    Savepoint, Template,
};
use cenote::sqlite::{Sqlite, SqliteConnection};
use cenote::{FromValue, Result, Value};

pub(crate) const CACHED: usize = 16;

/// A database in a folder of its own, deleted on drop.
pub(crate) struct TempDb {
    folder: tempfile::TempDir,
}

impl TempDb {
    pub(crate) fn new() -> Self {
        TempDb {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> String {
        self.file("test.db")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn dsn(&self) -> String {
        format!("sqlite:{}", self.path())
    }

    pub(crate) async fn open(&self) -> Box<dyn Connection> {
        open(&self.dsn()).await
    }
}

/// The DSN of a shared database in memory that no other test has.
pub(crate) fn shared_memory() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("sqlite:file:test-{n}?mode=memory&cache=shared")
}

pub(crate) fn try_template(driver: &Sqlite, dsn: &str) -> Result<Arc<dyn Template>> {
    driver.template(&dsn.parse::<Dsn>()?, &Options::new())
}

pub(crate) fn template(dsn: &str) -> Arc<dyn Template> {
    try_template(&Sqlite::new(), dsn).unwrap()
}

pub(crate) async fn try_connect(template: &Arc<dyn Template>) -> Result<Box<dyn Connection>> {
    let settings = ConnectSettings::new(CACHED);
    template.connect(Credentials::default(), &settings).await
}

pub(crate) async fn connect(template: &Arc<dyn Template>) -> Box<dyn Connection> {
    try_connect(template).await.unwrap()
}

pub(crate) async fn open(dsn: &str) -> Box<dyn Connection> {
    connect(&template(dsn)).await
}

pub(crate) async fn open_with(driver: &Sqlite, dsn: &str) -> Box<dyn Connection> {
    connect(&try_template(driver, dsn).unwrap()).await
}

/// A private database in memory.
pub(crate) async fn memory() -> Box<dyn Connection> {
    open("sqlite::memory:").await
}

pub(crate) fn params<const N: usize>(values: [Value<'_>; N]) -> [Param<'_>; N] {
    values.map(Param::Value)
}

pub(crate) fn script(sql: &str) -> Request<'_> {
    let mut request = Request::new(sql, &[]);
    request.script = true;
    request.cache = false;
    request
}

pub(crate) async fn try_exec(connection: &mut Box<dyn Connection>, sql: &str) -> Result<Outcome> {
    connection.run(Request::new(sql, &[])).await
}

pub(crate) async fn exec(connection: &mut Box<dyn Connection>, sql: &str) -> Outcome {
    try_exec(connection, sql).await.unwrap()
}

pub(crate) async fn exec_script(connection: &mut Box<dyn Connection>, sql: &str) -> Outcome {
    connection.run(script(sql)).await.unwrap()
}

/// The first value of the first row.
pub(crate) async fn one<T>(connection: &mut Box<dyn Connection>, sql: &str) -> T
where
    T: for<'r> FromValue<'r>,
{
    let outcome = exec(connection, sql).await;
    first(outcome.rows.unwrap())
}

pub(crate) fn first<T>(batch: Batch) -> T
where
    T: for<'r> FromValue<'r>,
{
    batch.into_rows().next().unwrap().get(0).unwrap()
}

/// The first column of every row.
pub(crate) fn column<T>(batch: Batch) -> Vec<T>
where
    T: for<'r> FromValue<'r>,
{
    let rows = batch.into_rows();
    rows.map(|row| row.get(0).unwrap()).collect()
}

pub(crate) async fn next_batch(connection: &mut Box<dyn Connection>) -> Result<Option<Batch>> {
    std::future::poll_fn(|cx| connection.poll_batch(cx)).await
}

pub(crate) async fn begin(connection: &mut Box<dyn Connection>) {
    connection
        .begin_with(&cenote::driver::Begin::default(), None)
        .await
        .unwrap();
}

pub(crate) async fn set_savepoint(connection: &mut Box<dyn Connection>, name: &str) {
    connection.savepoint(Savepoint::Set(name)).await.unwrap();
}

pub(crate) fn sqlite(connection: &mut Box<dyn Connection>) -> &mut SqliteConnection {
    connection.as_any().downcast_mut().unwrap()
}

/// Rows that never end, each of them quick.
pub(crate) const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

/// Polls a future this number of times, and drops it if it is not ready by then.
pub(crate) fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
    }
    None
}

/// Runs a future on this thread without any executor.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future that must not be ready yet.
pub(crate) fn assert_pending<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
}

/// An SQL function `gate()` at which a statement stops until the test lets it pass.
pub(crate) struct Gate {
    reached: Receiver<()>,
    pass: Sender<()>,
}

impl Gate {
    pub(crate) fn new() -> (Sqlite, Gate) {
        let (at_gate, reached) = channel();
        let (pass, passed) = channel();
        let passed = Mutex::new(passed);
        let driver = Sqlite::new().function("gate", 0, false, move |_| {
            let passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
            // Without a receiver the test has ended.
            let _ = at_gate.send(());
            let _ = passed.recv();
            Ok(1)
        });
        (driver, Gate { reached, pass })
    }

    /// Waits until a statement stands at the gate.
    pub(crate) fn wait(&self) {
        self.reached.recv().unwrap();
    }

    pub(crate) fn open(&self) {
        self.pass.send(()).unwrap();
    }
}
