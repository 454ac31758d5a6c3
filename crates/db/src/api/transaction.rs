//! Levels (transactions and savepoints), and the guards that users hold.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::api::methods::sql_methods;
use crate::api::transaction_options::TransactionOptions;
use crate::binding::{self, AfterCommit, Bound, Caller, ConnectionTurn, Level, PinGuard, PinKind};
use crate::call::op::{AtSavepoint, BeginOnly, Commit, Harmless, Rollback};
use crate::call::route::Purpose;
use crate::call::trace::{self, OpenSpan};
use crate::call::{Call, Target};
use crate::coroutine::{Frame, call_context};
use crate::driver::{Begin, CommitOutcome, Isolation, Savepoint, Status};
use crate::pooled::shared::TimeLimit;
use crate::sql::Class;
use crate::{Error, Kind, Result};

/// Opens a transaction, or a savepoint in the one that is open, for code in this frame.
pub(crate) async fn open(
    call: &Call<'_>,
    frame: &Arc<Frame>,
    options: TransactionOptions,
    guarded: bool,
) -> Result<LevelGuard> {
    let primary;
    let call = match call.is_reading() {
        false => call,
        true => {
            // Boxed, because it is rare.
            let opened = Box::pin(open_on_replica(call, frame, options, guarded)).await;
            if let Some(guard) = opened {
                return Ok(guard);
            }
            primary = call.on_primary();
            &primary
        }
    };
    let bound = call.lookup();
    let is_exchangeable = bound.is_none_or(|bound| bound.is_exchangeable());
    match try_open(call, frame, options, guarded).await {
        // Nothing has run in the transaction, and nothing is bound any more: try once more on another connection.
        Err(lost)
            if is_exchangeable
                && call.may_repeat(&Class::NO_SQL, &lost, Duration::ZERO)
                && call.lookup().is_none() =>
        {
            try_open(call, frame, options, guarded).await
        }
        opened => opened,
    }
}

async fn try_open(
    call: &Call<'_>,
    frame: &Arc<Frame>,
    options: TransactionOptions,
    guarded: bool,
) -> Result<LevelGuard> {
    let bound = pin_for_level(call, frame, options.begin).await?;
    open_level(call, frame, options, guarded, bound).await
}

/// Opens a level on the connection that is pinned for it.
async fn open_level(
    call: &Call<'_>,
    frame: &Arc<Frame>,
    options: TransactionOptions,
    guarded: bool,
    bound: PinGuard,
) -> Result<LevelGuard> {
    let (site, begin) = (call.site, options.begin);
    let (caller, level_frame) = match &call.target {
        Target::Bound(_, caller) => (caller.clone(), None),
        _ => (
            Caller::Frame(Some(Arc::clone(frame))),
            Some(Arc::clone(frame)),
        ),
    };
    // A cancel from here on gives the turn back unsettled and drops the pin; the pool's hook rolls back what may
    // have begun.
    let mut turn = bound.bound().turn(&caller, site).await?;
    // A transaction whose BEGIN has not been sent begins on another connection.
    if turn.connection().is_broken() && turn.bound().unsent_begin().is_none() {
        let message = "the server closed the connection while it rested";
        let lost = Error::new(Kind::ConnectionLost, message);
        return Err(lost.never_sent());
    }
    if guarded && bound.bound().has_level_in(frame) {
        return Err(nested_begin());
    }
    let mut level = Level::new(level_frame, site);
    if turn.bound().in_transaction() {
        set_savepoint(call, &mut turn, &mut level, begin).await?;
    } else {
        level.begin = begin;
        // On a replica that cannot begin, the transaction is still free to begin on the primary.
        let is_on_replica = turn.connection().is_of_replica();
        level.begun = is_on_replica || !turn.connection().driver().begins_lazily();
        if level.begun {
            // A BEGIN that exceeds the limit counts as cancelled.
            let limit = turn.bound().shared().statement_limit();
            turn.send(&BeginOnly(begin), site, limit).await?;
        }
        level.limit(turn.bound().shared(), options.idle);
        if !guarded {
            level.hold(turn.bound().shared());
        }
    }
    let serial = level.serial;
    let outermost = level.savepoint.is_none();
    turn.bound().push(level);
    let guard = LevelGuard {
        bound: Arc::clone(turn.bound()),
        serial,
        armed: true,
        held: false,
    };
    drop(turn);
    if guarded {
        frame.note_levels_on(&guard.bound);
    }
    if outermost {
        binding::watch(&guard.bound, serial);
    }
    Ok(guard)
}

