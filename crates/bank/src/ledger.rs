//! What the clients know of every transfer, compared with what the database holds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cenote::{Db, Result};
use serde::Serialize;

use crate::accounts::{Order, STARTING_CENTS};

/// How many contradictions a comparison lists; it counts the others.
const LISTED: usize = 5;

/// The state of a transfer, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has not ended.
    Open,
    /// The database acknowledged its commit.
    Acknowledged,
    /// It ended without a commit.
    RolledBack,
    /// Its client sent the commit, but got no answer or did not wait for it.
    Unknown,
    /// It was unknown, and a comparison found it.
    Found,
    /// It was unknown, and a comparison did not find it.
    Missing,
}

/// A transfer in the database: number, payer, payee, cents.
pub type Written = (i64, i64, i64, i64);

/// What all clients know of their transfers.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The transfer with the number 1 comes first.
    entries: Mutex<Vec<(Order, Fate)>>,
}

/// Transfers by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fates {
    /// Those that the database acknowledged.
    pub acknowledged: u64,
    /// Those that ended without a commit.
    pub rolled_back: u64,
    /// Those whose commit got no answer, committed or not.
    pub unknown: u64,
    /// The number of unknown transfers that were committed.
    pub unknown_committed: u64,
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, Vec<(Order, Fate)>> {
        // Nothing that can panic runs under this lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an order, and gives it its number.
    pub fn enter(&self, order: &mut Order) {
        let mut entries = self.entries();
        let number = entries.len() + 1;
        order.number = i64::try_from(number).ok();
        entries.push((*order, Fate::Open));
    }

    /// Records how a transfer ended.
    pub fn close(&self, number: i64, fate: Fate) {
        let mut entries = self.entries();
        let entry = usize::try_from(number - 1).map(|at| entries.get_mut(at));
        if let Ok(Some((_, of))) = entry {
            *of = fate;
        }
    }

    /// Returns the number of transfers.
    pub fn count(&self) -> usize {
        self.entries().len()
    }

    /// Counts the transfers by their state.
    pub fn fates(&self) -> Fates {
        let mut fates = Fates::default();
        for (_, fate) in &*self.entries() {
            match fate {
                Fate::Open => {}
                Fate::Acknowledged => fates.acknowledged += 1,
                Fate::RolledBack => fates.rolled_back += 1,
                Fate::Unknown | Fate::Missing => fates.unknown += 1,
                Fate::Found => {
                    fates.unknown += 1;
                    fates.unknown_committed += 1;
                }
            }
        }
        fates
    }

    /// Compares the transfers after the first `after` with those in the database, and returns the
    /// contradictions. Every transfer must have ended. The first comparison decides whether an
    /// unknown one was committed; later ones must find the same.
    pub fn compare(&self, after: usize, written: &[Written]) -> Vec<String> {
        let mut written: BTreeMap<i64, &Written> = written.iter().map(|row| (row.0, row)).collect();
        let mut wrong = Vec::new();
        for (number, (order, fate)) in (1_i64..).zip(self.entries().iter_mut()).skip(after) {
            let row = written.remove(&number);
            if let Some((_, from, to, cents)) = row
                && (*from, *to, *cents) != (order.from, order.to, order.cents)
            {
                wrong.push(format!("transfer {number} stands there as another one"));
            }
            match (*fate, row.is_some()) {
                (Fate::Acknowledged | Fate::Found, true)
                | (Fate::RolledBack | Fate::Missing, false) => {}
                (Fate::Unknown, true) => *fate = Fate::Found,
                (Fate::Unknown, false) => *fate = Fate::Missing,
                (Fate::Open, _) => wrong.push(format!("transfer {number} never came to an end")),
                (Fate::Acknowledged, false) => {
                    wrong.push(format!(
                        "transfer {number} was acknowledged and IS NOT THERE"
                    ));
                }
                (Fate::RolledBack, true) => {
                    wrong.push(format!("transfer {number} was rolled back and IS THERE"));
                }
                (Fate::Found, false) => {
                    wrong.push(format!("transfer {number} was there and IS GONE"));
                }
                (Fate::Missing, true) => {
                    wrong.push(format!("transfer {number} was not there and CAME LATER"));
                }
            }
        }
        let nobodys = written
            .keys()
            .map(|number| format!("transfer {number} belongs to no client"));
        wrong.extend(nobodys);
        abridge(wrong)
    }
}

/// Compares the balance of every account with the sum of its transfers; returns the contradictions.
pub fn balances_agree(written: &[Written], balances: &[(i64, i64)]) -> Vec<String> {
    let mut expected: BTreeMap<i64, i64> = balances
        .iter()
        .map(|(id, _)| (*id, STARTING_CENTS))
        .collect();
    for (_, from, to, cents) in written {
        *expected.entry(*from).or_default() -= cents;
        *expected.entry(*to).or_default() += cents;
    }
    let wrong = balances.iter().filter_map(|(id, balance)| {
        let expected = expected.get(id).copied().unwrap_or_default();
        (expected != *balance)
            .then(|| format!("account {id} has {balance}, its transfers come to {expected}"))
    });
    abridge(wrong.collect())
}

