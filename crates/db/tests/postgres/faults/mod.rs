//! Servers and networks at their worst: each fault is a typed error within its deadline, and
//! the pool is whole afterwards.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod garbage;
#[path = "../postgres_servers/mod.rs"]
mod servers;
#[path = "../server_faults/mod.rs"]
mod shared;
mod silence;
mod terminated;
