//! One call: where it was made, where it has to run, and its way there and back.

pub(crate) mod op;
pub(crate) mod route;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{AcquireError, Lease};

use crate::api::executed::Executed;
use crate::binding::{Bound, PinGuard, PinKind, Position};
use crate::call::op::{Op, Run, RunBatch};
use crate::call::route::{Purpose, Route};
use crate::coroutine::{Bind, Frame, Seen, is_hidden};
use crate::driver::{BoxFuture, Outcome, Param, Request};
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::pooled::shared::Shared;
use crate::sql::{self, Class, Plan, Statements, TransactionVerb};
use crate::types::params::Params;
use crate::types::row::Row;
use crate::{Error, Kind, Result};

/// Parameters as they were given; a value that cannot be one is an error of the call.
pub(crate) type Given<'a> = Result<Params<'a>>;

/// Where a call has to run.
#[derive(Clone)]
pub(crate) enum Target<'a> {
    /// Wherever the coroutine has a connection bound; else on one of its own.
    Ambient(&'a Arc<Handle>),
    /// On one of its own, whatever is bound.
    Outside(&'a Arc<Handle>),
    /// On this connection.
    Bound(&'a Arc<Bound>, Position),
}

/// A call that was made.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) target: Target<'a>,
    /// Where it was made: in which frame, and on which line.
    pub(crate) seen: Seen,
    pub(crate) site: &'static Location<'static>,
}

/// For how long a call needs its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Until its answer.
    Call,
    /// Until the last row has been read.
    Stream,
    /// Until the prepared statement is dropped.
    Statement,
}

/// A connection that was dead when it was taken says so within this time.
const DEAD_AFTER: Duration = Duration::from_millis(100);

/// SQL that is ready to be sent.
pub(crate) struct Text<'a> {
    plan: Arc<Plan>,
    params: Vec<Param<'a>>,
}

impl<'a> Text<'a> {
    pub(crate) fn class(&self) -> &Class {
        &self.plan.class
    }

    /// See [`Plan::located`].
    pub(crate) fn located<T>(&self, done: Result<T>) -> Result<T> {
        self.plan.located(done)
    }

    pub(crate) fn request(&self, rows: bool) -> Request<'_> {
        let mut request = Request::new(self.plan.sql(), &self.params);
        request.rows = rows;
        request.script = self.plan.class.statements == Statements::Several;
        request.cache = !request.script;
        request
    }
}

/// Whether a text of this class may leave something behind that pins its connection.
pub(crate) fn may_pin(class: &Class) -> bool {
    class.touches_session || class.contains_transaction_control || class.transaction.is_some()
}

/// Whether a text of this class needs nothing but a connection (no permit to write, no time limit), and is
/// expected to leave nothing on it.
fn is_plain(handle: &Handle, class: &Class) -> bool {
    let shared = &handle.shared;
    let is_free = class.reads_only || shared.writers.is_none();
    is_free && !may_pin(class) && shared.statement_timeout.is_none()
}

