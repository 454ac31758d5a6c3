//! A connection: implements the driver contract, and has what all calls share.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::cancel::Canceller;
use super::connect::Types;
use super::copy::OpenCopy;
use super::engine::Engine;
use super::error;
use super::kept::{Change, Kept};
use super::net::hosts::Peer;
use super::param;
use super::positions::EndPosition;
use super::protocol::answer::{Answer, Next};
use super::protocol::frontend;
use super::protocol::inbox::Frame;
use super::protocol::message::{self, Reader, Report, Tag};
use super::session::{Misread, Session, Told};
use super::shared::SharedRead;
use super::startup::Started;
use super::stream::Stream;
use super::wire::Wire;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, LogPosition,
    Outcome, Param, Prepared, ReplicaAnswer, Request, Reset, Savepoint, SharedAnswer, Status, Tls,
    Value, boxed_in_place,
};
use crate::hosts::Place;
use crate::{Error, Kind, Result};

/// After this idle time, `probe` reads the socket before the next call.
const PROBE_AFTER: Duration = Duration::from_millis(1);

/// An open connection to a PostgreSQL server.
///
/// [`Connection::as_any`] returns this type for this driver.
pub struct PostgresConnection {
    pub(super) wire: Wire,
    /// The transaction status of the last ReadyForQuery.
    pub(super) status: Status,
    pub(super) session: Session,
    pub(super) cache: Kept,
    /// A reset undoes everything that a reset can undo.
    pub(super) full_reset: bool,
    pub(super) types: Arc<Types>,
    pub(super) canceller: Canceller,
    /// The call in flight, or the dropped call that is not settled yet.
    pub(super) in_flight: InFlight,
    pub(super) stream: Option<Stream>,
    pub(super) copy: Option<OpenCopy>,
    /// The reads of several callers in flight, in order.
    pub(super) shared: VecDeque<SharedRead>,
    /// The last INSERT whose sets have to run one by one.
    pub(super) singly: Option<Box<str>>,
    warnings: u64,
    /// Which server speaks the protocol, and so what its codes mean.
    pub(super) engine: Engine,
    /// The server has stopped waiting for its standbys to confirm the commit of the present call.
    pub(super) unconfirmed: bool,
    /// Its place at its host, if there is a choice of hosts.
    pub(super) place: Option<Arc<Place>>,
    /// The server has refused a write that nothing forbids but its role, and was taken to write to.
    pub(super) is_demoted: bool,
    /// Whether the layer has begun the present transaction as a read-only one; `None` outside of its transactions.
    pub(super) begun_read_only: Option<bool>,
    /// The server's reason for closing the idle connection, if it sent one.
    pub(super) farewell: Option<Error>,
    /// The position at the end of the present call, or the last one.
    pub(super) position: EndPosition,
    /// The number of the server's cluster, once it was asked for.
    pub(super) cluster: Option<u64>,
}

/// The call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFlight {
    Nothing,
    /// A short call, or one that must not be cancelled: settling waits for it.
    Brief,
    /// A statement, which may take long: settling cancels it.
    Statement,
}

impl PostgresConnection {
    pub(super) fn new(
        started: Started,
        peer: Peer,
        types: Arc<Types>,
        settings: &ConnectSettings,
        engine: Engine,
        place: Option<Arc<Place>>,
    ) -> Self {
        let mut cache = Kept::new(settings.statement_cache);
        for (name, value) in &started.parameters {
            cache.note_setting(name.as_bytes(), value.as_bytes());
        }
        PostgresConnection {
            wire: started.wire,
            status: started.status,
            session: Session::new(started.parameters),
            cache,
            full_reset: settings.full_reset,
            types,
            canceller: Canceller::new(peer, started.key),
            in_flight: InFlight::Nothing,
            stream: None,
            copy: None,
            shared: VecDeque::new(),
            singly: None,
            warnings: 0,
            engine,
            unconfirmed: false,
            place,
            is_demoted: false,
            begun_read_only: None,
            farewell: None,
            position: EndPosition::NotWanted,
            cluster: None,
        }
    }

    /// Returns the number of round trips so far, for tests.
    #[doc(hidden)]
    pub fn round_trips(&self) -> u64 {
        self.wire.round_trips()
    }

