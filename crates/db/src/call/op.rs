//! Requests to a driver's connection as values, so that one function sends all of them:
//! [`PooledConnection::send`](crate::pooled::connection::PooledConnection::send).

use std::sync::Arc;

use crate::coroutine::Frame;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Dialect, Outcome, Param, Prepared,
    Request, Savepoint, Value,
};
use crate::sql::{self, CachedScan, Class, TransactionVerb};
use crate::{Error, Result};

/// What a request may commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    /// Nothing.
    Nothing,
    /// What one statement does, outside of a transaction: the position can be asked for in the same write.
    Statement,
    /// What it does, outside of a transaction.
    Itself,
    /// The transaction around it.
    Transaction,
    /// What a rollback of the transaction around it leaves, if the database leaves anything.
    Remains,
    /// Anything, though a transaction may be open afterwards.
    Anything,
}

impl Commits {
    fn of(class: &Class) -> Self {
        match class.transaction {
            Some(TransactionVerb::Commit) => Commits::Anything,
            Some(TransactionVerb::Rollback) => Commits::Remains,
            Some(_) => Commits::Nothing,
            None if class.contains_transaction_control => Commits::Anything,
            None if class.pure_read => Commits::Nothing,
            None => Commits::Statement,
        }
    }

    /// Returns the same for a request behind which the driver sends nothing.
    fn alone(self) -> Self {
        match self {
            Commits::Statement => Commits::Itself,
            other => other,
        }
    }
}

/// A request to a driver's connection.
pub(crate) trait Op: Send + Sync {
    type Out: Send;

    /// Whether the request runs or not makes no difference: dropped, it dooms no transaction.
    const HARMLESS: bool = false;

    /// Answered without an error, the request is still under way: it ends with its stream.
    const STREAMS: bool = false;

    /// Sends the request.
    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Self::Out>>;

    /// Returns the SQL as the caller wrote it, for the statement log; empty for a request that is not logged.
    fn sql(&self) -> &str {
        ""
    }

    /// Returns what the request may commit.
    fn commits(&self, _dialect: &'static Dialect) -> Commits {
        Commits::Anything
    }

    /// Returns the frame of the coroutine that has written what the request commits, if that may be another one.
    fn writer(&self) -> Option<&Arc<Frame>> {
        None
    }

    /// Returns how many rows the request returned or changed.
    fn rows(_out: &Self::Out) -> Option<u64> {
        None
    }

    /// Returns how many rows the request returned, if it returns rows.
    fn returned_rows(_out: &Self::Out) -> Option<u64> {
        None
    }

    /// Returns the first error of an answer that has several results, for logs and measurements.
    fn failure(_out: &Self::Out) -> Option<&Error> {
        None
    }

    /// Returns the error that the answer counts as.
    fn error(answer: &Result<Self::Out>) -> Option<&Error> {
        match answer {
            Ok(out) => Self::failure(out),
            Err(error) => Some(error),
        }
    }

    /// Says whether the connection was taken for this request alone: see [`Request::unpinned`].
    fn set_unpinned(&mut self, _unpinned: bool) {}

    /// BEGIN can be sent with it, in one round trip: [`start_with_begin`](Op::start_with_begin).
    const TAKES_BEGIN: bool = false;

    /// Sends the request together with the BEGIN of its transaction.
    fn start_with_begin<'c>(
        &'c self,
        _begin: &'c Begin,
        on: &'c mut dyn Connection,
    ) -> BoxFuture<'c, Result<Self::Out>> {
        debug_assert!(false, "BEGIN has to be sent before this request");
        self.start(on)
    }
}

/// A request that cleans up: dropped, it dooms no transaction.
pub(crate) struct Harmless<O>(pub(crate) O);

impl<O: Op> Op for Harmless<O> {
    type Out = O::Out;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<O::Out>> {
        self.0.start(on)
    }

    fn sql(&self) -> &str {
        self.0.sql()
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        self.0.commits(dialect)
    }
}

/// Returns the SQL of a request as the caller wrote it.
fn written<'a>(request: &Request<'a>, plan: Option<&'a CachedScan>) -> &'a str {
    plan.map_or(request.sql, CachedScan::written_sql)
}

