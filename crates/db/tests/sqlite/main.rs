//! The SQLite driver.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aside;
mod begin;
mod cancel;
mod columns;
mod driver;
mod functions;
mod hostile;
mod in_place;
mod joined;
#[cfg(unix)]
mod kill;
mod locked;
mod options;
mod readers;
#[cfg(unix)]
mod replaced;
mod stream;
mod suite;
#[path = "../sqlite_support/mod.rs"]
mod support;
mod transactions;
mod write_queue;