/// Opens a read-only transaction on a replica that has replayed what the coroutine needs. `None` if the primary has to serve it:
/// nothing has begun then.
///
/// # Cancel safety
///
/// Dropped, nothing has begun, or the pool's hook rolls back what may have begun.
async fn open_on_replica(
    call: &Call<'_>,
    frame: &Arc<Frame>,
    options: TransactionOptions,
    guarded: bool,
) -> Option<LevelGuard> {
    let begin = options.begin;
    if !begin.read_only || begin.isolation == Some(Isolation::Serializable) {
        return None;
    }
    let (replica, lease) = call.lease_of_replica(&Class::NO_SQL).await?;
    let pin = PinGuard::new(&Bound::new(&replica.shared, lease), PinKind::Explicit);
    let pin = call.bind(pin, frame).ok()?;
    open_level(call, frame, options, guarded, pin).await.ok()
}

/// Pins the connection on which a level for code in this frame is opened: the bound one, or a new one that is bound to
/// the frame.
async fn pin_for_level(call: &Call<'_>, frame: &Arc<Frame>, begin: Begin) -> Result<PinGuard> {
    let handle = match &call.target {
        Target::Bound(bound, _) => {
            if !begin.read_only {
                call.check_writer()?;
            }
            return Ok(PinGuard::new(bound, PinKind::Explicit));
        }
        Target::Ambient(handle) | Target::Outside(handle) => handle,
    };
    call.begin_around().await?;
    if let Some(pin) = call.pin_found(PinKind::Explicit)? {
        call.check_open(handle, pin.bound())?;
        return Ok(pin);
    }
    let mut purpose = Purpose::Other;
    if !begin.read_only {
        call.check_writer()?;
        purpose = Purpose::Write;
    }
    let pin = call.taken(handle, PinKind::Explicit, purpose).await?;
    call.bind(pin, frame)
}

async fn set_savepoint(
    call: &Call<'_>,
    turn: &mut ConnectionTurn,
    level: &mut Level,
    begin: Begin,
) -> Result<()> {
    if begin != Begin::default() {
        let message = "a transaction is open already, so this one is a savepoint in it: its \
                       isolation and read-only mode are those of the outermost";
        return Err(Error::new(Kind::NestedBegin, message));
    }
    turn.begin_now(call).await?;
    // The name is never used again, so a savepoint whose SET was cancelled does no harm.
    let name = format!("cenote_{}", level.serial);
    let set = Harmless(AtSavepoint(Savepoint::Set(&name)));
    let limit = turn.bound().shared().statement_limit();
    turn.send(&set, level.site, limit).await?;
    level.savepoint = Some(name);
    level.begun = true;
    Ok(())
}

fn nested_begin() -> Error {
    let message = "this coroutine has a transaction open already: nest with db.transaction(..) or \
                   with savepoint() on the transaction";
    Error::new(Kind::NestedBegin, message)
}

/// An open level. Dropping the guard rolls back.
pub(crate) struct LevelGuard {
    bound: Arc<Bound>,
    serial: u64,
    armed: bool,
    /// The program holds the guard, and neither commits nor rolls back yet.
    held: bool,
}

impl Drop for LevelGuard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let forgotten = match self.held {
            true => self.bound.forgotten(self.serial),
            false => None,
        };
        self.bound.abandon(self.serial);
        if let Some(site) = forgotten {
            tracing::warn!(
                begun_at = %site,
                "a transaction that has written was dropped without commit() or rollback(), and is rolled back: \
                 call commit() to keep what it wrote, or rollback() if this is intended"
            );
        }
    }
}

