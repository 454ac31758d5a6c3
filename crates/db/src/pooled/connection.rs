//! One connection as the pool keeps it: the driver's, and what the layer knows about it.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{Runtime, Verdict, within};
use tracing::level_filters::LevelFilter;

use crate::binding::writers::Writer;
use crate::call::op::{EndStream, Op, Rollback, Run, Set};
use crate::driver::{Connection, Request, Reset, Status};
use crate::error::rounded;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::TimeLimit;
use crate::pooled::statement_log::StatementLog;
use crate::sql::Class;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// After so many answers of one connection the idle ones are checked.
const CHECK_EVERY: u32 = 32;

/// A connection of the pool: what [`Db::pool`](crate::Db::pool) pools, and what
/// [`Builder::on_connect`](crate::Builder::on_connect) is shown.
#[derive(Debug)]
pub struct PooledConnection {
    connection: Box<dyn Connection>,
    /// A call that has not been answered, and where it was made.
    in_flight: Option<&'static Location<'static>>,
    /// The unanswered call changes nothing that matters, whether it ran or not.
    harmless: bool,
    /// The class of the text whose rows are being streamed, until the last one was read.
    stream: Option<Class>,
    /// The session is not what it was after connecting.
    touched: bool,
    /// No reset brings it back to that.
    spent: bool,
    /// Warnings of the last call.
    warnings: u64,
    /// Up to which one the defaults have reached it.
    defaults: u64,
    /// When the server last answered, by the coarse clock of `runtime`.
    answered: u64,
    /// How often it has answered.
    answers: u32,
    /// When its present use began, by the same clock.
    used: u64,
    runtime: Arc<dyn Runtime>,
    log: Arc<StatementLog>,
    watches_from: LevelFilter,
    /// The driver names the line that holds the only permit to write.
    names_writers: bool,
    /// The place among those who write, if it was taken for that.
    writer: Option<Writer>,
    /// A call has reported that the connection is lost.
    is_loss_reported: bool,
}

impl PooledConnection {
    pub(crate) fn new(
        connection: Box<dyn Connection>,
        log: &Arc<StatementLog>,
        names_writers: bool,
    ) -> Self {
        let runtime = &log.runtime;
        PooledConnection {
            connection,
            in_flight: None,
            harmless: false,
            stream: None,
            touched: false,
            spent: false,
            warnings: 0,
            defaults: 0,
            answered: runtime.coarse_now(),
            answers: 0,
            used: runtime.coarse_now(),
            runtime: Arc::clone(runtime),
            log: Arc::clone(log),
            watches_from: log.watches_from(),
            names_writers,
            writer: None,
            is_loss_reported: false,
        }
    }

    /// Runs SQL without parameters, one statement or a script: for
    /// [`Builder::on_connect`](crate::Builder::on_connect).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is closed, or settled before its next use.
    ///
    /// # Errors
    ///
    /// What the database says.
    #[track_caller]
    pub fn exec<'l>(&'l mut self, sql: &'l str) -> impl Future<Output = Result<()>> + Send + 'l {
        let site = Location::caller();
        let mut request = Request::new(sql, &[]);
        request.script = true;
        request.cache = false;
        request.rows = false;
        async move {
            let done = self.send(&Run(request), site).await.map(drop);
            done.map_err(|error| error.in_call(site, Some((self.log.dialect, sql))))
        }
    }

    /// The driver's own connection.
    pub fn driver(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    /// Sends a request to the server, waits for the answer and notes what came with it. Every
    /// call of the layer to a driver goes through here.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has an unanswered call, which is settled before the next one.
    #[inline]
    pub(crate) async fn send<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
    ) -> Result<O::Out> {
        self.in_flight = Some(site);
        self.harmless = O::HARMLESS;
        if self.names_writers {
            self.connection.set_call_site(site);
        }
        let answer = match LevelFilter::current() >= self.watches_from {
            false => op.start(&mut *self.connection),
            true => self.log.watch(op, site, &mut *self.connection),
        };
        let answer = answer.await;
        self.note_answer();
        if answer.is_err() {
            self.note_error();
        }
        answer
    }

    /// A call or a stream on this connection ends with an error, which its caller gets.
    #[cold]
    pub(crate) fn note_error(&mut self) {
        self.is_loss_reported |= self.is_broken();
    }

    /// Whether a caller has had an error for the loss of this connection. A call that is dropped, or that is
    /// answered before the loss is noticed, has told nobody.
    pub(crate) fn is_loss_reported(&self) -> bool {
        self.is_loss_reported
    }