    /// Returns the number of cached prepared statements, for tests.
    #[doc(hidden)]
    pub fn kept_statements(&self) -> usize {
        self.cache.len()
    }

    /// Returns the process id of the server's backend.
    pub fn process_id(&self) -> i32 {
        self.canceller.process()
    }

    /// Refuses to send a text that the server would misread, and closes the connection: without a reset the setting
    /// stays wrong.
    #[inline]
    pub(super) fn check_reading(&mut self) -> Result<()> {
        match self.session.misread() {
            None => Ok(()),
            Some(misread) => {
                self.wire.set_broken();
                Err(error::misread(misread))
            }
        }
    }

    /// Begins a call, if no other one is open.
    pub(super) fn begin_call(&mut self, call: InFlight) -> Result<()> {
        if self.wire.is_broken() {
            return Err(self.why_broken());
        }
        if self.stream.is_some() {
            let message = "a row stream is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        if self.copy.is_some() {
            let message = "a COPY is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        if self.in_flight != InFlight::Nothing || !self.wire.is_at_rest() {
            let message = "an earlier call was dropped on this connection; settle it first";
            return Err(Error::new(Kind::Busy, message));
        }
        if call == InFlight::Statement {
            self.check_reading()?;
        }
        self.warnings = 0;
        self.session.begin_call(self.status);
        self.wire.begin_call();
        self.in_flight = call;
        Ok(())
    }

    /// Ends a call whose answer is complete.
    pub(super) fn end_call(&mut self) {
        self.in_flight = InFlight::Nothing;
    }

    pub(super) fn warnings_so_far(&self) -> u64 {
        self.warnings
    }

    /// Sends the outbox, and reads until the answer is complete.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call is unsettled; `settle_all` ends it.
    pub(super) async fn receive(&mut self, answer: &mut Answer) -> Result<()> {
        poll_fn(|cx| self.poll_receive(cx, answer)).await
    }