impl LevelGuard {
    /// Registers a callback that runs after the outermost transaction has been committed.
    pub(crate) fn after_commit(&self, callback: AfterCommit) {
        // Without the level the transaction has ended, and nothing will be committed.
        drop(self.bound.after_commit_of(self.serial, callback));
    }

    /// Takes the turn in which the level ends. From here on a cancel leaves the outcome
    /// unknown.
    async fn last_turn(&self, site: &'static Location<'static>) -> Result<ConnectionTurn> {
        self.bound.abandon_above(self.serial);
        let turn = self.bound.turn(&Caller::Ending(self.serial), site).await;
        turn.map_err(|error| self.bound.why_lost().unwrap_or(error))
    }

    pub(crate) async fn commit(mut self, site: &'static Location<'static>) -> Result<()> {
        let mut turn = self.last_turn(site).await?;
        if let Some(error) = self.bound.why_not_commit() {
            self.undo(&mut turn, site).await?;
            return Err(error);
        }
        let (begun, savepoint) = self.bound.shape(self.serial);
        if !begun {
            self.committed(turn);
            return Ok(());
        }
        if let Some(name) = savepoint {
            self.bound.set_ending(self.serial, Some(site));
            let release = AtSavepoint(Savepoint::Release(&name));
            let limit = self.bound.shared().statement_limit();
            if let Err(error) = turn.send(&release, site, limit).await {
                if error.kind() == Kind::StatementTimeout {
                    // Whether the savepoint is still set is unknown: it counts as cancelled.
                    return Err(error);
                }
                // The server refused, and the savepoint is still set.
                self.bound.set_ending(self.serial, None);
                self.undo(&mut turn, site).await?;
                return Err(error);
            }
            self.committed(turn);
            return Ok(());
        }
        self.bound.set_ending(self.serial, Some(site));
        let limit = self.bound.shared().statement_limit();
        let is_tracked = turn.connection().is_tracked();
        let writer = is_tracked.then(|| self.bound.frame_of(self.serial));
        let commit = Commit(writer.flatten());
        let done = turn.send(&commit, site, limit).await;
        match done {
            Ok(CommitOutcome::Committed) => {
                self.committed(turn);
                Ok(())
            }
            Ok(CommitOutcome::RolledBack) => {
                let first = self.bound.aborted_by();
                self.over(turn);
                let message = "the server answered the commit with a rollback, because the \
                               transaction had failed before";
                let mut error = Error::new(Kind::RolledBack, message);
                if let Some(first) = first {
                    error.set_first_failure(first);
                }
                Err(error)
            }
            Err(error) if error.kind() == Kind::StatementTimeout => {
                turn.give_up();
                self.over(turn);
                let message = "the server did not answer the commit in time: whether the \
                               transaction was committed is unknown";
                Err(error.wrapped(Kind::OutcomeUnknown, message))
            }
            Err(error) if turn.connection().is_broken() && error.was_never_sent() => {
                self.over(turn);
                let message = "the connection was lost before the commit was sent, so the \
                               transaction was rolled back";
                Err(error.wrapped(Kind::TransactionLost, message))
            }
            Err(error) if turn.connection().is_broken() => {
                self.over(turn);
                let message = "the connection was lost during the commit: whether the \
                               transaction was committed is unknown";
                Err(error.wrapped(Kind::OutcomeUnknown, message))
            }
            Err(error) => {
                if turn.connection().status() != Status::Idle {
                    // The server refused, and the transaction is still open.
                    let undone = turn.send(&Rollback, site, self.cleanup_time()).await;
                    if undone.is_err() {
                        turn.give_up();
                    }
                }
                self.over(turn);
                Err(error)
            }
        }
    }

