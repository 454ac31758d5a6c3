//! Where a call runs: on a connection of its own for just this call, or on its turn on the
//! one that is bound.

use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{AcquireError, AcquireOptions};

use crate::binding::{Bound, ConnectionTurn, Control, Lease, Level, PinGuard};
use crate::call::Call;
use crate::call::op::{Op, Rollback, WithBegin};
use crate::coroutine::{Bind, Frame, hidden_frame};
use crate::driver::{Begin, Status};
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::pooled::shared::Shared;
use crate::sql::{Class, TransactionVerb};
use crate::{Error, Kind, Result};

/// A connection to make one call on.
pub(crate) enum Route {
    /// Nothing is bound: a connection for this call alone.
    Unpinned(Unpinned),
    /// The bound one, for this call's turn; with the pin that keeps it bound, if nothing
    /// else does yet.
    ConnectionTurn(ConnectionTurn, Option<PinGuard>),
}

/// A connection for one call.
pub(crate) struct Unpinned {
    lease: Lease,
    /// The frame that is to keep it, should something pin it.
    frame: Option<Arc<Frame>>,
}

/// Takes a connection out of the pool. `inside` is the frame of the running code.
///
/// # Cancel safety
///
/// As an acquire of the pool: nothing is lost.
pub(crate) async fn acquire(
    handle: &Handle,
    inside: Option<&Arc<Frame>>,
    purpose: Purpose,
    site: &'static Location<'static>,
) -> Result<Lease> {
    let shared = &handle.shared;
    let writer = match (&shared.writers, purpose) {
        (Some(writers), Purpose::Write) => Some(writers.enter(handle).await?),
        _ => None,
    };
    // A cancel from here on gives the place among the writers back.
    let mut lease = acquire_any(handle, inside, site).await?;
    lease.set_writer(writer);
    Ok(lease)
}

/// What a connection is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It may write, or wait to.
    Write,
    /// It reads, or nobody knows.
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
    // Where it waits, once that has been seen to.
    let mut waiting = None;
    std::future::poll_fn(|cx| {
        let polled = acquiring.as_mut().poll(cx);
        if polled.is_ready() || waiting.is_some() {
            return polled.map(|acquired| {
                acquired
                    .map(cenote_pool::Lease::into_owned)
                    .map_err(from_pool)
            });
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
    })
    .await
}