fn abridge(mut texts: Vec<String>) -> Vec<String> {
    if let Some(more) = texts.len().checked_sub(LISTED + 1) {
        texts.truncate(LISTED);
        texts.push(format!("and {} more", more + 1));
    }
    texts
}

/// Inserts a transfer, in the transaction that makes it.
///
/// # Errors
///
/// Those of the database.
pub async fn write(db: &Db, number: i64, order: Order) -> Result<()> {
    let sql = "INSERT INTO cenote_bank_ledger (number, payer, payee, cents) VALUES (?, ?, ?, ?)";
    db.exec(sql, (number, order.from, order.to, order.cents))
        .await?;
    Ok(())
}

/// Reads the transfers after the first `after`.
///
/// # Errors
///
/// Those of the database.
pub async fn read(db: &Db, after: usize) -> Result<Vec<Written>> {
    let sql = "SELECT number, payer, payee, cents FROM cenote_bank_ledger WHERE number > ?";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    db.query_as(sql, (after,)).await
}

/// Reads the number and the balance of every account.
///
/// # Errors
///
/// Those of the database.
pub async fn read_balances(db: &Db) -> Result<Vec<(i64, i64)>> {
    db.query_as("SELECT id, balance FROM cenote_bank_account", ())
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const FATES: [Fate; 3] = [Fate::Acknowledged, Fate::RolledBack, Fate::Unknown];

    /// Three transfers of 1 cent from account 1 to account 2, with these ends.
    fn ledger() -> Ledger {
        let ledger = Ledger::default();
        for fate in FATES {
            let mut order = Order {
                number: None,
                from: 1,
                to: 2,
                cents: 1,
            };
            ledger.enter(&mut order);
            ledger.close(order.number.unwrap(), fate);
        }
        ledger
    }

    fn rows(numbers: &[i64]) -> Vec<Written> {
        numbers.iter().map(|number| (*number, 1, 2, 1)).collect()
    }

    #[test]
    fn unknown_transfers_may_be_there_or_not_but_stay_so() {
        for written in [&[1][..], &[1, 3]] {
            let ledger = ledger();
            assert_eq!(ledger.compare(0, &rows(written)), [""; 0]);
            assert_eq!(ledger.compare(0, &rows(written)), [""; 0], "and stay so");
            assert_eq!(ledger.fates().unknown, 1);
            let committed = u64::from(written.len() == 2);
            assert_eq!(ledger.fates().unknown_committed, committed);
        }
    }

    #[test]
    fn every_contradiction_is_found() {
        for (written, said) in [
            (&[][..], "transfer 1 was acknowledged and IS NOT THERE"),
            (&[1, 2], "transfer 2 was rolled back and IS THERE"),
            (&[1, 9], "transfer 9 belongs to no client"),
        ] {
            assert_eq!(ledger().compare(0, &rows(written)), [said]);
        }
        let late = ledger();
        assert_eq!(late.compare(0, &rows(&[1])), [""; 0]);
        let said = late.compare(0, &rows(&[1, 3]));
        assert_eq!(said, ["transfer 3 was not there and CAME LATER"]);
        let gone = ledger();
        assert_eq!(gone.compare(0, &rows(&[1, 3])), [""; 0]);
        let said = gone.compare(0, &rows(&[1]));
        assert_eq!(said, ["transfer 3 was there and IS GONE"]);
        let other = ledger().compare(0, &[(1, 1, 2, 500)]);
        assert_eq!(other, ["transfer 1 stands there as another one"]);
        let open = ledger();
        open.close(1, Fate::Open);
        let said = open.compare(0, &[]);
        assert_eq!(said, ["transfer 1 never came to an end"]);
    }

    #[test]
    fn compared_transfers_can_be_left_out() {
        let ledger = ledger();
        assert_eq!(ledger.compare(1, &rows(&[3])), [""; 0]);
        assert_eq!(ledger.count(), 3);
    }

    #[test]
    fn a_balance_that_differs_from_its_transfers_is_found() {
        let books = |first: i64| [(1, STARTING_CENTS - first), (2, STARTING_CENTS + 2)];
        assert_eq!(balances_agree(&rows(&[1, 2]), &books(2)), [""; 0]);
        let wrong = balances_agree(&rows(&[1, 2]), &books(3));
        assert!(wrong[0].starts_with("account 1 has"), "{wrong:?}");
    }

    #[test]
    fn of_many_contradictions_a_few_are_listed() {
        let ledger = ledger();
        let many: Vec<i64> = (10..30).collect();
        let said = ledger.compare(0, &rows(&many));
        assert_eq!(said.len(), LISTED + 1);
        assert_eq!(said[LISTED], "and 16 more");
    }
}
