//! How it went: the summary, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::args::Options;
use crate::chaos::ChaosReport;
use crate::check::{Finding, PoolState};
use crate::figures::{counted, grouped, per_second};
use crate::paint::Paint;
use crate::shift::Closed;
use crate::tally::{CAUSES, Counts, Outcome};
use crate::waits::WaitTimes;

/// All that is told at the end. Its fields are the JSON that `--help` describes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) ok: bool,
    pub(crate) database: String,
    pub(crate) driver: &'static str,
    pub(crate) seed: u64,
    pub(crate) tasks: usize,
    pub(crate) max: usize,
    pub(crate) accounts: usize,
    pub(crate) seconds: f64,
    /// Stopped by hand before its time.
    pub(crate) interrupted: bool,
    /// Transactions that were committed.
    pub(crate) committed: u64,
    pub(crate) per_second: u64,
    /// Transfers in them.
    pub(crate) transfers: u64,
    /// Savepoints that were rolled back alone.
    pub(crate) savepoints_undone: u64,
    pub(crate) rolled_back: RolledBack,
    pub(crate) not_begun: NotBegun,
    /// Transactions that were cancelled in the middle of their commit.
    pub(crate) unknown: u64,
    /// The last error that was not planned.
    pub(crate) complaint: Option<String>,
    pub(crate) wait_ms: WaitMillis,
    pub(crate) pool: PoolState,
    pub(crate) money: Money,
    pub(crate) checks: Vec<Finding>,
    /// What went wrong on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chaos: Option<ChaosReport>,
    /// Where the tables are left, if they are.
    pub(crate) kept: Option<String>,
}

/// Transactions that were rolled back, by cause.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RolledBack {
    total: u64,
    error: u64,
    panic: u64,
    cancel: u64,
    forgotten: u64,
    database: u64,
}

/// Visits that ended before a transaction had begun.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct NotBegun {
    cancelled: u64,
    no_connection: u64,
}

/// How long connections were waited for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WaitMillis {
    mean: f64,
    p99: f64,
    max: f64,
}

/// In cents.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Money {
    before: i64,
    after: i64,
    lowest: i64,
    /// How often the sum was looked at while the tasks were at work.
    audits: u64,
}

/// Where it ran, and whether it was let run.
#[derive(Clone, Debug)]
pub(crate) struct Circumstances {
    pub(crate) database: String,
    pub(crate) driver: &'static str,
    pub(crate) interrupted: bool,
}

