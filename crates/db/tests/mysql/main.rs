//! The driver of MySQL and MariaDB, against the server of `ci/mariadb.sh`.

#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../bulk_support/mod.rs"]
mod bulk;
mod calls;
mod cluster;
mod conformance;
mod connect;
#[path = "../coverage_support/mod.rs"]
mod coverage_support;
mod engines;
mod errors;
mod faults;
mod guard;
mod holes;
mod hostile;
#[path = "../log_support/mod.rs"]
mod log;
mod replicas;
#[path = "../mysql_servers/mod.rs"]
mod servers;
mod session;
mod suite;
mod values;
