//! What a hostile reader of the PostgreSQL driver has tried on it.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod copies;
mod drops;
mod kept;
mod money;
mod params;
mod pooler;
mod raw;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod session;
mod streams;
mod values;
