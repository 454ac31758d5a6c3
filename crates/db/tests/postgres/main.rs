//! The PostgreSQL driver, against the servers of `ci/postgres.sh`.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod boundaries;
#[path = "../bulk_support/mod.rs"]
mod bulk;
mod cache;
mod calls;
mod cancel;
mod cluster;
mod conformance;
mod connect;
mod copy;
#[path = "../coverage_support/mod.rs"]
mod coverage_support;
mod doubt;
mod errors;
mod faults;
mod hostile;
mod in_step;
mod kept;
mod lanes;
mod listen;
#[path = "../log_support/mod.rs"]
mod log;
mod lost;
mod lost_session;
mod many_rows;
mod pgbouncer;
mod pipeline;
mod pipeline_safety;
mod pipeline_scripted;
mod replicas;
mod reset;
#[cfg(all(feature = "json", feature = "chrono", feature = "uuid"))]
mod samples;
#[path = "../postgres_servers/mod.rs"]
mod servers;
#[cfg(all(
    feature = "migrate",
    feature = "json",
    feature = "chrono",
    feature = "uuid",
    feature = "decimal"
))]
mod service;
mod session;
mod stream;
mod suite;
mod transactions;
#[cfg(all(feature = "json", feature = "chrono", feature = "uuid"))]
mod types;
mod untyped;
mod values;
mod wire;
