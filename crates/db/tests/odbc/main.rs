//! The ODBC driver, with the ODBC drivers of SQLite, PostgreSQL and MariaDB.

#![cfg(feature = "odbc")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod db;
mod faults;
#[path = "../postgres_servers/mod.rs"]
mod servers;
#[path = "../odbc_support/mod.rs"]
mod sources;
mod suite;
