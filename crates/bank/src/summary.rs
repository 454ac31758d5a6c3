//! The result of a run, as data.

use std::time::Duration;

use serde::Serialize;

use crate::checks::{Finding, PoolState};
use crate::faults::ChaosReport;
use crate::figures::per_second;
use crate::run::Options;
use crate::workload::{CAUSES, Counts, LatencySummary, Outcome, Stopped};

/// The result of a run. Its fields are the JSON that `cenote --help` describes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Whether every check passed.
    pub ok: bool,
    /// The name of the database, without a password.
    pub database: String,
    /// The name of its driver.
    pub driver: &'static str,
    /// The seed that repeats the run.
    pub seed: u64,
    /// The number of clients.
    pub tasks: usize,
    /// The number of connections that they shared.
    pub max: usize,
    /// The number of accounts.
    pub accounts: usize,
    /// How long the clients worked.
    pub seconds: f64,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
    /// Committed transactions.
    pub committed: u64,
    /// Committed transactions per second.
    pub per_second: u64,
    /// Transfers in committed transactions.
    pub transfers: u64,
    /// Savepoints that were rolled back alone.
    pub savepoints_undone: u64,
    /// Transactions that were rolled back, by cause.
    pub rolled_back: RolledBack,
    /// Visits that ended before a transaction had begun.
    pub not_begun: NotBegun,
    /// Transactions that were cancelled during their commit.
    pub unknown: u64,
    /// The last unplanned error.
    pub complaint: Option<String>,
    /// How long clients waited until their transaction was open.
    pub wait_ms: Millis,
    /// The pool at the end.
    pub pool: PoolState,
    /// The money before and after.
    pub money: Money,
    /// The result of every check.
    pub checks: Vec<Finding>,
    /// The injected faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chaos: Option<ChaosReport>,
    /// Where the tables were kept, if they were.
    pub kept: Option<String>,
}

/// Transactions that were rolled back, by cause.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct RolledBack {
    /// All of them.
    pub total: u64,
    /// The client refused.
    pub error: u64,
    /// The client panicked.
    pub panic: u64,
    /// The client was cancelled.
    pub cancel: u64,
    /// The client did not commit.
    pub forgotten: u64,
    /// The database refused.
    pub database: u64,
}

/// Visits that ended before a transaction had begun.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct NotBegun {
    /// The client was cancelled.
    pub cancelled: u64,
    /// There was no connection in time.
    pub no_connection: u64,
}

/// Durations in milliseconds, to three decimals.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Millis {
    /// The mean.
    pub mean: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// Money in cents.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Money {
    /// The sum of all balances at the start.
    pub before: i64,
    /// The sum of all balances at the end.
    pub after: i64,
    /// The lowest balance at the end.
    pub lowest: i64,
    /// How often the sum was verified while the clients worked.
    pub audits: u64,
}

impl Summary {
    /// Runs the checks. The caller fills in where it ran.
    pub(crate) fn new(options: &Options, stopped: Stopped, chaos: Option<ChaosReport>) -> Self {
        let evidence = stopped.evidence;
        let mut checks = evidence.findings();
        if let Some(chaos) = &chaos {
            checks.extend(chaos.findings.iter().cloned());
        }
        let counts = evidence.counts;
        let committed = counts.of(Outcome::Committed);
        Summary {
            ok: checks.iter().all(|finding| finding.ok),
            database: String::new(),
            driver: "",
            seed: options.seed,
            tasks: options.tasks,
            max: options.max,
            accounts: options.accounts,
            seconds: rounded(stopped.worked.as_secs_f64()),
            interrupted: false,
            committed,
            per_second: per_second(committed, stopped.worked),
            transfers: counts.transfers,
            savepoints_undone: counts.savepoints,
            rolled_back: RolledBack::new(&counts),
            not_begun: NotBegun {
                cancelled: counts.of(Outcome::GaveUp),
                no_connection: counts.of(Outcome::Unserved),
            },
            unknown: counts.of(Outcome::Unknown),
            complaint: stopped.complaint,
            wait_ms: Millis::new(stopped.waits),
            pool: evidence.pool,
            money: Money {
                before: evidence.before,
                after: evidence.books.sum,
                lowest: evidence.books.lowest,
                audits: evidence.audits.done,
            },
            checks,
            chaos,
            kept: None,
        }
    }
}

impl RolledBack {
    fn new(counts: &Counts) -> Self {
        let [error, panic, cancel, forgotten, database] = CAUSES.map(|cause| counts.of(cause));
        RolledBack {
            total: counts.rolled_back(),
            error,
            panic,
            cancel,
            forgotten,
            database,
        }
    }

    /// Returns the counts in the order of [`CAUSES`].
    pub fn causes(&self) -> [u64; CAUSES.len()] {
        let RolledBack {
            error,
            panic,
            cancel,
            forgotten,
            database,
            total: _,
        } = *self;
        [error, panic, cancel, forgotten, database]
    }
}

impl Millis {
    pub(crate) fn new(times: LatencySummary) -> Self {
        Millis {
            mean: millis(times.mean),
            p99: millis(times.p99),
            max: millis(times.max),
        }
    }
}

/// Returns milliseconds, to three decimals.
pub(crate) fn millis(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1_000.0)
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
