//! The checks at the end of a run: the total is unchanged and no connection is missing.

use cenote::pool::{Counters, Status};
use serde::Serialize;

use crate::accounts::Books;
use crate::figures::{grouped, money};
use crate::workload::Counts;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// Whether it passed.
    pub ok: bool,
    /// What it found.
    pub says: String,
}

/// Counters and sizes of the pool; its fields are those of `Counters` and `Status`.
#[allow(missing_docs, reason = "documented there")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PoolState {
    pub acquired: u64,
    pub waited: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub created: u64,
    pub create_failed: u64,
    pub destroyed: u64,
    pub total: usize,
    pub idle: usize,
    pub active: usize,
    pub creating: usize,
    pub waiting: usize,
}

impl PoolState {
    pub(crate) fn new(status: &Status, counters: &Counters) -> Self {
        PoolState {
            acquired: counters.acquired,
            waited: counters.waited,
            timed_out: counters.timed_out,
            cancelled: counters.cancelled,
            created: counters.created,
            create_failed: counters.create_failed,
            destroyed: counters.destroyed,
            total: status.total,
            idle: status.idle,
            active: status.active,
            creating: status.creating,
            waiting: status.waiting,
        }
    }

    /// Whether no client holds, opens or waits for a connection.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active == 0 && self.creating == 0 && self.waiting == 0
    }

    /// Whether the pool is idle and no connection is missing.
    pub(crate) fn is_whole(&self) -> bool {
        let accounted = self.created == self.destroyed + self.total as u64;
        self.is_at_rest() && self.total == self.idle && accounted
    }
}

/// What the audits found while the clients worked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audits {
    /// The number of audits.
    pub done: u64,
    /// The first sum of all balances that was wrong, in cents.
    pub wrong: Option<i64>,
}

/// What the checks examine.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    /// The sum of all balances at the start, in cents.
    pub(crate) before: i64,
    /// The number of accounts at the start.
    pub(crate) accounts: usize,
    /// The totals now, read by the observer.
    pub(crate) books: Books,
    pub(crate) counts: Counts,
    pub(crate) audits: Audits,
    /// Why the observer could not lock all accounts, if so.
    pub(crate) still_locked: Option<String>,
    pub(crate) pool: PoolState,
}

