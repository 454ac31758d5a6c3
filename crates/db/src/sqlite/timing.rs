//! Which statements are short enough to run inline, on the task that calls.
//!
//! A hop to the connection's thread costs many times what a short statement does. So runs are timed: the
//! first ones go to the thread; when the last ones were short, and the statement's [plan](super::plan)
//! bounds every step, the next runs inline; a long run sends the statement back to the thread for a while.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::Statement;

use super::cancel::RunLimit;
use super::insert;
use super::plan::{Inline, Plan};
use crate::sql::Class;

/// A statement runs inline if none of its recent runs took longer.
const SHORT: Duration = Duration::from_micros(200);

/// An inline read is given up after this time. Then its statement needs more short runs than before.
const LONG: Duration = Duration::from_micros(500);

/// A write that once took longer is not batched: others would wait for it, and it could not be cancelled.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// A statement needs this many short runs in a row before it runs inline: at first, and at most.
const FIRST_PROOF: u32 = 2;
const LONGEST_PROOF: u32 = 64;

/// After this many short runs in a row, long runs are forgotten. On a busy machine every statement is long
/// now and then, because its thread lost the processor in the middle of a run.
const FORGOTTEN_AFTER: u32 = 128;

/// Returns the real time, also in tests with a clock of their own.
#[allow(clippy::disallowed_methods)] // It measures SQLite, and nothing is scheduled by it.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Measures how long a run takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    /// `None` if runs are not timed: then every run takes no time.
    began: Option<Instant>,
}

impl Stopwatch {
    pub(super) fn start(is_timed: bool) -> Self {
        Stopwatch {
            began: is_timed.then(now),
        }
    }

    /// Returns when the run began, or `None` if runs are not timed.
    pub(super) fn began(self) -> Option<Instant> {
        self.began
    }

    pub(super) fn took(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now() - began)
    }

    /// Returns the time at which an inline run is given up.
    pub(super) fn limit(self) -> RunLimit {
        RunLimit::until(match self.began {
            Some(began) => began + LONG,
            None => now() + NO_LIMIT,
        })
    }
}

/// Longer than any run.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What a statement does, as far as running it inline is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// SQLite reports that it only reads: it can be given up and run again.
    Read,
    /// It changes rows. Inside a transaction that holds the write lock it never waits for a lock.
    Write,
    /// It stays on the thread.
    Other,
}

impl StatementKind {
    pub(super) fn of(statement: &Statement<'_>, class: &Class) -> Self {
        match statement.readonly() {
            // SQLite reports COMMIT, for example, as read-only.
            true if statement.column_count() > 0 && insert::is_query(class) => StatementKind::Read,
            false if insert::changes_rows(class) => StatementKind::Write,
            _ => StatementKind::Other,
        }
    }
}

/// The timing of one statement's runs, and the plan of its last run.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementTiming {
    kind: StatementKind,
    /// Short runs in a row, up to now.
    short: u32,
    /// The number of short runs that an inline run requires.
    proof: u32,
    /// `None` until the plan was read.
    plan: Option<Plan>,
    /// SQLite has compiled the statement again since the plan was read.
    is_stale: bool,
    /// SQLite compiles the statement again for each run, because of a parameter's value: `LIMIT ?`, for example.
    is_volatile: bool,
    class: Option<Class>,
    /// The statement has called a function of the application.
    calls_out: bool,
    /// Its last run as a transaction of its own succeeded, in reasonable time.
    was_done_alone: bool,
    /// A run once took long without the disk.
    is_slow: bool,
}

impl StatementTiming {
    fn new(kind: StatementKind) -> Self {
        StatementTiming {
            kind,
            short: 0,
            proof: FIRST_PROOF,
            plan: None,
            is_stale: false,
            is_volatile: false,
            class: None,
            calls_out: false,
            was_done_alone: false,
            is_slow: false,
        }
    }

