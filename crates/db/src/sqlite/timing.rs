//! Which statements are short enough to run inline, on the task that calls.
//!
//! A hop to the connection's thread costs many times what a short statement does. So runs are timed: the
//! first ones go to the thread; when the last ones were short, and the statement's [plan](super::plan)
//! bounds every step, the next runs inline; a long run sends the statement back to the thread for a while.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::Statement;

use super::cancel::Limit;
use super::insert;
use super::plan::{Inline, Plan};
use crate::sql::Class;

/// All recent runs of a statement that is run in place were at most so long.
const SHORT: Duration = Duration::from_micros(200);

/// A read that runs inline is given up after so long, and its statement has to prove itself for longer
/// the next time.
const LONG: Duration = Duration::from_micros(500);

/// A write that took longer is not done for others: they would wait for it, and it could not be
/// cancelled.
pub(super) const SOON: Duration = Duration::from_millis(50);

/// So many short runs in a row are asked of a statement at first, and at most.
const FIRST_PROOF: u32 = 2;
const LONGEST_PROOF: u32 = 64;

/// After so many short runs in a row, what was is forgotten: on a busy machine every statement is long
/// now and then, because its thread had to wait for the processor in the middle of it.
const FORGOTTEN_AFTER: u32 = 128;

/// The time that statements really take, which no clock of a test can stand in for.
#[allow(clippy::disallowed_methods)] // It measures SQLite, and nothing is scheduled by it.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    /// None if it is not looked at: then it takes no time.
    began: Option<Instant>,
}

impl Stopwatch {
    pub(super) fn start(is_timed: bool) -> Self {
        Stopwatch {
            began: is_timed.then(now),
        }
    }

    /// When it was started; None if time is not looked at.
    pub(super) fn began(self) -> Option<Instant> {
        self.began
    }

    pub(super) fn took(self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now() - began)
    }

    /// When an inline run has taken too long.
    pub(super) fn limit(self) -> Limit {
        Limit::until(match self.began {
            Some(began) => began + LONG,
            None => now() + NO_LIMIT,
        })
    }
}

/// Nobody waits for so long.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What a statement does, as far as running it in place is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    /// It reads, by SQLite's own word, and can be given up and run once more.
    Read,
    /// It changes rows. Inside of a transaction that holds the lock it waits for nobody.
    Write,
    /// Everything else stays on the thread.
    Other,
}

/// How long the runs of one statement took.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementTiming {
    pub(super) kind: StatementKind,
    /// Short runs in a row, up to now.
    short: u32,
    /// How many of them it takes.
    proof: u32,
    /// What SQLite does to run it; `None` until it was asked.
    pub(super) plan: Option<Plan>,
    /// SQLite has compiled it again since it was asked.
    pub(super) is_stale: bool,
    /// SQLite compiles it again for each run, by the values of its parameters: `LIMIT ?`, say.
    pub(super) is_volatile: bool,
    /// The class of its text.
    pub(super) class: Option<Class>,
    /// It has called a function of the application.
    calls_out: bool,
    /// As a transaction of its own it was done.
    was_done_alone: bool,
    /// It once took long without the disk.
    is_slow: bool,
}

impl StatementTiming {
    pub(super) fn new(kind: StatementKind) -> Self {
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

    /// What a statement does: by SQLite's word where it has one.
    pub(super) fn kind_of(statement: &Statement<'_>, class: &Class) -> StatementKind {
        match statement.readonly() {
            // COMMIT, say, changes nothing by itself, as SQLite sees it.
            true if statement.column_count() > 0 && insert::is_query(class) => StatementKind::Read,
            false if insert::changes_rows(class) => StatementKind::Write,
            _ => StatementKind::Other,
        }
    }

    /// It has been run.
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

    /// Its run in place had to be given up.
    pub(super) fn note_given_up(&mut self) {
        self.note(Duration::MAX);
    }

    /// It has called a function of the application, which may take as long as it likes.
    pub(super) fn note_call_out(&mut self) {
        self.calls_out = true;
    }

    /// It has been run as a transaction of its own. How long that took is mostly the disk's affair.
    pub(super) fn note_alone(&mut self, is_done: bool) {
        self.was_done_alone = is_done;
    }

    /// It can be expected not to take long, together with others.
    pub(super) fn joins(self) -> bool {
        let locks = self.plan.is_some_and(|plan| plan.locks);
        let is_right = self.kind == StatementKind::Write && locks && !self.calls_out;
        is_right && self.was_done_alone && !self.is_slow
    }

    /// Its last runs were short.
    pub(super) fn is_short(&self) -> bool {
        !self.calls_out && self.short >= self.proof
    }

    /// How it may run inline.
    pub(super) fn inline(&self) -> Inline {
        match self.plan {
            Some(plan) if !self.is_stale && self.is_short() => plan.inline,
            _ => Inline::Never,
        }
    }
}

/// What is known of the statements of a connection.
#[derive(Debug)]
struct Paces {
    known: HashMap<Box<str>, StatementTiming>,
    most: usize,
}

impl Paces {
    /// For a connection that keeps so many statements; with none, nothing is noted.
    fn new(statement_cache: usize) -> Self {
        Paces {
            known: HashMap::new(),
            most: statement_cache.saturating_mul(4),
        }
    }

