//! Servers and networks at their worst: each fault is a typed error within its deadline, and
//! the pool is whole afterwards.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod garbage;
mod restarts;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod silence;
mod terminated;
