//! How a session writes: in its turn, and together with others where that is the same.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Statement, StatementStatus, TransactionState};

use super::cancel::Limit;
use super::error;
use super::insert;
use super::plan::Plan;
use super::session::{Order, Session};
use super::statement::check_count;
use super::timing::{self, SOON, StatementKind, StatementTiming, Stopwatch};
use super::transaction::BEGIN_WRITING;
use super::watchdog::Watchdog;
use super::write_queue::{
    self, BatchedWrite, EnterOutcome, Joined, SessionKind, WritePermit, WriteQueue,
};
use crate::driver::{Outcome, Request};
use crate::sql::Class;
use crate::{Error, Result};

/// So many writes at most are committed at once; and where a commit does not wait for the disk, fewer:
/// then some are written while the next come up.
const MOST_TOGETHER: usize = 64;
const FEW_TOGETHER: usize = 3;

/// A commit that takes no longer does not wait for the disk.
const WITHOUT_DISK: Duration = Duration::from_micros(100);

/// So often it looks whether there are more, before it lets go earlier.
const PATIENCE: u32 = 8;

/// For so long one whose turn it is goes on with the writes of others before it lets go.
const SERVING: Duration = Duration::from_millis(8);

/// A write that took longer as a transaction of its own is not done for others, however slow the
/// disk is.
const SOON_ON_DISK: Duration = Duration::from_millis(500);

/// What came of writing together.
enum Together {
    /// It is committed.
    Done(Vec<Result<Outcome>>),
    /// Nobody can tell what is on the disk: the same error for all.
    Failed(Error),
    /// Nothing has happened: everybody has to try alone.
    Apart,
}

/// A session's turn to write, and what it knows of writing for others.
pub(super) struct Writing {
    /// Held while it writes, and for as long as its transaction can write.
    permit: RefCell<Option<WritePermit>>,
    /// Where it queues before it writes; `None` if no other connection can be in its way.
    write_queue: Option<Arc<WriteQueue>>,
    make: SessionKind,
    /// Of which version of the schema it is known whether every statement is checked at its end,
    /// and whether it is.
    checks_at_once: Cell<Option<(i64, bool)>>,
    /// The last commit for others did.
    waits_for_disk: Cell<bool>,
}

impl Writing {
    pub(super) fn new(write_queue: Option<Arc<WriteQueue>>, make: SessionKind) -> Self {
        Writing {
            permit: RefCell::new(None),
            write_queue,
            make,
            checks_at_once: Cell::new(None),
            waits_for_disk: Cell::new(true),
        }
    }

    /// It is this session's turn.
    pub(super) fn is_in_turn(&self) -> bool {
        self.permit.borrow().is_some()
    }

    /// It is this session's turn from now on.
    pub(super) fn enter(&self, permit: WritePermit) {
        *self.permit.borrow_mut() = Some(permit);
    }

    /// Queues with an order, or to begin a transaction. `None` if there is no queue, or nobody who would end its wait.
    pub(super) fn join(&self, order: Option<&Arc<Order>>, timeout: Duration) -> Option<Joined> {
        let write_queue = self.write_queue.as_ref()?;
        Watchdog::attend_to_lanes().then(|| write_queue.join(self.make, order, timeout))
    }
}

impl Session {
    /// It has a transaction that holds the writer's lock.
    pub(super) fn is_writing(&self) -> bool {
        self.transaction_state() == TransactionState::Write
    }

    /// Something reads, or has begun to.
    pub(super) fn is_reading(&self) -> bool {
        self.transaction_state() == TransactionState::Read
    }

    fn transaction_state(&self) -> TransactionState {
        let state = self.db.transaction_state(None::<&str>);
        state.unwrap_or(TransactionState::None)
    }

    /// Begins a transaction that writes, when its turn has come.
    pub(super) fn begin_writing(&self) -> Result<()> {
        self.enter_write_queue()?;
        let watch = self.timing.start();
        let begun = self.often(BEGIN_WRITING);
        self.timing.note_begin(watch.took());
        begun
    }

    /// Waits for the write permit if a statement of the user's needs it. Returns what SQLite is going to do,
    /// and whether it was asked just now.
    pub(super) fn before_run(
        &self,
        statement: &Statement<'_>,
        sql: &str,
        class: &Class,
    ) -> Result<(Plan, bool)> {
        if !insert::is_plain(class) {
            // SQLite takes most pragmas for writes, and few of them are.
            self.note_not_plain();
            return Ok((Plan::default(), false));
        }
        if !insert::changes_rows(class) && !insert::is_query(class) {
            self.rowids.note_schema_change();
        }
        let is_fresh = is_fresh(statement);
        let known = self.timing.of(sql);
        // One that was compiled just now may not stay in the cache for its next run: then it is not worth asking.
        let known = known.filter(|timing| is_fresh || timing.is_volatile || !timing.is_stale);
        let asked = match known.and_then(|timing| timing.plan) {
            Some(_) => None,
            None => self.plan(sql),
        };
        let unknown = Plan {
            locks: !statement.readonly(),
            ..Plan::default()
        };
        let plan = known.and_then(|timing| timing.plan).or(asked);
        let plan = plan.unwrap_or(unknown);
        if plan.locks {
            self.enter_write_queue()?;
        } else if !statement.readonly() {
            // Something of its own: a temporary table, say.
            self.set_alike(false);
            if !insert::changes_rows(class) {
                // A temporary trigger may change what others do.
                self.timing.forget();
            }
        }
        Ok((plan, asked.is_some()))
    }

