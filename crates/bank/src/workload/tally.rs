//! What became of the clients' visits, counted.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote::{Error, Kind, Result};
use tokio::time::Instant;

use crate::bank::Order;
use crate::ledger::{Fate, Ledger};
use crate::waits::{WaitTimes, Waits};

/// How a visit can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The database said that it committed.
    Committed,
    /// Rolled back: the transaction gave an error of its own.
    Error,
    /// Rolled back: it panicked.
    Panic,
    /// Rolled back: it was cancelled while its transaction was open.
    Cancel,
    /// Rolled back: it ended, or dropped its transaction, without a commit.
    Forgotten,
    /// Rolled back: the database refused something.
    Database,
    /// Cancelled before its transaction had begun.
    GaveUp,
    /// No connection was to be had in time.
    Unserved,
    /// Cancelled in the middle of a commit: only the books can tell.
    Unknown,
}

/// The causes of rollbacks.
pub(crate) const CAUSES: [Outcome; 5] = [
    Outcome::Error,
    Outcome::Panic,
    Outcome::Cancel,
    Outcome::Forgotten,
    Outcome::Database,
];

const OUTCOMES: usize = Outcome::Unknown as usize + 1;

/// Counts visits by their ends. Relaxed throughout: every number stands for itself.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    visits: [AtomicU64; OUTCOMES],
    transfers: AtomicU64,
    unknown_transfers: AtomicU64,
    savepoints: AtomicU64,
    waits: Waits,
    served: Waits,
    complaint: Mutex<Option<String>>,
}

/// The numbers of a [`Tally`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    visits: [u64; OUTCOMES],
    /// Transfers in transactions that were committed.
    pub(crate) transfers: u64,
    /// Transfers in transactions of which nobody knows.
    pub(crate) unknown_transfers: u64,
    /// Savepoints that were rolled back alone.
    pub(crate) savepoints: u64,
}

impl Counts {
    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        self.visits[outcome as usize]
    }

    pub(crate) fn rolled_back(&self) -> u64 {
        CAUSES.iter().map(|cause| self.of(*cause)).sum()
    }
}

impl Tally {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            visits: std::array::from_fn(|at| self.visits[at].load(Relaxed)),
            transfers: self.transfers.load(Relaxed),
            unknown_transfers: self.unknown_transfers.load(Relaxed),
            savepoints: self.savepoints.load(Relaxed),
        }
    }

    /// How long clients waited until their transaction was open: for a connection, and for their
    /// turn to write where only one can at a time.
    pub(crate) fn waits(&self) -> WaitTimes {
        self.waits.times()
    }

    /// How long visits took that ended with a commit, from the door to the door.
    pub(crate) fn served(&self) -> WaitTimes {
        self.served.times()
    }

    /// What the database, or the pool, last complained of though nobody had planned it.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn count(&self, outcome: Outcome) {
        self.visits[outcome as usize].fetch_add(1, Relaxed);
    }

    fn complain(&self, error: &Error) {
        let text = error.to_string();
        *self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// Nothing has begun yet.
const WAITING: u8 = 0;
/// The transaction is open.
const INSIDE: u8 = 1;
/// The commit is on its way.
const COMMITTING: u8 = 2;
/// It has been counted.
const COUNTED: u8 = 3;

/// One visit, counted once: by its result, or by where it was when it was dropped.
#[derive(Debug)]
pub(crate) struct Attempt {
    tally: Arc<Tally>,
    came: Instant,
    stage: AtomicU8,
    transfers: AtomicU64,
    memory: Option<Memory>,
}

/// The orders of a visit that are written down.
#[derive(Debug)]
struct Memory {
    ledger: Arc<Ledger>,
    /// All that it may make.
    entered: Vec<i64>,
    /// Those that are made in the transaction that is open.
    made: Mutex<Vec<i64>>,
}

impl Memory {
    fn made(&self) -> MutexGuard<'_, Vec<i64>> {
        // Nothing that can panic runs under this lock.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, outcome: Outcome) {
        let made = self.made();
        for number in &self.entered {
            let fate = match outcome {
                Outcome::Committed if made.contains(number) => Fate::Acknowledged,
                Outcome::Unknown if made.contains(number) => Fate::Unknown,
                _ => Fate::RolledBack,
            };
            self.ledger.close(*number, fate);
        }
    }
}

