//! A connection of the pool: sends programs to its thread, or runs them in place.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::is_identifier;
use super::error;
use super::session::{Order, Session, Text};
use super::types::{to_sqlite, value_to_sqlite};
use super::worker::Worker;
use super::write_queue::{Joined, Ticket, Word, WritePermit};
use crate::driver::worker::stream::Stream;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Reset, Savepoint, Status, Value, boxed_in_place,
};
use crate::{Error, Kind, Result};

/// After so long without an answer, a connection looks at its file before it is used.
const LOOK_AT_FILE_AFTER: Duration = Duration::from_millis(1);

/// An open connection to an SQLite database.
///
/// It is what [`Connection::as_any`] gives for this driver. All that it can do is in
/// [`Connection`]; how transactions behave is told at [`Sqlite`](super::Sqlite).
#[derive(Debug)]
pub struct SqliteConnection {
    worker: Worker,
    stream: Stream,
    /// A write that waits in the write queue, or did when its call was dropped.
    ticket: Option<Ticket>,
}

/// What waiting in the write queue came to.
enum Told {
    /// Another has written.
    Done(Result<Outcome>),
    /// It is its turn.
    EnterOutcome(WritePermit),
}

/// Where a transaction begins.
enum Begun {
    Here,
    /// It has yet to: with this pass, if it is its turn.
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

    /// Waits in the write queue until it is its turn, or until another has written its order.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is written unless that is being done this very moment;
    /// [`leave_write_queue`](SqliteConnection::leave_write_queue) waits for that.
    async fn wait_in_write_queue(&mut self, joined: Joined) -> Result<Told> {
        let ticket = match joined {
            Joined::EnterOutcome(permit) => return Ok(Told::EnterOutcome(permit)),
            Joined::Queued(ticket) => self.ticket.insert(ticket),
        };
        let leaving = Leaving(Some(ticket.copy()));
        let word = poll_fn(|cx| ticket.poll_word(cx)).await;
        leaving.call_off();
        self.ticket = None;
        match word {
            Word::Done(done) => Ok(Told::Done(*done)),
            Word::EnterOutcome(permit) => Ok(Told::EnterOutcome(permit)),
            Word::TimedOut => Err(error::lane_is_taken()),
        }
    }

    /// Begins a transaction that writes in place, if that is short: only COMMIT needs the thread
    /// then.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has begun, and the place in the write queue is the next one's.
    async fn begin_in_place(&mut self) -> Result<Begun> {
        let Some(joined) = self.worker.join_to_begin().await else {
            return Ok(Begun::OnThread(None));
        };
        match self.wait_in_write_queue(joined).await? {
            Told::EnterOutcome(permit) => Ok(match self.worker.begin_in_place(permit) {
                None => Begun::Here,
                permit => Begun::OnThread(permit),
            }),
            Told::Done(_) => unreachable!("nobody writes for one who has given no order"),
        }
    }

    /// Gives up what waits in the write queue; or waits until it is done.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    async fn leave_write_queue(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        poll_fn(|cx| {
            // Asked first: one who is put back into the queue wakes us, and can leave.
            let told = ticket.poll_word(cx).map(drop);
            match told.is_pending() && ticket.leave() {
                true => Poll::Ready(()),
                false => told,
            }
        })
        .await;
        self.ticket = None;
    }

    /// How many of the statements that were run had to be compiled for it, because they were
    /// not in the cache. 0 while a call is under way.
    #[doc(hidden)]
    pub fn compiled_statements(&self) -> u64 {
        self.worker.session().map_or(0, Session::compiled)
    }

    /// How many statements were run in place. 0 while a call is under way.
    #[doc(hidden)]
    pub fn in_place_runs(&self) -> u64 {
        self.worker
            .session()
            .map_or(0, |here| here.timing.inline_runs())
    }

    /// From now on no statement counts as long, on however busy a machine a test runs.
    #[doc(hidden)]
    pub fn time_nothing(&mut self) {
        if let Some(session) = self.worker.session_mut() {
            session.timing.turn_off();
        }
    }

    /// How many connections wait for their turn to write to this database. 0 while a call is
    /// under way.
    #[doc(hidden)]
    pub fn waiting_writers(&self) -> usize {
        self.worker.session().map_or(0, Session::waiting_writers)
    }

    /// The connection's thread, for a test that wants to see it end. Only the first time.
    #[doc(hidden)]
    pub fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.worker.take_thread()
    }

    /// Refuses a call that begins something while a stream is open, or on a file that was replaced.
    #[inline]
    fn check(&self) -> Result<()> {
        self.stream.check_none()?;
        self.worker.session().map_or(Ok(()), Session::check_file)
    }

    async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.stream.check_none()?;
        self.worker.call(program).await
    }
}

