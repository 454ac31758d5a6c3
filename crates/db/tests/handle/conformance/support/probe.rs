//! A driver around SQLite whose calls the test can watch, slow down, hold and fail.

use std::any::Any;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use cenote::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, Credentials,
    Dialect, Driver, Dsn, Options, Outcome, Param, Prepared, Request, Reset, Savepoint, Status,
    Template, Value,
};
use cenote::sqlite::{Sqlite, SqliteConnection};
use cenote::{Error, Kind, Result};
use tokio::sync::Notify;

/// A call of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Connect,
    Run,
    Prepare,
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Ping,
    Reset,
    Other,
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The connection is lost before the call is sent, and the driver knows that.
    NeverSent,
    /// The connection is lost before the database has seen anything.
    LostBefore,
    /// The database does it, and the connection is lost before the answer.
    LostAfter,
    /// The database answers a commit with a rollback.
    RolledBack,
    /// The database refuses the call.
    Refused(Error),
    /// The call waits until it is notified.
    Held {
        reached: Arc<Notify>,
        go_on: Arc<Notify>,
    },
}

/// The test's end of the wire.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    faults: Mutex<Vec<(Step, Fault)>>,
    log: Mutex<Vec<String>>,
    /// Connections of an earlier one are dead.
    generation: AtomicU64,
    /// Of which generation those are that there are.
    there: Mutex<Vec<u64>>,
    /// How often every call yields before it runs.
    latency: AtomicUsize,
    opened: AtomicUsize,
    gone: AtomicUsize,
    compiled: AtomicU64,
}

impl Wire {
    /// Makes the next call of this kind fail.
    pub(crate) fn next(&self, step: Step, fault: Fault) {
        lock(&self.faults).push((step, fault));
    }

    /// Holds the next call of this kind. Returns what is notified when the call is reached, and what releases
    /// it.
    pub(crate) fn hold(&self, step: Step) -> (Arc<Notify>, Arc<Notify>) {
        let (reached, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let fault = Fault::Held {
            reached: Arc::clone(&reached),
            go_on: Arc::clone(&go_on),
        };
        self.next(step, fault);
        (reached, go_on)
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of cut connections.
    pub(crate) fn cut_off(&self) -> usize {
        let now = self.generation.load(Ordering::SeqCst);
        let there = lock(&self.there);
        there.iter().filter(|generation| **generation < now).count()
    }

    pub(crate) fn set_latency(&self, yields: usize) {
        self.latency.store(yields, Ordering::SeqCst);
    }

    /// Returns how many connections were opened in total.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub(crate) fn alive(&self) -> usize {
        self.opened() - self.gone.load(Ordering::SeqCst)
    }

    /// Returns how many statements were compiled on all connections.
    pub(crate) fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::SeqCst)
    }

    /// Returns the calls since the last time, in order.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.log))
    }

    fn note(&self, what: impl Into<String>) {
        lock(&self.log).push(what.into());
    }

    fn take(&self, step: Step) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let at = faults.iter().position(|(of, _)| *of == step)?;
        Some(faults.remove(at).1)
    }

    /// Whether the next commit is to be answered with a rollback.
    fn take_rolled_back(&self) -> bool {
        let mut faults = lock(&self.faults);
        let is_it = |fault: &(Step, Fault)| matches!(fault, (Step::Commit, Fault::RolledBack));
        let at = faults.iter().position(is_it);
        at.map(|at| faults.remove(at)).is_some()
    }

    async fn dawdle(&self) {
        for _ in 0..self.latency.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost() -> Error {
    Error::new(Kind::ConnectionLost, "the wire was cut")
}

#[derive(Debug)]
pub(crate) struct Probe {
    driver: Sqlite,
    wire: Arc<Wire>,
}

impl Probe {
    pub(crate) fn new(driver: Sqlite) -> (Probe, Arc<Wire>) {
        let wire = Arc::new(Wire::default());
        let probe = Probe {
            driver,
            wire: Arc::clone(&wire),
        };
        (probe, wire)
    }
}

impl Driver for Probe {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        Ok(Arc::new(Watched {
            template: self.driver.template(dsn, options)?,
            wire: Arc::clone(&self.wire),
        }))
    }
}

#[derive(Debug)]
struct Watched {
    template: Arc<dyn Template>,
    wire: Arc<Wire>,
}

impl Template for Watched {
    fn dialect(&self) -> &'static Dialect {
        self.template.dialect()
    }

    fn address(&self) -> String {
        self.template.address()
    }

    fn check_poolable(&self) -> Result<()> {
        self.template.check_poolable()
    }

    fn one_writer(&self) -> bool {
        self.template.one_writer()
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let wire = &self.wire;
            wire.dawdle().await;
            match wire.take(Step::Connect) {
                None => {}
                Some(Fault::Refused(error)) => return Err(error),
                Some(Fault::Held { reached, go_on }) => {
                    reached.notify_one();
                    go_on.notified().await;
                }
                Some(_) => return Err(Error::new(Kind::Connect, "the wire was cut")),
            }
            let connection = self.template.connect(credentials, settings).await?;
            wire.opened.fetch_add(1, Ordering::SeqCst);
            let generation = wire.generation.load(Ordering::SeqCst);
            lock(&wire.there).push(generation);
            let connection: Box<dyn Connection> = Box::new(End {
                connection: Some(connection),
                generation,
                wire: Arc::clone(wire),
                is_cut: false,
                compiled: 0,
            });
            Ok(connection)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The layer's end of the wire.
#[derive(Debug)]
struct End {
    /// `None` when it has been closed.
    connection: Option<Box<dyn Connection>>,
    wire: Arc<Wire>,
    generation: u64,
    is_cut: bool,
    /// How many of its compiled statements the wire knows of.
    compiled: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.wire.gone.fetch_add(1, Ordering::SeqCst);
        let mut there = lock(&self.wire.there);
        let this = there.iter().position(|of| *of == self.generation);
        there.remove(this.expect("it was there"));
    }
}

