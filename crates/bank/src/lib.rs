//! A bank that hundreds of misbehaving tasks use at once, while things go wrong.
//!
//! Three parts, for the `cenote` command and for tests of chaos:
//!
//! - the **workload**: clients transfer money between accounts through one shared
//!   [`Db`](cenote::Db). Some panic in a transaction, some are aborted at any await, some
//!   forget to commit.
//! - the **[ledger](mod@ledger)**: what each client knows of each of its transfers, compared with what the
//!   database holds.
//! - the **faults**: killed sessions, a broken network, a server that restarts, crashes or
//!   freezes, an exhausted, resized or replaced pool; failovers of a cluster.
//!
//! [`Run`] puts them together. The clients' plans and the faults follow from a seed; when the
//! one meets the other does not.
//!
//! ```
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! use std::time::Duration;
//! use cenote_bank::{Options, Run};
//!
//! let options = Options { length: Duration::from_millis(100), ..Options::default() };
//! cenote_bank::silence_planned_panics();
//! let summary = Run::to_end(options).await?;
//! assert!(summary.ok);
//! # Ok::<(), cenote_bank::Error>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod accounts;
mod checks;
pub mod cluster;
mod database;
mod faults;
pub mod figures;
pub mod ledger;
mod report;
mod run;
mod summary;
pub mod tables;
mod workload;

pub use crate::checks::{Audits, Finding, PoolState};
pub use crate::database::{Database, Source, WalFile, sqlite_mode};
pub use crate::faults::{ChaosReport, ClusterReport, FAULTS, FailoverReport, Fault, FaultReport};
pub use crate::report::Recorder;
pub use crate::run::{Chaos, Checked, Error, Options, Run};
pub use crate::summary::{Millis, Money, NotBegun, RolledBack, Summary};
pub use crate::workload::{
    CAUSES, Counts, ErrorCounts, LatencySummary, Monitor, OtherErrors, Outcome, Phase, Snapshot,
    silence_planned_panics,
};
