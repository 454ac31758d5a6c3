//! What a server and a network can do to connections: every error has its kind, the pool stays whole, and
//! nothing of one task is seen by another.
#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod killed;
mod limits;
mod locks;
#[path = "../mysql_servers/mod.rs"]
mod servers;
#[path = "../server_faults/mod.rs"]
mod shared;
mod stale;
