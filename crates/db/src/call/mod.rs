//! One call: where it was made, which connection it runs on, how it is sent and how it ends.

pub(crate) mod batch;
pub(crate) mod many;
pub(crate) mod op;
mod outcome;
pub(crate) mod read;
mod repeat;
pub(crate) mod route;
mod run;
mod shared;
pub(crate) mod trace;

use std::panic::Location;
use std::sync::Arc;

use crate::api::executor::CallOptions;
use crate::binding::{Bound, Caller, PinGuard, PinKind};
use crate::call::route::{Purpose, Route};
use crate::coroutine::{Bind, CallContext, Frame, is_hidden};
use crate::driver::{Param, Request};
use crate::pooled::handle::Handle;
use crate::pooled::shared::{Shared, TimeLimit};
use crate::sql::{self, CachedScan, Class, Statements};
use crate::types::params::{List, Params};
use crate::{Error, Kind, Result};

/// The parameters as the caller gave them; a value that no parameter can have is an error of the call.
pub(crate) type Given<'a> = Result<Params<'a>>;

/// Where a call has to run.
#[derive(Clone)]
pub(crate) enum Target<'a> {
    /// On the connection that the coroutine has bound; if it has none, on any connection of the pool.
    Ambient(&'a Arc<Handle>),
    /// On any connection of the pool, whatever the coroutine has bound.
    Outside(&'a Arc<Handle>),
    /// On this connection.
    Bound(&'a Arc<Bound>, Caller),
}

/// A call that a program has made.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    pub(crate) target: Target<'a>,
    /// The frame that it was made in.
    pub(crate) context: CallContext,
    /// The line of the program that made it.
    pub(crate) site: &'static Location<'static>,
    /// `None` for nearly all calls; boxed, because a call is moved often.
    pub(crate) options: Option<Box<CallOptions>>,
}

/// How long a call keeps its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Until the server has answered.
    Call,
    /// Until the program has read the last row.
    Stream,
    /// Until the prepared statement is dropped.
    Statement,
}

/// SQL with its parameters, ready to be sent.
pub(crate) struct Text<'a> {
    pub(crate) scan: Arc<CachedScan>,
    params: Vec<Param<'a>>,
}

impl<'a> Text<'a> {
    pub(crate) fn class(&self) -> &Class {
        &self.scan.class
    }

    /// Returns the SQL as the caller wrote it.
    pub(crate) fn sql(&self) -> &str {
        self.scan.written_sql()
    }

    /// See [`CachedScan::located`].
    pub(crate) fn located<T>(&self, done: Result<T>) -> Result<T> {
        self.scan.located(done)
    }

    /// Returns the request to a driver; `rows` says whether the caller wants the rows.
    pub(crate) fn request(&self, call: &Call<'_>, rows: bool) -> Request<'_> {
        let mut request = Request::new(self.scan.sql(), &self.params);
        request.rows = rows;
        request.script = self.scan.class.statements == Statements::Several;
        request.cache = !request.script && call.keeps_statements();
        request.prepared = call.is_prepared();
        request
    }
}

/// Returns whether a text of this class may leave a transaction or a changed session behind, which pins the connection.
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

    /// Returns the bound connection that the call has to run on, if there is one.
    pub(crate) fn lookup(&self) -> Option<Arc<Bound>> {
        let frame = self.context.frame();
        match &self.target {
            Target::Ambient(handle) => frame?.lookup(handle.shared.id),
            Target::Outside(handle) => frame?.lookup_outside(handle.shared.id),
            Target::Bound(bound, _) => Some(Arc::clone(bound)),
        }
    }

    /// Returns the frame that owns a connection which this call pins.
    pub(crate) fn owner(&self) -> Option<&Arc<Frame>> {
        match &self.target {
            Target::Ambient(_) => self.context.frame(),
            Target::Outside(_) | Target::Bound(..) => None,
        }
    }

    /// Returns the caller from which the call takes its turn.
    pub(crate) fn caller(&self) -> Caller {
        match &self.target {
            Target::Bound(_, caller) => caller.clone(),
            _ => Caller::Frame(self.context.frame().cloned()),
        }
    }

    /// Scans a text, which is sent with the tag of this call if it has one. Refuses LISTEN and UNLISTEN.
    #[inline]
    pub(crate) fn cached_scan(&self, sql: &str) -> Result<Arc<CachedScan>> {
        let scan = match &self.options {
            None => sql::cached_scan(self.shared().dialect, sql),
            Some(options) => sql::cached_tagged_scan(self.shared().dialect, sql, options.tag),
        };
        match scan {
            Ok(scan) if scan.class.listens => Err(listens()),
            scan => scan,
        }
    }

    /// Returns whether the connection may keep the prepared statement, and use one that it has kept.
    #[inline]
    pub(crate) fn keeps_statements(&self) -> bool {
        self.options
            .as_ref()
            .is_none_or(|options| !options.no_cache)
    }