    /// Sends a request, and waits for its answer for at most `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropped or late, the connection has an unanswered call, as with [`send`](PooledConnection::send).
    pub(crate) async fn send_within<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
        runtime: &dyn Runtime,
        limit: Option<TimeLimit>,
    ) -> Result<O::Out> {
        let Some(TimeLimit { time, setting }) = limit else {
            return self.send(op, site).await;
        };
        let answer = within(runtime, Some(time), self.send(op, site)).await;
        answer.unwrap_or_else(|| {
            let message = format!("statement cancelled after {} ({setting})", rounded(time));
            Err(Error::new(Kind::StatementTimeout, message))
        })
    }

    #[inline]
    pub(crate) fn status(&self) -> Status {
        match self.in_flight {
            Some(_) => Status::Unknown,
            None => self.connection.status(),
        }
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }

    /// The call that was dropped before it was answered, if it may have changed something.
    pub(crate) fn dropped_call(&self) -> Option<&'static Location<'static>> {
        self.in_flight.filter(|_| !self.harmless)
    }

    /// Something is left of an earlier call that has to be settled before the next.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.in_flight.is_some() || self.stream.is_some()
    }

    pub(crate) fn touch(&mut self) {
        self.touched = true;
        self.connection.expect_session_change();
    }

    /// From now on its session counts as new: what set it up is part of it.
    pub(crate) fn set_untouched(&mut self) {
        if self.touched {
            self.touched = false;
            self.connection.session_is_set_up();
        }
    }

    /// A text of this class is about to be sent. What it may do to the session is noted first: if
    /// the call is dropped, it may have done it.
    #[inline]
    pub(crate) fn expect(&mut self, class: &Class) {
        if class.touches_session {
            self.touch();
        }
        self.spent |= class.survives_reset;
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.touched
    }

    /// The rows of a text of this class are streamed from now on.
    pub(crate) fn start_stream(&mut self, class: &Class) {
        self.stream = Some(*class);
    }

    /// The class of the text whose rows are being streamed.
    pub(crate) fn stream(&self) -> Option<&Class> {
        self.stream.as_ref()
    }

    /// The last row of the stream was read, or its error.
    pub(crate) fn end_stream(&mut self) {
        self.stream = None;
        self.note_answer();
    }

    /// The last call was answered: notes what the server reported with it.
    #[inline]
    fn note_answer(&mut self) {
        self.in_flight = None;
        self.harmless = false;
        if self.connection.session_changed() {
            self.touch();
        }
        self.warnings = self.connection.warnings();
        self.answered = self.runtime.coarse_now();
        self.answers = self.answers.wrapping_add(1);
    }

    /// Whether it has answered so often that the idle connections should be looked at, too.
    #[inline]
    pub(crate) fn is_check_due(&self) -> bool {
        self.answers.is_multiple_of(CHECK_EVERY)
    }

    /// Looks, without a round trip, whether the server has closed the connection since it last
    /// answered. Every use begins with it.
    #[inline]
    pub(crate) fn probe(&mut self) -> bool {
        self.used = self.runtime.coarse_now();
        let rested = self.used.saturating_sub(self.answered);
        self.connection.probe(Duration::from_nanos(rested));
        !self.is_broken()
    }

    /// Returns the time since the use began that a call of it was lost in.
    pub(crate) fn in_use_for(&self) -> Duration {
        let now = self.runtime.coarse_now();
        Duration::from_nanos(now.saturating_sub(self.used))
    }

    /// When the server last answered, by the coarse clock.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    pub(crate) fn warnings(&self) -> u64 {
        self.warnings
    }

    pub(crate) fn defaults(&self) -> u64 {
        self.defaults
    }

    pub(crate) fn set_defaults(&mut self, reached: u64) {
        self.defaults = reached;
    }

    /// Tries a setting of the session, on a connection that nobody has touched. Refused, or dropped
    /// before it is answered, the pool resets the session.
    pub(crate) async fn try_setting(
        &mut self,
        name: &str,
        value: &Value<'_>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        self.touched = true;
        let done = self.send(&Set { name, value }, site).await;
        self.touched = done.is_err();
        done
    }

    /// It was taken to write with; None when it comes back.
    pub(crate) fn set_writer(&mut self, writer: Option<Writer>) {
        self.writer = writer;
    }

    /// Ends what an earlier call left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is still unsettled.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        if self.in_flight.is_some() {
            // Settling ends a stream as well.
            self.connection.settle().await?;
            self.end_stream();
        }
        if self.stream.is_some() {
            self.send(&EndStream, Location::caller()).await?;
            self.end_stream();
        }
        Ok(())
    }

    /// Nothing is left of an earlier call.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        !self.is_unsettled() && !self.touched && self.status() == Status::Idle
    }

    /// What is to be done with it when it comes back to the pool.
    pub(crate) fn verdict(&self, reset_always: bool) -> Verdict {
        if self.is_broken() {
            return Verdict::Discard;
        }
        if self.is_clean() && !reset_always {
            Verdict::Keep
        } else {
            Verdict::Later
        }
    }

    /// Makes the connection as good as a new one of the same handle: rolls back, and resets and sets up
    /// the session if it was touched. `false` if that is not possible.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the state is unknown: the pool destroys the connection.
    pub(crate) async fn clean(&mut self, connections: &ConnectionManager) -> Result<bool> {
        if connections.resets_always() {
            self.touched = true;
        }
        self.settle().await?;
        if self.connection.status() != Status::Idle {
            self.send(&Rollback, Location::caller()).await?;
        }
        if self.connection.is_broken() || self.connection.status() != Status::Idle {
            return Ok(false);
        }
        if !self.touched {
            return Ok(true);
        }
        let replace = self.spent || connections.replaces_always();
        if replace || self.connection.reset().await? == Reset::Replace {
            // The new one first: a database that lives only as long as its last
            // connection stays.
            let fresh = connections.open().await?;
            let gone = std::mem::replace(&mut self.connection, fresh);
            if let Err(error) = gone.close().await {
                tracing::debug!(%error, "closing a replaced connection failed");
            }
        }
        (self.touched, self.spent) = (false, false);
        connections.set_up(self).await?;
        Ok(true)
    }

    /// Takes over the connection of a new one, and gives the lost one back. What is noted of the call
    /// under way, which is about to be repeated, stays.
    pub(crate) fn take_over(&mut self, fresh: PooledConnection) -> Box<dyn Connection> {
        self.answered = fresh.answered;
        self.defaults = fresh.defaults;
        self.is_loss_reported = false;
        let lost = std::mem::replace(&mut self.connection, fresh.connection);
        if self.touched {
            self.connection.expect_session_change();
        }
        lost
    }

    pub(crate) fn into_connection(self) -> Box<dyn Connection> {
        self.connection
    }
}