impl Attempt {
    pub(crate) fn new(tally: &Arc<Tally>) -> Self {
        Attempt {
            tally: Arc::clone(tally),
            came: Instant::now(),
            stage: AtomicU8::new(WAITING),
            transfers: AtomicU64::new(0),
            memory: None,
        }
    }

    /// One whose orders are written down: each gets its number.
    pub(crate) fn remembered(
        tally: &Arc<Tally>,
        ledger: &Arc<Ledger>,
        orders: &mut [Order],
    ) -> Self {
        for order in &mut *orders {
            ledger.enter(order);
        }
        let mut attempt = Attempt::new(tally);
        attempt.memory = Some(Memory {
            ledger: Arc::clone(ledger),
            entered: orders.iter().filter_map(|order| order.number).collect(),
            made: Mutex::default(),
        });
        attempt
    }

    /// The transaction is open; perhaps not for the first time, if it is repeated.
    pub(crate) fn begun(&self) {
        self.transfers.store(0, Relaxed);
        if let Some(memory) = &self.memory {
            memory.made().clear();
        }
        if self.stage.swap(INSIDE, Relaxed) == WAITING {
            self.tally.waits.record(self.came.elapsed());
        }
    }

    /// One more transfer has been made in it.
    pub(crate) fn moved(&self, order: Order) {
        self.transfers.fetch_add(1, Relaxed);
        if let Some(memory) = &self.memory {
            memory.made().extend(order.number);
        }
    }

    /// A savepoint in it was rolled back alone.
    pub(crate) fn undid_savepoint(&self) {
        self.tally.savepoints.fetch_add(1, Relaxed);
    }

    /// All is done, and the commit is next.
    pub(crate) fn committing(&self) {
        self.stage.store(COMMITTING, Relaxed);
    }

    /// It has ended with this result.
    pub(crate) fn ended(&self, result: &Result<()>) {
        let outcome = match result {
            Ok(()) => Outcome::Committed,
            Err(error) => self.outcome_of(error),
        };
        self.count(outcome);
    }

    /// It has ended well, but nobody committed.
    pub(crate) fn forgot(&self) {
        self.count(Outcome::Forgotten);
    }

    /// It was dropped half-way.
    pub(crate) fn dropped(&self) {
        self.count(match self.stage.load(Relaxed) {
            WAITING => Outcome::GaveUp,
            INSIDE => Outcome::Cancel,
            _ => Outcome::Unknown,
        });
    }

    fn outcome_of(&self, error: &Error) -> Outcome {
        match error.kind() {
            Kind::Other => return Outcome::Error,
            // A call in it was cancelled, so it could not be committed.
            Kind::Doomed => return Outcome::Cancel,
            _ => self.tally.complain(error),
        }
        match error.kind() {
            Kind::OutcomeUnknown => Outcome::Unknown,
            _ if self.stage.load(Relaxed) != WAITING => Outcome::Database,
            Kind::Database => Outcome::Database,
            _ => Outcome::Unserved,
        }
    }

