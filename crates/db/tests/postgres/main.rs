//! The PostgreSQL driver, against the servers of `ci/postgres.sh`.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod boundaries;
mod cache;
mod calls;
mod cancel;
mod conformance;
mod connect;
#[path = "../coverage_support/mod.rs"]
mod coverage_support;
mod errors;
mod faults;
mod hostile;
mod in_step;
mod kept;
#[path = "../log_support/mod.rs"]
mod log;
mod lost;
mod lost_session;
mod pgbouncer;
mod reset;
#[cfg(all(feature = "json", feature = "chrono", feature = "uuid"))]
mod samples;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod session;
mod stream;
mod suite;
mod transactions;
#[cfg(all(feature = "json", feature = "chrono", feature = "uuid"))]
mod types;
mod values;
mod wire;
