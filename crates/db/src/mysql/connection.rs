//! A connection: implements the driver contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::cancel::Kill;
use super::cut::{AtHost, unless_cut};
use super::decimal;
use super::engine::Engine;
use super::execute::Keep;
use super::param;
use super::positions::{EndPosition, Positions};
use super::session::{Facts, Running, Session};
use super::session_effects::Misread;
use super::statement::Statement;
use super::stream::Stream;
use super::wire::{Wire, caught};
use crate::Result;
use crate::driver::cache::StatementCache;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, LogPosition, Outcome, Param,
    Prepared, ReplicaAnswer, Request, Reset, Savepoint, Status, Tls, Value, Verified,
    boxed_in_place,
};

/// An open connection to a MySQL or MariaDB server.
///
/// [`Connection::as_any`] returns this type for this driver.
pub struct MysqlConnection {
    /// `None` while a stream reads from it, and when it is closed.
    pub(super) wire: Option<Wire>,
    /// Opens another connection to the same server.
    pub(super) options: Opts,
    /// Which server speaks the protocol, and so what its codes mean.
    pub(super) engine: Engine,
    /// The connection id on the server.
    pub(super) id: u32,
    /// The transaction status that the server last reported.
    pub(super) status: Status,
    /// The layer began the open transaction, not the text of a statement.
    pub(super) begun_by_layer: bool,
    /// Set before each call, and cleared when the answer is complete. If it is set between calls, a call was dropped, and
    /// its answer is still on the wire: see [`dropped_call`](super::dropped_call).
    pub(super) in_flight: bool,
    /// The connection was idle for long: the next call pings first.
    pub(super) needs_ping: bool,
    pub(super) is_broken: bool,
    pub(super) stream: Option<Stream>,
    /// Kills the query of a dropped call.
    pub(super) kill: Option<Kill>,
    pub(super) cache: StatementCache<Statement>,
    pub(super) session: Arc<Session>,
    /// The state of the new session.
    pub(super) facts: Facts,
    /// The session's time zone is UTC, so a TIMESTAMP is a point in time.
    pub(super) is_utc: bool,
    /// The setting under which the server reads texts differently than this client, if there is one.
    pub(super) misreads: Option<Misread>,
    /// Whether the server still reads texts as this client does is unknown.
    pub(super) is_reading_unsure: bool,
    /// The server in which the connection id is valid.
    pub(super) running: Running,
    pub(super) warnings: u64,
    /// The number of statements prepared so far.
    pub(super) prepared: u64,
    /// The layer began the open transaction as a read-only one.
    pub(super) begun_read_only: bool,
    /// `None` where there is no choice of hosts.
    pub(super) host: Option<AtHost>,
    pub(super) positions: Positions,
}

impl MysqlConnection {
    pub(super) fn new(
        wire: Wire,
        facts: Facts,
        running: Running,
        session: &Arc<Session>,
        statement_cache: usize,
        engine: Engine,
    ) -> Self {
        MysqlConnection {
            options: wire.opts().clone(),
            id: wire.id(),
            engine,
            status: status_of(&wire).unwrap_or(Status::Unknown),
            begun_by_layer: false,
            wire: Some(wire),
            in_flight: false,
            needs_ping: false,
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
            begun_read_only: false,
            host: None,
            positions: Positions::NONE,
        }
    }

    /// Returns the connection id, as `KILL` takes it.
    pub fn connection_id(&self) -> u32 {
        self.id
    }

    /// Returns the number of cached prepared statements, for tests.
    #[doc(hidden)]
    pub fn kept_statements(&self) -> usize {
        self.cache.len()
    }

    /// Returns the number of statements prepared so far, for tests.
    #[doc(hidden)]
    pub fn prepared_statements(&self) -> u64 {
        self.prepared
    }

    /// Returns whether a call was dropped before its answer was complete. For tests.
    #[doc(hidden)]
    pub fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Clears the in-flight flag, for the test that shows what happens without it.
    #[doc(hidden)]
    pub fn forget_in_flight(&mut self) {
        self.in_flight = false;
    }
}

/// Returns the transaction status of the last OK; `None` after an error.
pub(super) fn status_of(conn: &Conn) -> Option<Status> {
    let flags = conn.last_ok_packet()?.status_flags();
    Some(match flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS) {
        true => Status::InTransaction,
        false => Status::Idle,
    })
}

