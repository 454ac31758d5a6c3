//! A PDO object: one `cenote::Db`, and what its coroutines do on it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Duration;

use cenote::sql::{Statements, scan};
use cenote::sqlite::LateFunctions;
use cenote::{CallOptions, Db, Outcome, Params, Pinned};

use crate::pdo::error::{DbError, NO_ERROR};
use crate::pdo::functions::Callables;
use crate::pdo::owner::{Owned, Owner};
use crate::pdo::settings::{DriverKind, Settings, builder};
use crate::reactor::{existing_reactor, forks, reactor};
use crate::scheduler::{Interrupt, block_on_external, existing_scheduler, scheduler};
use crate::timer::{Sleep, now};

/// Why a call has no result.
pub(crate) enum Failure {
    /// The session has the error.
    Database,
    Interrupt(Interrupt),
}

impl From<Interrupt> for Failure {
    fn from(interrupt: Interrupt) -> Self {
        Failure::Interrupt(interrupt)
    }
}

/// How many texts of SQLite are remembered as correct.
const KNOWN_TEXTS: usize = 512;

/// How long closing may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How long a cancelled coroutine waits until the server has ended its call.
const SETTLE_LIMIT: Duration = Duration::from_millis(500);

/// How often it looks whether the connection has left the pool, once a millisecond.
const MOST_LOOKS: u32 = 50;

/// How long a connection is kept from coroutines that wait for their own.
const LONGEST_HOLD: Duration = Duration::from_millis(250);

thread_local! {
    static HANDLES: RefCell<Vec<Weak<Handle>>> = const { RefCell::new(Vec::new()) };
    static NEXT_ID: Cell<u64> = const { Cell::new(1) };
    /// Coroutines that hold a connection for a moment longer: see [`hold`].
    static HELD: RefCell<Vec<Rc<Owner>>> = const { RefCell::new(Vec::new()) };
}

/// The Rust half of a PDO object.
pub(crate) struct Handle {
    id: u64,
    pub(crate) driver: DriverKind,
    db: RefCell<Option<Db>>,
    pub(crate) pooled: bool,
    /// The only user of a handle without a pool.
    own: Option<Rc<Owner>>,
    /// The pins of live statements, and of a handle without a pool. Not in the statements: at the end of a request
    /// they go first.
    pins: RefCell<HashMap<u64, (Pinned, Weak<Owner>)>>,
    next_pin: Cell<u64>,
    pub(crate) caches_all: bool,
    pub(crate) extended_codes: Cell<bool>,
    pub(crate) late: Option<LateFunctions>,
    pub(crate) callables: Rc<Callables>,
    /// A connection was used: a pooled handle takes no more functions.
    pub(crate) is_frozen: Cell<bool>,
    known: RefCell<HashSet<String>>,
    forks: u32,
}

