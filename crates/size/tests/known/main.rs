//! Workloads whose right size is known by construction: the recommendation is within one of it.
//!
//! `CENOTE_SIZE_RUNS=10` repeats each of them; every run has to be right. PostgreSQL and MariaDB are those of
//! `ci/postgres.sh run -- ci/mariadb.sh run -- …`.
#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;
mod verdicts;

use std::process::Command;
use std::time::Duration;

use cenote::{Db, Secret};
use cenote_bank::Database;
use cenote_size::limit::Limit;
use cenote_size::{Options, Report, Session, Workload};
use tokio::sync::{Mutex, MutexGuard};

/// One measurement at a time: two would be a load for each other.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

fn runs() -> u64 {
    let runs = std::env::var("CENOTE_SIZE_RUNS").ok();
    runs.map_or(1, |runs| runs.parse().unwrap())
}

/// A workload and what is known of it.
pub(crate) struct Known<'k> {
    pub(crate) dsn: &'k str,
    pub(crate) workload: &'k str,
    pub(crate) allow_writes: bool,
    pub(crate) length: Duration,
    pub(crate) size: usize,
    pub(crate) limits: &'k [Limit],
}

impl Known<'_> {
    fn options(&self, seed: u64) -> Options {
        let database = Database::Theirs {
            dsn: Secret::from(self.dsn),
            user: None,
            password: None,
        };
        Options {
            workload: Some(Workload::parse("known.work", self.workload).unwrap()),
            allow_writes: self.allow_writes,
            most: Some(12),
            length: self.length,
            seed,
            ..Options::new(database)
        }
    }

    /// Measures it as often as is asked for, and verifies every recommendation.
    pub(crate) async fn verify(&self) {
        for run in 0..runs() {
            let report = measured(self.options(run)).await;
            let advice = report.recommendation.as_ref().unwrap();
            let brief: Vec<_> = report
                .sizes
                .iter()
                .map(|row| (row.size, row.measurements, row.throughput))
                .collect();
            println!(
                "run {run}: {} recommended, {} is right; {:?}, {:?}; {brief:.1?} {:?}",
                advice.max, self.size, report.limit, report.knee, report.notes
            );
            assert!(advice.max.abs_diff(self.size) <= 1, "{report:#?}");
            assert!(self.limits.contains(&report.limit), "{report:#?}");
        }
    }
}

/// Measures to the end and cleans up.
pub(crate) async fn measured(options: Options) -> Report {
    let mut session = Session::start(options).await.unwrap();
    while session.step().await.unwrap().is_some() {}
    let report = session.report(false);
    session.clean_up().await.unwrap();
    report
}

/// Gives a process and what it starts some processors, and priority over everything else there if this user may: so that
/// the right size is known, whatever else the machine does. Dropped, it takes them back.
pub(crate) struct Processors(String);

impl Processors {
    pub(crate) fn of(pid: &str, processors: &str) -> Self {
        // Without the right, or with one processor, the machine has to be quiet.
        run("taskset", &["-acp", processors, pid]);
        run("chrt", &["--all-tasks", "--rr", "-p", "1", pid]);
        Processors(pid.to_owned())
    }
}

impl Drop for Processors {
    fn drop(&mut self) {
        run("chrt", &["--all-tasks", "--other", "-p", "0", &self.0]);
        run("taskset", &["-acp", "0-1023", &self.0]);
    }
}

fn run(program: &str, args: &[&str]) {
    let _ = Command::new(program).args(args).output();
}

/// Prepares a database.
pub(crate) async fn prepared(dsn: &str, statements: &[&str]) {
    let db = Db::open(dsn).await.unwrap();
    for sql in statements {
        db.exec(sql, ()).await.unwrap();
    }
    db.close().await.unwrap();
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run ci/test.sh, or \
             ci/postgres.sh run -- ci/mariadb.sh run -- cargo test …"
        )
    })
}