/// With the plan, which knows the SQL as the caller wrote it.
pub(crate) struct Run<'a>(pub(crate) Request<'a>, pub(crate) Option<&'a CachedScan>);

impl Op for Run<'_> {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.run(self.0)
    }

    fn sql(&self) -> &str {
        written(&self.0, self.1)
    }

    fn rows(out: &Outcome) -> Option<u64> {
        Some(match &out.rows {
            Some(rows) => rows.len() as u64,
            None => out.rows_affected,
        })
    }

    fn returned_rows(out: &Outcome) -> Option<u64> {
        out.rows.as_ref().map(|rows| rows.len() as u64)
    }

    fn set_unpinned(&mut self, unpinned: bool) {
        self.0.unpinned = unpinned;
    }

    const TAKES_BEGIN: bool = true;

    fn start_with_begin<'c>(
        &'c self,
        begin: &'c Begin,
        on: &'c mut dyn Connection,
    ) -> BoxFuture<'c, Result<Outcome>> {
        on.begin_with(begin, Some(self.0))
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        // Only hooks of new connections have no plan.
        self.1
            .map_or(Commits::Nothing, |plan| Commits::of(&plan.class))
    }
}

/// A request together with the BEGIN of its transaction.
pub(crate) struct WithBegin<'a, O>(pub(crate) &'a O, pub(crate) Begin);

impl<O: Op> Op for WithBegin<'_, O> {
    type Out = O::Out;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<O::Out>> {
        self.0.start_with_begin(&self.1, on)
    }

    fn sql(&self) -> &str {
        self.0.sql()
    }

    fn rows(out: &O::Out) -> Option<u64> {
        O::rows(out)
    }

    fn returned_rows(out: &O::Out) -> Option<u64> {
        O::returned_rows(out)
    }

    fn failure(out: &O::Out) -> Option<&Error> {
        O::failure(out)
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        self.0.commits(dialect).alone()
    }
}

/// With the plan, which knows the SQL as the caller wrote it.
pub(crate) struct RunAll<'a>(pub(crate) Request<'a>, pub(crate) Option<&'a CachedScan>);

impl Op for RunAll<'_> {
    type Out = Vec<Outcome>;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        on.run_all(self.0)
    }

    fn sql(&self) -> &str {
        written(&self.0, self.1)
    }

    fn rows(out: &Vec<Outcome>) -> Option<u64> {
        Some(out.iter().filter_map(Run::rows).sum())
    }

    fn returned_rows(out: &Vec<Outcome>) -> Option<u64> {
        out.iter().map(Run::returned_rows).sum()
    }

    fn set_unpinned(&mut self, unpinned: bool) {
        self.0.unpinned = unpinned;
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        // Only hooks of new connections have no plan.
        self.1
            .map_or(Commits::Nothing, |plan| Commits::of(&plan.class).alone())
    }
}

/// Several statements, each with its own result.
pub(crate) struct RunPipeline<'a> {
    pub(crate) requests: Vec<Request<'a>>,
    /// In a transaction, the statements after a failed one do not run.
    pub(crate) stops_at_error: bool,
    /// The SQL of all statements as the caller wrote it.
    pub(crate) sql: &'a str,
}

impl Op for RunPipeline<'_> {
    type Out = Vec<Result<Outcome>>;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Self::Out>> {
        on.run_pipeline(&self.requests, self.stops_at_error)
    }

    fn sql(&self) -> &str {
        self.sql
    }

    fn rows(out: &Self::Out) -> Option<u64> {
        Some(out.iter().flatten().filter_map(Run::rows).sum())
    }

    fn returned_rows(out: &Self::Out) -> Option<u64> {
        out.iter().flatten().map(Run::returned_rows).sum()
    }

    fn failure(out: &Self::Out) -> Option<&Error> {
        out.iter().find_map(|result| result.as_ref().err())
    }

    const TAKES_BEGIN: bool = true;

    fn start_with_begin<'c>(
        &'c self,
        begin: &'c Begin,
        on: &'c mut dyn Connection,
    ) -> BoxFuture<'c, Result<Self::Out>> {
        on.begin_pipeline(begin, &self.requests)
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        let is_read = |request: &Request<'_>| sql::class(dialect, request.sql).pure_read;
        match self.requests.iter().all(is_read) {
            true => Commits::Nothing,
            false => Commits::Itself,
        }
    }
}

