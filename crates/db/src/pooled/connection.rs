//! A connection of the pool: the driver's connection, and what the layer knows about it.

use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cenote_pool::{ResourceId, Runtime, Verdict, within};
use tracing::level_filters::LevelFilter;

use crate::Result;
use crate::binding::writers::Writer;
use crate::call::listens;
use crate::call::op::{EndStream, Op, Rollback, Run, Set};
use crate::driver::{
    Connection, Dialect, History, LogPosition, Request, Reset, SharedAnswer, Status,
};
use crate::pooled::activity::Activity;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::TimeLimit;
use crate::pooled::statement_log::StatementLog;
use crate::replicas::{OpenWrite, Tracker};
use crate::sql::{self, Class};
use crate::types::value::Value;

/// After this many answers of one connection, the idle connections are checked.
const CHECK_EVERY: u32 = 32;

/// A connection of the pool, as [`Db::pool`](crate::Db::pool) leases it and
/// [`Builder::on_connect`](crate::Builder::on_connect) gets it.
#[derive(Debug)]
pub struct PooledConnection {
    connection: Box<dyn Connection>,
    /// Where the unanswered call was made, if there is one.
    in_flight: Option<&'static Location<'static>>,
    /// The unanswered call changes nothing important, whether it ran or not.
    harmless: bool,
    /// What follows the answer of the last call, until it is read.
    unread: Option<Unread>,
    /// The stream writes, and commits at its end.
    open_write: Option<OpenWrite>,
    /// The session may have changed since connecting.
    touched: bool,
    /// No reset undoes the change.
    spent: bool,
    /// The number of warnings of the last call.
    warnings: u64,
    /// The version of the defaults that the connection has.
    defaults: u64,
    /// When the server last answered, by the coarse clock of `runtime`.
    answered: u64,
    /// The number of answers.
    answers: u32,
    /// When the present use began, by the same clock.
    used: u64,
    runtime: Arc<dyn Runtime>,
    log: Arc<StatementLog>,
    watches_from: LevelFilter,
    /// Where the durations of its statements are recorded.
    timings_shard: usize,
    /// The driver names the line that holds the only permit to write.
    names_writers: bool,
    /// The right to write, if the connection was taken to write.
    writer: Option<Writer>,
    /// A call has reported that the connection is lost.
    is_loss_reported: bool,
    /// What [`Db::holders`](crate::Db::holders) shows.
    activity: Arc<Activity>,
    /// The activity has the connection's number in the pool.
    is_numbered: bool,
    /// Takes the positions of writes, on the primary of a handle with replicas.
    tracker: Option<Arc<Tracker>>,
    /// The history that it replays, if it is a replica that was asked.
    pub(crate) replays: Option<History>,
}