    /// Asks SQLite what it is going to do. `None` if it does not say: it cannot explain an EXPLAIN, say.
    fn plan(&self, sql: &str) -> Option<Plan> {
        // SQLite notices that another connection has changed the schema when a statement runs, not when it
        // is compiled, and what is only explained never runs.
        self.command("SELECT 1 FROM sqlite_schema LIMIT 1").ok()?;
        Plan::of(&self.db, sql).ok()
    }

    pub(super) fn schema_version(&self) -> Option<i64> {
        let mut ask = self.own_statement("PRAGMA schema_version").ok()?;
        ask.query_row([], |row| row.get(0)).ok()
    }

    /// Waits for its turn, unless it is its turn already.
    fn enter_write_queue(&self) -> Result<()> {
        let Some(write_queue) = &self.writing.write_queue else {
            return Ok(());
        };
        if self.writing.is_in_turn() || self.is_writing() {
            return Ok(());
        }
        if self.is_reading() {
            // What it has read may be in the way of the one whose turn it is: SQLite knows, and
            // refuses at once.
            *self.writing.permit.borrow_mut() = write_queue.try_enter();
            return Ok(());
        }
        match write_queue.enter(&self.control) {
            EnterOutcome::In(permit) => *self.writing.permit.borrow_mut() = Some(permit),
            EnterOutcome::TimedOut => return Err(error::lane_is_taken()),
            EnterOutcome::Cancelled => return Err(error::cancelled()),
        }
        Ok(())
    }

    pub(super) fn waiting_writers(&self) -> usize {
        self.writing
            .write_queue
            .as_ref()
            .map_or(0, |write_queue| write_queue.waiting())
    }

    /// Passes the write permit on, unless the session still has a transaction that writes.
    pub(super) fn leave_write_queue(&self) {
        if self.writing.is_in_turn() && !self.is_writing() {
            let permit = self.writing.permit.take();
            drop(permit);
        }
    }

    /// Whether a request may queue for any session of this make to run it: it makes no difference which one does, and it
    /// will not take long.
    pub(super) fn may_join(&self, request: &Request<'_>) -> bool {
        request.unpinned
            && request.cache
            && !request.script
            && !self.has_functions()
            && self.is_alike()
            && !self.in_transaction()
            && self
                .timing
                .of(request.sql)
                .is_some_and(StatementTiming::joins)
    }

    /// Runs an order whose turn has come, and for a while those of others that wait behind it.
    pub(super) fn run_in_turn(&self, permit: WritePermit, order: &Arc<Order>) -> Result<Outcome> {
        self.writing.enter(permit);
        let watch = Stopwatch::start(true);
        let together = match self.has_companions() {
            true => self.serve(Some(order)),
            false => None,
        };
        let own = together.unwrap_or_else(|| self.run(order));
        let mut idle = 0;
        while watch.took() < SERVING && idle < PATIENCE {
            if !self.has_companions() {
                // Those who were just served are about to come back with more.
                idle += 1;
                std::thread::yield_now();
                continue;
            }
            idle = 0;
            if self.serve(None).is_some() {
                break;
            }
        }
        own
    }

    /// Somebody waits who can be written for.
    fn has_companions(&self) -> bool {
        let permit = self.writing.permit.borrow();
        let is_next = permit
            .as_ref()
            .is_some_and(|permit| permit.has_companions(self.writing.make));
        is_next && self.is_alike() && !self.in_transaction()
    }