impl<'a> Call<'a> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => &handle.shared,
            Target::Bound(bound, _) => bound.shared(),
        }
    }

    /// The connection that is bound for it, if there is one.
    pub(crate) fn lookup(&self) -> Option<Arc<Bound>> {
        let frame = self.seen.frame();
        match &self.target {
            Target::Ambient(handle) => frame?.lookup(handle.shared.id),
            Target::Outside(handle) => frame?.lookup_outside(handle.shared.id),
            Target::Bound(bound, _) => Some(Arc::clone(bound)),
        }
    }

    /// The frame that keeps what this call pins.
    pub(crate) fn owner(&self) -> Option<&Arc<Frame>> {
        match &self.target {
            Target::Ambient(_) => self.seen.frame(),
            Target::Outside(_) | Target::Bound(..) => None,
        }
    }

    /// From where it takes its turn.
    pub(crate) fn position(&self) -> Position {
        match &self.target {
            Target::Bound(_, position) => position.clone(),
            _ => Position::Frame(self.seen.frame().cloned()),
        }
    }

    /// Reads the SQL and fits the parameters to it. Nothing has been sent yet.
    #[inline]
    pub(crate) fn text<'t>(&self, sql: &'t str, params: Given<'t>) -> Result<Text<'t>> {
        self.check_here()?;
        let at_site = |wrong: Error| wrong.at(self.site);
        let plan = sql::plan(self.shared().dialect, sql).map_err(at_site)?;
        let params = params.and_then(|params| plan.bind(params));
        let params = params.map_err(at_site)?;
        if plan.class.statements == Statements::Several && !params.is_empty() {
            return Err(self.script_with_params());
        }
        self.refuse_session_only(&plan.class)?;
        Ok(Text { plan, params })
    }

    #[cold]
    fn script_with_params(&self) -> Error {
        let message = "a script of several statements cannot have parameters: run them one by one";
        Error::new(Kind::Parameters, message).at(self.site)
    }

    /// A call runs where it was made, or not at all: it must not slip out of a
    /// transaction, nor into one.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        let anywhere = match &self.target {
            Target::Ambient(_) | Target::Outside(_) => false,
            // A statement is the coroutine's; a transaction and a connection are whose they are.
            Target::Bound(_, position) => !matches!(position, Position::Frame(Some(_))),
        };
        match anywhere || self.seen.is_here() {
            true => Ok(()),
            false => Err(self.escaped()),
        }
    }

    #[cold]
    fn escaped(&self) -> Error {
        let message = "this call was made in one coroutine or transaction and awaited in another, \
                       or outside: make the call where it is awaited, as in \
                       scope(async { db.exec(..).await })";
        Error::new(Kind::Escaped, message).at(self.site)
    }

    #[inline]
    fn refuse_session_only(&self, class: &Class) -> Result<()> {
        match class.only_session {
            false => Ok(()),
            true => self.refuse_if_unbound(),
        }
    }

    #[cold]
    fn refuse_if_unbound(&self) -> Result<()> {
        if self.owner().is_some() || self.lookup().is_some() {
            return Ok(());
        }
        let message = "this statement only changes the session, which outside of a coroutine \
                       ends with the statement: run it in cenote::scope(..) or cenote::spawn(..), \
                       take a connection with db.connection(), or give every connection the \
                       setting with db.set_default(..) or on_connect(..)";
        Err(Error::new(Kind::LeftSession, message).at(self.site))
    }

    /// Takes the connection that a text of this class has to run on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    pub(crate) async fn route(&self, class: &Class) -> Result<Route> {
        let handle = match &self.target {
            Target::Bound(bound, position) => {
                self.begin_around().await?;
                let mut turn = bound.turn(position, self.site).await?;
                // A session that was changed may have temporary tables, which anybody may write to.
                if !class.reads_only && !may_pin(class) && !turn.link().is_touched() {
                    self.check_writer()?;
                }
                return Ok(Route::turn(turn));
            }
            Target::Ambient(handle) | Target::Outside(handle) => handle,
        };
        self.check_in_transaction()?;
        self.begin_around().await?;
        while let Some(bound) = self.lookup() {
            self.check_open(handle, &bound)?;
            match bound.turn(&self.position(), self.site).await {
                Ok(turn) => return Ok(Route::turn(turn)),
                // It must not run without the transaction that it was made in.
                Err(error) if error.kind() == Kind::TransactionEnded => return Err(error),
                Err(error) if bound.is_gone() => {
                    self.forget(&bound);
                    if bound.tell_lost_session() {
                        return Err(error.at(self.site));
                    }
                    // It went back to the pool between the two: look again.
                }
                Err(error) => return Err(error),
            }
        }
        if self.owner().is_some() && may_pin(class) {
            // Bound before it runs: what another branch of the coroutine does
            // meanwhile has to be there as well.
            let purpose = Purpose::of(class);
            let pin = self.pinned_for(PinKind::Explicit, purpose).await?;
            let turn = pin.bound().turn(&self.position(), self.site).await?;
            return Ok(Route::pinned_turn(turn, pin));
        }
        if !class.reads_only {
            self.check_writer()?;
        }
        let owner = self.owner().cloned();
        self.route_unpinned(handle, owner, Purpose::of(class)).await
    }

    /// The handle, if nothing is bound that the call would have to mind.
    fn unbound(&self) -> Option<&Handle> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => {
                let is_free = match self.seen.frame() {
                    Some(frame) => frame.is_free(),
                    None => !is_hidden(),
                };
                is_free.then_some(handle)
            }
            Target::Bound(..) => None,
        }
    }

    /// Refuses a write on another connection than that of the transaction around it, where the database has
    /// one writer at a time: it would wait for that transaction for ever.
    pub(crate) fn check_writer(&self) -> Result<()> {
        let shared = self.shared();
        if !shared.one_writer {
            return Ok(());
        }
        let frame = self.seen.frame();
        let own = match &self.target {
            Target::Bound(bound, _) => Some(*bound),
            Target::Ambient(_) | Target::Outside(_) => None,
        };
        let writer_around = || {
            let around = frame?.lookup(shared.id)?;
            let is_own = own.is_some_and(|own| Arc::ptr_eq(own, &around));
            (!is_own).then(|| around.writer_around(frame?)).flatten()
        };
        let writer = match &self.target {
            // In its own coroutine it runs on the connection of that transaction.
            Target::Ambient(_) => None,
            Target::Outside(_) | Target::Bound(..) => writer_around(),
        };
        let writer = writer.or_else(|| Frame::surrounding_writer(frame, shared.id, own));
        let Some(site) = writer else {
            return Ok(());
        };
        let message = "self-deadlock: this database has one writer at a time, and that is the \
                       transaction around this write: it would wait for it for ever";
        Err(Error::new(Kind::SelfDeadlock, message)
            .at(site)
            .at(self.site))
    }

    /// A closed handle lets transactions finish, and nothing else.
    pub(crate) fn check_open(&self, handle: &Handle, bound: &Bound) -> Result<()> {
        let in_transaction = self
            .seen
            .frame()
            .is_some_and(|of| bound.in_transaction_from(of));
        if handle.pool.is_closed() && !in_transaction {
            return Err(route::from_pool(AcquireError::Closed));
        }
        Ok(())
    }

    pub(crate) async fn route_unpinned(
        &self,
        handle: &Handle,
        owner: Option<Arc<Frame>>,
        purpose: Purpose,
    ) -> Result<Route> {
        let lease = route::acquire(handle, self.seen.frame(), purpose, self.site).await?;
        Ok(Route::unpinned(lease, owner))
    }

    /// Pins the connection that this call would run on; takes one if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is pinned.
    pub(crate) async fn pinned(&self, kind: PinKind) -> Result<PinGuard> {
        self.pinned_for(kind, Purpose::Other).await
    }

    async fn pinned_for(&self, kind: PinKind, purpose: Purpose) -> Result<PinGuard> {
        let handle = match &self.target {
            Target::Bound(bound, _) => return Ok(PinGuard::new(bound, kind)),
            Target::Ambient(handle) | Target::Outside(handle) => handle,
        };
        self.begin_around().await?;
        if let Some(pin) = self.pin_found(kind)? {
            self.check_open(handle, pin.bound())?;
            return Ok(pin);
        }
        let pin = self.taken(handle, kind, purpose).await?;
        match self.owner() {
            Some(frame) => self.bind(pin, frame),
            None => Ok(pin),
        }
    }

    /// Takes a connection, whatever is bound, and pins it.
    pub(crate) async fn taken(
        &self,
        handle: &Handle,
        kind: PinKind,
        purpose: Purpose,
    ) -> Result<PinGuard> {
        let lease = route::acquire(handle, self.seen.frame(), purpose, self.site).await?;
        Ok(PinGuard::new(&Bound::new(&handle.shared, lease), kind))
    }

    /// Binds a connection that was taken for this call to a frame; or pins the one that another
    /// branch of the coroutine was faster with.
    pub(crate) fn bind(&self, pin: PinGuard, frame: &Arc<Frame>) -> Result<PinGuard> {
        loop {
            match pin.bound().bind_to(frame) {
                Bind::Done => return Ok(pin),
                Bind::Taken => {
                    if let Some(faster) = self.pin_found(pin.kind())? {
                        return Ok(faster);
                    }
                }
                Bind::Ended => return Err(self.too_late()),
            }
        }
    }

    pub(crate) fn too_late(&self) -> Error {
        let message = "the coroutine or transaction that this call was made in has ended";
        Error::new(Kind::TransactionEnded, message).at(self.site)
    }

    /// Pins the connection that is bound for this call, if there is one.
    pub(crate) fn pin_found(&self, kind: PinKind) -> Result<Option<PinGuard>> {
        self.check_in_transaction()?;
        while let Some(bound) = self.lookup() {
            if let Some(pin) = PinGuard::of_found(&bound, kind) {
                return Ok(Some(pin));
            }
            self.forget(&bound);
            if bound.tell_lost_session() {
                let message = "the connection was lost, and with it what this coroutine had changed \
                               in its session: change it again";
                return Err(Error::new(Kind::ConnectionLost, message).at(self.site));
            }
        }
        Ok(None)
    }

    /// A connection that is gone is bound no more, though whoever gave it back may not have
    /// come round to saying so.
    fn forget(&self, bound: &Arc<Bound>) {
        if let Some(frame) = self.seen.frame() {
            frame.unbind_around(bound);
        }
    }

    /// A closure whose transaction was ended by somebody else runs nothing more.
    pub(crate) fn check_in_transaction(&self) -> Result<()> {
        if matches!(self.target, Target::Bound(..)) {
            return Ok(());
        }
        let Some(frame) = self.seen.frame() else {
            return Ok(());
        };
        if frame.is_over() {
            return Err(self.too_late());
        }
        if frame.has_lost(self.shared().id) {
            let message = "the transaction around this one was ended while this one was open";
            return Err(Error::new(Kind::TransactionEnded, message).at(self.site));
        }
        Ok(())
    }

    /// Runs a statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it runs, it is cancelled; whether it took effect is unknown.
    pub(crate) async fn run(&self, sql: &str, params: Given<'_>, rows: bool) -> Result<Outcome> {
        let text = match self.text(sql, params) {
            Ok(text) => text,
            Err(wrong) => return self.noted(Err(wrong)),
        };
        if let Some(handle) = self.unbound()
            && is_plain(handle, text.class())
        {
            // The way of nearly all calls, without a detour: every layer of futures costs.
            let acquired = handle.pool.acquire_as(self.site).await;
            let mut lease = match acquired {
                Ok(lease) => lease,
                Err(error) => return self.noted(Err(route::from_pool(error))),
            };
            let mut op = Run(text.request(rows));
            op.set_unpinned(true);
            // A cancel from here on gives the connection back, to be settled.
            let answer = lease.send(&op, self.site).await;
            if lease.is_check_due() {
                handle.check_idle();
            }
            if answer.is_ok() && lease.is_clean() {
                return self.noted(answer);
            }
            let route = Route::unpinned(Lease::into_owned(lease), self.owner().cloned());
            let done = self.end_unclean(route, text.class(), op, answer).await;
            return self.noted(text.located(done));
        }
        let done = self.run_bound(&text, rows).await;
        self.noted(text.located(done))
    }

    /// Runs a statement on the connection that it belongs on. Boxed and out of line, so that
    /// neither the future nor the code of an un-pinned call contains it.
    #[inline(never)]
    fn run_bound<'f>(&'f self, text: &'f Text<'_>, rows: bool) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            if let Some(ended) = self.end_failed_raw(text.class()) {
                return ended;
            }
            let mut op = Run(text.request(rows));
            self.send_and_finish(text.class(), &mut op).await
        })
    }

    /// Ends an un-pinned run that failed or left something on its connection.
    #[cold]
    fn end_unclean<'f>(
        &'f self,
        route: Route,
        class: &'f Class,
        mut op: Run<'f>,
        answer: Result<Outcome>,
    ) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            let sent = self.repeat_if_lost(Hold::Call, class, &mut op, route, answer);
            let (route, answer) = sent.await?;
            route.finish(class, self.shared(), self.site, answer).await
        })
    }

    /// Sends a request on the connection that it belongs on, and sees to what its answer leaves
    /// behind.
    pub(crate) async fn send_and_finish<O: Op>(&self, class: &Class, op: &mut O) -> Result<O::Out> {
        let (route, answer) = self.send(Hold::Call, class, op).await?;
        route.finish(class, self.shared(), self.site, answer).await
    }

    /// Sends a request on the connection that it belongs on. If that connection is lost and the
    /// request cannot have run, sends it once more on another.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is sent, nothing has happened; after that, it is settled before the
    /// connection is used again.
    pub(crate) async fn send<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
    ) -> Result<(Route, Result<O::Out>)> {
        let (route, answer) = self.send_once(hold, class, op).await?;
        self.repeat_if_lost(hold, class, op, route, answer).await
    }

    async fn send_once<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
    ) -> Result<(Route, Result<O::Out>)> {
        let mut route = match hold {
            Hold::Call => self.route(class).await?,
            Hold::Stream => self.stream_place(class).await?,
            Hold::Statement => self.statement_place().await?,
        };
        op.set_unpinned(route.is_unpinned());
        if hold == Hold::Stream
            && let Route::ConnectionTurn(turn, _) = &mut route
        {
            turn.begin_now(self).await?;
            turn.set_streaming();
        }
        let answer = route.send(op, class, self).await;
        Ok((route, answer))
    }

    /// Repeats a call whose connection was lost, if nothing depends on that connection and the call
    /// [may be repeated](Call::may_repeat).
    async fn repeat_if_lost<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
        mut route: Route,
        answer: Result<O::Out>,
    ) -> Result<(Route, Result<O::Out>)> {
        let took = match &answer {
            Ok(_) => return Ok((route, answer)),
            Err(_) => route.link().in_use_for(),
        };
        // Another connection is no use to a call on one that somebody holds.
        let is_free = !matches!(self.target, Target::Bound(..));
        match &answer {
            Err(lost)
                if self.may_repeat(class, lost, took) && is_free && route.is_exchangeable() =>
            {
                drop(route);
                self.send_once(hold, class, op).await
            }
            _ => Ok((route, answer)),
        }
    }

    /// The one rule about repeating a call: its connection was lost, and the server cannot have run
    /// it; or the connection was lost without a word as soon as it was used, and the call is a read
    /// whose every function is known to change nothing. What else may have run is never repeated.
    ///
    /// The second attempt uses a connection that was opened or has answered since.
    pub(crate) fn may_repeat(&self, class: &Class, error: &Error, took: Duration) -> bool {
        let Some(handle) = self.handle().filter(|_| error.is_connection_lost()) else {
            return false;
        };
        handle.pool.manager().note_loss();
        // Whatever took this one may have taken the idle ones as well.
        handle.pool.check_idle();
        // A server that says why, or ends what has run for a while, may have done so to stop it.
        let is_silent = error.sql_state().is_none() && error.code().is_none() && took <= DEAD_AFTER;
        (class.pure_read && is_silent) || error.was_never_sent()
    }

    /// Puts a new connection in the place of one that was lost before anything ran on it.
    pub(crate) async fn reconnect(&self, lost: &mut PooledConnection) -> Result<()> {
        match self.handle() {
            Some(handle) => handle.pool.manager().reconnect(lost).await,
            None => Ok(()),
        }
    }

    /// The handle that its connection is of, if nobody has dropped it.
    fn handle(&self) -> Option<Arc<Handle>> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => Some(Arc::clone(handle)),
            Target::Bound(bound, _) => bound.shared().handle(),
        }
    }

    /// A lost or doomed transaction that a statement's text began is ended by such a text: a
    /// ROLLBACK has done its work, a COMMIT has failed.
    fn end_failed_raw(&self, class: &Class) -> Option<Result<Outcome>> {
        let commits = match class.transaction? {
            TransactionVerb::Commit => true,
            TransactionVerb::Rollback => false,
            _ => return None,
        };
        let wrong = self.lookup()?.end_failed_raw()?;
        Some(match commits {
            true => Err(wrong),
            false => Ok(Outcome::default()),
        })
    }

    /// Runs a statement with many sets of parameters.
    pub(crate) async fn run_many(
        &self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Outcome> {
        let done = self.run_many_texts(sql, sets).await;
        self.noted(done)
    }

    async fn run_many_texts(&self, sql: &str, sets: Result<Vec<Params<'_>>>) -> Result<Outcome> {
        self.check_here()?;
        let at_site = |wrong: Error| wrong.at(self.site);
        let plan = sql::plan(self.shared().dialect, sql).map_err(at_site)?;
        if plan.class.statements == Statements::Several {
            let message = "exec_many takes one statement, not a script of several";
            return Err(Error::new(Kind::Parameters, message).at(self.site));
        }
        self.refuse_session_only(&plan.class)?;
        let placeholders = plan.placeholders();
        let sets: Vec<Vec<Param<'_>>> = sets
            .map_err(at_site)?
            .into_iter()
            .map(|params| params.bind(&placeholders))
            .collect::<Result<_>>()
            .map_err(at_site)?;
        let mut batch = RunBatch {
            sql: plan.sql(),
            sets: &sets,
        };
        plan.located(self.send_and_finish(&plan.class, &mut batch).await)
    }

    /// Remembers the outcome for [`Db::last_error`](crate::Db::last_error).
    #[inline]
    pub(crate) fn note<T>(&self, done: &Result<T>) {
        if let Some(frame) = self.seen.frame() {
            frame.note_error(self.shared().id, done.as_ref().err());
        }
    }

    #[inline]
    fn noted<T>(&self, done: Result<T>) -> Result<T> {
        self.note(&done);
        done
    }

    pub(crate) async fn exec(self, sql: &str, params: Given<'_>) -> Result<Executed> {
        self.run(sql, params, false).await.map(Executed::of)
    }

    pub(crate) async fn exec_many(
        self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Executed> {
        self.run_many(sql, sets).await.map(Executed::of)
    }

    pub(crate) async fn query(self, sql: &str, params: Given<'_>) -> Result<Vec<Row>> {
        let rows = self.run(sql, params, true).await?.rows;
        Ok(rows.map_or_else(Vec::new, |rows| rows.into_rows().collect()))
    }

    pub(crate) async fn query_opt(self, sql: &str, params: Given<'_>) -> Result<Option<Row>> {
        let outcome = self.run(sql, params, true).await?;
        at_most_one(outcome, self.site)
    }

    pub(crate) async fn query_one(self, sql: &str, params: Given<'_>) -> Result<Row> {
        let outcome = self.run(sql, params, true).await?;
        at_most_one(outcome, self.site)?.ok_or_else(|| {
            let message = "one row was asked for, and there is none";
            Error::new(Kind::NoRows, message).at(self.site)
        })
    }
}

#[inline]
fn at_most_one(outcome: Outcome, site: &'static Location<'static>) -> Result<Option<Row>> {
    let Some(rows) = outcome.rows else {
        return Ok(None);
    };
    if rows.len() > 1 {
        let message = format!(
            "at most one row was asked for, and there are {}",
            rows.len()
        );
        return Err(Error::new(Kind::TooManyRows, message).at(site));
    }
    Ok(rows.into_first())
}
