//! One call: where it was made, where it has to run, and its way there and back.

pub(crate) mod op;
mod repeat;
pub(crate) mod route;
mod run;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cenote_pool::AcquireError;

use crate::api::executor::CallOptions;
use crate::binding::{Bound, PinGuard, PinKind, Position};
use crate::call::route::{Purpose, Route};
use crate::coroutine::{Bind, Frame, Seen, is_hidden};
use crate::driver::{Param, Request};
use crate::pooled::handle::Handle;
use crate::pooled::shared::Shared;
use crate::sql::{self, Class, Plan, Statements};
use crate::types::params::Params;
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
    /// `None` for nearly all calls; boxed, because a call is moved often.
    pub(crate) options: Option<Box<CallOptions>>,
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

    pub(crate) fn request(&self, call: &Call<'_>, rows: bool) -> Request<'_> {
        let mut request = Request::new(self.plan.sql(), &self.params);
        request.rows = rows;
        request.script = self.plan.class.statements == Statements::Several;
        request.cache = !request.script && call.keeps_statements();
        request
    }
}

/// Whether a text of this class may leave something behind that pins its connection.
pub(crate) fn may_pin(class: &Class) -> bool {
    class.touches_session || class.contains_transaction_control || class.transaction.is_some()
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

    /// Scans a text, which is sent with the tag of this call if it has one.
    #[inline]
    pub(crate) fn plan(&self, sql: &str) -> Result<Arc<Plan>> {
        match &self.options {
            None => sql::plan(self.shared().dialect, sql),
            Some(options) => sql::tagged_plan(self.shared().dialect, sql, options.tag),
        }
    }

    /// Whether its statement may be kept prepared, and one that is kept be used.
    #[inline]
    pub(crate) fn keeps_statements(&self) -> bool {
        self.options
            .as_ref()
            .is_none_or(|options| !options.no_cache)
    }

    /// The time limit for its statement, outside of what a transaction has left.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        let own = self.options.as_ref().and_then(|options| options.timeout);
        own.or(self.shared().statement_timeout)
    }

    /// Whether there may be a time limit for it.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.options.is_some() || self.shared().limits_calls()
    }

    /// Reads the SQL and fits the parameters to it. Nothing has been sent yet.
    #[inline]
    pub(crate) fn text<'t>(&self, sql: &'t str, params: Given<'t>) -> Result<Text<'t>> {
        self.check_here()?;
        let at_site = |wrong: Error| wrong.at(self.site);
        let plan = self.plan(sql).map_err(at_site)?;
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
    #[inline]
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

    /// A connection that is gone is bound no more, though the task that released it may not have
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
}