/// What an acquire's error is called here.
pub(crate) fn from_pool(error: AcquireError<Error>) -> Error {
    let kind = match &error {
        // The driver's own error says more.
        AcquireError::Create(inner) => return inner.clone(),
        AcquireError::Closed => Kind::Closed,
        AcquireError::Unavailable(_) | AcquireError::QueueFull { .. } => Kind::Unavailable,
        AcquireError::Timeout(_) => Kind::Timeout,
        _ => Kind::Connect,
    };
    let message = match kind {
        Kind::Closed => "the database handle is closed".to_owned(),
        Kind::Timeout => format!("no free connection: {error}"),
        _ => error.to_string(),
    };
    Error::new(kind, message).because(error)
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

    pub(crate) fn link(&mut self) -> &mut PooledConnection {
        match self {
            Route::Unpinned(unpinned) => &mut unpinned.lease,
            Route::ConnectionTurn(turn, _) => turn.link(),
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
        self.link().expect(class);
        if !call.is_limited() && self.unsent_begin().is_none() {
            return self.link().send(op, call.site).await;
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
        let limit = self.limit(call);
        if let Route::ConnectionTurn(turn, _) = self
            && turn.bound().time_left() == Some(Duration::ZERO)
        {
            // Not even sent.
            return Err(turn.bound().lose_by_age(site));
        }
        let answer = if let Route::ConnectionTurn(turn, _) = self
            && let Some(begin) = turn.bound().unsent_begin()
        {
            let op = WithBegin(op, begin);
            let answer = turn.send_first(&op, class, call, limit).await;
            // A text that ends its transaction may have got that far before it failed.
            let is_unbegun = |error: &Error| {
                let ends = class.contains_transaction_control || class.transaction.is_some();
                !ends || error.was_never_sent()
            };
            if answer.as_ref().is_err_and(is_unbegun) && turn.link().status() == Status::Idle {
                turn.bound().set_begun(false);
            }
            answer
        } else {
            let runtime = &shared.runtime;
            self.link().send_within(op, site, runtime, limit).await
        };
        match answer {
            Err(error) if error.kind() == Kind::StatementTimeout => Err(self.late(error, site)),
            answer => answer,
        }
    }

    /// The BEGIN that is to travel with the next statement.
    fn unsent_begin(&self) -> Option<Begin> {
        match self {
            Route::ConnectionTurn(turn, _) => turn.bound().unsent_begin(),
            Route::Unpinned(_) => None,
        }
    }

    /// How long a statement may take here.
    fn limit(&self, call: &Call<'_>) -> Option<Duration> {
        let left = match self {
            Route::ConnectionTurn(turn, _) => turn.bound().time_left(),
            Route::Unpinned(_) => None,
        };
        match (call.time_limit(), left) {
            (Some(statement), Some(left)) => Some(statement.min(left)),
            (statement, left) => statement.or(left),
        }
    }

    /// A statement took too long: or was it its transaction?
    fn late(&self, error: Error, site: &'static Location<'static>) -> Error {
        let Route::ConnectionTurn(turn, _) = self else {
            return error;
        };
        if turn.bound().time_left() != Some(Duration::ZERO) {
            return error;
        }
        turn.bound().lose_by_age(site)
    }

    /// Whether nothing depends on the connection, so that a call may run on another one as well: no
    /// transaction is open on it, and its session was not changed.
    pub(crate) fn is_exchangeable(&self) -> bool {
        match self {
            Route::Unpinned(_) => true,
            Route::ConnectionTurn(turn, _) => turn.bound().is_exchangeable(),
        }
    }

    /// The call has been answered: sees what the server says now, binds the connection if
    /// something pins it, and gives it back otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is cleaned up by the pool.
    pub(crate) async fn finish<T>(
        self,
        class: &Class,
        shared: &Arc<Shared>,
        site: &'static Location<'static>,
        result: Result<T>,
    ) -> Result<T> {
        match self {
            Route::ConnectionTurn(mut turn, _pin) => {
                turn.observe(Some(site), Control::of(class, result.is_ok()));
                result
            }
            // The database reports no status and was told to begin: nobody would end that transaction.
            Route::Unpinned(unpinned) if unpinned.lost_sight(class) && result.is_ok() => {
                Err(left_open(site))
            }
            Route::Unpinned(unpinned) if unpinned.leaves_nothing() => result,
            // Which is rare.
            Route::Unpinned(unpinned) => {
                Box::pin(unpinned.finish_unclean(shared, site, result)).await
            }
        }
    }
}

impl Unpinned {
    /// A text has begun a transaction, nothing keeps the connection, and the database does not tell.
    fn lost_sight(&self, class: &Class) -> bool {
        let begins = class.transaction == Some(TransactionVerb::Begin);
        begins && self.frame.is_none() && self.lease.status() == Status::Unknown
    }

    /// The connection can go back as it is: nothing of the call is left on it, or only what the pool's hook
    /// has to find out about.
    fn leaves_nothing(&self) -> bool {
        let lease = &self.lease;
        let given_up = lease.is_broken() || lease.is_unsettled();
        given_up || (!self.is_open() && !lease.is_touched())
    }

    /// A transaction is open.
    fn is_open(&self) -> bool {
        matches!(self.lease.status(), Status::InTransaction | Status::Failed)
    }

    /// Something is left on the connection.
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
            // Two branches of one coroutine have touched two connections: only one can
            // be its own.
            bound.release();
            return result.and(Err(match open {
                true => left_open(site),
                false => left_touched(site),
            }));
        }
        if !open {
            return result;
        }
        let limit = Some(shared.cleanup_timeout);
        // If this fails the pool's hook finds the connection as it is, and destroys it.
        let rolled_back = self
            .lease
            .send_within(&Rollback, site, &shared.runtime, limit)
            .await;
        result.and(Err(match rolled_back {
            Ok(()) => left_open(site),
            Err(error) => left_open(site).because(error),
        }))
    }
}

fn left_touched(site: &'static Location<'static>) -> Error {
    let message = "another branch of this coroutine has a connection of its own by now, so what \
                   this call did to its session could not be kept";
    Error::new(Kind::LeftSession, message).at(site)
}

pub(crate) fn left_open(site: &'static Location<'static>) -> Error {
    let message = "this statement left a transaction open outside of any coroutine, so it was \
                   rolled back: use db.transaction(..), run it in cenote::scope(..) or \
                   cenote::spawn(..), or take a connection with db.connection()";
    Error::new(Kind::LeftTransaction, message).at(site)
}
