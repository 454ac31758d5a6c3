//! The command as its users run it: a process, its output and its exit code.
#![allow(clippy::unwrap_used, reason = "tests")]

mod chaos;
mod databases;
mod process;
mod runs;
mod stopping;
mod usage;
