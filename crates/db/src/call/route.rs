//! Which connection a call runs on: one that it takes out of the pool for itself, or the bound one when it is its
//! turn.

use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{AcquireError, AcquireOptions, Phase, Pool, Timeout};

use crate::binding::{Bound, ConnectionTurn, LastCall, Lease, Level, PinGuard, TransactionEffect};
use crate::call::Call;
use crate::call::op::{Op, Rollback, WithBegin};
use crate::call::trace;
use crate::coroutine::{Bind, Frame, hidden_frame};
use crate::driver::{Begin, Status};
use crate::error::rounded;
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::{Shared, TimeLimit};
use crate::sql::{Class, TransactionVerb};
use crate::{Error, Kind, Result};

/// A connection to make one call on.
pub(crate) enum Route {
    /// A connection that was taken for this call alone.
    Unpinned(Unpinned),
    /// This call's turn on the bound connection; with the pin that keeps the connection bound, if nothing
    /// else does yet.
    ConnectionTurn(ConnectionTurn, Option<PinGuard>),
}

/// A connection that was taken for one call.
pub(crate) struct Unpinned {
    lease: Lease,
    /// The frame that owns the connection if the call pins it.
    frame: Option<Arc<Frame>>,
}

/// Takes a connection out of the pool. `inside` is the frame of the running code.
///
/// # Cancel safety
///
/// As an acquire of the pool.
pub(crate) async fn acquire(
    handle: &Handle,
    inside: Option<&Arc<Frame>>,
    purpose: Purpose,
    site: &'static Location<'static>,
) -> Result<Lease> {
    let shared = &handle.shared;
    let writer = match (&shared.writers, purpose) {
        (Some(writers), Purpose::Write) => Some(writers.enter(handle, site).await?),
        _ => None,
    };
    // A cancel from here on returns the permit to write.
    let mut lease = acquire_any(handle, inside, site).await?;
    handle.check_idle_if_due(&mut lease);
    lease.set_writer(writer);
    if !lease.is_numbered() {
        let number = Lease::id(&lease);
        lease.set_number(number);
    }
    Ok(lease)
}

/// What a call takes a connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The call may write, or wait to write.
    Write,
    /// The call reads, or its effect is unknown.
    Other,
}

impl Purpose {
    pub(crate) fn of(class: &Class) -> Self {
        match class.reads_only {
            true => Purpose::Other,
            false => Purpose::Write,
        }
    }
}

async fn acquire_any(
    handle: &Handle,
    inside: Option<&Arc<Frame>>,
    site: &'static Location<'static>,
) -> Result<Lease> {
    let shared = &handle.shared;
    let mut acquiring = pin!(
        handle
            .pool
            .acquire_with(AcquireOptions::new().call_site(site))
    );
    // Registers the wait, once.
    let mut waiting = None;
    let acquired = std::future::poll_fn(|cx| {
        let polled = acquiring.as_mut().poll(cx);
        if polled.is_ready() || waiting.is_some() {
            return polled.map(|acquired| {
                acquired
                    .map(cenote_pool::Lease::into_owned)
                    .map_err(|error| from_pool(error, Some(&handle.pool)))
            });
        }
        if let Some(lanes) = &handle.lanes {
            lanes.release_empty();
        }
        let inside = inside.cloned().or_else(hidden_frame);
        let inside = inside.and_then(|inside| shared.contention.wait(&inside, site));
        let is_inside = inside.is_some();
        waiting = Some(inside);
        if !is_inside {
            return Poll::Pending;
        }
        let status = handle.pool.status();
        if status.active < status.max {
            return Poll::Pending;
        }
        match shared.contention.deadlock(status.max) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    });
    trace::acquire(shared, site, acquired).await
}

/// Translates an error of the pool. A time-out names the holders of all connections.
#[cold]
pub(crate) fn from_pool(
    error: AcquireError<Error>,
    pool: Option<&Pool<ConnectionManager>>,
) -> Error {
    let (kind, message) = match error {
        // The driver's own error says more.
        AcquireError::Create(inner) => return inner,
        AcquireError::Closed => return closed(),
        AcquireError::Timeout(timeout) => return timed_out(*timeout, pool),
        AcquireError::Unavailable(why) => (Kind::Unavailable, why.to_string()),
        AcquireError::QueueFull { waiting, limit } => {
            let calls = match waiting {
                1 => "1 call waits".to_owned(),
                _ => format!("{waiting} calls wait"),
            };
            let message = format!(
                "{calls} for a connection and max_waiting is {limit}; try again later, or raise it"
            );
            (Kind::Unavailable, message)
        }
        AcquireError::CreateFailed(why) => {
            (Kind::Connect, format!("opening a connection failed: {why}"))
        }
        AcquireError::Forked => {
            let message =
                "this Db belongs to the process that forked this one; open a Db in the child";
            (Kind::Connect, message.to_owned())
        }
        other => (Kind::Connect, other.to_string()),
    };
    Error::new(kind, message)
}

/// Returns the error of every call on a closed handle.
#[cold]
pub(crate) fn closed() -> Error {
    Error::new(Kind::Closed, "the database handle is closed")
}

