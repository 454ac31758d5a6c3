//! The command as its users run it: a process, its output and its exit code.
#![allow(clippy::unwrap_used, reason = "tests")]

mod chaos;
mod check;
mod databases;
mod migrate;
mod page;
mod process;
mod report;
mod runs;
mod size;
mod stopping;
mod usage;
