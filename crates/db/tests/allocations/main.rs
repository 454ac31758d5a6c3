//! How often scans and reads allocate. A program of its own, because its allocator counts.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod counting;
mod sql;
mod values;
#[path = "../values_support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of values")]
mod values_support;
