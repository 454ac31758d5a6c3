//! The handle, over SQLite and over the fake driver: its rules, its dropped calls and its past bugs.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod batches;
#[path = "../bulk_support/mod.rs"]
mod bulk;
mod bulk_loading;
mod cancel;
mod conformance;
#[path = "../coverage_support/mod.rs"]
mod coverage_support;
mod errors;
mod executor;
mod forgotten;
mod holders;
#[path = "../log_support/mod.rs"]
mod log;
mod nesting;
#[cfg(feature = "prometheus")]
mod prometheus;
mod regressions;
mod replace_all;
mod results;
mod scalar;
mod smoke;
mod spans;
mod timings;
mod transaction_options;
mod watching;
