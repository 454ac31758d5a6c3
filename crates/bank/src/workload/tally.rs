//! Counts the clients' visits by how they ended.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cenote::{Error, Kind, Result};
use tokio::time::Instant;

use super::errors::ErrorCounts;
use super::latency::{Latencies, LatencySummary};
use crate::accounts::Order;
use crate::ledger::{Fate, Ledger};

/// How a visit can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The database acknowledged the commit.
    Committed,
    /// Rolled back: the client refused.
    Error,
    /// Rolled back: the client panicked.
    Panic,
    /// Rolled back: the client was cancelled while its transaction was open.
    Cancel,
    /// Rolled back: the client did not commit.
    Forgotten,
    /// Rolled back: the database refused a statement.
    Database,
    /// Cancelled before its transaction had begun.
    GaveUp,
    /// There was no connection in time.
    Unserved,
    /// Cancelled during the commit: only the database knows the outcome.
    Unknown,
}

/// The causes of rollbacks.
pub const CAUSES: [Outcome; 5] = [
    Outcome::Error,
    Outcome::Panic,
    Outcome::Cancel,
    Outcome::Forgotten,
    Outcome::Database,
];

const OUTCOMES: usize = Outcome::Unknown as usize + 1;

/// Counts visits by their outcome. Relaxed throughout: the numbers are independent.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    visits: [AtomicU64; OUTCOMES],
    transfers: AtomicU64,
    unknown_transfers: AtomicU64,
    savepoints: AtomicU64,
    waits: Latencies,
    served: Latencies,
    complaint: Mutex<Option<String>>,
    errors: Mutex<ErrorCounts>,
}

/// Visits by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    visits: [u64; OUTCOMES],
    /// Transfers in committed transactions.
    pub transfers: u64,
    /// Transfers in transactions whose outcome is unknown.
    pub unknown_transfers: u64,
    /// Savepoints that were rolled back alone.
    pub savepoints: u64,
}

impl Counts {
    /// Returns how many visits ended so.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.visits[outcome as usize]
    }

    /// Returns how many transactions were rolled back.
    pub fn rolled_back(&self) -> u64 {
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

    /// How long clients waited until their transaction was open: for a connection, and for the
    /// permit to write on a database with one writer.
    pub(crate) fn waits(&self) -> LatencySummary {
        self.waits.summary()
    }

    /// How long visits took that ended with a commit.
    pub(crate) fn served(&self) -> LatencySummary {
        self.served.summary()
    }

    /// The last unplanned error.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn count(&self, outcome: Outcome) {
        self.visits[outcome as usize].fetch_add(1, Relaxed);
    }

    /// The unplanned errors, by kind.
    pub(crate) fn errors(&self) -> ErrorCounts {
        let errors = self.errors.lock();
        errors.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn complain(&self, error: &Error) {
        let errors = self.errors.lock();
        errors.unwrap_or_else(PoisonError::into_inner).note(error);
        let text = error.to_string();
        *self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(text);
    }
}

/// The transaction has not begun.
const WAITING: u8 = 0;
/// The transaction is open.
const INSIDE: u8 = 1;
/// The client has sent the commit, or is about to.
const COMMITTING: u8 = 2;
/// The visit has been counted.
const COUNTED: u8 = 3;

/// A visit, counted once: by its result, or by its phase when it is dropped.
#[derive(Debug)]
pub(crate) struct Attempt {
    tally: Arc<Tally>,
    started: Instant,
    phase: AtomicU8,
    transfers: AtomicU64,
    entries: Option<LedgerEntries>,
}

/// The orders of a visit that are in the ledger.
#[derive(Debug)]
struct LedgerEntries {
    ledger: Arc<Ledger>,
    /// All orders that the visit may carry out.
    entered: Vec<i64>,
    /// Those that the open transaction has carried out.
    made: Mutex<Vec<i64>>,
}

