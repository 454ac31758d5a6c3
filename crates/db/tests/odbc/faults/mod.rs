//! ODBC at its worst: logins that fail, drivers that are not there, servers that go, statements that
//! never end. Each is a typed error, and the pool is whole afterwards.

#![cfg(feature = "odbc")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lost;
mod mariadb;
mod never_ending;
#[path = "../postgres_servers/mod.rs"]
mod servers;
#[path = "../odbc_support/mod.rs"]
mod sources;
mod unreachable;
