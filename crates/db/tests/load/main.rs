//! Load: ten thousand tasks on ten connections, and a herd after an outage.
//!
//! A few seconds each; `CENOTE_LOAD_SECONDS` makes it longer. What was measured is printed:
//! `cargo test -p cenote --all-features --test load -- --nocapture`.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod figures;
mod herd;
mod order;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod starvation;