    pub(crate) async fn roll_back(mut self, site: &'static Location<'static>) -> Result<()> {
        let turn = self.last_turn(site).await;
        let mut turn = match turn {
            Ok(turn) => turn,
            // The connection is gone, and with it the transaction.
            Err(error) if error.is_connection_lost() || self.bound.why_lost().is_some() => {
                self.armed = false;
                self.bound.abandon(self.serial);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.undo(&mut turn, site).await
    }

    async fn undo(
        &mut self,
        turn: &mut ConnectionTurn,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let (begun, savepoint) = self.bound.shape(self.serial);
        let mut done = Ok(());
        if begun && turn.connection().status() != Status::Idle {
            self.bound.set_ending(self.serial, Some(site));
            let limit = self.cleanup_time();
            done = match &savepoint {
                Some(name) => {
                    let back = AtSavepoint(Savepoint::RollBack(name));
                    turn.send(&back, site, limit).await
                }
                None => turn.send(&Rollback, site, limit).await,
            };
        }
        // If the rollback failed, the pool's hook closes the connection.
        self.armed = false;
        let level = self.bound.pop(self.serial);
        if done.is_err() {
            turn.give_up();
        }
        drop(level);
        done
    }

    fn cleanup_time(&self) -> Option<TimeLimit> {
        self.bound.shared().cleanup_limit()
    }

    /// Ends the level of a transaction that was not committed.
    fn over(&mut self, turn: ConnectionTurn) {
        self.armed = false;
        let level = self.bound.pop(self.serial);
        drop(turn);
        drop(level);
    }

    /// Ends a committed level: its callbacks run, or go to the transaction around it.
    fn committed(&mut self, turn: ConnectionTurn) {
        self.armed = false;
        let callbacks = match self.bound.pop(self.serial) {
            Some(level) => level.after_commit,
            None => Vec::new(),
        };
        let mut callbacks = self.bound.defer(callbacks);
        drop(turn);
        for callback in callbacks.drain(..) {
            run_callback(callback);
        }
    }
}

/// Registers a callback that runs after the outermost transaction around this call has been committed; runs it now if
/// there is none.
pub(crate) fn after_commit(call: &Call<'_>, callback: AfterCommit) {
    let mut callback: Result<(), AfterCommit> = Err(callback);
    if let Some((_, lazy)) = call.lazy_around() {
        callback = callback.or_else(|callback| lazy.after_commit(callback));
    }
    if let Some(frame) = call.context.frame()
        && let Some(bound) = call.lookup()
    {
        callback = callback.or_else(|callback| bound.after_commit_from(frame, callback));
    }
    if let Err(callback) = callback {
        run_callback(callback);
    }
}

/// Runs a callback and contains its panic, because the commit is done.
pub(crate) fn run_callback(callback: AfterCommit) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("an after_commit callback panicked; its transaction is committed");
    }
}

/// A transaction guard. Dropping it rolls back.
///
/// If a guard is dropped after calls that wrote, and neither a failed call nor a panic nor a cancel explains it, the log gets a
/// warning with the line that began the transaction. Call [`rollback`](Transaction::rollback) where you mean it.
///
/// A transaction that [`Db::begin`](crate::Db::begin) began is ambient: while the guard lives, all calls of its coroutine on
/// the `Db` run in it. The guard's own methods run in exactly this transaction, from any task.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction<'t> {
    guard: LevelGuard,
    span: OpenSpan,
    /// A savepoint borrows the transaction that it is in.
    _around: PhantomData<&'t mut ()>,
}

pub(crate) async fn begin(
    call: &Call<'_>,
    options: TransactionOptions,
) -> Result<Transaction<'static>> {
    call.check_here().map_err(|error| call.named(None, error))?;
    let span = trace::transaction_span(call.shared(), call.site);
    let open_span = OpenSpan::new(&span);
    let open = async {
        match (&call.target, call.owner()) {
            (Target::Bound(..), _) => open(call, &Frame::root(), options, false).await,
            (_, Some(frame)) => open(call, frame, options, true).await,
            (_, None) => {
                let message = "begin() needs a coroutine around it, to roll back what is left when \
                           that ends: use db.transaction(..), run the code in cenote::scope(..) or \
                           cenote::spawn(..), or take a connection with db.connection()";
                Err(Error::new(Kind::NoCoroutine, message))
            }
        }
    };
    let opened = open.instrument(span).await;
    let mut span = open_span;
    if let Err(error) = &opened {
        span.end(Err(error));
    }
    let mut guard = call.ended(None, opened)?;
    guard.held = true;
    Ok(Transaction {
        guard,
        span,
        _around: PhantomData,
    })
}