    /// Runs the orders of others, together with its own if there is one: in one transaction, which
    /// is nobody's alone. It cannot be cancelled, but is given up if a statement takes long. What
    /// came of its own, or of all; `None` if nothing has happened.
    fn serve(&self, own: Option<&Arc<Order>>) -> Option<Result<Outcome>> {
        match self.often(BEGIN_WRITING) {
            Ok(()) => {}
            // That is the answer: it has waited for as long as it may.
            Err(error) if error::is_busy(&error) => return Some(Err(error)),
            Err(_) => return None,
        }
        let most = match self.writing.waits_for_disk.get() {
            true => MOST_TOGETHER,
            false => FEW_TOGETHER,
        };
        // Only now: until here those who wait can leave.
        let permit = self.writing.permit.borrow();
        let others = permit
            .as_ref()
            .map(|permit| permit.batched(self.writing.make, most));
        drop(permit);
        let others = others.unwrap_or_default();
        let orders = own.map(Arc::as_ref).into_iter();
        let orders: Vec<&Order> = orders
            .chain(others.iter().map(BatchedWrite::order))
            .collect();
        self.control.suspend();
        let together = self.write_all(&orders);
        self.control.set_limit(None);
        if !matches!(together, Together::Done(_)) {
            self.undo();
        }
        self.control.resume();
        match together {
            Together::Done(done) => {
                let mut done = done.into_iter();
                let own = own.and_then(|_| done.next());
                for (batched_write, done) in others.into_iter().zip(done) {
                    batched_write.answer(done);
                }
                own
            }
            Together::Failed(error) => {
                for batched_write in others {
                    batched_write.answer(Err(error.clone()));
                }
                Some(Err(error))
            }
            Together::Apart => {
                write_queue::put_back(others);
                None
            }
        }
    }

    fn write_all(&self, orders: &[&Order]) -> Together {
        if !self.checks_at_once() {
            return Together::Apart;
        }
        let mut done = Vec::with_capacity(orders.len());
        for order in orders {
            let limit = Limit::until(timing::now() + SOON);
            self.control.set_limit(Some(limit));
            let one = self.run_joined(order);
            // A statement that broke a rule has undone itself. After everything else nobody can
            // be sure; and a rule may say that the whole transaction goes.
            let is_settled = one.as_ref().err().is_none_or(error::is_constraint);
            if !is_settled || !self.in_transaction() {
                return Together::Apart;
            }
            done.push(one);
        }
        // The disk takes as long as it takes.
        self.control.set_limit(None);
        let watch = Stopwatch::start(true);
        let committed = self.often("COMMIT");
        self.writing.waits_for_disk.set(watch.took() > WITHOUT_DISK);
        match committed {
            Ok(()) => Together::Done(done),
            Err(error) if error::is_of_the_disk(&error) => Together::Failed(error),
            Err(_) => Together::Apart,
        }
    }

    /// Rolls the transaction back.
    pub(super) fn undo(&self) {
        if self.in_transaction() && self.often("ROLLBACK").is_err() {
            self.set_broken();
        }
    }

    /// Every statement is checked at its own end. A foreign key that is checked at the end of the
    /// transaction could be put right by the statement of another.
    fn checks_at_once(&self) -> bool {
        let Some(version) = self.schema_version() else {
            return false;
        };
        if let Some((of, checks_at_once)) = self.writing.checks_at_once.get()
            && of == version
        {
            return checks_at_once;
        }
        let deferred = "SELECT 1 FROM sqlite_schema WHERE instr(lower(sql), 'deferred') LIMIT 1";
        let looked = self.db.prepare(deferred);
        let found = looked.and_then(|mut look| look.exists([]));
        let checks_at_once = found.is_ok_and(|found| !found);
        self.writing
            .checks_at_once
            .set(Some((version, checks_at_once)));
        checks_at_once
    }

    fn run_joined(&self, order: &Order) -> Result<Outcome> {
        let mut statement = self.statement(&order.sql, order.cache)?;
        check_count(&statement, order.params.len())?;
        self.run_timed(&mut statement, order)
    }

    /// Runs a statement on the thread; notes how long it took and what SQLite did.
    pub(super) fn run_timed(
        &self,
        statement: &mut Statement<'_>,
        order: &Order,
    ) -> Result<Outcome> {
        self.bind(statement, &order.params)?;
        let is_fresh = is_fresh(statement);
        let (plan, was_asked) = self.before_run(statement, &order.sql, order.sql.class())?;
        let is_writing = self.is_writing();
        // What is left over from others is not this one's.
        self.alarm.take_used();
        let watch = self.timing.start();
        let done = self.execute(statement, &order.sql, order.sql.class(), order.rows);
        self.note_time(watch);
        if order.cache {
            let took = watch.took();
            let calls_out = self.alarm.take_used();
            let kind = StatementTiming::kind_of(statement, order.sql.class());
            let recompiled = statement.reset_status(StatementStatus::RePrepare) > 0;
            let change = |timing: &mut StatementTiming| {
                timing.plan = Some(plan);
                timing.class = Some(*order.sql.class());
                timing.is_volatile |= recompiled && was_asked && !is_fresh;
                timing.is_stale = recompiled || (!was_asked && (is_fresh || timing.is_stale));
                if calls_out {
                    timing.note_call_out();
                }
                match kind {
                    StatementKind::Write if !is_writing => {
                        timing.note_alone(done.is_ok() && took <= SOON_ON_DISK);
                    }
                    _ => timing.note(took),
                }
            };
            self.timing.change(&order.sql, kind, change);
        }
        done
    }
}

/// It was compiled just now.
fn is_fresh(statement: &Statement<'_>) -> bool {
    statement.get_status(StatementStatus::Run) == 0
}
