//! Transactions of closures that begin with their first statement.
//!
//! A [`Lazy`] belongs to the frame of its closure. Every call that needs the connection of that frame begins the
//! transaction first ([`Call::begin_around`]): it takes a connection and opens the level that the closure ends later.
//! Concurrent branches wait for the branch that begins, and share its BEGIN. If the acquire or the BEGIN fails, the
//! transaction fails, and with it every call in it.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::api::db::Binding;
use crate::api::executor::CallOptions;
use crate::api::transaction::{self, LevelGuard};
use crate::api::transaction_options::TransactionOptions;
use crate::binding::{AfterCommit, Bound};
use crate::call::{Call, Target};
use crate::coroutine::{CallContext, Frame};
use crate::driver::BoxFuture;
use crate::pooled::handle::Handle;
use crate::pooled::shared::DbId;
use crate::{Error, Result};

/// A transaction that begins with the first statement in its frame.
pub(crate) struct Lazy {
    handle: Arc<Handle>,
    outside: bool,
    /// A replica may serve it: see [`Db::reading`](crate::Db::reading).
    reading: bool,
    /// The frame that the closure was run in.
    context: CallContext,
    site: &'static Location<'static>,
    options: TransactionOptions,
    /// The level around it, if there was one when the closure was run.
    outer: Option<(Weak<Bound>, u64)>,
    /// Held by the branch that opens the level.
    opening: tokio::sync::Mutex<()>,
    /// The level has been opened. Release pairs with the acquire of `is_open`.
    opened: AtomicBool,
    state: Mutex<State>,
}

enum State {
    /// No statement has run; with the callbacks for the commit.
    Untouched(Vec<AfterCommit>),
    Open(LevelGuard),
    /// It could not begin.
    Failed(Error),
    /// The closure has ended.
    Over,
}

impl Lazy {
    /// `None` for a call on an explicit connection: it gains nothing by waiting.
    pub(crate) fn new(call: &Call<'_>, options: TransactionOptions) -> Option<Arc<Self>> {
        let (handle, outside) = match &call.target {
            Target::Ambient(handle) => (handle, false),
            Target::Outside(handle) => (handle, true),
            Target::Bound(..) => return None,
        };
        let level_around = || {
            let bound = call.lookup()?;
            let serial = bound.level_around(call.context.frame()?)?;
            Some((Arc::downgrade(&bound), serial))
        };
        Some(Arc::new(Lazy {
            outer: level_around(),
            handle: Arc::clone(handle),
            outside,
            reading: call.is_reading(),
            context: call.context.clone(),
            site: call.site,
            options,
            opening: tokio::sync::Mutex::new(()),
            opened: AtomicBool::new(false),
            state: Mutex::new(State::Untouched(Vec::new())),
        }))
    }

    pub(crate) fn is_of(&self, db: DbId) -> bool {
        self.handle.shared.id == db
    }

    #[cfg(debug_assertions)]
    pub(crate) fn db(&self) -> DbId {
        self.handle.shared.id
    }

    #[cfg(debug_assertions)]
    pub(crate) fn begun_at(&self) -> &'static Location<'static> {
        self.site
    }

    /// Returns whether the transaction would begin on this connection.
    fn is_to_begin_on(&self, bound: &Arc<Bound>) -> bool {
        let found = self.call().lookup();
        found.is_some_and(|found| Arc::ptr_eq(&found, bound))
    }

    /// Returns whether the transaction around it, in which it would be a savepoint, has ended.
    fn has_lost_outer(&self) -> bool {
        let lost = |(bound, serial): &(Weak<Bound>, u64)| {
            let bound = bound.upgrade();
            !bound.is_some_and(|bound| bound.has_level(*serial))
        };
        self.outer.as_ref().is_some_and(lost)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the level, unless it has been opened or has failed.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has begun, or what has begun is rolled back before the connection is used again. The next
    /// statement begins the transaction.
    // Boxed, because a lazy transaction inside another one begins the outer one first, and because it is rare.
    fn begin<'l>(&'l self, frame: &'l Arc<Frame>) -> BoxFuture<'l, Result<()>> {
        Box::pin(async move {
            // Waits for another branch that begins. A cancel passes the lock on.
            let _opening = self.opening.lock().await;
            let call = self.call();
            match &*self.state() {
                State::Untouched(_) => {}
                State::Open(_) => return Ok(()),
                State::Failed(error) => return Err(error.clone()),
                State::Over => return Err(call.too_late()),
            }
            if self.has_lost_outer() {
                return Err(call.too_late());
            }
            let opened = transaction::open(&call, frame, self.options, false).await;
            let mut state = self.state();
            let before = std::mem::replace(&mut *state, State::Over);
            let State::Untouched(callbacks) = before else {
                // The closure has ended meanwhile. Dropping the level rolls it back.
                *state = before;
                drop(state);
                drop(opened);
                return Err(call.too_late());
            };
            match opened {
                Ok(guard) => {
                    for callback in callbacks {
                        guard.after_commit(callback);
                    }
                    *state = State::Open(guard);
                    self.opened.store(true, Ordering::Release);
                    Ok(())
                }
                Err(error) => {
                    *state = State::Failed(error.clone());
                    drop(state);
                    drop(callbacks);
                    Err(error)
                }
            }
        })
    }

    /// Returns the call that ran the closure.
    fn call(&self) -> Call<'_> {
        Call {
            target: match self.outside {
                false => Target::Ambient(&self.handle),
                true => Target::Outside(&self.handle),
            },
            context: self.context.clone(),
            site: self.site,
            options: match self.reading {
                false => None,
                true => CallOptions::for_reading(),
            },
        }
    }

