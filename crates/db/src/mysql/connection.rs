//! A connection, as the layer sees it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::cancel::Kill;
use super::decimal;
use super::execute::Keep;
use super::param;
use super::session::{Facts, Running, Session};
use super::session_effects::Misread;
use super::statement::Statement;
use super::stream::Stream;
use super::wire::{Wire, caught};
use crate::Result;
use crate::driver::cache::StatementCache;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Reset, Savepoint, Status, Tls, Value, Verified, boxed_in_place,
};

/// An open connection to a MySQL or MariaDB server.
///
/// It is what [`Connection::as_any`] gives for this driver.
pub struct MysqlConnection {
    /// `None` while a stream reads from it, and when it is closed.
    pub(super) wire: Option<Wire>,
    /// With what to open another one to the same server.
    pub(super) options: Opts,
    /// What the server calls it.
    pub(super) id: u32,
    /// As the server last said.
    pub(super) status: Status,
    /// If there is a transaction, it was not begun by the text of a statement.
    pub(super) is_ours: bool,
    /// Set before each call and cleared when it has been answered. Found set, a call was dropped, and what
    /// comes next on the wire is that call's answer: see [`settle`](super::settle).
    pub(super) in_flight: bool,
    /// Its other side may have gone, for all we know: the next call asks first.
    pub(super) is_unproven: bool,
    pub(super) is_broken: bool,
    pub(super) stream: Option<Stream>,
    /// What kills the query that was left behind on the server.
    pub(super) kill: Option<Kill>,
    pub(super) cache: StatementCache<Statement>,
    pub(super) session: Arc<Session>,
    /// What the session was when it was new.
    pub(super) facts: Facts,
    /// Its clock is in UTC: a TIMESTAMP is a moment.
    pub(super) is_utc: bool,
    /// The server does not read in a text what is read in it here.
    pub(super) misreads: Option<Misread>,
    /// A stream may have changed how the server reads.
    pub(super) is_reading_unsure: bool,
    /// Where its number means something.
    pub(super) running: Running,
    pub(super) warnings: u64,
    /// How many statements were prepared so far.
    pub(super) prepared: u64,
}

impl MysqlConnection {
    pub(super) fn new(
        wire: Wire,
        facts: Facts,
        running: Running,
        session: &Arc<Session>,
        statement_cache: usize,
    ) -> Self {
        MysqlConnection {
            options: wire.opts().clone(),
            id: wire.id(),
            status: status_of(&wire).unwrap_or(Status::Unknown),
            is_ours: false,
            wire: Some(wire),
            in_flight: false,
            is_unproven: false,
            is_broken: false,
            stream: None,
            kill: None,
            cache: StatementCache::new(statement_cache),
            is_utc: session.is_utc,
            misreads: None,
            is_reading_unsure: false,
            session: Arc::clone(session),
            facts,
            running,
            warnings: 0,
            prepared: 0,
        }
    }

    /// The number that the server gave this connection: `KILL` takes it.
    pub fn connection_id(&self) -> u32 {
        self.id
    }

    /// How many prepared statements are kept, for tests that count.
    #[doc(hidden)]
    pub fn kept_statements(&self) -> usize {
        self.cache.len()
    }

    /// How many statements were prepared so far, for tests that count.
    #[doc(hidden)]
    pub fn prepared_statements(&self) -> u64 {
        self.prepared
    }

    /// Whether a call was dropped before it was answered, for tests that count.
    #[doc(hidden)]
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Forgets that a call was dropped: for the test that shows what would come of it.
    #[doc(hidden)]
    pub fn forget_flight(&mut self) {
        self.in_flight = false;
    }
}

/// The transaction, as the last OK of the server tells it. It tells nothing after an error.
pub(super) fn status_of(conn: &Conn) -> Option<Status> {
    let flags = conn.last_ok_packet()?.status_flags();
    Some(match flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS) {
        true => Status::InTransaction,
        false => Status::Idle,
    })
}

/// After so long a rest the next call asks first whether the server is still there.
const PING_AFTER: Duration = Duration::from_millis(500);

impl Connection for MysqlConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        if decimal::is_among(request.params) {
            return Box::pin(self.execute(request));
        }
        match self.kept(&request) {
            // What runs again and again has a future of its own, which is small. What may end the transaction
            // unseen is watched.
            Some(statement) if !statement.touches_session => {
                boxed_in_place(|| self.exchange(request, statement, Keep::Known))
            }
            _ => Box::pin(self.execute(request)),
        }
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(self.execute_all(request))
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(self.execute_batch(sql, sets))
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(self.prepare_only(sql))
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(self.open_stream(request))
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.poll_stream(cx)
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.close_stream())
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(self.begin_transaction(begin, first))
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(self.commit_transaction())
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.roll_back_transaction())
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(self.at_savepoint(step))
    }

    fn status(&self) -> Status {
        match self.in_flight {
            true => Status::Unknown,
            false => self.status,
        }
    }

    fn warnings(&self) -> u64 {
        self.warnings
    }

    fn tls(&self) -> Option<Tls> {
        // The client library verifies certificate and name together, or neither.
        let options = self.options.ssl_opts()?;
        Some(Tls::new(match options.accept_invalid_certs() {
            true => Verified::Nothing,
            false => Verified::CertificateAndHost,
        }))
    }

    fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The client library shows nobody its socket: so the next call begins with a ping, and one that nothing
    /// depends on is made elsewhere if that is not answered.
    /// After a rest the next call asks the server first. The client library does not show its
    /// socket, so that there is no cheaper way.
    fn probe(&mut self, rested: Duration) {
        self.is_unproven |= rested > PING_AFTER;
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.settle_all())
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.depart().await?;
            let answer = caught(self.wire()?.ping()).await;
            self.land(answer).await
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(self.reset_session())
    }

    /// Sets a variable of the session, such as `innodb_lock_wait_timeout`.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            let name = param::setting_name(name)?;
            let sql = format!("SET SESSION {name} = {}", param::literal(name, value)?);
            self.command(&sql).await?;
            self.note_touch(&sql).await?;
            match self.misreads {
                Some(wrong) => Err(wrong.error()),
                None => Ok(()),
            }
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.say_goodbye())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl fmt::Debug for MysqlConnection {
    /// Nothing of the client library's is shown: a password is among it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MysqlConnection")
            .field("id", &self.id)
            .field("status", &self.status)
            .field("in_flight", &self.in_flight)
            .field("broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}