impl End {
    fn connection(&mut self) -> &mut dyn Connection {
        &mut **self.connection.as_mut().expect("it is not closed")
    }

    /// Before a step: `true` if the connection is to be lost after it.
    async fn before(&mut self, step: Step, what: String) -> Result<bool> {
        self.wire.note(what);
        self.wire.dawdle().await;
        self.look();
        if self.is_cut {
            return Err(lost());
        }
        match self.wire.take(step) {
            None | Some(Fault::RolledBack) => Ok(false),
            Some(Fault::LostAfter) => Ok(true),
            Some(Fault::Refused(error)) => Err(error),
            Some(Fault::LostBefore) => {
                self.is_cut = true;
                Err(lost())
            }
            Some(Fault::NeverSent) => {
                self.is_cut = true;
                Err(lost().never_sent())
            }
            Some(Fault::Held { reached, go_on }) => {
                reached.notify_one();
                go_on.notified().await;
                Ok(false)
            }
        }
    }

    fn after<T>(&mut self, is_lost: bool, done: Result<T>) -> Result<T> {
        let compiled = match self
            .connection()
            .as_any()
            .downcast_mut::<SqliteConnection>()
        {
            Some(connection) => connection.compiled_statements(),
            None => self.compiled,
        };
        let new = compiled.saturating_sub(self.compiled);
        self.wire.compiled.fetch_add(new, Ordering::SeqCst);
        self.compiled += new;
        if is_lost {
            self.is_cut = true;
            return Err(lost());
        }
        done
    }

    fn look(&mut self) {
        self.is_cut |= self.generation < self.wire.generation.load(Ordering::SeqCst);
    }
}

impl Connection for End {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Run, request.sql.to_owned()).await?;
            let done = self.connection().run(request).await;
            self.after(is_lost, done)
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Run, sql.to_owned()).await?;
            let done = self.connection().run_batch(sql, sets).await;
            self.after(is_lost, done)
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Prepare, format!("prepare {sql}")).await?;
            let done = self.connection().prepare(sql).await;
            self.after(is_lost, done)
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            let is_lost = self
                .before(Step::Run, format!("stream {}", request.sql))
                .await?;
            let done = self.connection().start_stream(request).await;
            self.after(is_lost, done)
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.look();
        match self.is_cut {
            true => Poll::Ready(Err(lost())),
            false => self.connection().poll_batch(cx),
        }
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        self.connection().end_stream()
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Begin, "begin".to_owned()).await?;
            let done = self.connection().begin_with(begin, first).await;
            self.after(is_lost, done)
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(async move {
            if self.wire.take_rolled_back() {
                self.connection().rollback().await?;
                return Ok(CommitOutcome::RolledBack);
            }
            let is_lost = self.before(Step::Commit, "commit".to_owned()).await?;
            let done = self.connection().commit().await;
            self.after(is_lost, done)
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Rollback, "rollback".to_owned()).await?;
            let done = self.connection().rollback().await;
            self.after(is_lost, done)
        })
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            let what = match step {
                Savepoint::Set(_) => "savepoint",
                Savepoint::Release(_) => "release",
                Savepoint::RollBack(_) => "rollback to savepoint",
            };
            let is_lost = self.before(Step::Savepoint, what.to_owned()).await?;
            let done = self.connection().savepoint(step).await;
            self.after(is_lost, done)
        })
    }

    fn status(&self) -> Status {
        let connection = self.connection.as_ref();
        connection.map_or(Status::Unknown, |connection| connection.status())
    }

    fn begins_lazily(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.begins_lazily())
    }

    fn session_changed(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.session_changed())
    }

    fn is_broken(&self) -> bool {
        let connection = self.connection.as_ref();
        self.is_cut || connection.is_none_or(|connection| connection.is_broken())
    }

    fn probe(&mut self, rested: Duration) {
        self.look();
        self.connection().probe(rested);
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        self.wire.note("settle");
        self.look();
        match self.is_cut {
            true => Box::pin(async { Err(lost()) }),
            false => self.connection().settle(),
        }
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Ping, "ping".to_owned()).await?;
            let done = self.connection().ping().await;
            self.after(is_lost, done)
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Reset, "reset".to_owned()).await?;
            let done = self.connection().reset().await;
            self.after(is_lost, done)
        })
    }

    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            let is_lost = self.before(Step::Other, format!("set {name}")).await?;
            let done = self.connection().set(name, value).await;
            self.after(is_lost, done)
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        match self.connection.take() {
            Some(connection) => connection.close(),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
