//! How a session gets and gives up the permit to write.
//!
//! A statement of the user that takes SQLite's write lock first needs the [write queue](super::write_queue)'s
//! permit. The session keeps the permit until it has no transaction that writes.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Statement, StatementStatus, TransactionState};

use super::insert;
use super::plan::Plan;
use super::session::Session;
use super::statement::OwnedRequest;
use super::timing::PlanReading;
use super::transaction::BEGIN_WRITING;
use super::watchdog::Watchdog;
use super::write_queue::{EnterOutcome, SessionKind, WriteHolder, WritePermit, WriteQueue};
use crate::Result;
use crate::sql::Class;

/// A session's write queue, and the permit while the session has it.
pub(super) struct Writing {
    permit: RefCell<Option<WritePermit>>,
    /// The line of the program that makes the present call.
    call_site: Cell<Option<&'static Location<'static>>>,
    /// `None` if no other connection can write to the database.
    write_queue: Option<Arc<WriteQueue>>,
}

impl Writing {
    pub(super) fn new(write_queue: Option<Arc<WriteQueue>>) -> Self {
        Writing {
            permit: RefCell::new(None),
            call_site: Cell::new(None),
            write_queue,
        }
    }

    /// Returns whether the session has the permit.
    pub(super) fn has_permit(&self) -> bool {
        self.permit.borrow().is_some()
    }

    /// Calls `look` with the permit, if the session has it.
    pub(super) fn with_permit<T>(&self, look: impl FnOnce(&WritePermit) -> T) -> Option<T> {
        self.permit.borrow().as_ref().map(look)
    }

    pub(super) fn set_call_site(&self, site: &'static Location<'static>) {
        self.call_site.set(Some(site));
    }

    pub(super) fn set_permit(&self, permit: WritePermit) {
        permit.set_holder(self.call_site.get());
        *self.permit.borrow_mut() = Some(permit);
    }

    /// Enters the write queue: with a request that a session of this kind may run, or to begin a transaction.
    /// `None` if there is no queue, or no watchdog that would end the wait.
    pub(super) fn enter(
        &self,
        request: Option<(SessionKind, &Arc<OwnedRequest>)>,
        timeout: Duration,
    ) -> Option<EnterOutcome> {
        let write_queue = self.write_queue.as_ref()?;
        Watchdog::watch_queues().then(|| write_queue.enter(request, timeout))
    }

    /// Returns another session of this process that has the permit.
    pub(super) fn other_writer(&self) -> Option<WriteHolder> {
        match self.has_permit() {
            true => None,
            false => self.write_queue.as_ref()?.holder(),
        }
    }

    /// Returns the number of waiters in the write queue.
    pub(super) fn waiting(&self) -> usize {
        self.write_queue.as_ref().map_or(0, |queue| queue.waiting())
    }
}

impl Session {
    /// Returns whether a transaction holds SQLite's write lock.
    pub(super) fn is_writing(&self) -> bool {
        self.transaction_state() == TransactionState::Write
    }

    /// Returns whether a statement or a transaction reads, and nothing writes.
    pub(super) fn is_reading(&self) -> bool {
        self.transaction_state() == TransactionState::Read
    }

    fn transaction_state(&self) -> TransactionState {
        let state = self.db.transaction_state(None::<&str>);
        state.unwrap_or(TransactionState::None)
    }

    /// Waits for the permit and begins a transaction that writes.
    pub(super) fn begin_writing(&self) -> Result<()> {
        self.wait_for_permit()?;
        let watch = self.timing.start();
        let begun = self.often(BEGIN_WRITING);
        self.timing.note_begin(watch.took());
        begun
    }

    /// Waits for the permit if a statement of the user needs it. Returns the statement's plan.
    pub(super) fn before_run(
        &self,
        statement: &Statement<'_>,
        sql: &str,
        class: &Class,
    ) -> Result<PlanReading> {
        if !insert::is_plain(class) {
            // SQLite reports most pragmas as writes, and few of them are.
            self.note_not_plain();
            return Ok(PlanReading::default());
        }
        if !insert::changes_rows(class) && !insert::is_query(class) {
            self.rowids.note_schema_change();
        }
        let is_fresh = statement.get_status(StatementStatus::Run) == 0;
        let known = self.timing.of(sql).and_then(|timing| timing.plan(is_fresh));
        if known.is_none() && self.in_transaction() && !statement.readonly() {
            // Reading the plan begins a read in a deferred transaction, and a reader must not wait for the permit.
            self.wait_for_permit()?;
        }
        let new = match known {
            Some(_) => None,
            None => self.read_plan(sql),
        };
        let unknown = Plan {
            locks: !statement.readonly(),
            ..Plan::default()
        };
        let plan = known.or(new).unwrap_or(unknown);
        if plan.locks {
            self.wait_for_permit()?;
        } else if !statement.readonly() {
            // It writes something of the session's own: a temporary table, for example.
            self.set_alike(false);
            if !insert::changes_rows(class) {
                // A temporary trigger may change what other statements do.
                self.timing.forget();
            }
        }
        Ok(PlanReading {
            plan,
            is_new: new.is_some(),
            is_fresh,
        })
    }

    /// Reads a statement's plan. `None` if SQLite has none: it cannot explain an EXPLAIN, for example.
    fn read_plan(&self, sql: &str) -> Option<Plan> {
        // SQLite notices another connection's change of the schema when a statement runs, not when it is
        // compiled, and an explained statement does not run.
        self.command("SELECT 1 FROM sqlite_schema LIMIT 1").ok()?;
        Plan::of(&self.db, sql).ok()
    }

    /// Waits for the permit, unless the session has it.
    fn wait_for_permit(&self) -> Result<()> {
        let Some(write_queue) = &self.writing.write_queue else {
            return Ok(());
        };
        if self.writing.has_permit() || self.is_writing() {
            return Ok(());
        }
        let permit = match self.is_reading() {
            // The owner of the permit may wait for this session's read to end. SQLite finds out and refuses the write at once.
            true => write_queue.try_enter(),
            false => Some(write_queue.enter_blocking(&self.control)?),
        };
        if let Some(permit) = permit {
            self.writing.set_permit(permit);
        }
        Ok(())
    }

    /// Passes the permit on, unless a transaction still writes.
    pub(super) fn leave_write_queue(&self) {
        if self.writing.has_permit() && !self.is_writing() {
            let permit = self.writing.permit.take();
            drop(permit);
        }
    }
}