/// What the server still sends after it has answered a call. One value, because every call asks whether there is any.
#[derive(Debug)]
enum Unread {
    /// The rows of a text of this class.
    Rows(Class),
    /// The position at the end of the call.
    Position,
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
            unread: None,
            open_write: None,
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
            timings_shard: log.timings.next_shard(),
            names_writers,
            writer: None,
            is_loss_reported: false,
            activity: log.activities.register(),
            is_numbered: false,
            tracker: None,
            replays: None,
        }
    }

    /// Takes the positions of writes from now on.
    pub(crate) fn set_tracker(&mut self, tracker: Option<Arc<Tracker>>) {
        self.tracker = tracker;
    }

    /// Notes that the stream which has begun writes.
    pub(crate) fn set_open_write(&mut self, write: OpenWrite) {
        self.open_write = Some(write);
    }

    /// Returns whether the positions of its writes are taken.
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracker.is_some()
    }

    /// Returns whether it is a connection to a replica that was asked what it replays.
    pub(crate) fn is_of_replica(&self) -> bool {
        self.replays.is_some()
    }

    pub(crate) fn dialect(&self) -> &'static Dialect {
        self.log.dialect
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
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
    /// The database's error.
    #[track_caller]
    pub fn exec<'l>(&'l mut self, sql: &'l str) -> impl Future<Output = Result<()>> + Send + 'l {
        let site = Location::caller();
        let mut request = Request::new(sql, &[]);
        request.script = true;
        request.cache = false;
        request.rows = false;
        async move {
            let done = async {
                match sql::cached_scan(self.log.dialect, sql) {
                    Ok(scan) if scan.class.listens => Err(listens()),
                    _ => self.send(&Run(request, None), site).await.map(drop),
                }
            };
            let done = done.await;
            done.map_err(|error| error.in_call(site, Some((self.log.dialect, sql))))
        }
    }

    /// Returns the driver's connection.
    pub fn driver(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }

    /// Sends a request to the server, waits for the answer and notes what the server reports with it. Every call of the
    /// layer to a driver goes through here.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has an unanswered call, which is settled before the next call.
    #[inline]
    pub(crate) fn send<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
    ) -> impl Future<Output = Result<O::Out>> + Send {
        self.send_as::<O, true>(op, site)
    }

    /// Sends a request, and takes the position at its end if `TRACKS`: see [`send`](PooledConnection::send). One future,
    /// because every nested future costs each call.
    async fn send_as<O: Op, const TRACKS: bool>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
    ) -> Result<O::Out> {
        if TRACKS && let Some(tracker) = &self.tracker {
            let tracker = Arc::clone(tracker);
            return self.send_tracked(op, tracker, site, None).await;
        }
        self.in_flight = Some(site);
        self.harmless = O::HARMLESS;
        if self.names_writers {
            self.connection.set_call_site(site);
        }
        let answer = {
            let sql = op.sql();
            let is_watched = !sql.is_empty() && self.log.activities.are_watched();
            if is_watched {
                let now = self.runtime.coarse_now();
                self.activity.begin(sql, site, now);
            }
            // A cancel of the request records it as failed.
            let measuring =
                (!sql.is_empty()).then(|| self.log.measure(sql, site, self.timings_shard));
            let answer = match LevelFilter::current() >= self.watches_from {
                false => op.start(&mut *self.connection),
                true => self.log.watch(op, site, &mut *self.connection),
            };
            let answer = answer.await;
            if let Some(measuring) = measuring {
                measuring.end::<O>(&answer);
            }
            if is_watched {
                self.activity.end();
            }
            answer
        };
        self.note_answer();
        if answer.is_err() {
            self.note_error();
        }
        answer
    }

    /// Appends a read to those that are in flight: see [`Connection::push_shared`].
    pub(crate) fn push_shared(
        &mut self,
        request: &Request<'_>,
        site: &'static Location<'static>,
    ) -> Result<bool> {
        let is_pushed = self.connection.push_shared(request)?;
        if is_pushed {
            self.in_flight = Some(site);
            self.harmless = true;
            if self.log.activities.are_watched() {
                let now = self.runtime.coarse_now();
                self.activity.begin(request.sql, site, now);
            }
        }
        Ok(is_pushed)
    }

    /// Returns the answer of the oldest read that was pushed.
    pub(crate) fn poll_shared(&mut self, cx: &mut Context<'_>) -> Poll<SharedAnswer> {
        let polled = self.connection.poll_shared(cx);
        if matches!(polled, Poll::Ready(SharedAnswer::Answered(Err(_)))) {
            self.note_error();
        }
        polled
    }

    /// Notes that a pushed read was answered. Returns whether the session may have changed.
    pub(crate) fn note_shared(&mut self) -> bool {
        self.answered = self.runtime.coarse_now();
        self.answers = self.answers.wrapping_add(1);
        let has_changed = self.connection.session_changed();
        if has_changed {
            self.touch();
        }
        has_changed
    }

    /// Notes that all pushed reads are answered.
    pub(crate) fn end_shared(&mut self) {
        self.in_flight = None;
        self.harmless = false;
        if self.log.activities.are_watched() {
            self.activity.end();
        }
    }

    /// Returns the shard in which the durations of its statements are recorded.
    pub(crate) fn timings_shard(&self) -> usize {
        self.timings_shard
    }

    /// Notes that the caller of a call or a stream gets this error.
    #[cold]
    pub(crate) fn note_error(&mut self) {
        self.is_loss_reported |= self.is_broken();
    }

    /// Returns whether a caller got an error for the loss of this connection. The caller of a dropped call, or of one
    /// that was answered before the loss was noticed, got none.
    pub(crate) fn is_loss_reported(&self) -> bool {
        self.is_loss_reported
    }

    /// Sends a request, and waits for its answer for at most `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropped or late, the connection has an unanswered call, as with [`send`](PooledConnection::send).
    pub(crate) fn send_within<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
        runtime: &dyn Runtime,
        limit: Option<TimeLimit>,
    ) -> impl Future<Output = Result<O::Out>> + Send {
        self.send_within_as::<O, true>(op, site, runtime, limit)
    }

    /// As [`send_within`](PooledConnection::send_within), without taking a position.
    pub(crate) fn send_plain_within<O: Op>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
        runtime: &dyn Runtime,
        limit: Option<TimeLimit>,
    ) -> impl Future<Output = Result<O::Out>> + Send {
        self.send_within_as::<O, false>(op, site, runtime, limit)
    }

    async fn send_within_as<O: Op, const TRACKS: bool>(
        &mut self,
        op: &O,
        site: &'static Location<'static>,
        runtime: &dyn Runtime,
        limit: Option<TimeLimit>,
    ) -> Result<O::Out> {
        let Some(limit) = limit else {
            return self.send_as::<O, TRACKS>(op, site).await;
        };
        if TRACKS && let Some(tracker) = &self.tracker {
            let tracker = Arc::clone(tracker);
            return self.send_tracked(op, tracker, site, Some(limit)).await;
        }
        let sent = self.send_as::<O, false>(op, site);
        let answer = within(runtime, Some(limit.time), sent).await;
        answer.unwrap_or_else(|| Err(limit.exceeded()))
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

    /// Returns whether the connection is to be closed as soon as nobody uses it.
    pub(crate) fn is_outdated(&self) -> bool {
        self.connection.is_outdated()
    }

    /// Returns the call that was dropped before its answer, if it may have changed something.
    pub(crate) fn dropped_call(&self) -> Option<&'static Location<'static>> {
        self.in_flight.filter(|_| !self.harmless)
    }

    /// Returns whether an earlier call has to be settled before the next.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.in_flight.is_some() || self.unread.is_some()
    }

    /// Returns whether an earlier call is not answered.
    pub(crate) fn has_call(&self) -> bool {
        self.in_flight.is_some() || self.stream().is_some()
    }

    /// Waits for the position at the end of the last call, or asks for it if the call has not, but not for long: the call is
    /// answered. `None` if it is unknown.
    ///
    /// # Cancel safety
    ///
    /// Dropped or late, the connection has an unanswered query, which is settled before the next call.
    pub(crate) async fn end_position(&mut self, asks: bool, most: Duration) -> Option<LogPosition> {
        let runtime = Arc::clone(&self.runtime);
        self.unread = Some(Unread::Position);
        let connection = &mut self.connection;
        let told = async {
            match connection.take_position().await {
                None if asks => connection.ask_position().await.map(Some),
                position => Ok(position),
            }
        };
        let told = within(&runtime, Some(most), told).await;
        if told.is_some() {
            self.unread = None;
        }
        match told {
            Some(Ok(position)) => return position,
            Some(Err(error)) => tracing::debug!(%error, "the position after a write is unknown"),
            None => tracing::debug!("the position after a write came too late"),
        }
        None
    }

    pub(crate) fn touch(&mut self) {
        self.touched = true;
        self.connection.expect_session_change();
    }

    /// Counts the session as unchanged from now on: the set-up is part of it.
    pub(crate) fn set_untouched(&mut self) {
        self.touched = false;
        self.connection.session_is_set_up();
        self.forget_statement();
    }

    /// Forgets the last statement: the connection gets another holder.
    #[inline]
    fn forget_statement(&self) {
        if self.log.activities.are_watched() {
            self.activity.clear();
        }
    }

    /// Returns whether its number in the pool is known.
    #[inline]
    pub(crate) fn is_numbered(&self) -> bool {
        self.is_numbered
    }

    /// Notes its number in the pool.
    #[cold]
    pub(crate) fn set_number(&mut self, number: ResourceId) {
        self.is_numbered = true;
        self.activity.set_connection(number);
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Notes what a text of this class may do to the session, before it is sent: a dropped call may have done it.
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

    /// Notes that the rows of a text of this class are streamed.
    pub(crate) fn start_stream(&mut self, class: &Class) {
        self.unread = Some(Unread::Rows(*class));
    }

    /// Keeps the call at `site` unanswered: the server waits for its data. Dropped now, it dooms its transaction.
    #[cfg(feature = "postgres")]
    pub(crate) fn hold_call(&mut self, site: &'static Location<'static>) {
        self.in_flight = Some(site);
        self.harmless = false;
    }

    /// Returns the class of the text whose rows are streamed.
    pub(crate) fn stream(&self) -> Option<&Class> {
        match &self.unread {
            Some(Unread::Rows(class)) => Some(class),
            _ => None,
        }
    }

    /// Notes that the last row of the stream was read, or its error.
    pub(crate) fn end_stream(&mut self) {
        self.unread = None;
        self.open_write = None;
        self.note_answer();
    }

    /// Notes what the server reported with the answer of the last call.
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

    /// Returns whether the connection has given `CHECK_EVERY` answers, so that the idle connections should be
    /// checked, and resets the count.
    #[inline]
    pub(crate) fn take_check_due(&mut self) -> bool {
        let is_due = self.answers >= CHECK_EVERY;
        if is_due {
            self.answers = 0;
        }
        is_due
    }

    /// Checks, without a round trip, whether the server has closed the connection. Every use begins with it.
    #[inline]
    pub(crate) fn probe(&mut self) -> bool {
        self.used = self.runtime.coarse_now();
        self.forget_statement();
        let rested = self.used.saturating_sub(self.answered);
        self.connection.probe(Duration::from_nanos(rested));
        !self.is_broken()
    }

    /// Returns the time since the present use began, for a call that was lost.
    pub(crate) fn in_use_for(&self) -> Duration {
        let now = self.runtime.coarse_now();
        Duration::from_nanos(now.saturating_sub(self.used))
    }

    /// Returns when the server last answered, by the coarse clock.
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

    /// Tries a setting on an unchanged session. If the server refuses it, or the call is dropped, the pool resets the
    /// session.
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

    /// Sets the right to write; `None` when the connection is released.
    pub(crate) fn set_writer(&mut self, writer: Option<Writer>) {
        self.writer = writer;
    }

    /// Settles an earlier call.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is still unsettled.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        if self.in_flight.is_some() || matches!(self.unread, Some(Unread::Position)) {
            // `settle` ends a stream as well.
            self.connection.settle().await?;
            self.end_stream();
        }
        if self.stream().is_some() {
            self.send(&EndStream, Location::caller()).await?;
            self.end_stream();
        }
        Ok(())
    }

    /// Returns whether the connection can be reused at once: no call to settle, an unchanged session, no transaction.
    #[inline]
    pub(crate) fn is_clean(&self) -> bool {
        !self.is_unsettled() && !self.touched && self.status() == Status::Idle
    }

    /// Decides what happens to the connection when it goes back to the pool.
    pub(crate) fn verdict(&self, reset_always: bool) -> Verdict {
        if self.is_broken() {
            return Verdict::Discard;
        }
        if self.is_outdated() {
            return Verdict::Retire;
        }
        if self.is_clean() && !reset_always {
            Verdict::Keep
        } else {
            Verdict::Later
        }
    }

    /// Makes the connection equal to a new one: rolls back, and resets and sets up a changed session. Returns `false` if
    /// that is not possible.
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
            // The new connection first: some databases disappear with their last connection.
            let fresh = connections.open().await?;
            self.replays = None;
            let gone = std::mem::replace(&mut self.connection, fresh);
            if let Err(error) = gone.close().await {
                tracing::debug!(%error, "closing a replaced connection failed");
            }
        }
        (self.touched, self.spent) = (false, false);
        connections.set_up(self).await?;
        Ok(true)
    }

    /// Takes over the driver's connection of a new one, and returns the lost one. The notes on the running call, which is
    /// about to be repeated, stay.
    pub(crate) fn take_over(&mut self, fresh: PooledConnection) -> Box<dyn Connection> {
        self.answered = fresh.answered;
        self.defaults = fresh.defaults;
        self.is_loss_reported = false;
        self.replays = None;
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