impl LedgerEntries {
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
            started: Instant::now(),
            phase: AtomicU8::new(WAITING),
            transfers: AtomicU64::new(0),
            entries: None,
        }
    }

    /// A visit whose orders are in the ledger: each gets its number.
    pub(crate) fn tracked(tally: &Arc<Tally>, ledger: &Arc<Ledger>, orders: &mut [Order]) -> Self {
        for order in &mut *orders {
            ledger.enter(order);
        }
        let mut attempt = Attempt::new(tally);
        attempt.entries = Some(LedgerEntries {
            ledger: Arc::clone(ledger),
            entered: orders.iter().filter_map(|order| order.number).collect(),
            made: Mutex::default(),
        });
        attempt
    }

    /// The transaction is open; not for the first time, if it is retried.
    pub(crate) fn begun(&self) {
        self.transfers.store(0, Relaxed);
        if let Some(entries) = &self.entries {
            entries.made().clear();
        }
        if self.phase.swap(INSIDE, Relaxed) == WAITING {
            self.tally.waits.record(self.started.elapsed());
        }
    }

    /// The transaction has carried out a transfer.
    pub(crate) fn moved(&self, order: Order) {
        self.transfers.fetch_add(1, Relaxed);
        if let Some(entries) = &self.entries {
            entries.made().extend(order.number);
        }
    }

    /// A savepoint was rolled back alone.
    pub(crate) fn undid_savepoint(&self) {
        self.tally.savepoints.fetch_add(1, Relaxed);
    }

    /// The commit is next.
    pub(crate) fn committing(&self) {
        self.phase.store(COMMITTING, Relaxed);
    }

    /// The visit has ended with this result.
    pub(crate) fn ended(&self, result: &Result<()>) {
        let outcome = match result {
            Ok(()) => Outcome::Committed,
            Err(error) => self.outcome_of(error),
        };
        self.count(outcome);
    }

    /// The visit has ended without a commit.
    pub(crate) fn forgot(&self) {
        self.count(Outcome::Forgotten);
    }

    /// The visit was dropped.
    pub(crate) fn dropped(&self) {
        self.count(match self.phase.load(Relaxed) {
            WAITING => Outcome::GaveUp,
            INSIDE => Outcome::Cancel,
            _ => Outcome::Unknown,
        });
    }

    fn outcome_of(&self, error: &Error) -> Outcome {
        match error.kind() {
            Kind::Other => return Outcome::Error,
            // A call was cancelled, so the transaction could not commit.
            Kind::Doomed => return Outcome::Cancel,
            _ => self.tally.complain(error),
        }
        match error.kind() {
            Kind::OutcomeUnknown => Outcome::Unknown,
            _ if self.phase.load(Relaxed) != WAITING => Outcome::Database,
            Kind::Database => Outcome::Database,
            _ => Outcome::Unserved,
        }
    }

    fn count(&self, outcome: Outcome) {
        if self.phase.swap(COUNTED, Relaxed) == COUNTED {
            return;
        }
        if let Some(entries) = &self.entries {
            entries.close(outcome);
        }
        if outcome == Outcome::Committed {
            self.tally.served.record(self.started.elapsed());
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
        if self.phase.load(Relaxed) == COUNTED {
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
    use crate::accounts::Refusal;

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
    fn a_dropped_visit_is_counted_by_its_phase() {
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
    fn a_panic_is_not_counted_as_a_cancel() {
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
    fn a_retried_transaction_starts_with_no_transfers() {
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
    fn errors_are_counted_by_their_origin() {
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
    fn the_ledger_gets_the_fate_of_every_order() {
        let fate_of_two = |visit: fn(Attempt, [Order; 2])| {
            let (tally, ledger) = (Arc::new(Tally::default()), Arc::new(Ledger::default()));
            let mut orders = [ORDER; 2];
            let attempt = Attempt::tracked(&tally, &ledger, &mut orders);
            visit(attempt, orders);
            let fates = ledger.fates();
            (fates.acknowledged, fates.rolled_back, fates.unknown)
        };
        // A savepoint undid the second one, or it was never carried out.
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
    fn only_unplanned_errors_are_complaints() {
        let tally = Arc::new(Tally::default());
        Attempt::new(&tally).ended(&Err(Error::other(Refusal::ChangedMind)));
        assert_eq!(tally.complaint(), None);
        Attempt::new(&tally).ended(&Err(Error::new(Kind::Database, "disk full")));
        assert_eq!(tally.complaint().as_deref(), Some("disk full"));
    }
}
