//! The ODBC driver, with the ODBC drivers of SQLite, PostgreSQL and MariaDB.

#![cfg(feature = "odbc")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../bulk_support/mod.rs"]
mod bulk;
mod calls;
mod db;
mod faults;
#[path = "../postgres_servers/mod.rs"]
mod servers;
#[path = "../odbc_support/mod.rs"]
mod sources;
mod suite;
