//! A connection of the pool: the contract towards the layer, and what all its calls have in common.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::cancel::Canceller;
use super::connect::Types;
use super::error;
use super::kept::{Change, Kept};
use super::net::hosts::Peer;
use super::param;
use super::protocol::answer::{Answer, Next};
use super::protocol::frontend;
use super::protocol::inbox::Frame;
use super::protocol::message::{self, Reader, Report, Tag};
use super::session::{Misread, Session, Told};
use super::startup::Started;
use super::stream::Stream;
use super::wire::Wire;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, Outcome, Param,
    Prepared, Request, Reset, Savepoint, Status, Tls, Value, boxed_in_place,
};
use crate::{Error, Kind, Result};

/// After so long a rest the socket itself is looked at before the next call.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// An open connection to a PostgreSQL server.
///
/// It is what [`Connection::as_any`] gives for this driver.
pub struct PostgresConnection {
    pub(super) wire: Wire,
    /// As the last ReadyForQuery said.
    pub(super) status: Status,
    pub(super) session: Session,
    pub(super) cache: Kept,
    /// A reset undoes all that can be undone.
    pub(super) full_reset: bool,
    pub(super) types: Arc<Types>,
    pub(super) canceller: Canceller,
    /// What is under way, or was when its future was dropped.
    pub(super) flight: Flight,
    pub(super) stream: Option<Stream>,
    warnings: u64,
    /// Why the server closed the connection while it rested, if it said so.
    farewell: Option<Error>,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    Nothing,
    /// What is soon over, or must not be cancelled: it is waited for.
    Brief,
    /// A statement, which may take as long as it likes.
    Statement,
}

