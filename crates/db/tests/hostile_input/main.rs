//! Hostile bytes: what nobody in his right mind would write, send or answer.
//!
//! `fuzzed` tries the properties that fuzzers try for longer (see `fuzz/README.md`).
#![cfg(all(
    feature = "fuzzing",
    feature = "mysql",
    feature = "odbc",
    feature = "sqlite"
))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod fuzzed;
#[path = "../server_support/names.rs"]
mod names;
mod properties;
mod values;