fn timed_out(timeout: Timeout, pool: Option<&Pool<ConnectionManager>>) -> Error {
    let status = timeout.status;
    let doing = match timeout.phase {
        Phase::Checking => "checking a connection",
        _ => "waiting for a connection",
    };
    let mut message = format!(
        "timed out after {} {doing} ({} of {} in use",
        rounded(timeout.waited),
        status.active,
        status.max
    );
    if status.creating > 0 {
        message.push_str(&format!(", {} opening", status.creating));
    }
    message.push(')');
    if let Some(failed) = timeout.last_creation_error {
        message.push_str(&format!("; the last attempt to connect failed: {failed}"));
    }
    let hosts = pool.and_then(|pool| pool.manager().template.hosts());
    let without_host = hosts.and_then(|hosts| hosts.why_none());
    if let Some(why) = &without_host {
        message.push_str(&format!("; no host fits: {}", why.message()));
    }
    let holders = pool.map_or(timeout.oldest_holders, Pool::holders);
    if !holders.is_empty() {
        message.push_str("; see Error::holders");
    }
    let error = Error::new(Kind::Timeout, message).with_holders(holders);
    match without_host {
        Some(why) => error.because(why),
        None => error,
    }
}

impl Route {
    pub(crate) fn unpinned(lease: Lease, frame: Option<Arc<Frame>>) -> Self {
        Route::Unpinned(Unpinned { lease, frame })
    }

    pub(crate) fn turn(turn: ConnectionTurn) -> Self {
        Route::ConnectionTurn(turn, None)
    }

    /// A turn on a connection that this call has pinned.
    pub(crate) fn pinned_turn(turn: ConnectionTurn, pin: PinGuard) -> Self {
        Route::ConnectionTurn(turn, Some(pin))
    }

    pub(crate) fn connection(&mut self) -> &mut PooledConnection {
        match self {
            Route::Unpinned(unpinned) => &mut unpinned.lease,
            Route::ConnectionTurn(turn, _) => turn.connection(),
        }
    }

    /// Returns whether a transaction is open here, or begins with the next statement.
    pub(crate) fn is_in_transaction(&mut self) -> bool {
        let status = self.connection().status();
        let is_open = matches!(status, Status::InTransaction | Status::Failed);
        match self {
            Route::Unpinned(_) => is_open,
            Route::ConnectionTurn(turn, _) => is_open || turn.bound().in_transaction(),
        }
    }

    pub(crate) fn is_unpinned(&self) -> bool {
        matches!(self, Route::Unpinned(_))
    }

    /// Sends a request here, within the limits of statements and transactions; the first of its
    /// transaction with the BEGIN.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has an unanswered call, which is settled before the next one.
    pub(crate) async fn send<O: Op>(
        &mut self,
        op: &O,
        class: &Class,
        call: &Call<'_>,
    ) -> Result<O::Out> {
        self.connection().expect(class);
        if !call.is_limited() && self.unsent_begin().is_none() {
            return self.connection().send(op, call.site).await;
        }
        // With a timer in it, its future is large.
        Box::pin(self.send_limited(op, class, call)).await
    }

    async fn send_limited<O: Op>(
        &mut self,
        op: &O,
        class: &Class,
        call: &Call<'_>,
    ) -> Result<O::Out> {
        let (shared, site) = (call.shared(), call.site);
        if !O::TAKES_BEGIN
            && let Route::ConnectionTurn(turn, _) = self
        {
            turn.begin_now(call).await?;
        }
        let limit = self.limit(call.time_limit());
        if let Route::ConnectionTurn(turn, _) = self
            && turn.bound().time_left() == Some(Duration::ZERO)
        {
            // The request is not sent.
            return Err(turn.bound().lose_by_age());
        }
        let answer = if let Route::ConnectionTurn(turn, _) = self
            && let Some(begin) = turn.bound().unsent_begin()
        {
            let op = WithBegin(op, begin);
            let answer = turn.send_first(&op, class, call, limit).await;
            // A text that ends its transaction may have done so before it failed.
            let is_unbegun = |error: &Error| {
                let ends = class.contains_transaction_control || class.transaction.is_some();
                !ends || error.was_never_sent()
            };
            if answer.as_ref().is_err_and(is_unbegun) && turn.connection().status() == Status::Idle
            {
                turn.bound().set_begun(false);
            }
            answer
        } else {
            let runtime = &shared.runtime;
            self.connection()
                .send_within(op, site, runtime, limit)
                .await
        };
        match answer {
            Err(error) if error.kind() == Kind::StatementTimeout => Err(self.late(error)),
            answer => answer,
        }
    }

    /// Returns the BEGIN that has to be sent with the next statement.
    fn unsent_begin(&self) -> Option<Begin> {
        match self {
            Route::ConnectionTurn(turn, _) => turn.bound().unsent_begin(),
            Route::Unpinned(_) => None,
        }
    }