impl PostgresConnection {
    pub(super) fn new(
        started: Started,
        peer: Peer,
        types: Arc<Types>,
        settings: &ConnectSettings,
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
            flight: Flight::Nothing,
            stream: None,
            warnings: 0,
            farewell: None,
        }
    }

    /// How often the server was asked and answered so far, for tests that count.
    #[doc(hidden)]
    pub fn round_trips(&self) -> u64 {
        self.wire.round_trips()
    }

    /// How many prepared statements are kept, for tests that count.
    #[doc(hidden)]
    pub fn kept_statements(&self) -> usize {
        self.cache.len()
    }

    /// The number of the server's process that serves this connection.
    pub fn process_id(&self) -> i32 {
        self.canceller.process()
    }

    /// Refuses to send a text that the server would misread, and closes the connection: only a reset, which did not
    /// happen, would have brought the setting back.
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

    /// A call begins.
    pub(super) fn begin_call(&mut self, flight: Flight) -> Result<()> {
        if self.wire.is_broken() {
            return Err(self.farewell.clone().unwrap_or_else(error::broken));
        }
        if self.stream.is_some() {
            let message = "a row stream is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        if self.flight != Flight::Nothing || !self.wire.is_at_rest() {
            let message = "an earlier call was dropped on this connection; settle it first";
            return Err(Error::new(Kind::Busy, message));
        }
        if flight == Flight::Statement {
            self.check_reading()?;
        }
        self.warnings = 0;
        self.session.begin_call(self.status);
        self.wire.begin_call();
        self.flight = flight;
        Ok(())
    }

    /// The call has been answered.
    pub(super) fn end_call(&mut self) {
        self.flight = Flight::Nothing;
    }

    pub(super) fn warnings_so_far(&self) -> u64 {
        self.warnings
    }

    /// Sends what there is to be sent, and reads until the server is done with all of it.
    ///
    /// A cancel leaves it to be settled.
    pub(super) async fn receive(&mut self, answer: &mut Answer) -> Result<()> {
        poll_fn(|cx| self.poll_receive(cx, answer)).await
    }

    /// Sends what there is to be sent, and reads until the server is done with all of it.
    ///
    /// # Errors
    ///
    /// The connection is gone; if the server said why, with that.
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

    /// Sends, and waits until something has come.
    ///
    /// # Errors
    ///
    /// The connection is gone; if the server said why, with that.
    pub(super) async fn fill(&mut self, answer: &mut Answer) -> Result<()> {
        let filled = poll_fn(|cx| self.wire.poll_fill(cx)).await;
        filled.map_err(|lost| self.why_lost(lost, answer))
    }

    /// The connection is gone: if the server said why, that is the error.
    pub(super) fn why_lost(&self, lost: Error, answer: &mut Answer) -> Error {
        let Some(report) = answer.report.take_if(|report| report.is_fatal()) else {
            return lost;
        };
        // The server closed an idle session, and the call crossed its last words. It reads messages
        // in order: without BindComplete it has not begun to run anything.
        let has_begun = answer.bound > 0 || answer.complete || self.wire.is_query();
        match report.ends_session() && !has_begun {
            true => error::from_report(*report).never_sent(),
            false => self.wire.unless_sent(error::from_report(*report)),
        }
    }

    /// Reads what has come, up to the end of the answer. `false` if more has to come.
    pub(super) fn digest(&mut self, answer: &mut Answer) -> Result<bool> {
        while self.wire.is_pending() {
            let Some(frame) = self.wire.frame()? else {
                return Ok(false);
            };
            self.take(frame, answer)?;
        }
        Ok(true)
    }

    /// Reads one message.
    pub(super) fn take(&mut self, frame: Frame, answer: &mut Answer) -> Result<()> {
        match frame.tag {
            b'Z' => {
                self.status = message::status(Reader(self.wire.body(frame)));
                if self.status == Status::Unknown {
                    return Err(self.wire.garbage("its status is none that there is"));
                }
                if let Some(misread @ Misread::Encoding) = self.session.misread() {
                    answer.distrust(misread);
                }
                self.wire.consume(frame);
                self.wire.ready()?;
                self.cache.note_status(self.status);
                self.take_unasked();
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
                        // The one that did it is gone, too.
                        answer.described = false;
                    }
                    Next::Read
                }
                None => Next::Garbage("a command tag cannot be read"),
            },
            tag => {
                let types = &self.types;
                answer.take(tag, body, |oid| types.get(oid))
            }
        };
        self.wire.consume(frame);
        match next {
            Next::Read => Ok(()),
            Next::FailCopy => self.fail_copy(),
            Next::Garbage(what) => Err(self.wire.garbage(what)),
        }
    }

    /// Reads a message that may come at any time.
    fn take_any_time(&mut self, frame: Frame) {
        let body = self.wire.body(frame);
        match frame.tag {
            b'S' => {
                if let Some((name, value)) = message::parameter(body) {
                    self.session.note_parameter(name, value);
                    self.cache.note_setting(name, value);
                }
            }
            b'N' => {
                if let Some(report) = Report::read(body) {
                    self.warnings += u64::from(report.severity == "WARNING");
                    log_notice(&report);
                }
            }
            _ => {}
        }
        self.wire.consume(frame);
    }

    /// Reads what has come while nothing is unanswered: only messages that may come at any time.
    /// Whatever else it is, it would be taken for the answer to the next call, so it breaks the
    /// connection.
    #[inline]
    fn take_unasked(&mut self) {
        while let Some(tag) = self.wire.next_tag() {
            if !matches!(tag, b'S' | b'N' | b'A') {
                return self.break_unasked();
            }
            match self.wire.frame() {
                Ok(Some(frame)) => self.take_any_time(frame),
                // The rest of it is yet to come.
                Ok(None) | Err(_) => return,
            }
        }
    }

    #[cold]
    fn break_unasked(&mut self) {
        let frame = self.wire.frame().ok().flatten();
        let report = frame.filter(|frame| frame.tag == b'E');
        let report = report.and_then(|frame| Report::read(self.wire.body(frame)));
        match report {
            // The server's last words.
            Some(report) => {
                tracing::debug!(message = report.message, "the server closed a connection");
                if report.is_fatal() {
                    self.farewell = Some(error::from_report(report).never_sent());
                }
            }
            None => {
                tracing::warn!("the server sent what no call asked for: the connection is closed")
            }
        }
        self.wire.set_broken();
    }

    /// Tells the server that no data will come for the COPY of a simple query. The server answers
    /// that query once, whether it reads this or has failed before.
    fn fail_copy(&mut self) -> Result<()> {
        frontend::copy_fail(self.wire.outbox_in_batch())
    }

    /// Runs SQL by the simple protocol, as it is.
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

    /// Runs a command of our own, which is soon over.
    pub(super) async fn command(&mut self, sql: &str) -> Result<Answer> {
        self.begin_call(Flight::Brief)?;
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
            // The other side has gone first: then it is closed, as it should be.
            Err(_) if self.wire.is_broken() => Ok(()),
            parted => parted,
        }
    }

    async fn part(&mut self) -> Result<()> {
        // What still runs would go on without us.
        self.settle_all().await?;
        frontend::terminate(self.wire.outbox());
        poll_fn(|cx| self.wire.poll_flush(cx)).await?;
        // It may have closed its side first.
        let _ = poll_fn(|cx| self.wire.poll_shutdown(cx)).await;
        Ok(())
    }
}

fn log_notice(report: &Report) {
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
        match &self.stream {
            Some(stream) => stream.status(),
            None if self.wire.is_at_rest() => self.status,
            None => Status::Unknown,
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

    /// Checks the socket, on which nothing arrives while no call is open. Right after an answer
    /// only at what the executor has reported, which costs no system call.
    #[inline]
    fn probe(&mut self, rested: Duration) {
        if rested < LOOK_AFTER && !self.wire.is_readable() {
            return;
        }
        if self.flight != Flight::Nothing || !self.wire.is_at_rest() {
            return;
        }
        self.wire.look();
        self.take_unasked();
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.settle_all())
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.begin_call(Flight::Brief)?;
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

    /// Sets a setting of the server's, such as `statement_timeout` or `search_path`.
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
            // One under which our reading of texts is wrong is refused here, not at the next call.
            self.check_reading()
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.say_goodbye())
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
            .field("flight", &self.flight)
            .field("broken", &self.wire.is_broken())
            .finish_non_exhaustive()
    }
}

/// A name of SQL, whatever is in it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