impl Transaction<'_> {
    #[track_caller]
    pub(crate) fn call(&self) -> Call<'_> {
        let here = call_context();
        Call {
            target: Target::Bound(
                &self.guard.bound,
                Caller::Level(self.guard.serial, here.frame().cloned()),
            ),
            context: here,
            site: Location::caller(),
            options: None,
        }
    }

    sql_methods!("Runs in this transaction, from any task.");

    /// Commits. Returns `Ok` only if the server confirmed the commit.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the answer, the outcome is unknown; what was not committed is rolled back.
    ///
    /// # Errors
    ///
    /// [`Kind::RolledBack`], [`Kind::OutcomeUnknown`], [`Kind::Doomed`], [`Kind::TransactionLost`], or an error of the
    /// database. The transaction has ended in any case.
    #[track_caller]
    pub fn commit(mut self) -> impl Future<Output = Result<()>> + Send {
        let site = Location::caller();
        self.guard.held = false;
        async move {
            let committed = self.guard.commit(site).await;
            self.span.end(committed.as_ref().map(|()| "committed"));
            committed.map_err(|error| error.in_call(site, None))
        }
    }

    /// Rolls back and waits for the server's answer.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the transaction is rolled back nevertheless, before its connection is used again. If it is a savepoint
    /// whose rollback was sent and not answered, the transaction around it can only be rolled back.
    ///
    /// # Errors
    ///
    /// The server did not answer. Then the connection is closed, which rolls back, too.
    #[track_caller]
    pub fn rollback(mut self) -> impl Future<Output = Result<()>> + Send {
        let site = Location::caller();
        self.guard.held = false;
        async move {
            let rolled_back = self.guard.roll_back(site).await;
            self.span.end(rolled_back.as_ref().map(|()| "rolled_back"));
            rolled_back.map_err(|error| error.in_call(site, None))
        }
    }

    /// Sets a savepoint: a transaction inside this one that can be rolled back alone.
    ///
    /// # Cancel safety
    ///
    /// Dropped, this transaction is unchanged. If nothing had run in it yet, it can only be rolled back.
    ///
    /// # Errors
    ///
    /// The database refuses, or the connection is lost.
    #[track_caller]
    pub fn savepoint(&mut self) -> impl Future<Output = Result<Transaction<'_>>> + Send {
        let serial = self.guard.serial;
        let call = self.call();
        async move {
            let span = trace::transaction_span(call.shared(), call.site);
            let mut open_span = OpenSpan::new(&span);
            let opened = open_in(&call, serial).instrument(span).await;
            if let Err(error) = &opened {
                open_span.end(Err(error));
            }
            let guard = call.ended(None, opened)?;
            Ok(Transaction {
                guard,
                span: open_span,
                _around: PhantomData,
            })
        }
    }

    /// Registers a callback that runs after the outermost transaction has been committed, in the order of registration,
    /// before `commit` returns. A savepoint that is rolled back forgets its callbacks.
    pub fn after_commit(&self, callback: impl FnOnce() + Send + 'static) {
        self.guard.after_commit(Box::new(callback));
    }
}

/// Opens a savepoint in this level, in the level's frame.
async fn open_in(call: &Call<'_>, serial: u64) -> Result<LevelGuard> {
    let Target::Bound(bound, caller) = &call.target else {
        unreachable!("a transaction's calls are bound");
    };
    call.begin_around().await?;
    let mut turn = bound.turn(caller, call.site).await?;
    let frame = bound.frame_of(serial);
    let mut level = Level::new(frame, call.site);
    level.borrows = Some(serial);
    set_savepoint(call, &mut turn, &mut level, Begin::default()).await?;
    let serial = level.serial;
    bound.push(level);
    Ok(LevelGuard {
        bound: Arc::clone(bound),
        serial,
        armed: true,
        held: true,
    })
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Transaction")
            .field("serial", &self.guard.serial)
            .finish_non_exhaustive()
    }
}
