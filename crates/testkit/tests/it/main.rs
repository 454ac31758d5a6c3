//! The fake database, the driver suite and the proxy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fake;
mod fake_contract;
mod fake_support;
mod faults;
mod proxy;
mod suite;
