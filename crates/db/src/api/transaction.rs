//! Transactions: as closures, and as guards.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::api::lazy::{self, Lazy};
use crate::api::methods::sql_methods;
use crate::api::transaction_options::TransactionOptions;
use crate::binding::{
    self, AfterCommit, Bound, ConnectionTurn, Level, PinGuard, PinKind, Position,
};
use crate::call::op::{AtSavepoint, BeginOnly, Commit, Harmless, Rollback};
use crate::call::route::Purpose;
use crate::call::{Call, Target};
use crate::coroutine::{Frame, InFrame, seen};
use crate::driver::{Begin, CommitOutcome, Savepoint, Status};
use crate::sql::Class;
use crate::{Error, Kind, Result};

/// The pause before the first repetition; doubled with each, with jitter, up to
/// [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why an attempt at a transaction failed.
pub(crate) struct Failed<E> {
    error: E,
    is_retryable: bool,
}

impl<E> Failed<E> {
    /// A closure has returned an error; the calls in its frame say whether a repetition may cure it.
    pub(crate) fn in_body(error: E, frame: &Frame) -> Self {
        Failed {
            error,
            is_retryable: frame.has_failed_retryably(),
        }
    }
}

impl<E: From<Error>> From<Error> for Failed<E> {
    fn from(error: Error) -> Self {
        Failed {
            is_retryable: error.is_retryable(),
            error: error.into(),
        }
    }
}

/// Runs a closure in a transaction.
///
/// # Cancel safety
///
/// Dropped, the transaction is rolled back before its connection is used again.
pub(crate) async fn run<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, E>
where
    E: From<Error>,
    F: AsyncFnOnce() -> Result<T, E>,
{
    let done = attempt(call, options, body).await;
    done.map_err(|failed| failed.error)
}

/// Runs a closure in a transaction once, in a frame of its own, which ends after the commit.
async fn attempt<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, Failed<E>>
where
    E: From<Error>,
    F: AsyncFnOnce() -> Result<T, E>,
{
    call.check_here()?;
    if options.lazily
        && let Some(lazy) = Lazy::new(call, options)
    {
        return lazy::run(call, lazy, body).await;
    }
    let outside_of = match &call.target {
        Target::Outside(handle) => Some(handle.shared.id),
        _ => None,
    };
    let frame = Frame::inside(call.seen.frame(), outside_of);
    let inside = Arc::clone(&frame);
    InFrame::new(frame, async move {
        let opened = open(call, &inside, options, false).await;
        call.note(&opened);
        let guard = opened?;
        let result = body().await;
        if inside.is_over() {
            // The closure was carried out of its coroutine, which has ended.
            let _ = guard.roll_back(call.site).await;
            return Err(call.too_late().into());
        }
        match result {
            Ok(value) => {
                let committed = guard.commit(call.site).await;
                call.note(&committed);
                committed?;
                Ok(value)
            }
            Err(error) => {
                let failed = Failed::in_body(error, &inside);
                // If the rollback fails the connection is closed, which rolls back, too.
                let _ = guard.roll_back(call.site).await;
                Err(failed)
            }
        }
    })
    .await
}