    /// Keeps a callback for the commit. Returns it if the level is open: then the level keeps it.
    pub(crate) fn after_commit(&self, callback: AfterCommit) -> Result<(), AfterCommit> {
        let mut state = self.state();
        match &mut *state {
            State::Untouched(callbacks) => callbacks.push(callback),
            State::Failed(_) => {
                drop(state);
                // Nothing will be committed.
                drop(callback);
            }
            State::Open(_) | State::Over => return Err(callback),
        }
        Ok(())
    }

    /// Describes the transaction before it has begun, for [`Db::peek`](crate::Db::peek).
    pub(crate) fn describe(&self) -> Binding {
        Binding {
            in_transaction: true,
            begun_at: Some(self.site),
            savepoints: 0,
            statements: 0,
            session_touched: false,
            warnings: 0,
        }
    }
}

impl Call<'_> {
    /// Returns the innermost lazy transaction around the call, if it has not begun.
    pub(crate) fn lazy_around(&self) -> Option<(&Arc<Frame>, &Arc<Lazy>)> {
        let frame = self.context.frame()?;
        match &self.target {
            Target::Ambient(handle) => frame.lazy(handle.shared.id),
            Target::Outside(handle) => frame.lazy_outside(handle.shared.id),
            // A statement or guard on the connection that the transaction will begin on.
            Target::Bound(bound, position) => {
                let lazy = position.frame()?.lazy(bound.shared().id);
                lazy.filter(|(_, lazy)| lazy.is_to_begin_on(bound))
            }
        }
        .filter(|(_, lazy)| !lazy.is_open())
    }

    /// Begins the lazy transaction around the call, if it has not begun.
    ///
    /// # Cancel safety
    ///
    /// As [`Lazy::begin`].
    pub(crate) async fn begin_around(&self) -> Result<()> {
        match self.lazy_around() {
            Some((frame, lazy)) => lazy.begin(frame).await,
            None => Ok(()),
        }
    }
}

/// Ends a lazy transaction. Dropping it rolls back.
pub(crate) struct Ending(Arc<Lazy>);

impl Ending {
    pub(crate) fn of(lazy: Arc<Lazy>) -> Self {
        Ending(lazy)
    }

    /// Ends the transaction and returns its last state.
    fn take(&self) -> State {
        std::mem::replace(&mut *self.0.state(), State::Over)
    }

    pub(crate) async fn commit(self, call: &Call<'_>) -> Result<()> {
        match self.take() {
            State::Untouched(_) if self.0.has_lost_outer() => Err(call.too_late()),
            State::Untouched(callbacks) => {
                for callback in callbacks {
                    transaction::after_commit(call, callback);
                }
                Ok(())
            }
            State::Open(guard) => guard.commit(call.site).await,
            State::Failed(error) => Err(error),
            State::Over => Err(call.too_late()),
        }
    }

    /// Rolls back. Returns the error of the BEGIN if the transaction could not begin.
    pub(crate) async fn roll_back(self, call: &Call<'_>) -> Result<()> {
        match self.take() {
            State::Open(guard) => {
                // If the rollback fails the connection is closed, which rolls back, too.
                let _ = guard.roll_back(call.site).await;
                Ok(())
            }
            State::Failed(error) => Err(error),
            State::Untouched(_) | State::Over => Ok(()),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Outside of the lock: a level rolls back, and callbacks are user code.
        drop(self.take());
    }
}