    /// Sends the outbox, and reads until the answer is complete.
    ///
    /// # Errors
    ///
    /// The connection is lost; with the server's reason, if it sent one.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        answer: &mut Answer,
    ) -> Poll<Result<()>> {
        loop {
            match self.digest(answer) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(self.why_lost(lost, answer))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Sends, and waits until bytes have arrived.
    ///
    /// # Errors
    ///
    /// The connection is lost; with the server's reason, if it sent one.
    pub(super) async fn fill(&mut self, answer: &mut Answer) -> Result<()> {
        let filled = poll_fn(|cx| self.wire.poll_fill(cx)).await;
        filled.map_err(|lost| self.why_lost(lost, answer))
    }

    /// Reads what has arrived, up to the end of the answer. Returns false if the answer is not complete.
    pub(super) fn digest(&mut self, answer: &mut Answer) -> Result<bool> {
        while self.wire.is_pending() {
            let Some(frame) = self.wire.frame()? else {
                return Ok(false);
            };
            self.take(frame, answer)?;
        }
        Ok(true)
    }

    /// Processes one message.
    pub(super) fn take(&mut self, frame: Frame, answer: &mut Answer) -> Result<()> {
        match frame.tag {
            b'Z' => {
                self.status = message::status(Reader(self.wire.body(frame)));
                if self.status == Status::Unknown {
                    return Err(self.wire.garbage("an unknown transaction status"));
                }
                if let Some(misread @ Misread::Encoding) = self.session.misread() {
                    answer.distrust(misread);
                }
                if self.unconfirmed || answer.report.is_some() {
                    self.check_outcome(answer);
                }
                if self.status == Status::Idle {
                    self.begun_read_only = None;
                }
                self.wire.consume(frame);
                self.wire.ready()?;
                self.cache.note_status(self.status);
                if !self.wire.is_pending() {
                    self.take_unsolicited();
                }
                return Ok(());
            }
            b'S' | b'N' | b'A' => {
                self.take_any_time(frame);
                return Ok(());
            }
            tag => self.wire.answered(tag)?,
        }
        let body = self.wire.body(frame);
        let next = match frame.tag {
            b'D' => answer.row(body),
            b'C' => match Tag::read(body) {
                Some(tag) => {
                    self.cache.note_tag(tag);
                    answer.command_complete(tag);
                    if self.session.note_tag(tag) == Told::NoStatements {
                        self.cache.clear();
                        // This includes the statement that did it.
                        answer.described = false;
                    }
                    Next::Read
                }
                None => Next::Garbage("a malformed command tag"),
            },
            tag => {
                let types = &self.types;
                let next = answer.take(tag, body, |oid| types.get(oid));
                if tag == b'T' && types.keep_text {
                    answer.keep_text();
                }
                next
            }
        };
        self.wire.consume(frame);
        match next {
            Next::Read => Ok(()),
            Next::FailCopy => self.fail_copy(),
            Next::Garbage(what) => Err(self.wire.garbage(what)),
        }
    }

    /// Processes a message that may arrive at any time.
    fn take_any_time(&mut self, frame: Frame) {
        let body = self.wire.body(frame);
        match frame.tag {
            b'S' => {
                if let Some((name, value)) = message::parameter(body) {
                    if name == b"in_hot_standby" {
                        self.suspect_host();
                    }
                    self.session.note_parameter(name, value);
                    self.cache.note_setting(name, value);
                }
            }
            b'N' => {
                if let Some(report) = Report::read(body) {
                    self.warnings += u64::from(report.severity == "WARNING");
                    self.unconfirmed |= report.is_unconfirmed_commit();
                    log_notice(&report);
                }
            }
            _ => {}
        }
        self.wire.consume(frame);
    }

    /// Processes what has arrived while no call is open: messages that may arrive at any time. Any other message breaks
    /// the connection, because the next call would take it for its answer.
    #[inline]
    fn take_unsolicited(&mut self) {
        while let Some(tag) = self.wire.next_tag() {
            if !matches!(tag, b'S' | b'N' | b'A') {
                return self.break_unasked();
            }
            match self.wire.frame() {
                Ok(Some(frame)) => self.take_any_time(frame),
                // The message is incomplete.
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Fails the COPY of a simple query. The server answers the query once, whether it reads this message or
    /// has failed before.
    fn fail_copy(&mut self) -> Result<()> {
        let reason = "a COPY in the text of a statement gets no data";
        frontend::copy_fail(self.wire.outbox_in_batch(), reason)
    }

    /// Runs SQL by the simple protocol, unchanged.
    pub(super) async fn simple(&mut self, sql: &str, mut answer: Answer) -> Result<Answer> {
        let mark = self.wire.mark();
        if let Err(wrong) = frontend::query(self.wire.outbox(), sql) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.wire.note_query();
        self.receive(&mut answer).await?;
        Ok(answer)
    }

    /// Runs a short command of the driver's own.
    pub(super) async fn command(&mut self, sql: &str) -> Result<Answer> {
        self.begin_call(InFlight::Brief)?;
        let mut answer = self.simple(sql, Answer::new(false)).await?;
        self.end_call();
        match answer.error() {
            Some(error) => Err(error),
            None => Ok(answer),
        }
    }

    async fn say_goodbye(mut self) -> Result<()> {
        if self.wire.is_broken() {
            return Ok(());
        }
        match self.part().await {
            // The server has closed it first.
            Err(_) if self.wire.is_broken() => Ok(()),
            parted => parted,
        }
    }

    async fn part(&mut self) -> Result<()> {
        // Otherwise a running statement would go on.
        self.settle_all().await?;
        frontend::terminate(self.wire.outbox());
        poll_fn(|cx| self.wire.poll_flush(cx)).await?;
        // Fails if the server has closed its side first.
        let _ = poll_fn(|cx| self.wire.poll_shutdown(cx)).await;
        Ok(())
    }
}

pub(super) fn log_notice(report: &Report) {
    let Report { state, message, .. } = report;
    match &*report.severity {
        "WARNING" => tracing::warn!(state, "PostgreSQL: {message}"),
        severity => tracing::debug!(severity, state, "PostgreSQL: {message}"),
    }
}

impl Connection for PostgresConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        boxed_in_place(|| self.execute(None, request))
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(self.execute_all(request))
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(self.execute_batch(sql, sets, false))
    }

    fn query_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Vec<Batch>>> {
        Box::pin(async move {
            let outcome = self.execute_batch(sql, sets, true).await?;
            Ok(outcome.rows.into_iter().collect())
        })
    }

    fn run_pipeline<'c>(
        &'c mut self,
        requests: &'c [Request<'c>],
        stops_at_error: bool,
    ) -> BoxFuture<'c, Result<Vec<Result<Outcome>>>> {
        Box::pin(self.execute_pipeline(None, requests, stops_at_error))
    }

    fn begin_pipeline<'c>(
        &'c mut self,
        begin: &'c Begin,
        requests: &'c [Request<'c>],
    ) -> BoxFuture<'c, Result<Vec<Result<Outcome>>>> {
        Box::pin(self.begin_transaction_with_pipeline(begin, requests))
    }

    fn can_share(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.has_own_backend())
    }

    fn push_shared(&mut self, request: &Request<'_>) -> Result<bool> {
        self.push_read(request)
    }

    fn poll_shared(&mut self, cx: &mut Context<'_>) -> Poll<SharedAnswer> {
        self.poll_read(cx)
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

    fn begins_lazily(&self) -> bool {
        true
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
        match (&self.stream, &self.copy) {
            (Some(stream), _) => stream.status(),
            (None, Some(copy)) => copy.status(),
            // The query for the position changes nothing.
            (None, None) if self.wire.is_at_rest() || self.position.is_due() => self.status,
            (None, None) => Status::Unknown,
        }
    }

    fn session_changed(&self) -> bool {
        self.session.is_changed(self.status)
    }

    fn expect_session_change(&mut self) {
        self.cache.change(Change::Session);
    }

    fn session_is_set_up(&mut self) {
        self.cache.end_change();
    }

    fn warnings(&self) -> u64 {
        self.warnings
    }

    fn tls(&self) -> Option<Tls> {
        self.wire.socket().tls()
    }

    fn is_broken(&self) -> bool {
        self.wire.is_broken()
    }

    fn is_outdated(&self) -> bool {
        self.is_demoted || self.place.as_ref().is_some_and(|place| place.is_outdated())
    }

    /// Checks for a closed connection. Shortly after an answer it relies on the executor's reports, which costs no
    /// system call; later it reads the socket.
    #[inline]
    fn probe(&mut self, rested: Duration) {
        if rested < PROBE_AFTER && !self.wire.is_readable() {
            return;
        }
        if self.in_flight != InFlight::Nothing || !self.wire.is_at_rest() {
            return;
        }
        self.wire.read_available();
        self.take_unsolicited();
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.settle_all())
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.begin_call(InFlight::Brief)?;
            self.wire.sync();
            let mut answer = Answer::new(false);
            self.receive(&mut answer).await?;
            self.end_call();
            answer.error().map_or(Ok(()), Err)
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(self.reset_session())
    }

    /// Sets a setting of the session, such as `statement_timeout` or `search_path`.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            let text = param::setting(name, value)?;
            let params = [
                Param::Value(Value::Text(name.into())),
                Param::Value(Value::Text((&*text).into())),
            ];
            let sql = "SELECT pg_catalog.set_config($1, $2, false)";
            let mut request = Request::new(sql, &params);
            request.cache = false;
            request.rows = false;
            self.execute(None, request).await?;
            self.cache.note_default(name, &text);
            // A setting under which texts are misread is refused now, not at the next call.
            self.check_reading()
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.say_goodbye())
    }

    fn expect_position(&mut self) {
        self.position = EndPosition::Wanted;
    }

    fn take_position(&mut self) -> BoxFuture<'_, Option<LogPosition>> {
        Box::pin(self.told_position())
    }

    fn ask_position(&mut self) -> BoxFuture<'_, Result<LogPosition>> {
        Box::pin(self.ask_for_position())
    }

    fn read_at<'c>(
        &'c mut self,
        wanted: Option<LogPosition>,
        verify: bool,
        read: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<(ReplicaAnswer, Option<Result<Outcome>>)>> {
        Box::pin(self.read_where_replayed(wanted, verify, read))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl fmt::Debug for PostgresConnection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PostgresConnection")
            .field("process", &self.canceller.process())
            .field("status", &self.status)
            .field("in_flight", &self.in_flight)
            .field("broken", &self.wire.is_broken())
            .finish_non_exhaustive()
    }
}

/// Returns an SQL name in quotes.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