/// After this idle time the next call pings first.
const PING_AFTER: Duration = Duration::from_millis(500);

impl Connection for MysqlConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        let switch = self.switch();
        if decimal::is_among(request.params) {
            return unless_cut(switch, Box::pin(self.execute(request)));
        }
        let call: BoxFuture<'c, _> = match self.kept(&request) {
            // Cached statements have a small future of their own. Those that may end the transaction
            // unnoticed take the general path, which checks for that.
            Some(statement) if !statement.touches_session => {
                boxed_in_place(|| self.exchange(request, statement, Keep::Known))
            }
            _ => Box::pin(self.execute(request)),
        };
        unless_cut(switch, call)
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        unless_cut(self.switch(), Box::pin(self.execute_all(request)))
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        let switch = self.switch();
        let call = async move { Ok(self.execute_batch(sql, sets, false).await?.0) };
        unless_cut(switch, Box::pin(call))
    }

    fn query_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Vec<Batch>>> {
        let switch = self.switch();
        let call = async move { Ok(self.execute_batch(sql, sets, true).await?.1) };
        unless_cut(switch, Box::pin(call))
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        unless_cut(self.switch(), Box::pin(self.prepare_only(sql)))
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        unless_cut(self.switch(), Box::pin(self.open_stream(request)))
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.poll_stream_unless_cut(cx)
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        unless_cut(self.switch(), Box::pin(self.close_stream()))
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        unless_cut(
            self.switch(),
            Box::pin(self.begin_transaction(begin, first)),
        )
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        unless_cut(self.switch(), Box::pin(self.commit_transaction()))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        unless_cut(self.switch(), Box::pin(self.roll_back_transaction()))
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        unless_cut(self.switch(), Box::pin(self.at_savepoint(step)))
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
        self.is_broken || self.is_cut()
    }

    fn is_outdated(&self) -> bool {
        let host = self.host.as_ref();
        host.is_some_and(|host| host.is_demoted || host.place.is_outdated())
    }

    /// After an idle time the next call begins with a ping. There is no cheaper check, because the client library
    /// does not expose its socket.
    fn probe(&mut self, rested: Duration) {
        self.needs_ping |= rested > PING_AFTER;
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        unless_cut(self.switch(), Box::pin(self.settle_all()))
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        let switch = self.switch();
        let call = async {
            self.begin_call().await?;
            let answer = caught(self.wire()?.ping()).await;
            self.end_call(answer).await
        };
        unless_cut(switch, Box::pin(call))
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        unless_cut(self.switch(), Box::pin(self.reset_session()))
    }

    /// Sets a variable of the session, such as `innodb_lock_wait_timeout`.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        let switch = self.switch();
        let call = async move {
            let name = param::setting_name(name)?;
            let sql = format!("SET SESSION {name} = {}", param::literal(name, value)?);
            self.command(&sql).await?;
            self.note_touch(&sql).await?;
            match self.misreads {
                Some(wrong) => Err(wrong.error()),
                None => Ok(()),
            }
        };
        unless_cut(switch, Box::pin(call))
    }

    fn expect_position(&mut self) {
        self.positions.end = EndPosition::Wanted;
    }

    fn take_position(&mut self) -> BoxFuture<'_, Option<LogPosition>> {
        Box::pin(self.reported_position())
    }

    fn covers_earlier(&self) -> bool {
        self.positions.covers_earlier()
    }

    /// Tables of other engines than InnoDB keep what was written to them, and procedures may commit.
    fn rolls_back_all(&self) -> bool {
        false
    }

    fn ask_position(&mut self) -> BoxFuture<'_, Result<LogPosition>> {
        unless_cut(self.switch(), Box::pin(self.ask_for_position()))
    }

    /// A read without parameters shares the text of the question; any other follows it in a second round trip. The answer always has
    /// the history.
    fn read_at<'c>(
        &'c mut self,
        wanted: Option<LogPosition>,
        _: bool,
        read: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<(ReplicaAnswer, Option<Result<Outcome>>)>> {
        unless_cut(
            self.switch(),
            Box::pin(self.read_where_applied(wanted, read)),
        )
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.disconnect())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl fmt::Debug for MysqlConnection {
    /// Without the client library's fields, which contain the password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MysqlConnection")
            .field("id", &self.id)
            .field("status", &self.status)
            .field("in_flight", &self.in_flight)
            .field("broken", &self.is_broken)
            .finish_non_exhaustive()
    }
}