/// Leaves the write queue when it is dropped, unless that has been called off.
struct Leaving(Option<Ticket>);

impl Leaving {
    fn call_off(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(ticket) = &self.0 {
            ticket.leave();
        }
    }
}

/// A request, borrowing nothing.
async fn order(request: &Request<'_>) -> Result<Order> {
    Ok(Order {
        sql: Text::new(request.sql),
        params: to_sqlite(request.params).await?,
        script: request.script,
        cache: request.cache,
        rows: request.rows,
    })
}

impl Connection for SqliteConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        boxed_in_place(|| async move {
            self.check()?;
            if let Some(done) = self.worker.run_in_place(&request).await {
                return done;
            }
            let order = Arc::new(order(&request).await?);
            let Some(joined) = self.worker.join(&request, &order) else {
                let run = move |session: &mut Session| {
                    session.note_inserts_of(order.sql.class())?;
                    session.run(&order)
                };
                return self.call(run).await;
            };
            match self.wait_in_write_queue(joined).await? {
                Told::Done(done) => done,
                Told::EnterOutcome(permit) => {
                    self.call(move |session| session.run_in_turn(permit, &order))
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
            let order = order(&request).await?;
            self.call(move |session| {
                session.note_inserts_of(order.sql.class())?;
                session.run_all(&order)
            })
            .await
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            self.check()?;
            let mut owned = Vec::with_capacity(sets.len());
            for (n, set) in sets.iter().enumerate() {
                owned.push(to_sqlite(set).await.map_err(|error| {
                    let message = format!("set {} of {}: {}", n + 1, sets.len(), error.message());
                    error.wrapped(Kind::Type, message)
                })?);
            }
            let sql = Text::new(sql);
            let run = move |session: &mut Session| {
                session.note_inserts_of(sql.class())?;
                session.run_batch(&sql, &owned)
            };
            self.call(run).await
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            self.check()?;
            let sql = Text::new(sql);
            self.call(move |session| session.prepare(&sql)).await
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            self.check()?;
            let order = order(&request).await?;
            let program = move |session: &mut Session, outlet| session.stream(&order, outlet);
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
                    Begun::Here => return Ok(Outcome::default()),
                    Begun::OnThread(permit) => permit,
                },
                false => None,
            };
            let first = match &first {
                Some(first) => Some(Arc::new(order(first).await?)),
                None => None,
            };
            self.call(move |session| {
                if let Some(permit) = permit {
                    session.writing.enter(permit);
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
        // A connection in constant use looks at its file after its statements, once a second: a look takes half
        // as long as a short statement.
        if rested >= LOOK_AT_FILE_AFTER
            && let Some(session) = self.worker.session()
        {
            session.look_at_file();
        }
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.leave_write_queue().await;
            // An error met here belongs to nobody; if the thread is gone, the next says so.
            let _ = self.stream.end(&mut self.worker).await;
            self.worker.settle().await
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(|session| session.ping()))
    }

    /// SQLite cannot bring a session back: temporary tables, attached databases and pragmas stay.
    /// So the connection has to be replaced, except where it is itself the database: there the
    /// driver undoes all of these one by one.
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
        // With it the thread sees that nobody wants the rows.
        drop(stream);
        if let Some(ticket) = ticket {
            ticket.leave();
        }
        Box::pin(worker.close())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