    fn of(&self, sql: &str) -> Option<StatementTiming> {
        self.known.get(sql).copied()
    }

    /// Everything has to prove itself again.
    fn forget(&mut self) {
        self.known.clear();
    }

    fn change(
        &mut self,
        sql: &str,
        kind: StatementKind,
        change: impl FnOnce(&mut StatementTiming),
    ) {
        if let Some(timing) = self.known.get_mut(sql) {
            timing.kind = kind;
            return change(timing);
        }
        if self.most == 0 {
            return;
        }
        if self.known.len() >= self.most {
            // A program with so many texts begins anew; what it uses is soon known again.
            self.known.clear();
        }
        let mut timing = StatementTiming::new(kind);
        change(&mut timing);
        self.known.insert(sql.into(), timing);
    }
}

/// How long the statements of a session take.
#[derive(Debug)]
pub(super) struct Timing {
    /// Statements may run inline.
    in_place: bool,
    /// How long they take is looked at.
    is_on: bool,
    paces: RefCell<Paces>,
    /// How long it took to begin transactions that write, once it was their turn.
    begins: Cell<StatementTiming>,
    /// How many statements were run inline and brought to their end there.
    inline_runs: Cell<u64>,
}

impl Timing {
    /// For a session that keeps so many statements.
    pub(super) fn new(in_place: bool, statement_cache: usize) -> Self {
        Timing {
            in_place,
            is_on: true,
            paces: RefCell::new(Paces::new(statement_cache)),
            begins: Cell::new(StatementTiming::new(StatementKind::Other)),
            inline_runs: Cell::new(0),
        }
    }

    pub(super) fn allows_inline(&self) -> bool {
        self.in_place
    }

    /// From now on nothing counts as long.
    pub(super) fn turn_off(&mut self) {
        self.is_on = false;
    }

    pub(super) fn start(&self) -> Stopwatch {
        Stopwatch::start(self.is_on)
    }

    /// What is known of a statement.
    pub(super) fn of(&self, sql: &str) -> Option<StatementTiming> {
        self.paces.borrow().of(sql)
    }

    pub(super) fn change(
        &self,
        sql: &str,
        kind: StatementKind,
        change: impl FnOnce(&mut StatementTiming),
    ) {
        self.paces.borrow_mut().change(sql, kind, change);
    }

    /// Every statement has to prove itself again.
    pub(super) fn forget(&self) {
        self.paces.borrow_mut().forget();
    }

    /// The last BEGINs were short.
    pub(super) fn begins_are_short(&self) -> bool {
        self.begins.get().is_short()
    }

    /// A BEGIN took so long.
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
        let mut paces = Paces::new(2);
        for n in 0..100 {
            paces.change(&format!("SELECT {n}"), StatementKind::Read, |timing| {
                timing.note(QUICK)
            });
            assert!(paces.known.len() <= 8);
        }
        assert!(paces.of("SELECT 99").is_some());
    }

    #[test]
    fn without_a_cache_nothing_is_noted() {
        let mut paces = Paces::new(0);
        paces.change("SELECT 1", StatementKind::Read, |timing| timing.note(QUICK));
        assert!(paces.of("SELECT 1").is_none());
    }
}