    /// Notes how long a run took.
    pub(super) fn note(&mut self, took: Duration) {
        if took <= SHORT {
            self.short = self.short.saturating_add(1);
            if self.short >= FORGOTTEN_AFTER {
                self.proof = FIRST_PROOF;
            }
            return;
        }
        self.short = 0;
        self.is_slow |= took > SOON;
        if took > LONG {
            self.proof = (self.proof * 2).min(LONGEST_PROOF);
        }
    }

    /// Notes that an inline run had to be given up.
    pub(super) fn note_given_up(&mut self) {
        self.note(Duration::MAX);
    }

    /// Notes that a run called a function of the application, which may take any time.
    pub(super) fn note_call_out(&mut self) {
        self.calls_out = true;
    }

    /// Notes a run as a transaction of its own. Its time is mostly the disk's.
    pub(super) fn note_alone(&mut self, is_done: bool) {
        self.was_done_alone = is_done;
    }

    /// Notes the plan that a run followed, and whether SQLite compiled the statement again in that run.
    pub(super) fn note_plan(&mut self, read: PlanReading, class: &Class, recompiled: bool) {
        self.plan = Some(read.plan);
        self.class = Some(*class);
        self.is_volatile |= recompiled && read.is_new && !read.is_fresh;
        self.is_stale = recompiled || (!read.is_new && (read.is_fresh || self.is_stale));
    }

    /// Returns whether a batch may include the statement: it will not take long.
    pub(super) fn can_batch(self) -> bool {
        let locks = self.plan.is_some_and(|plan| plan.locks);
        let is_write = self.kind == StatementKind::Write && locks && !self.calls_out;
        is_write && self.was_done_alone && !self.is_slow
    }

    /// Returns whether the last runs were short.
    pub(super) fn is_short(&self) -> bool {
        !self.calls_out && self.short >= self.proof
    }

    /// Returns how the statement may run inline.
    pub(super) fn inline(&self) -> Inline {
        match self.plan {
            Some(plan) if !self.is_stale && self.is_short() => plan.inline,
            _ => Inline::Never,
        }
    }

    /// Returns the plan unless it has to be read again. A stale one is read again when the statement has
    /// stayed in the cache for a second run: one that the cache evicts each time is not worth it.
    pub(super) fn plan(&self, is_fresh: bool) -> Option<Plan> {
        let may_use = is_fresh || self.is_volatile || !self.is_stale;
        self.plan.filter(|_| may_use)
    }

    /// Returns whether the statement fills a temporary b-tree.
    pub(super) fn has_ephemeral(&self) -> bool {
        self.plan.is_some_and(|plan| plan.has_ephemeral)
    }

    pub(super) fn kind(&self) -> StatementKind {
        self.kind
    }

    pub(super) fn class(&self) -> Option<Class> {
        self.class
    }
}

/// The plan of a statement that is about to run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanReading {
    pub(super) plan: Plan,
    /// The plan was read just now.
    pub(super) is_new: bool,
    /// The statement was compiled just now.
    pub(super) is_fresh: bool,
}

/// The timing of a session's statements.
#[derive(Debug)]
pub(super) struct Timing {
    /// Statements may run inline.
    in_place: bool,
    /// Runs are timed.
    is_on: bool,
    statements: RefCell<HashMap<Box<str>, StatementTiming>>,
    most_statements: usize,
    /// The BEGINs of transactions that write, from the moment they have the permit.
    begins: Cell<StatementTiming>,
    /// The number of statements that ran inline to their end.
    inline_runs: Cell<u64>,
}

impl Timing {
    /// For a session that keeps this many statements. With none, nothing is noted.
    pub(super) fn new(in_place: bool, statement_cache: usize) -> Self {
        Timing {
            in_place,
            is_on: true,
            statements: RefCell::default(),
            most_statements: statement_cache.saturating_mul(4),
            begins: Cell::new(StatementTiming::new(StatementKind::Other)),
            inline_runs: Cell::new(0),
        }
    }

    pub(super) fn allows_inline(&self) -> bool {
        self.in_place
    }

    /// From now on no run counts as long.
    pub(super) fn turn_off(&mut self) {
        self.is_on = false;
    }

    pub(super) fn start(&self) -> Stopwatch {
        Stopwatch::start(self.is_on)
    }