/// Runs a closure in a transaction, again if it failed for a reason that a repetition may cure.
pub(crate) async fn retry<T, E, F>(
    call: &Call<'_>,
    options: TransactionOptions,
    body: F,
) -> Result<T, E>
where
    E: From<Error> + 'static,
    F: AsyncFnOnce() -> Result<T, E> + Clone,
{
    let nested = call.seen.frame().is_some_and(|frame| {
        let bound = call.lookup();
        call.lazy_around().is_some() || bound.is_some_and(|bound| bound.in_transaction_from(frame))
    });
    let mut left = if nested {
        0
    } else {
        options.retries_or_default()
    };
    let mut pause = FIRST_PAUSE;
    loop {
        let failed = match attempt(call, options, body.clone()).await {
            Ok(value) => return Ok(value),
            Err(failed) => failed,
        };
        // A closure may also return a retryable error of its own making.
        let own = (&failed.error as &dyn Any).downcast_ref::<Error>();
        let is_retryable = failed.is_retryable || own.is_some_and(Error::is_retryable);
        if !is_retryable || left == 0 {
            return Err(failed.error);
        }
        left -= 1;
        let runtime = &call.shared().runtime;
        // Half of the pause is fixed and half is random, so that transactions that clashed do not clash again.
        let until = runtime
            .now()
            .checked_add(pause / 2 + pause.mul_f64(jitter() / 2.0));
        if let Some(until) = until {
            // Dropped here, nothing is held.
            runtime.sleep(until).await;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A number from 0 to 1 that differs from call to call.
fn jitter() -> f64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let hasher = RandomState::new().build_hasher();
    f64::from(u32::try_from(hasher.finish() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// Opens a transaction, or a savepoint in the one that is open, for code in this frame.
pub(crate) async fn open(
    call: &Call<'_>,
    frame: &Arc<Frame>,
    options: TransactionOptions,
    guarded: bool,
) -> Result<LevelGuard> {
    let bound = call.lookup();
    let is_exchangeable = bound.is_none_or(|bound| bound.is_exchangeable());
    match try_open(call, frame, options, guarded).await {
        // Nothing has run in it, and nothing is bound any more: once more, on another connection.
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
    let (site, begin) = (call.site, options.begin);
    let bound = pin_for_level(call, frame, begin).await?;
    let (position, level_frame) = match &call.target {
        Target::Bound(_, position) => (position.clone(), None),
        _ => (
            Position::Frame(Some(Arc::clone(frame))),
            Some(Arc::clone(frame)),
        ),
    };
    // A cancel from here on: the turn is given back unsettled, the pin goes, and the
    // pool's hook rolls back what may have begun.
    let mut turn = bound.bound().turn(&position, site).await?;
    // One whose BEGIN is yet to be sent begins on another connection.
    if turn.link().is_broken() && turn.bound().unsent_begin().is_none() {
        let message = "the server closed the connection while it rested";
        let lost = Error::new(Kind::ConnectionLost, message).at(site);
        return Err(lost.never_sent());
    }
    if guarded && bound.bound().has_level_in(frame) {
        return Err(nested_begin(site));
    }
    let mut level = Level::new(level_frame, site);
    if turn.bound().in_transaction() {
        set_savepoint(call, &mut turn, &mut level, begin).await?;
    } else {
        level.begin = begin;
        level.begun = !turn.link().driver().begins_lazily();
        if level.begun {
            // Late, it is as one that was cancelled.
            let limit = turn.bound().shared().statement_timeout;
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

/// Pins the connection that a level for code in this frame has to be opened on: the bound one,
/// or one that is bound to the frame for it.
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
        return Err(Error::new(Kind::NestedBegin, message).at(level.site));
    }
    turn.begin_now(call).await?;
    // A name that is never used again: one whose making was cut off harms nobody.
    let name = format!("cenote_{}", level.serial);
    let set = Harmless(AtSavepoint(Savepoint::Set(&name)));
    let limit = turn.bound().shared().statement_timeout;
    turn.send(&set, level.site, limit).await?;
    level.savepoint = Some(name);
    level.begun = true;
    Ok(())
}

fn nested_begin(site: &'static Location<'static>) -> Error {
    let message = "this coroutine has a transaction open already: nest with db.transaction(..) or \
                   with savepoint() on the transaction";
    Error::new(Kind::NestedBegin, message).at(site)
}

/// An open level. Dropping it rolls back.
pub(crate) struct LevelGuard {
    bound: Arc<Bound>,
    serial: u64,
    armed: bool,
}

impl Drop for LevelGuard {
    fn drop(&mut self) {
        if self.armed {
            self.bound.abandon(self.serial);
        }
    }
}

impl LevelGuard {
    /// Registers what is to run when the outermost transaction has been committed.
    pub(crate) fn after_commit(&self, callback: AfterCommit) {
        // Without a level it has ended already, and nothing is committed any more.
        drop(self.bound.after_commit_of(self.serial, callback));
    }

    /// Takes the turn in which the level ends. From here on a cancel leaves the outcome
    /// unknown.
    async fn last_turn(&self, site: &'static Location<'static>) -> Result<ConnectionTurn> {
        self.bound.abandon_above(self.serial);
        let turn = self.bound.turn(&Position::Ending(self.serial), site).await;
        turn.map_err(|error| self.bound.why_lost().unwrap_or(error))
    }

    pub(crate) async fn commit(mut self, site: &'static Location<'static>) -> Result<()> {
        let mut turn = self.last_turn(site).await?;
        if let Some(error) = self.bound.why_not_commit(site) {
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
            let limit = self.bound.shared().statement_timeout;
            if let Err(error) = turn.send(&release, site, limit).await {
                if error.kind() == Kind::StatementTimeout {
                    // Whether it is still set cannot be told: as one that was cancelled.
                    return Err(error);
                }
                // Refused, and still set.
                self.bound.set_ending(self.serial, None);
                self.undo(&mut turn, site).await?;
                return Err(error);
            }
            self.committed(turn);
            return Ok(());
        }
        self.bound.set_ending(self.serial, Some(site));
        let limit = self.bound.shared().statement_timeout;
        let done = turn.send(&Commit, site, limit).await;
        match done {
            Ok(CommitOutcome::Committed) => {
                self.committed(turn);
                Ok(())
            }
            Ok(CommitOutcome::RolledBack) => {
                self.over(turn);
                let message = "the server answered the commit with a rollback, because the \
                               transaction had failed before";
                Err(Error::new(Kind::RolledBack, message).at(site))
            }
            Err(error) if error.kind() == Kind::StatementTimeout => {
                turn.give_up();
                self.over(turn);
                let message = "the commit was not answered within the time for statements: whether \
                               the transaction was committed is unknown";
                Err(error.wrapped(Kind::OutcomeUnknown, message))
            }
            Err(error) if turn.link().is_broken() && error.was_never_sent() => {
                self.over(turn);
                let message = "the connection was lost before the commit was sent, so the \
                               transaction was rolled back";
                Err(error.wrapped(Kind::TransactionLost, message))
            }
            Err(error) if turn.link().is_broken() => {
                self.over(turn);
                let message = "the connection was lost during the commit: whether the \
                               transaction was committed is unknown";
                Err(error.wrapped(Kind::OutcomeUnknown, message))
            }
            Err(error) => {
                if turn.link().status() != Status::Idle {
                    // Refused, and still open.
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
        if begun && turn.link().status() != Status::Idle {
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
        // Where it failed the connection is of no more use: the pool's hook sees to that.
        self.armed = false;
        let level = self.bound.pop(self.serial);
        if done.is_err() {
            turn.give_up();
        }
        drop(level);
        done
    }

    fn cleanup_time(&self) -> Option<Duration> {
        Some(self.bound.shared().cleanup_timeout)
    }

    /// It is over, and was not committed.
    fn over(&mut self, turn: ConnectionTurn) {
        self.armed = false;
        let level = self.bound.pop(self.serial);
        drop(turn);
        drop(level);
    }

    /// It is over: the callbacks run, or go to the transaction around it.
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

/// Registers what is to run when the outermost transaction around this call has been committed;
/// runs it now if there is none.
pub(crate) fn after_commit(call: &Call<'_>, callback: AfterCommit) {
    let mut callback: Result<(), AfterCommit> = Err(callback);
    if let Some((_, lazy)) = call.lazy_around() {
        callback = callback.or_else(|callback| lazy.after_commit(callback));
    }
    if let Some(frame) = call.seen.frame()
        && let Some(bound) = call.lookup()
    {
        callback = callback.or_else(|callback| bound.after_commit_from(frame, callback));
    }
    if let Err(callback) = callback {
        run_callback(callback);
    }
}

/// Runs a callback. It is too late for it to fail: the commit is done.
pub(crate) fn run_callback(callback: AfterCommit) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("an after_commit callback panicked; its transaction is committed");
    }
}

/// A transaction that somebody holds. Dropping it rolls back.
///
/// While it lives it is ambient: what its coroutine does with the `Db` runs in it. Its own methods
/// run in exactly this transaction from any task.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction<'t> {
    guard: LevelGuard,
    /// A savepoint borrows the transaction that it is in.
    _around: PhantomData<&'t mut ()>,
}

pub(crate) async fn begin(
    call: &Call<'_>,
    options: TransactionOptions,
) -> Result<Transaction<'static>> {
    call.check_here()?;
    let guard = match (&call.target, call.owner()) {
        (Target::Bound(..), _) => open(call, &Frame::root(), options, false).await,
        (_, Some(frame)) => open(call, frame, options, true).await,
        (_, None) => {
            let message = "begin() needs a coroutine around it, to roll back what is left when \
                           that ends: use db.transaction(..), run the code in cenote::scope(..) or \
                           cenote::spawn(..), or take a connection with db.connection()";
            Err(Error::new(Kind::NoCoroutine, message).at(call.site))
        }
    };
    call.note(&guard);
    Ok(Transaction {
        guard: guard?,
        _around: PhantomData,
    })
}

impl Transaction<'_> {
    #[track_caller]
    pub(crate) fn call(&self) -> Call<'_> {
        let here = seen();
        Call {
            target: Target::Bound(
                &self.guard.bound,
                Position::Level(self.guard.serial, here.frame().cloned()),
            ),
            seen: here,
            site: Location::caller(),
            options: None,
        }
    }

    sql_methods!("It runs in this transaction, from whatever task.");

    /// Commits. `Ok` only if the server said so.
    ///
    /// # Cancel safety
    ///
    /// Dropped before its answer, whether it was committed is unknown; what was not is
    /// rolled back.
    ///
    /// # Errors
    ///
    /// [`Kind::RolledBack`], [`Kind::OutcomeUnknown`], [`Kind::Doomed`], [`Kind::TransactionLost`], or
    /// what the database says. It is over in any case.
    #[track_caller]
    pub fn commit(self) -> impl Future<Output = Result<()>> + Send {
        self.guard.commit(Location::caller())
    }

    /// Rolls back, and waits until that is done.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is rolled back all the same, before the connection is used again; if it is a
    /// savepoint whose rollback was sent and not answered, the transaction around it can only
    /// be rolled back, too.
    ///
    /// # Errors
    ///
    /// The server did not answer; the connection is closed then, which is a rollback, too.
    #[track_caller]
    pub fn rollback(self) -> impl Future<Output = Result<()>> + Send {
        self.guard.roll_back(Location::caller())
    }

    /// Sets a savepoint: a transaction inside this one, which can be rolled back alone.
    ///
    /// # Cancel safety
    ///
    /// Dropped, this transaction is as it was; unless nothing had run in it yet, then it can only be
    /// rolled back.
    ///
    /// # Errors
    ///
    /// What the database says.
    #[track_caller]
    pub fn savepoint(&mut self) -> impl Future<Output = Result<Transaction<'_>>> + Send {
        let serial = self.guard.serial;
        let call = self.call();
        async move {
            let guard = open_in(&call, serial).await?;
            Ok(Transaction {
                guard,
                _around: PhantomData,
            })
        }
    }

    /// Registers what is to run when the outermost transaction has been committed: at once,
    /// in order, before `commit` returns. A rolled-back savepoint forgets its own.
    pub fn after_commit(&self, callback: impl FnOnce() + Send + 'static) {
        self.guard.after_commit(Box::new(callback));
    }
}

/// Opens a savepoint in this level, in the frame of that.
async fn open_in(call: &Call<'_>, serial: u64) -> Result<LevelGuard> {
    let Target::Bound(bound, position) = &call.target else {
        unreachable!("a transaction's calls are bound");
    };
    call.begin_around().await?;
    let mut turn = bound.turn(position, call.site).await?;
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
    })
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Transaction")
            .field("serial", &self.guard.serial)
            .finish_non_exhaustive()
    }
}