    /// Returns the time limit of a statement here: its own, or what is left of the transaction's.
    pub(crate) fn limit(&self, own: Option<TimeLimit>) -> Option<TimeLimit> {
        let left = match self {
            Route::ConnectionTurn(turn, _) => turn.bound().time_left(),
            Route::Unpinned(_) => None,
        };
        let left = left.map(|time| TimeLimit {
            time,
            setting: "max_transaction_age",
        });
        let limits = [own, left];
        limits.into_iter().flatten().min_by_key(|limit| limit.time)
    }

    /// Returns the error of a statement that exceeded its limit, or of the transaction if that has exceeded its own.
    pub(crate) fn late(&self, error: Error) -> Error {
        let Route::ConnectionTurn(turn, _) = self else {
            return error;
        };
        if turn.bound().time_left() != Some(Duration::ZERO) {
            return error;
        }
        turn.bound().lose_by_age()
    }

    /// Returns whether the call may run on another connection as well: no transaction is open on this one, and
    /// its session is unchanged.
    pub(crate) fn is_exchangeable(&self) -> bool {
        match self {
            Route::Unpinned(_) => true,
            Route::ConnectionTurn(turn, _) => turn.bound().is_exchangeable(),
        }
    }

    /// Ends a call that was answered: compares the server's status with ours, binds the connection if
    /// something pins it, and gives it back otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is cleaned up by the pool.
    pub(crate) fn finish<T: Send>(
        self,
        class: &Class,
        shared: &Arc<Shared>,
        site: &'static Location<'static>,
        result: Result<T>,
    ) -> impl Future<Output = Result<T>> + Send {
        self.finish_as(result.is_ok(), class, shared, site, result)
    }

    /// As [`finish`](Route::finish), for a call whose result says more than whether it succeeded.
    pub(crate) async fn finish_as<T>(
        self,
        succeeded: bool,
        class: &Class,
        shared: &Arc<Shared>,
        site: &'static Location<'static>,
        result: Result<T>,
    ) -> Result<T> {
        match self {
            Route::ConnectionTurn(mut turn, _pin) => {
                let last = LastCall::of(class, succeeded);
                turn.observe(
                    Some(site),
                    TransactionEffect::of(class, succeeded),
                    Some(last),
                );
                result
            }
            // The database reports no status, and a transaction has begun that nobody would end.
            Route::Unpinned(unpinned) if unpinned.lost_sight(class) && result.is_ok() => {
                Err(left_open())
            }
            Route::Unpinned(unpinned) if unpinned.leaves_nothing() => result,
            // Boxed, because it is rare.
            Route::Unpinned(unpinned) => {
                Box::pin(unpinned.finish_unclean(shared, site, result)).await
            }
        }
    }
}

impl Unpinned {
    /// Returns whether a text has begun a transaction that nothing owns, on a database that reports no status.
    fn lost_sight(&self, class: &Class) -> bool {
        let begins = class.transaction == Some(TransactionVerb::Begin);
        begins && self.frame.is_none() && self.lease.status() == Status::Unknown
    }

    /// Returns whether the connection can go back as it is: nothing of the call is left on it, or only what the pool's
    /// hook cleans up.
    fn leaves_nothing(&self) -> bool {
        let lease = &self.lease;
        let given_up = lease.is_broken() || lease.has_call();
        given_up || (!self.is_open() && !lease.is_touched())
    }

    /// Returns whether a transaction is open.
    fn is_open(&self) -> bool {
        matches!(self.lease.status(), Status::InTransaction | Status::Failed)
    }

    /// Binds a connection on which the call has left something to the frame; without a frame, rolls back.
    async fn finish_unclean<T>(
        mut self,
        shared: &Arc<Shared>,
        site: &'static Location<'static>,
        result: Result<T>,
    ) -> Result<T> {
        let open = self.is_open();
        if let Some(frame) = &self.frame {
            let bound = Bound::new(shared, self.lease);
            if bound.bind_to(frame) == Bind::Done {
                bound.keep(open.then(|| Level::raw(shared, Some(Arc::clone(frame)), site)));
                return result;
            }
            // Two branches of one coroutine have changed two connections: only one can
            // be bound.
            bound.release();
            return result.and(Err(match open {
                true => left_open(),
                false => left_touched(),
            }));
        }
        if !open {
            return result;
        }
        let limit = shared.cleanup_limit();
        // If this fails, the pool's hook destroys the connection.
        let rolled_back = self
            .lease
            .send_within(&Rollback, site, &shared.runtime, limit)
            .await;
        result.and(Err(match rolled_back {
            Ok(()) => left_open(),
            Err(error) => left_open().because(error),
        }))
    }
}

fn left_touched() -> Error {
    let message = "another branch of this coroutine has bound another connection meanwhile, so the \
                   changes of this call to its session were undone";
    Error::new(Kind::LeftSession, message)
}

pub(crate) fn left_open() -> Error {
    let message = "this statement left a transaction open outside of any coroutine, so it was \
                   rolled back: use db.transaction(..), run it in cenote::scope(..) or \
                   cenote::spawn(..), or take a connection with db.connection()";
    Error::new(Kind::LeftTransaction, message)
}