pub(crate) struct RunBatch<'a> {
    pub(crate) sent: &'a str,
    /// The SQL as the caller wrote it.
    pub(crate) sql: &'a str,
    pub(crate) sets: &'a [Vec<Param<'a>>],
}

impl Op for RunBatch<'_> {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.run_batch(self.sent, self.sets)
    }

    fn sql(&self) -> &str {
        self.sql
    }

    fn rows(out: &Outcome) -> Option<u64> {
        Some(out.rows_affected)
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        Commits::of(&sql::class(dialect, self.sent)).alone()
    }
}

/// As [`RunBatch`], for the rows.
pub(crate) struct QueryBatch<'a>(pub(crate) RunBatch<'a>);

impl Op for QueryBatch<'_> {
    type Out = Vec<Batch>;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Vec<Batch>>> {
        on.query_batch(self.0.sent, self.0.sets)
    }

    fn sql(&self) -> &str {
        self.0.sql
    }

    fn rows(out: &Vec<Batch>) -> Option<u64> {
        Some(out.iter().map(|rows| rows.len() as u64).sum())
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        self.0.commits(dialect)
    }
}

/// The SQL as it is sent, and as the caller wrote it.
pub(crate) struct Prepare<'a>(pub(crate) &'a str, pub(crate) &'a str);

impl Op for Prepare<'_> {
    type Out = Prepared;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Prepared>> {
        on.prepare(self.0)
    }

    fn sql(&self) -> &str {
        self.1
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}

/// With the plan, which knows the SQL as the caller wrote it.
pub(crate) struct StartStream<'a>(pub(crate) Request<'a>, pub(crate) Option<&'a CachedScan>);

impl Op for StartStream<'_> {
    type Out = Arc<Columns>;

    const STREAMS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Arc<Columns>>> {
        on.start_stream(self.0)
    }

    fn sql(&self) -> &str {
        written(&self.0, self.1)
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        // Only hooks of new connections have no plan.
        self.1
            .map_or(Commits::Nothing, |plan| Commits::of(&plan.class).alone())
    }
}

pub(crate) struct BeginOnly(pub(crate) Begin);

impl Op for BeginOnly {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.begin_with(&self.0, None)
    }

    fn sql(&self) -> &str {
        "BEGIN"
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}

/// With the frame of the transaction, if it has one.
pub(crate) struct Commit(pub(crate) Option<Arc<Frame>>);

impl Op for Commit {
    type Out = CommitOutcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<CommitOutcome>> {
        on.commit()
    }

    fn sql(&self) -> &str {
        "COMMIT"
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Transaction
    }

    fn writer(&self) -> Option<&Arc<Frame>> {
        self.0.as_ref()
    }
}

pub(crate) struct Rollback;

impl Op for Rollback {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.rollback()
    }

    fn sql(&self) -> &str {
        "ROLLBACK"
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Remains
    }
}

pub(crate) struct AtSavepoint<'a>(pub(crate) Savepoint<'a>);

impl Op for AtSavepoint<'_> {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.savepoint(self.0)
    }

    fn sql(&self) -> &str {
        match self.0 {
            Savepoint::Set(_) => "SAVEPOINT",
            Savepoint::Release(_) => "RELEASE SAVEPOINT",
            Savepoint::RollBack(_) => "ROLLBACK TO SAVEPOINT",
        }
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}

pub(crate) struct Ping;

impl Op for Ping {
    type Out = ();

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.ping()
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}

/// Asks whether the connection can be shared.
pub(crate) struct CanShare;

impl Op for CanShare {
    type Out = bool;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<bool>> {
        on.can_share()
    }
}

pub(crate) struct Set<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a Value<'a>,
}

impl Op for Set<'_> {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.set(self.name, self.value)
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}

pub(crate) struct EndStream;

impl Op for EndStream {
    type Out = ();

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.end_stream()
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}