    /// Returns the time limit of the statement, outside of what a transaction has left.
    fn is_prepared(&self) -> bool {
        self.options
            .as_ref()
            .is_some_and(|options| options.prepared)
    }

    /// Returns whether a replica may answer the call.
    pub(crate) fn is_reading(&self) -> bool {
        let options = self.options.as_ref();
        options.is_some_and(|options| options.reading) && !matches!(self.target, Target::Bound(..))
    }

    /// Returns the same call for the primary.
    pub(crate) fn on_primary(&self) -> Self {
        let options = self.options.as_deref().and_then(|options| {
            CallOptions {
                reading: false,
                ..*options
            }
            .boxed()
        });
        Call {
            options,
            ..self.clone()
        }
    }

    /// Returns whether a lost call may run on another connection.
    pub(crate) fn may_move(&self) -> bool {
        self.options
            .as_ref()
            .is_none_or(|options| !options.no_repeat)
    }

    pub(crate) fn time_limit(&self) -> Option<TimeLimit> {
        let own = self.options.as_ref().and_then(|options| options.timeout);
        let own = own.map(|time| TimeLimit {
            time,
            setting: "CallOptions::timeout",
        });
        own.or_else(|| self.shared().statement_limit())
    }

    /// Returns whether the statement may have a time limit.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.options.is_some() || self.shared().limits_calls()
    }

    /// Scans the SQL and binds the parameters to it. Sends nothing.
    #[inline]
    pub(crate) fn text<'t>(&self, sql: &'t str, params: Given<'t>) -> Result<Text<'t>> {
        self.check_here()?;
        let scan = self.cached_scan(sql)?;
        let params = params.and_then(|params| scan.bind(params))?;
        if scan.class.statements == Statements::Several {
            if !params.is_empty() {
                return Err(script_with_params());
            }
            if self.is_prepared() {
                return Err(script_to_prepare());
            }
        }
        self.refuse_session_only(&scan.class)?;
        let text = Text { scan, params };
        match text.params.iter().any(|param| List::of(param).is_some()) {
            false => Ok(text),
            true => self.expand_lists(&text),
        }
    }

    /// Gives each value of a list a placeholder of its own.
    #[cold]
    fn expand_lists<'t>(&self, text: &Text<'t>) -> Result<Text<'t>> {
        let expanded = sql::expand(&text.scan, &text.params)?;
        let scan = self
            .cached_scan(&expanded.sql)?
            .expanded_from(expanded.origin);
        Ok(Text {
            scan: Arc::new(scan),
            params: expanded.params,
        })
    }

    /// Refuses a call that is awaited in another frame than it was made in: it must not leave its
    /// transaction, nor enter another.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        #[cfg(debug_assertions)]
        if let (Target::Ambient(handle), Some(frame)) = (&self.target, self.context.frame()) {
            frame.warn_if_spawned_in(handle.shared.id, self.site);
        }
        let anywhere = match &self.target {
            Target::Ambient(_) | Target::Outside(_) => false,
            // A statement belongs to its coroutine. A transaction guard and a connection may be used anywhere.
            Target::Bound(_, caller) => !matches!(caller, Caller::Frame(Some(_))),
        };
        match anywhere || self.context.is_here() {
            true => Ok(()),
            false => Err(escaped()),
        }
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
        Err(Error::new(Kind::LeftSession, message))
    }

    /// Takes the connection that a text of this class has to run on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has taken nothing.
    pub(crate) async fn route(&self, class: &Class) -> Result<Route> {
        let handle = match &self.target {
            Target::Bound(bound, caller) => {
                self.begin_around().await?;
                let mut turn = bound.turn(caller, self.site).await?;
                // A changed session may have temporary tables, which every transaction may write to.
                if !class.reads_only && !may_pin(class) && !turn.connection().is_touched() {
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
            match bound.turn(&self.caller(), self.site).await {
                Ok(turn) => return Ok(Route::turn(turn)),
                // The call must not run without the transaction that it was made in.
                Err(error) if error.kind() == Kind::TransactionEnded => return Err(error),
                Err(error) if bound.is_gone() => {
                    self.forget(&bound);
                    if bound.report_lost_session() {
                        return Err(error);
                    }
                    // The connection went back to the pool after the lookup: look again.
                }
                Err(error) => return Err(error),
            }
        }
        if self.owner().is_some() && may_pin(class) {
            // Bound before it runs, so that calls of other branches of the coroutine
            // run on the same connection meanwhile.
            let purpose = Purpose::of(class);
            let pin = self.pinned_for(PinKind::Explicit, purpose).await?;
            let turn = pin.bound().turn(&self.caller(), self.site).await?;
            return Ok(Route::pinned_turn(turn, pin));
        }
        if !class.reads_only {
            self.check_writer()?;
        }
        let owner = self.owner().cloned();
        self.route_unpinned(handle, owner, Purpose::of(class)).await
    }

    /// Returns the handle if no bound connection can concern the call.
    #[inline]
    fn unbound(&self) -> Option<&Handle> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => {
                let is_free = match self.context.frame() {
                    Some(frame) => frame.is_free(),
                    None => !is_hidden(),
                };
                is_free.then_some(handle)
            }
            Target::Bound(..) => None,
        }
    }

    /// Refuses a write on another connection than that of the surrounding transaction, where the database has
    /// one writer at a time: the write would wait for that transaction for ever.
    pub(crate) fn check_writer(&self) -> Result<()> {
        let shared = self.shared();
        if !shared.one_writer {
            return Ok(());
        }
        let frame = self.context.frame();
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
            // In its own coroutine the call runs on the connection of that transaction.
            Target::Ambient(_) => None,
            Target::Outside(_) | Target::Bound(..) => writer_around(),
        };
        let writer = writer.or_else(|| Frame::surrounding_writer(frame, shared.id, own));
        let Some(site) = writer else {
            return Ok(());
        };
        let message = "self-deadlock: this database has one writer at a time, the transaction around \
                       this call is that writer, and the call would wait for it for ever; run the \
                       call in the transaction, or end the transaction first";
        Err(Error::new(Kind::SelfDeadlock, message)
            .at("begun at", site)
            .at("waited for at", self.site))
    }

    /// Refuses a call on a closed handle, unless the call belongs to an open transaction.
    pub(crate) fn check_open(&self, handle: &Handle, bound: &Bound) -> Result<()> {
        let in_transaction = self
            .context
            .frame()
            .is_some_and(|of| bound.in_transaction_from(of));
        if handle.pool.is_closed() && !in_transaction {
            return Err(route::closed());
        }
        Ok(())
    }

    pub(crate) async fn route_unpinned(
        &self,
        handle: &Handle,
        owner: Option<Arc<Frame>>,
        purpose: Purpose,
    ) -> Result<Route> {
        let lease = route::acquire(handle, self.context.frame(), purpose, self.site).await?;
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

    /// Takes a connection out of the pool, whatever is bound, and pins it.
    pub(crate) async fn taken(
        &self,
        handle: &Handle,
        kind: PinKind,
        purpose: Purpose,
    ) -> Result<PinGuard> {
        let lease = route::acquire(handle, self.context.frame(), purpose, self.site).await?;
        Ok(PinGuard::new(&Bound::new(&handle.shared, lease), kind))
    }

    /// Binds a connection that was taken for this call to a frame. If another branch of the coroutine has bound
    /// one meanwhile, pins that one instead.
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
        Error::new(Kind::TransactionEnded, message)
    }

    /// Pins the connection that is bound for this call, if there is one.
    pub(crate) fn pin_found(&self, kind: PinKind) -> Result<Option<PinGuard>> {
        self.check_in_transaction()?;
        while let Some(bound) = self.lookup() {
            if let Some(pin) = PinGuard::of_found(&bound, kind) {
                return Ok(Some(pin));
            }
            self.forget(&bound);
            if bound.report_lost_session() {
                let message = "the connection was lost, and with it what this coroutine had changed \
                               in its session: change it again";
                return Err(Error::new(Kind::ConnectionLost, message));
            }
        }
        Ok(None)
    }

    /// Unbinds a connection that is gone; the task that released it may not have done so yet.
    fn forget(&self, bound: &Arc<Bound>) {
        if let Some(frame) = self.context.frame() {
            frame.unbind_around(bound);
        }
    }

    /// Refuses a call in a closure whose transaction has ended.
    pub(crate) fn check_in_transaction(&self) -> Result<()> {
        if matches!(self.target, Target::Bound(..)) {
            return Ok(());
        }
        let Some(frame) = self.context.frame() else {
            return Ok(());
        };
        if frame.is_over() {
            return Err(self.too_late());
        }
        if frame.has_lost(self.shared().id) {
            let message = "the transaction around this one was ended while this one was open";
            return Err(Error::new(Kind::TransactionEnded, message));
        }
        Ok(())
    }
}

/// Returns the error of a LISTEN or UNLISTEN in a text: connections of the pool discard notifications.
#[cold]
pub(crate) fn listens() -> Error {
    let message = "LISTEN and UNLISTEN as statements have no effect, because connections of the \
                   pool discard notifications: use Db::listen(..), which returns them";
    Error::new(Kind::Unsupported, message)
}

#[cold]
fn script_with_params() -> Error {
    let message = "a script of several statements cannot have parameters: run them one by one";
    Error::new(Kind::Parameters, message)
}

#[cold]
fn script_to_prepare() -> Error {
    let message =
        "several statements cannot be prepared as one: run them one by one, or as a script";
    Error::new(Kind::Parameters, message)
}

#[cold]
fn escaped() -> Error {
    let message = "this call was made in one coroutine or transaction and awaited in another, \
                   or outside: make the call where it is awaited, as in \
                   scope(async { db.exec(..).await })";
    Error::new(Kind::Escaped, message)
}
