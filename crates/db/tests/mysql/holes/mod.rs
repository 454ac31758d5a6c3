//! Holes that a hostile reading of the driver of MySQL and MariaDB has found, each with the test that keeps it closed.
#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../mysql_servers/mod.rs"]
mod servers;

mod charsets;
mod kept;
mod login;
mod statements;
