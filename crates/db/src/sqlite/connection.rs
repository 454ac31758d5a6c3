//! A connection of the pool: sends programs to its thread, or runs short statements inline.

use std::any::Any;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use super::batch::OwnedSets;
use super::config::is_identifier;
use super::error;
use super::session::Session;
use super::statement::{OwnedRequest, OwnedSql};
use super::types::value_to_sqlite;
use super::worker::Worker;
use super::write_queue::{EnterOutcome, QueueAnswer, Ticket, WritePermit};
use crate::driver::worker::stream::Stream;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Reset, Savepoint, Status, Value, boxed_in_place,
};
use crate::{Error, Kind, Result};

/// A connection that rested at least this long checks its file before it is used.
const LOOK_AT_FILE_AFTER: Duration = Duration::from_millis(1);

/// An open connection to an SQLite database.
///
/// [`Connection::as_any`] returns this type for SQLite. Its methods are those of [`Connection`];
/// [`Sqlite`](super::Sqlite) describes how transactions behave.
#[derive(Debug)]
pub struct SqliteConnection {
    worker: Worker,
    stream: Stream,
    /// The place of a call in the write queue, also after the call was dropped.
    ticket: Option<Ticket>,
}

/// Where a transaction begins.
enum Begun {
    Inline,
    /// It has yet to begin: with this permit, if the wait for it is over.
    OnThread(Option<WritePermit>),
}

impl SqliteConnection {
    pub(super) fn new(worker: Worker) -> Self {
        SqliteConnection {
            worker,
            stream: Stream::default(),
            ticket: None,
        }
    }

    /// Waits in the write queue for the permit, or until another session has written the request.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is written, unless a session has the request in its batch at this moment;
    /// [`leave_write_queue`](SqliteConnection::leave_write_queue) waits for that batch.
    async fn wait_in_write_queue(&mut self, entered: EnterOutcome) -> Result<QueueAnswer> {
        self.ticket = match entered {
            EnterOutcome::Permit(permit) => return Ok(QueueAnswer::Permit(permit)),
            EnterOutcome::Queued(ticket) => Some(ticket),
        };
        Waiting(&mut self.ticket).await
    }

    /// Begins a transaction that writes inline, if BEGIN is short: then only COMMIT needs the thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has begun, and the place in the write queue is given up.
    async fn begin_in_place(&mut self) -> Result<Begun> {
        let Some(entered) = self.worker.enter_to_begin().await else {
            return Ok(Begun::OnThread(None));
        };
        let permit = self.wait_in_write_queue(entered).await?.into_permit();
        Ok(match self.worker.begin_in_place(permit) {
            None => Begun::Inline,
            permit => Begun::OnThread(permit),
        })
    }

    /// Leaves the write queue after a dropped call. If a session has the request in its batch, waits for the batch.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    async fn leave_write_queue(&mut self) {
        if let Some(ticket) = &self.ticket {
            ticket.leave();
            // Nobody wants the answer any more.
            let _ = poll_fn(|cx| ticket.poll(cx)).await;
            self.ticket = None;
        }
    }

    /// Returns how many statements were compiled to run, because they were not in the cache. 0 during a call.
    #[doc(hidden)]
    pub fn compiled_statements(&self) -> u64 {
        self.worker.session().map_or(0, Session::compiled)
    }

    /// Returns how many statements ran inline. 0 during a call.
    #[doc(hidden)]
    pub fn in_place_runs(&self) -> u64 {
        self.worker
            .session()
            .map_or(0, |here| here.timing.inline_runs())
    }

    /// Counts no statement as long from now on, for tests on a busy machine.
    #[doc(hidden)]
    pub fn time_nothing(&mut self) {
        if let Some(session) = self.worker.session_mut() {
            session.timing.turn_off();
        }
    }

    /// Returns how many calls wait in the database's write queue. 0 during a call.
    #[doc(hidden)]
    pub fn waiting_writers(&self) -> usize {
        self.worker
            .session()
            .map_or(0, |session| session.writing.waiting())
    }

    /// Takes the connection's thread, for a test that waits for its end. `None` the second time.
    #[doc(hidden)]
    pub fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.worker.take_thread()
    }

    /// Refuses a call while a stream is open, or on a file that was replaced. Registers functions that were added meanwhile.
    #[inline]
    fn check(&self) -> Result<()> {
        self.stream.check_none()?;
        let Some(session) = self.worker.session() else {
            return Ok(());
        };
        session.register_late_functions()?;
        session.check_file()
    }

    /// Runs a statement with many sets of parameters on the thread.
    async fn batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        self.check()?;
        let sets = OwnedSets::of(sets).await?;
        let sql = OwnedSql::new(sql);
        let run = move |session: &mut Session| {
            session.note_inserts_of(sql.class())?;
            session.run_batch(&sql, &sets, wants_rows)
        };
        self.call(run).await
    }

    async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.stream.check_none()?;
        self.worker.call(program).await
    }
}

/// The wait of a call in the write queue. Dropped, the ticket leaves the queue at once, and stays with the
/// connection only while a batch has it.
struct Waiting<'c>(&'c mut Option<Ticket>);