impl Evidence {
    /// Runs every check.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        vec![
            self.money(),
            self.balances(),
            self.books(),
            self.audits(),
            self.transactions(),
            self.pool(),
        ]
    }

    fn money(&self) -> Finding {
        let Books { sum, accounts, .. } = self.books;
        let (before, after) = (money(self.before), money(sum));
        let verdict = match sum.checked_sub(self.before) {
            Some(0) if accounts == self.accounts => "not a cent lost".to_owned(),
            Some(0) => format!("but {accounts} accounts of {}", self.accounts),
            Some(change) if change < 0 => format!("{} IS MISSING", money(-change)),
            Some(change) => format!("{} TOO MUCH", money(change)),
            None => "which cannot be".to_owned(),
        };
        Finding {
            name: "money",
            ok: sum == self.before && accounts == self.accounts,
            says: format!("{before} before, {after} after: {verdict}"),
        }
    }

    fn balances(&self) -> Finding {
        let lowest = self.books.lowest;
        let verdict = match lowest < 0 {
            true => "there is one below zero",
            false => "none is below zero",
        };
        Finding {
            name: "balances",
            ok: lowest >= 0,
            says: format!("{verdict}, the lowest is {}", money(lowest)),
        }
    }

    /// The clients' counts and the database agree.
    fn books(&self) -> Finding {
        let Counts {
            transfers,
            unknown_transfers,
            ..
        } = self.counts;
        let moves = u64::try_from(self.books.moves).unwrap_or(0);
        // Only transfers whose outcome is unknown may be there beyond those reported.
        let beyond = (moves / 2).checked_sub(transfers);
        let ok = moves.is_multiple_of(2) && beyond.is_some_and(|n| n <= unknown_transfers);
        let (moves, transfers) = (grouped(moves), grouped(transfers));
        Finding {
            name: "books",
            ok,
            says: match beyond {
                Some(0) if ok && unknown_transfers == 0 => {
                    format!("{moves} moves = 2 x {transfers} transfers")
                }
                Some(beyond) if ok => format!(
                    "{moves} moves = 2 x ({transfers} + {beyond} of {unknown_transfers} unknown) \
                     transfers"
                ),
                _ => format!(
                    "{moves} moves, BUT {transfers} transfers reported and {unknown_transfers} \
                     unknown"
                ),
            },
        }
    }

    fn audits(&self) -> Finding {
        let done = grouped(self.audits.done);
        let says = match self.audits.wrong {
            None => format!("{done} while the tasks ran, and the sum was always right"),
            Some(sum) => format!("{done} while the tasks ran, and one found {}", money(sum)),
        };
        Finding {
            name: "audits",
            ok: self.audits.wrong.is_none(),
            says,
        }
    }

    fn transactions(&self) -> Finding {
        Finding {
            name: "transactions",
            ok: self.still_locked.is_none(),
            says: match &self.still_locked {
                None => "none left open: every account can be locked".to_owned(),
                Some(why) => format!("an account cannot be locked: {why}"),
            },
        }
    }

    fn pool(&self) -> Finding {
        let pool = &self.pool;
        let ok = pool.is_whole();
        let PoolState {
            idle,
            active,
            waiting,
            created,
            destroyed,
            total,
            ..
        } = pool;
        let verdict = if ok { "whole" } else { "NOT WHOLE" };
        Finding {
            name: "pool",
            ok,
            says: format!(
                "{verdict}: {active} active, {waiting} waiting, {idle} idle; {created} opened - \
                 {destroyed} closed = {total}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Evidence {
        let mut counts = Counts::default();
        counts.transfers = 6;
        counts.unknown_transfers = 2;
        Evidence {
            before: 10_000_000,
            accounts: 100,
            books: Books {
                accounts: 100,
                sum: 10_000_000,
                lowest: 0,
                moves: 14,
            },
            counts,
            audits: Audits {
                done: 3,
                wrong: None,
            },
            still_locked: None,
            pool: PoolState {
                acquired: 9,
                waited: 8,
                timed_out: 0,
                cancelled: 1,
                created: 6,
                create_failed: 0,
                destroyed: 1,
                total: 5,
                idle: 5,
                active: 0,
                creating: 0,
                waiting: 0,
            },
        }
    }

    /// The names of the failed checks.
    fn broken(change: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
        let mut evidence = sound();
        change(&mut evidence);
        let findings = evidence.findings();
        let broken = findings.iter().filter(|finding| !finding.ok);
        broken.map(|finding| finding.name).collect()
    }

    #[test]
    fn sound_evidence_passes_every_check() {
        assert_eq!(broken(|_| {}), [""; 0]);
    }

    #[test]
    fn a_missing_cent_is_found() {
        assert_eq!(broken(|evidence| evidence.books.sum -= 1), ["money"]);
        assert_eq!(broken(|evidence| evidence.books.sum += 1), ["money"]);
        let mut evidence = sound();
        evidence.books.sum -= 1;
        let says = &evidence.findings()[0].says;
        assert!(says.contains("0.01 IS MISSING"), "{says}");
    }

    #[test]
    fn a_missing_account_is_found() {
        assert_eq!(broken(|evidence| evidence.books.accounts -= 1), ["money"]);
    }

    #[test]
    fn a_balance_below_zero_is_found() {
        assert_eq!(broken(|evidence| evidence.books.lowest = -1), ["balances"]);
    }

    #[test]
    fn lost_and_invented_commits_are_found() {
        assert_eq!(broken(|evidence| evidence.books.moves = 12), [""; 0]);
        assert_eq!(broken(|evidence| evidence.books.moves = 10), ["books"]);
        assert_eq!(broken(|evidence| evidence.books.moves = 18), ["books"]);
        // Half a transfer.
        assert_eq!(broken(|evidence| evidence.books.moves = 13), ["books"]);
    }

    #[test]
    fn a_wrong_sum_during_the_run_is_found() {
        let audit = |evidence: &mut Evidence| evidence.audits.wrong = Some(9_999_999);
        assert_eq!(broken(audit), ["audits"]);
    }

    #[test]
    fn a_transaction_that_is_still_open_is_found() {
        let lock = |evidence: &mut Evidence| evidence.still_locked = Some("busy".to_owned());
        assert_eq!(broken(lock), ["transactions"]);
    }

    #[test]
    fn a_connection_that_is_out_or_lost_is_found() {
        let held = |evidence: &mut Evidence| {
            evidence.pool.active = 1;
            evidence.pool.idle = 4;
        };
        assert_eq!(broken(held), ["pool"]);
        assert_eq!(broken(|evidence| evidence.pool.created = 7), ["pool"]);
        assert_eq!(broken(|evidence| evidence.pool.waiting = 1), ["pool"]);
    }
}
