//! Getting in: passwords, TLS, several servers, and what libpq's users expect to be looked at.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod around;
mod certificates;
mod hosts;
mod logins;
mod man_in_the_middle;
mod scram;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod tls;