impl Handle {
    /// Opens a handle: one without a pool connects, one with a pool makes its minimum of connections.
    ///
    /// # Errors
    ///
    /// The connection failed, or the coroutine must end.
    pub(crate) fn open(settings: Settings) -> Result<Result<Rc<Self>, DbError>, Interrupt> {
        let started = reactor();
        if let Err(error) = started {
            let message = format!("the runtime of the connections cannot start: {error}");
            return Ok(Err(DbError::new("HY000", 0, message)));
        }
        let driver = settings.driver;
        let late = (driver == DriverKind::Sqlite).then(LateFunctions::new);
        let own = (!settings.pooled).then(Owner::new);
        let owner = own.clone().unwrap_or_else(current_owner);
        let pooled = settings.pooled;
        let caches_all = driver == DriverKind::Sqlite || settings.statement_cache > 0;
        let builder = builder(&settings, late.as_ref());
        let opening = async move {
            let db = builder.open().await?;
            let pin = match pooled {
                true => None,
                false => Some(db.pin().await?),
            };
            Ok::<_, cenote::Error>((db, pin))
        };
        let (db, pin) = match block_on_external(Owned::new(owner, opening))? {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(DbError::of(&error, driver, false))),
        };
        let id = NEXT_ID.get();
        NEXT_ID.set(id + 1);
        let handle = Rc::new(Handle {
            id,
            driver,
            db: RefCell::new(Some(db)),
            pooled,
            own,
            pins: RefCell::new(pin.map(|pin| (0, (pin, Weak::new()))).into_iter().collect()),
            next_pin: Cell::new(1),
            caches_all,
            extended_codes: Cell::new(false),
            late,
            callables: Rc::default(),
            is_frozen: Cell::new(false),
            known: RefCell::default(),
            forks: forks(),
        });
        HANDLES.with_borrow_mut(|handles| {
            handles.retain(|handle| handle.strong_count() > 0);
            handles.push(Rc::downgrade(&handle));
        });
        Ok(Ok(handle))
    }

    /// Returns who runs now.
    pub(crate) fn owner(&self) -> Rc<Owner> {
        self.own.clone().unwrap_or_else(current_owner)
    }

    fn known_owner(&self) -> Option<Rc<Owner>> {
        self.own
            .clone()
            .or_else(|| existing_scheduler()?.current().existing_owner())
    }

    pub(crate) fn db(&self) -> Option<Db> {
        self.db.borrow().clone()
    }

    // ---- calls -----------------------------------------------------------------

    /// Runs a call as the current coroutine, and notes its error.
    ///
    /// # Errors
    ///
    /// The call failed, or the coroutine must end.
    pub(crate) fn call<T, F>(&self, make: impl FnOnce(Db) -> F) -> Result<T, Failure>
    where
        F: Future<Output = cenote::Result<T>>,
    {
        let owner = self.owner();
        if let Err(error) = self.check() {
            self.note(&owner, Some(error));
            return Err(Failure::Database);
        }
        let Some(db) = self.db() else {
            self.note(
                &owner,
                Some(DbError::new("HY000", 0, "the handle is closed")),
            );
            return Err(Failure::Database);
        };
        self.is_frozen.set(true);
        let done = block_on_external(Owned::new(Rc::clone(&owner), make(db)));
        if !self.all_wait_for_their_own() {
            release_held();
        }
        let done = match done {
            Err(Interrupt::Throw(exception)) => {
                // Kept: the stack may be thrown away during the wait.
                let mut kept = scheduler().current().keep(Some(exception));
                self.settle(&owner);
                match kept.take() {
                    Some(exception) => Err(Interrupt::Throw(exception)),
                    None => Err(Interrupt::Exit),
                }
            }
            done => done,
        };
        if let Some(exception) = self.callables.take_exception() {
            return Err(Interrupt::Throw(exception).into());
        }
        match done? {
            Ok(value) => {
                self.note(&owner, None);
                Ok(value)
            }
            Err(error) => {
                let error = DbError::of(&error, self.driver, self.extended_codes.get());
                self.note(&owner, Some(error));
                Err(Failure::Database)
            }
        }
    }

    /// Ends what a cancelled call has left on the coroutine's connection, so that the next one can use it, or another one.
    fn settle(&self, owner: &Rc<Owner>) {
        owner.is_interrupted.set(true);
        let (Some(db), false) = (self.db(), scheduler().is_over()) else {
            return;
        };
        if owner.enter(|| db.peek()).is_none() {
            return;
        }
        let me = scheduler().current();
        me.protected.set(me.protected.get() + 1);
        let settled = block_on_external(Owned::new(Rc::clone(owner), async move {
            let before = db.status().total;
            // If the server hangs, the pool deals with the connection.
            let answered = tokio::time::timeout(SETTLE_LIMIT, db.ping()).await;
            // A connection that was given up leaves the pool when its query is dead.
            for _ in 0..MOST_LOOKS {
                if matches!(answered, Ok(Ok(()))) || db.status().total < before {
                    break;
                }
                Sleep::new(now() + Duration::from_millis(1), true).await;
            }
        }));
        me.protected.set(me.protected.get().saturating_sub(1));
        // A fatal error is noticed by the caller.
        drop(settled);
        if let Some(reactor) = existing_reactor() {
            reactor.turn();
        }
    }

    fn check(&self) -> Result<(), DbError> {
        if self.forks != forks() {
            let message =
                "the connection belongs to the parent process; open another handle after the fork";
            return Err(DbError::new("HY000", 0, message));
        }
        if self.callables.is_serving() {
            let message = "an SQL function cannot use the handle that calls it";
            return Err(DbError::new("HY000", 0, message));
        }
        Ok(())
    }

    fn note(&self, owner: &Owner, error: Option<DbError>) {
        let before = owner.session(self.id, |session| {
            session.is_used = true;
            std::mem::replace(&mut session.error, error)
        });
        drop(before);
    }

    /// Notes an error of the current coroutine.
    pub(crate) fn fail(&self, error: DbError) -> Failure {
        self.note(&self.owner(), Some(error));
        Failure::Database
    }

    pub(crate) fn error(&self) -> Option<DbError> {
        let owner = self.known_owner()?;
        owner.session(self.id, |session| session.error.clone())
    }

    /// Returns the SQLSTATE of the current coroutine's last call; nothing before the first call.
    pub(crate) fn state(&self) -> Option<[u8; 5]> {
        let owner = self.known_owner()?;
        owner.session(self.id, |session| match &session.error {
            Some(error) => Some(error.state),
            None => session.is_used.then_some(*NO_ERROR),
        })
    }

    /// Runs a text without rows. Returns how many rows it affected.
    pub(crate) fn exec(&self, sql: String) -> Result<u64, Failure> {
        let options = self.options().no_cache();
        let outcome = self.call(|db| async move { db.with(options).exec(&sql, ()).await })?;
        self.note_id(&outcome);
        Ok(outcome.rows_affected)
    }

    /// Runs a text with parameters.
    pub(crate) fn run(
        &self,
        sql: String,
        params: Params<'static>,
        cache: bool,
        emulated: bool,
    ) -> Result<Outcome, Failure> {
        let options = match cache {
            true => self.options(),
            false => self.options().no_cache(),
        };
        // MySQL keeps no SHOW: with a cache it goes as text, in one trip.
        let as_text = self.driver == DriverKind::Mysql && cache && params.is_empty();
        if !emulated && as_text && self.is_script(&sql) {
            let message = "several statements cannot be prepared as one: run them one by one";
            return Err(self.fail(DbError::new("42000", 1064, message)));
        }
        let options = match emulated || as_text {
            true => options,
            false => options.prepared(),
        };
        let outcome = self.call(|db| async move { db.with(options).run(&sql, params).await })?;
        self.note_id(&outcome);
        Ok(outcome)
    }

    /// Runs a text that may have several statements or results.
    pub(crate) fn run_all(&self, sql: String) -> Result<Vec<Outcome>, Failure> {
        let options = self.options().no_cache();
        let outcomes = self.call(|db| async move { db.with(options).run_all(&sql, ()).await })?;
        for outcome in &outcomes {
            self.note_id(outcome);
        }
        Ok(outcomes)
    }

    /// Returns the options of a call. Statements that live besides the one that runs pin the connection: the program should
    /// learn of its loss.
    fn options(&self) -> CallOptions {
        let pins = self.owner().session(self.id, |session| session.pins);
        match pins {
            0 | 1 => CallOptions::new(),
            _ => CallOptions::new().no_repeat(),
        }
    }

    fn is_script(&self, sql: &str) -> bool {
        let Some(db) = self.db() else { return false };
        let scanned = scan(db.dialect(), sql);
        scanned.is_ok_and(|scanned| scanned.class.statements == Statements::Several)
    }

    fn note_id(&self, outcome: &Outcome) {
        let id = match (self.driver, outcome.last_insert_id) {
            (_, Some(id)) => Some(id),
            (DriverKind::Mysql, None) => Some(0),
            (_, None) => return,
        };
        self.owner()
            .session(self.id, |session| session.last_id = id);
    }

    pub(crate) fn last_id(&self) -> Option<i64> {
        self.known_owner()?
            .session(self.id, |session| session.last_id)
    }

    /// Checks a text of SQLite, which reports a wrong one when it is prepared.
    pub(crate) fn check_text(&self, sql: &str) -> Result<(), Failure> {
        if self.known.borrow().contains(sql) {
            self.note(&self.owner(), None);
            return Ok(());
        }
        let text = sql.to_owned();
        let statement = self.call(|db| async move { db.prepare(&text).await })?;
        let owner = self.owner();
        owner.enter(|| drop(statement));
        let mut known = self.known.borrow_mut();
        if known.len() >= KNOWN_TEXTS {
            known.clear();
        }
        known.insert(sql.to_owned());
        Ok(())
    }

    /// Forgets that a text was correct: a table has changed, for example.
    pub(crate) fn forget_text(&self, sql: &str) {
        self.known.borrow_mut().remove(sql);
    }

    // ---- pins --------------------------------------------------------------------

    /// Pins the current coroutine's connection for a statement. A handle without a pool has one pin for all.
    pub(crate) fn pin(&self) -> Result<u64, Failure> {
        if !self.pooled {
            return match self.check() {
                Ok(()) => Ok(0),
                Err(error) => Err(self.fail(error)),
            };
        }
        let pinned = self.call(|db| async move { db.pin().await })?;
        let key = self.next_pin.get();
        self.next_pin.set(key + 1);
        let owner = self.owner();
        owner.session(self.id, |session| session.pins += 1);
        let pin = (pinned, Rc::downgrade(&owner));
        self.pins.borrow_mut().insert(key, pin);
        Ok(key)
    }

    pub(crate) fn unpin(&self, key: u64) {
        if key == 0 || self.forks != forks() {
            return;
        }
        let removed = self.pins.borrow_mut().remove(&key);
        let Some((pinned, owner)) = removed else {
            return;
        };
        let Some(reactor) = existing_reactor() else {
            return;
        };
        let Some(owner) = owner.upgrade() else {
            let _runtime = reactor.enter();
            return drop(pinned);
        };
        owner.session(self.id, |session| {
            session.pins = session.pins.saturating_sub(1)
        });
        let _runtime = reactor.enter();
        match self.all_wait_for_their_own() {
            true => hold(self, &owner, pinned),
            false => drop(pinned),
        }
    }

    /// Returns whether every waiting coroutine has started to connect. Who has gets that connection, also if another one comes
    /// back before: so the pool grows to what is in use at once.
    fn all_wait_for_their_own(&self) -> bool {
        let Some(status) = self.db().map(|db| db.status()) else {
            return false;
        };
        status.creating > 0 && status.waiting <= status.creating
    }

    // ---- transactions --------------------------------------------------------------

    pub(crate) fn in_transaction(&self) -> bool {
        if self.forks != forks() {
            return false;
        }
        let (Some(owner), Some(db)) = (self.known_owner(), self.db()) else {
            return false;
        };
        owner.enter(|| db.in_transaction())
    }

    pub(crate) fn begin(&self) -> Result<(), Failure> {
        let owner = self.owner();
        // One that a text has ended.
        let ended = owner.session(self.id, |session| session.transaction.take());
        owner.enter(|| drop(ended));
        let transaction = self.call(|db| async move { db.begin().await })?;
        owner.session(self.id, |session| session.transaction = Some(transaction));
        Ok(())
    }

    pub(crate) fn end(&self, commits: bool) -> Result<(), Failure> {
        let owner = self.owner();
        let transaction = owner.session(self.id, |session| session.transaction.take());
        self.call(|db| async move {
            match (transaction, commits) {
                (Some(transaction), true) => transaction.commit().await,
                (Some(transaction), false) => transaction.rollback().await,
                (None, true) => db.exec("COMMIT", ()).await.map(drop),
                (None, false) => db.exec("ROLLBACK", ()).await.map(drop),
            }
        })
    }

    // ---- the end ----------------------------------------------------------------------

    /// Closes the handle. What runs on it is rolled back.
    pub(crate) fn close(&self) {
        let Some(db) = self.db.borrow_mut().take() else {
            return;
        };
        let pins = self.pins.take();
        if self.forks != forks() {
            // The sockets are the parent's.
            std::mem::forget((pins, db, self.own.clone()));
            return;
        }
        let Some(reactor) = existing_reactor() else {
            return;
        };
        if let Some(scheduler) = existing_scheduler() {
            for owner in scheduler.owners() {
                owner.leave(self.id);
            }
        }
        {
            let _runtime = reactor.enter();
            drop(pins);
        }
        release_held();
        if let Some(own) = &self.own {
            own.end();
        }
        self.callables.refuse();
        // Errors of closing have nobody to go to.
        let _ = reactor.wait(db.close_and_drain(CLOSE_LIMIT), CLOSE_LIMIT);
        let _runtime = reactor.enter();
        drop(db);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// Keeps a connection until the other coroutines have theirs, and for a moment at most.
fn hold(handle: &Handle, owner: &Rc<Owner>, pinned: Pinned) {
    owner.held.borrow_mut().push(pinned);
    HELD.with_borrow_mut(|held| held.push(Rc::clone(owner)));
    // So that more of them can start at once.
    debug_assert!(handle.pooled);
    scheduler().add_task(Box::pin(async {
        Sleep::new(now() + LONGEST_HOLD, false).await;
        release_held();
    }));
}

fn release_held() {
    for owner in HELD.take() {
        owner.release_held();
    }
}

fn current_owner() -> Rc<Owner> {
    scheduler().current().owner()
}

/// Closes the handles of a request that has ended.
pub(crate) fn close_all() {
    release_held();
    let handles = HANDLES.take();
    for handle in handles {
        if let Some(handle) = handle.upgrade() {
            handle.close();
        }
    }
    // Nobody drives the runtime until the next request has a handle: what closes its socket in a task ends now.
    if let Some(reactor) = existing_reactor() {
        reactor.finish_tasks(CLOSE_LIMIT);
    }
}