    fn count(&self, outcome: Outcome) {
        if self.stage.swap(COUNTED, Relaxed) == COUNTED {
            return;
        }
        if let Some(memory) = &self.memory {
            memory.close(outcome);
        }
        if outcome == Outcome::Committed {
            self.tally.served.record(self.came.elapsed());
        }
        let transfers = self.transfers.load(Relaxed);
        match outcome {
            Outcome::Committed => self.tally.transfers.fetch_add(transfers, Relaxed),
            Outcome::Unknown => self.tally.unknown_transfers.fetch_add(transfers, Relaxed),
            _ => 0,
        };
        self.tally.count(outcome);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.stage.load(Relaxed) == COUNTED {
            return;
        }
        if std::thread::panicking() {
            self.count(Outcome::Panic);
        } else {
            self.dropped();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bank::Refusal;

    const ORDER: Order = Order {
        number: None,
        from: 1,
        to: 2,
        cents: 1,
    };

    fn after(visit: impl FnOnce(Attempt)) -> Counts {
        let tally = Arc::new(Tally::default());
        visit(Attempt::new(&tally));
        tally.counts()
    }

    #[test]
    fn a_visit_is_counted_by_where_it_was_when_it_was_dropped() {
        let waiting = after(drop);
        assert_eq!(waiting.of(Outcome::GaveUp), 1);
        assert_eq!(waiting.rolled_back(), 0);
        let inside = after(|attempt| attempt.begun());
        assert_eq!(inside.of(Outcome::Cancel), 1);
        assert_eq!(inside.rolled_back(), 1);
        let committing = after(|attempt| {
            attempt.begun();
            attempt.moved(ORDER);
            attempt.committing();
        });
        assert_eq!(committing.of(Outcome::Unknown), 1);
        assert_eq!((committing.transfers, committing.unknown_transfers), (0, 1));
    }

    #[test]
    fn a_visit_that_has_ended_is_counted_once() {
        let counts = after(|attempt| {
            attempt.begun();
            attempt.moved(ORDER);
            attempt.committing();
            attempt.ended(&Ok(()));
        });
        assert_eq!(counts.of(Outcome::Committed), 1);
        assert_eq!(counts.transfers, 1);
        assert_eq!(counts.visits.iter().sum::<u64>(), 1);
    }

    #[test]
    fn a_panic_is_told_from_a_cancel() {
        let tally = Arc::new(Tally::default());
        let attempt = Attempt::new(&tally);
        let panicked = std::thread::spawn(move || {
            attempt.begun();
            std::panic::resume_unwind(Box::new(()));
        })
        .join();
        assert!(panicked.is_err());
        assert_eq!(tally.counts().of(Outcome::Panic), 1);
    }

    #[test]
    fn what_is_begun_again_has_moved_nothing_yet() {
        let counts = after(|attempt| {
            attempt.begun();
            attempt.moved(ORDER);
            attempt.begun();
            attempt.moved(ORDER);
            attempt.ended(&Ok(()));
        });
        assert_eq!(counts.transfers, 1);
    }

    #[test]
    fn errors_are_told_apart_by_whose_they_are() {
        let ended = |begun: bool, error: Error| {
            after(move |attempt| {
                if begun {
                    attempt.begun();
                }
                attempt.ended(&Err(error));
            })
        };
        let own = ended(true, Error::other(Refusal::NotEnough));
        assert_eq!(own.of(Outcome::Error), 1);
        let doomed = ended(true, Error::new(Kind::Doomed, "cut off"));
        assert_eq!(doomed.of(Outcome::Cancel), 1);
        let refused = ended(true, Error::new(Kind::Database, "locked"));
        assert_eq!(refused.of(Outcome::Database), 1);
        let no_begin = ended(false, Error::new(Kind::Database, "locked"));
        assert_eq!(no_begin.of(Outcome::Database), 1);
        let unserved = ended(false, Error::new(Kind::Timeout, "no connection"));
        assert_eq!(unserved.of(Outcome::Unserved), 1);
        let unknown = ended(true, Error::new(Kind::OutcomeUnknown, "lost"));
        assert_eq!(unknown.of(Outcome::Unknown), 1);
    }

    #[test]
    fn what_a_visit_has_written_down_has_its_fate() {
        let fate_of_two = |visit: fn(Attempt, [Order; 2])| {
            let (tally, ledger) = (Arc::new(Tally::default()), Arc::new(Ledger::default()));
            let mut orders = [ORDER; 2];
            let attempt = Attempt::remembered(&tally, &ledger, &mut orders);
            visit(attempt, orders);
            let fates = ledger.fates();
            (fates.acknowledged, fates.rolled_back, fates.unknown)
        };
        // The second one was undone by a savepoint, or never made.
        let committed = fate_of_two(|attempt, [first, _]| {
            attempt.begun();
            attempt.moved(first);
            attempt.committing();
            attempt.ended(&Ok(()));
        });
        assert_eq!(committed, (1, 1, 0));
        let unknown = fate_of_two(|attempt, [first, _]| {
            attempt.begun();
            attempt.moved(first);
            attempt.committing();
        });
        assert_eq!(unknown, (0, 1, 1));
        let repeated = fate_of_two(|attempt, [first, second]| {
            attempt.begun();
            attempt.moved(first);
            attempt.begun();
            attempt.moved(second);
            attempt.ended(&Ok(()));
        });
        assert_eq!(repeated, (1, 1, 0));
        let cancelled = fate_of_two(|attempt, [first, _]| {
            attempt.begun();
            attempt.moved(first);
        });
        assert_eq!(cancelled, (0, 2, 0));
    }

    #[test]
    fn only_what_nobody_planned_is_a_complaint() {
        let tally = Arc::new(Tally::default());
        Attempt::new(&tally).ended(&Err(Error::other(Refusal::ChangedMind)));
        assert_eq!(tally.complaint(), None);
        Attempt::new(&tally).ended(&Err(Error::new(Kind::Database, "disk full")));
        assert_eq!(tally.complaint().as_deref(), Some("disk full"));
    }
}