    /// Returns what is known of a statement.
    pub(super) fn of(&self, sql: &str) -> Option<StatementTiming> {
        self.statements.borrow().get(sql).copied()
    }

    /// Changes what is known of a statement.
    pub(super) fn change(
        &self,
        sql: &str,
        kind: StatementKind,
        change: impl FnOnce(&mut StatementTiming),
    ) {
        let mut statements = self.statements.borrow_mut();
        if let Some(timing) = statements.get_mut(sql) {
            timing.kind = kind;
            return change(timing);
        }
        if self.most_statements == 0 {
            return;
        }
        if statements.len() >= self.most_statements {
            // A program with this many texts begins again; what it uses is soon known again.
            statements.clear();
        }
        let mut timing = StatementTiming::new(kind);
        change(&mut timing);
        statements.insert(sql.into(), timing);
    }

    /// Forgets all statements: each has to prove itself again.
    pub(super) fn forget(&self) {
        self.statements.borrow_mut().clear();
    }

    /// Returns whether the last BEGINs were short.
    pub(super) fn begins_are_short(&self) -> bool {
        self.begins.get().is_short()
    }

    /// Notes how long a BEGIN took.
    pub(super) fn note_begin(&self, took: Duration) {
        let mut timing = self.begins.get();
        timing.note(took);
        self.begins.set(timing);
    }

    pub(super) fn note_inline_run(&self) {
        self.inline_runs.update(|runs| runs + 1);
    }

    pub(super) fn inline_runs(&self) -> u64 {
        self.inline_runs.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(5);

    fn after(runs: &[Duration]) -> StatementTiming {
        let mut timing = StatementTiming::new(StatementKind::Read);
        runs.iter().for_each(|took| timing.note(*took));
        timing
    }

    #[test]
    fn the_first_runs_of_a_statement_are_not_in_place() {
        assert!(!after(&[]).is_short());
        assert!(!after(&[QUICK]).is_short());
        assert!(after(&[QUICK; 2]).is_short());
    }

    #[test]
    fn one_run_that_is_not_short_is_enough_to_start_over() {
        let tepid = Duration::from_micros(300);
        let timing = after(&[QUICK, QUICK, tepid, QUICK]);
        assert!(!timing.is_short());
        assert!(after(&[QUICK, QUICK, tepid, QUICK, QUICK]).is_short());
    }

    #[test]
    fn after_every_long_run_it_takes_twice_as_many_short_ones() {
        let long = Duration::from_millis(2);
        let mut timing = after(&[QUICK, QUICK, long, QUICK, QUICK, QUICK]);
        assert!(!timing.is_short());
        timing.note(QUICK);
        assert!(timing.is_short());
        for _ in 0..50 {
            timing.note_given_up();
        }
        for _ in 0..LONGEST_PROOF {
            assert!(!timing.is_short());
            timing.note(QUICK);
        }
        assert!(timing.is_short());
    }

    #[test]
    fn long_runs_are_forgotten_in_the_end() {
        let mut timing = after(&[LONG * 2; 20]);
        for _ in 0..FORGOTTEN_AFTER {
            timing.note(QUICK);
        }
        timing.note(SHORT * 2);
        timing.note(QUICK);
        timing.note(QUICK);
        assert!(timing.is_short());
    }

    #[test]
    fn what_calls_the_application_is_never_in_place() {
        let mut timing = after(&[QUICK; 100]);
        timing.note_call_out();
        assert!(!timing.is_short());
    }

    #[test]
    fn a_program_with_many_texts_does_not_fill_the_memory() {
        let all = Timing::new(true, 2);
        for n in 0..100 {
            all.change(&format!("SELECT {n}"), StatementKind::Read, |timing| {
                timing.note(QUICK)
            });
            assert!(all.statements.borrow().len() <= 8);
        }
        assert!(all.of("SELECT 99").is_some());
    }

    #[test]
    fn without_a_cache_nothing_is_noted() {
        let all = Timing::new(true, 0);
        all.change("SELECT 1", StatementKind::Read, |timing| timing.note(QUICK));
        assert!(all.of("SELECT 1").is_none());
    }
}
