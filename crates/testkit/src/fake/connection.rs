//! The driver of the fake, as the database layer uses it.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cenote::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, Credentials,
    Dialect, Driver, Dsn, History, LogPosition, Options, Outcome, Param, Prepared, Request, Reset,
    Savepoint, Status, Template, Value,
};
use cenote::{Error, Kind, Result};

use super::calls::{
    AtSavepoint, BeginWith, Close, Commit, Connect, EndStream, Job, NextBatch, Ping, Prepare,
    ResetSession, RollBack, Run, RunBatch, Set, Settle, StartStream,
};
use super::pending_call::{PendingCall, send};
use super::server::Server;
use super::session::Line;

/// `?` is its only placeholder, and semicolons stand between statements.
static DIALECT: Dialect = {
    let mut dialect = Dialect::ODBC;
    dialect.name = "Fake";
    dialect.labels = false;
    dialect.unseparated_statements = false;
    dialect.end_commits = true;
    dialect
};

/// The driver of a [`Fake`](super::Fake): see [`Fake::driver`](super::Fake::driver).
#[derive(Clone, Debug)]
pub struct FakeDriver {
    server: Arc<Server>,
}

impl FakeDriver {
    pub(super) fn new(server: Arc<Server>) -> Self {
        FakeDriver { server }
    }
}

impl Driver for FakeDriver {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        dsn.reader(options).finish()?;
        Ok(Arc::new(FakeTemplate {
            server: Arc::clone(&self.server),
            address: dsn.to_string(),
        }))
    }
}

#[derive(Debug)]
struct FakeTemplate {
    server: Arc<Server>,
    address: String,
}

impl Template for FakeTemplate {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        _settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let number = self.server.state().next_connection();
            send(&self.server, number, Connect(credentials)).await?;
            let connection: Box<dyn Connection> = Box::new(FakeConnection {
                server: Arc::clone(&self.server),
                number,
                batch: None,
            });
            Ok(connection)
        })
    }

    fn has_positions(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A connection of a [`Fake`](super::Fake). [`Connection::as_any`] returns it.
#[derive(Debug)]
pub struct FakeConnection {
    server: Arc<Server>,
    number: usize,
    /// The request for the next rows, while it is not answered.
    batch: Option<PendingCall<NextBatch>>,
}

impl FakeConnection {
    /// Returns the number of the connection in the log.
    pub fn number(&self) -> usize {
        self.number
    }

    fn call_off_batch(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.cancel();
        }
    }
}

fn job(request: &Request<'_>) -> Result<Job> {
    Ok(Job {
        sql: request.sql.to_owned(),
        params: values(request.params)?,
        rows: request.rows,
    })
}

fn values(params: &[Param<'_>]) -> Result<Vec<Value<'static>>> {
    let value = |param: &Param<'_>| match param {
        Param::Value(value) => Ok(value.clone().into_owned()),
        Param::Native(native) => {
            let message = format!("the fake does not know the type {}", native.type_name);
            Err(Error::new(Kind::Type, message))
        }
    };
    params.iter().map(value).collect()
}

impl Connection for FakeConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move { send(&self.server, self.number, Run(job(&request)?)).await })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let sets = sets.iter().map(|set| values(set));
            let sets = sets.collect::<Result<_>>()?;
            let sql = sql.to_owned();
            send(&self.server, self.number, RunBatch { sql, sets }).await
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(send(&self.server, self.number, Prepare(sql.to_owned())))
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move { send(&self.server, self.number, StartStream(job(&request)?)).await })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let pending = match &mut self.batch {
            Some(pending) => pending,
            none => match PendingCall::begin(&self.server, self.number, NextBatch) {
                Ok(pending) => none.insert(pending),
                Err(error) => return Poll::Ready(Err(error)),
            },
        };
        ready!(pending.poll_ready(cx));
        match self.batch.take() {
            Some(pending) => Poll::Ready(pending.end()),
            None => Poll::Ready(Ok(None)),
        }
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.call_off_batch();
            send(&self.server, self.number, EndStream).await
        })
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let first = first.as_ref().map(job).transpose()?;
            let begin = *begin;
            send(&self.server, self.number, BeginWith { begin, first }).await
        })
    }

    fn begins_lazily(&self) -> bool {
        self.server.state().knobs.lazy_begin
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(send(&self.server, self.number, Commit))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(send(&self.server, self.number, RollBack))
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        let step = match step {
            Savepoint::Set(name) => AtSavepoint::Set(name.to_owned()),
            Savepoint::Release(name) => AtSavepoint::Release(name.to_owned()),
            Savepoint::RollBack(name) => AtSavepoint::RollBack(name.to_owned()),
        };
        Box::pin(send(&self.server, self.number, step))
    }

    fn status(&self) -> Status {
        self.server.state().session(self.number).status()
    }

    fn session_changed(&self) -> bool {
        self.server.state().session(self.number).session_changed
    }

    fn warnings(&self) -> u64 {
        self.server.state().session(self.number).warnings
    }

    fn is_broken(&self) -> bool {
        self.server.state().session(self.number).line == Line::Broken
    }

    fn probe(&mut self, _rested: Duration) {
        let mut state = self.server.state();
        let session = state.session(self.number);
        if session.line == Line::Killed {
            session.line = Line::Broken;
        }
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.call_off_batch();
            send(&self.server, self.number, Settle).await
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(send(&self.server, self.number, Ping))
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(send(&self.server, self.number, ResetSession))
    }

    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        let set = Set {
            name: name.to_owned(),
            value: shown(value).into_owned(),
        };
        Box::pin(send(&self.server, self.number, set))
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            self.call_off_batch();
            send(&self.server, self.number, Close).await
        })
    }

    /// The number of calls so far. It has no line in the log.
    fn ask_position(&mut self) -> BoxFuture<'_, Result<LogPosition>> {
        let lsn = self.server.state().next_call();
        let history = History {
            cluster: 1,
            timeline: 1,
        };
        Box::pin(async move { Ok(LogPosition { history, lsn }) })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Formats a value for the log.
fn shown<'v>(value: &'v Value<'_>) -> Cow<'v, str> {
    match value {
        Value::Bool(truth) => truth.to_string().into(),
        Value::Int(number) => number.to_string().into(),
        Value::UInt(number) => number.to_string().into(),
        Value::Float(number) => number.to_string().into(),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed("NULL"),
        other => format!("{other:?}").into(),
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.call_off_batch();
        let mut state = self.server.state();
        if state.sessions.remove(&self.number).is_some() {
            state.log.push(format!("drop {}", self.number));
        }
    }
}
