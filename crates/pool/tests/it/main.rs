//! The pool's behaviour, promise by promise. IDs in doc comments (P-…, F-…, B-…)
//! name the rows of the conformance list; `README.md` here lists the rows that
//! have no test, and why.
#![cfg(not(loom))]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod breaker;
mod breaker_live;
mod bugs;
mod chaos;
mod closing;
mod construct;
mod creation;
mod diagnostics;
mod draining;
mod drop_panics;
mod dying;
mod events;
mod field;
mod health;
mod hooks;
mod hostile_breaker;
mod hostile_creations;
mod hostile_reservations;
mod invalid_config;
mod leases;
mod lifetimes;
mod limits;
mod messages;
mod order;
mod panics;
mod regression_breaker;
mod regression_panics;
mod regression_queue;
mod regression_runtimes;
mod replacing;
mod reservations;
mod retain;
mod retries;
mod reviewed;
mod runtimes;
mod support;
mod timeouts;
mod timers;
mod tools;
mod waiting;