impl Summary {
    pub(crate) fn new(
        options: &Options,
        around: Circumstances,
        closed: Closed,
        chaos: Option<ChaosReport>,
    ) -> Self {
        let evidence = closed.evidence;
        let mut checks = evidence.findings();
        if let Some(chaos) = &chaos {
            checks.extend(chaos.findings.iter().cloned());
        }
        let counts = evidence.counts;
        let committed = counts.of(Outcome::Committed);
        Summary {
            ok: checks.iter().all(|finding| finding.ok),
            database: around.database,
            driver: around.driver,
            seed: options.seed,
            tasks: options.tasks,
            max: options.max,
            accounts: options.accounts,
            seconds: rounded(closed.worked.as_secs_f64()),
            interrupted: around.interrupted,
            committed,
            per_second: per_second(committed, closed.worked),
            transfers: counts.transfers,
            savepoints_undone: counts.savepoints,
            rolled_back: RolledBack::new(&counts),
            not_begun: NotBegun {
                cancelled: counts.of(Outcome::GaveUp),
                no_connection: counts.of(Outcome::Unserved),
            },
            unknown: counts.of(Outcome::Unknown),
            complaint: closed.complaint,
            wait_ms: WaitMillis::new(closed.waits),
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

    /// As one line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut json = serde_json::to_string(self).expect("numbers and texts can be written");
        json.push('\n');
        json
    }

    /// As people read it: within 80 columns, unless what a database says is longer.
    pub(crate) fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        let mut line = |of: String| {
            text.push_str(&of);
            text.push('\n');
        };
        let title = format!(
            "{} on {} for {:.1} s",
            counted(self.tasks, "task"),
            counted(self.max, "connection"),
            self.seconds
        );
        line(format!(
            "{}{}",
            paint.bold(&title),
            if self.interrupted {
                ", interrupted"
            } else {
                ""
            }
        ));
        line(format!("on {}, seed {}", self.database, self.seed));
        line(String::new());
        line(row(
            "committed",
            self.committed,
            &format!("{} a second", grouped(self.per_second)),
        ));
        line(row("rolled back", self.rolled_back.total, ""));
        for (cause, count) in CAUSES.into_iter().zip(self.rolled_back.causes()) {
            let (name, why) = described(cause);
            line(row(&format!("  {name}"), count, why));
        }
        line(row(
            "not begun",
            self.not_begun.total(),
            &self.not_begun.why(),
        ));
        line(row(
            "unknown",
            self.unknown,
            "cancelled during the commit; the books tell",
        ));
        if let Some(complaint) = &self.complaint {
            let complaint = complaint.replace(char::is_control, " ");
            line(format!("{}  {complaint}", paint.yellow("complaint  ")));
        }
        line(String::new());
        if let Some(chaos) = &self.chaos {
            chaos.lines().into_iter().for_each(&mut line);
        }
        line(format!("waits        {}", self.wait_ms));
        line(format!(
            "connections  {} opened, {} closed; lent {} times, waited for {} times",
            grouped(self.pool.created),
            grouped(self.pool.destroyed),
            grouped(self.pool.acquired),
            grouped(self.pool.waited)
        ));
        line(String::new());
        for finding in &self.checks {
            let (name, says) = (finding.name, &finding.says);
            line(match finding.ok {
                true => format!("{}  {name:<13} {says}", paint.green("ok  ")),
                false => format!("{}  {name:<13} {}", paint.red("FAIL"), paint.red(says)),
            });
        }
        if self.chaos.is_some() && !self.ok {
            line(format!("\nThe same again: --seed {}", self.seed));
        }
        if let Some(place) = &self.kept {
            line(format!("\nThe tables are left in {place}"));
        }
        text
    }
}

/// A name, a number under the others, and what it means.
pub(crate) fn row(name: &str, count: u64, means: &str) -> String {
    let line = format!("{name:<12} {:>11}  {means}", grouped(count));
    line.trim_end().to_owned()
}

/// What a cause is called, and what it is.
pub(crate) fn described(cause: Outcome) -> (&'static str, &'static str) {
    match cause {
        Outcome::Error => ("error", "changed their mind, or had not enough"),
        Outcome::Panic => ("panic", "in the middle of the transaction"),
        Outcome::Cancel => ("cancel", "aborted, or cut off half-way"),
        Outcome::Forgotten => ("forgotten", "never committed: dropped or carried off"),
        Outcome::Database => ("database", "refused by the database"),
        _ => ("", ""),
    }
}

impl RolledBack {
    fn new(counts: &Counts) -> Self {
        RolledBack {
            total: counts.rolled_back(),
            error: counts.of(Outcome::Error),
            panic: counts.of(Outcome::Panic),
            cancel: counts.of(Outcome::Cancel),
            forgotten: counts.of(Outcome::Forgotten),
            database: counts.of(Outcome::Database),
        }
    }

    /// In the order of [`CAUSES`].
    fn causes(&self) -> [u64; CAUSES.len()] {
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

impl NotBegun {
    fn total(&self) -> u64 {
        self.cancelled + self.no_connection
    }

    fn why(&self) -> String {
        match self.no_connection {
            0 => "cancelled before they had a transaction".to_owned(),
            some => format!("{} of them found no connection", grouped(some)),
        }
    }
}

impl fmt::Display for WaitMillis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WaitMillis { mean, p99, max } = self;
        write!(
            out,
            "{mean:.1} ms mean, {p99:.1} ms p99, {max:.1} ms longest"
        )
    }
}

impl WaitMillis {
    pub(crate) fn new(times: WaitTimes) -> Self {
        let millis = |time: Duration| rounded(time.as_secs_f64() * 1_000.0);
        WaitMillis {
            mean: millis(times.mean),
            p99: millis(times.p99),
            max: millis(times.max),
        }
    }
}

/// To three decimals.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