impl Future for Waiting<'_> {
    type Output = Result<QueueAnswer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<QueueAnswer>> {
        let Some(ticket) = &*self.0 else {
            return Poll::Ready(Err(error::cancelled()));
        };
        let answer = ready!(ticket.poll(cx));
        *self.0 = None;
        Poll::Ready(answer)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.as_ref().is_some_and(Ticket::leave) {
            *self.0 = None;
        }
    }
}

impl Connection for SqliteConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        boxed_in_place(|| async move {
            self.check()?;
            if let Some(done) = self.worker.run_in_place(&request).await {
                return done;
            }
            let owned = Arc::new(OwnedRequest::of(&request).await?);
            let Some(entered) = self.worker.enter_write_queue(&request, &owned) else {
                let run = move |session: &mut Session| {
                    session.note_inserts_of(owned.sql.class())?;
                    session.run(&owned)
                };
                return self.call(run).await;
            };
            match self.wait_in_write_queue(entered).await? {
                QueueAnswer::Written(outcome) => Ok(outcome),
                QueueAnswer::Permit(permit) => {
                    self.call(move |session| session.run_with_permit(permit, &owned))
                        .await
                }
            }
        })
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(async move {
            if !request.script {
                return Ok(vec![self.run(request).await?]);
            }
            self.check()?;
            let request = OwnedRequest::of(&request).await?;
            self.call(move |session| {
                session.note_inserts_of(request.sql.class())?;
                session.run_all(&request)
            })
            .await
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move { Ok(self.batch(sql, sets, false).await?.0) })
    }

    fn query_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Vec<Batch>>> {
        Box::pin(async move { Ok(self.batch(sql, sets, true).await?.1) })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            self.check()?;
            let sql = OwnedSql::new(sql);
            self.call(move |session| session.prepare(&sql)).await
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            self.check()?;
            let owned = OwnedRequest::of(&request).await?;
            let program = move |session: &mut Session, outlet| session.stream(&owned, outlet);
            self.stream.start(&mut self.worker, program).await
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.stream.poll_batch(&mut self.worker, cx)
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.stream.end(&mut self.worker))
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            self.check()?;
            let begin = *begin;
            let in_place = !begin.read_only && first.is_none();
            let permit = match in_place {
                true => match self.begin_in_place().await? {
                    Begun::Inline => return Ok(Outcome::default()),
                    Begun::OnThread(permit) => permit,
                },
                false => None,
            };
            let first = match &first {
                Some(first) => Some(OwnedRequest::of(first).await?),
                None => None,
            };
            self.call(move |session| {
                if let Some(permit) = permit {
                    session.writing.set_permit(permit);
                }
                session.begin(begin)?;
                let Some(first) = first else {
                    return Ok(Outcome::default());
                };
                session.note_inserts_of(first.sql.class())?;
                session.run(&first)
            })
            .await
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(self.call(|session| session.commit()))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(|session| session.rollback()))
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            match step {
                Savepoint::Set(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.set_savepoint(&name)).await
                }
                Savepoint::Release(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.release_savepoint(&name))
                        .await
                }
                Savepoint::RollBack(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.roll_back_to(&name)).await
                }
            }
        })
    }

    fn status(&self) -> Status {
        match self.worker.session() {
            Some(session) => session.status(),
            None => self.stream.status(),
        }
    }

    fn is_broken(&self) -> bool {
        self.worker.is_lost() || self.worker.session().is_some_and(Session::is_broken)
    }

    fn probe(&mut self, rested: Duration) {
        self.worker.look();
        // A connection in constant use checks its file once a second, after a statement: a check takes half as
        // long as a short statement.
        if rested >= LOOK_AT_FILE_AFTER
            && let Some(session) = self.worker.session()
        {
            session.look_at_file();
        }
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.leave_write_queue().await;
            // The error belongs to a dropped call. If the thread is gone, `settle` reports it.
            let _ = self.stream.end(&mut self.worker).await;
            self.worker.settle().await
        })
    }

    fn set_call_site(&mut self, site: &'static Location<'static>) {
        if let Some(session) = self.worker.session() {
            session.writing.set_call_site(site);
        }
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(|session| session.ping()))
    }

    /// Has the connection replaced, because SQLite cannot reset temporary tables, attached databases and pragmas.
    /// A private database lives in its connection: there the driver undoes each of these.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(async move {
            if self.worker.session().is_some_and(|s| !s.can_be_reset()) {
                return Ok(Reset::Replace);
            }
            self.call(|session| session.reset()).await
        })
    }

    /// Sets a pragma.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            if !is_identifier(name) {
                let message = format!("{name:?} is not the name of a pragma");
                return Err(Error::new(Kind::Config, message));
            }
            let value = value_to_sqlite(value)
                .map_err(|wrong| Error::new(Kind::Type, format!("the pragma {name}: {wrong}")))?;
            let name = name.to_owned();
            self.call(move |session| session.set_pragma(&name, &value))
                .await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let SqliteConnection {
            worker,
            stream,
            ticket,
        } = *self;
        // The thread sees that nobody wants the rows.
        drop(stream);
        // The ticket leaves the queue.
        drop(ticket);
        Box::pin(worker.close())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
