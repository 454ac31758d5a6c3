//! A database file with a queue of writers, each with its own connection.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use cenote::Result;
use cenote::driver::{Connection, Outcome, Param, Request, Template, Value};

use super::*;

/// A database whose writers never time out.
pub(crate) struct TestDatabase {
    pub(crate) file: TempDb,
    /// One template for each set of options.
    templates: Mutex<HashMap<String, Arc<dyn Template>>>,
}

impl TestDatabase {
    pub(crate) fn new() -> Self {
        TestDatabase {
            file: TempDb::new(),
            templates: Mutex::default(),
        }
    }

    pub(crate) async fn with(schema: &str) -> Self {
        let database = TestDatabase::new();
        exec_script(&mut database.open("").await, schema).await;
        database
    }

    fn template(&self, dsn: &str) -> Arc<dyn Template> {
        let mut templates = self.templates.lock().unwrap();
        let known = templates.entry(dsn.to_owned());
        Arc::clone(known.or_insert_with(|| template(dsn)))
    }

    /// Opens a connection with these options added.
    pub(crate) async fn open(&self, options: &str) -> Box<dyn Connection> {
        let dsn = format!("{}?busy_timeout=1d{options}", self.file.dsn());
        let mut db = connect(&self.template(&dsn)).await;
        sqlite(&mut db).time_nothing();
        db
    }
}

/// A write that nothing else on its connection depends on.
pub(crate) fn alone<'a>(sql: &'a str, params: &'a [Param<'a>]) -> Request<'a> {
    let mut request = Request::new(sql, params);
    request.unpinned = true;
    request
}

pub(crate) type Call<'c> = Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'c>>;

pub(crate) type Write = (&'static str, i64);

pub(crate) async fn write(db: &mut Box<dyn Connection>, (sql, value): Write) -> Result<Outcome> {
    let params = [Param::Value(Value::Int(value))];
    db.run(alone(sql, &params)).await
}

/// Waits until this number of writers is queued. `seen_by` is a connection that is not.
pub(crate) fn until_waiting(seen_by: &mut Box<dyn Connection>, writers: usize) {
    while sqlite(seen_by).waiting_writers() != writers {
        std::thread::yield_now();
    }
}

/// The same, while a call has to be polled.
pub(crate) fn until_waiting_beside<F: Future + ?Sized>(
    seen_by: &mut Box<dyn Connection>,
    writers: usize,
    call: &mut Pin<Box<F>>,
) {
    while sqlite(seen_by).waiting_writers() != writers {
        assert_pending(call);
        std::thread::yield_now();
    }
}

/// Lets all writers queue in this order behind a holder of the lock, then releases the lock. The first writer
/// writes for those behind it.
pub(crate) async fn queued(
    database: &TestDatabase,
    writers: &mut [Box<dyn Connection>],
    writes: &[Write],
) -> Vec<Result<Outcome>> {
    let mut holder = database.open("&synchronous=off").await;
    queued_behind(&mut holder, writers, writes).await
}

pub(crate) async fn queued_behind(
    holder: &mut Box<dyn Connection>,
    writers: &mut [Box<dyn Connection>],
    writes: &[Write],
) -> Vec<Result<Outcome>> {
    begin(holder).await;
    let params: Vec<_> = writes
        .iter()
        .map(|(_, v)| [Param::Value(Value::Int(*v))])
        .collect();
    let mut running: Vec<Call<'_>> = Vec::new();
    for (n, db) in writers.iter_mut().enumerate() {
        let mut call = db.run(alone(writes[n].0, &params[n]));
        assert_pending(&mut call);
        running.push(call);
        until_waiting(holder, n + 1);
    }
    holder.commit().await.unwrap();
    let mut answers = Vec::new();
    for call in running {
        answers.push(call.await);
    }
    answers
}

pub(crate) const TABLE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER UNIQUE)";

pub(crate) const INSERT: &str = "INSERT INTO t (n) VALUES (?1)";

pub(crate) async fn until_queued<F: Future, G: Future>(
    holder: &mut Box<dyn Connection>,
    one: &mut Pin<Box<F>>,
    two: &mut Pin<Box<G>>,
) {
    while sqlite(holder).waiting_writers() < 2 {
        assert_pending(one);
        assert_pending(two);
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn one_of(db: &mut Box<dyn Connection>) -> i64 {
    one(db, "SELECT count(*) FROM t").await
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long SQLite is waited for is real time"
)]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}
