//! Behaviour of the handle, case by case, against the real SQLite driver.
//!
//! A test is named by what it promises; the IDs of the rows of the conformance list that it covers
//! stand in its doc comment, and `coverage` checks that none is forgotten. What cannot be tested
//! here is in `tests/README.md`.

mod bindings;
mod bugs;
mod cache;
mod cancel;
mod chaos;
mod closing;
mod connections;
mod coroutines;
mod coverage;
mod deadlocks;
mod doomed;
mod errors;
mod escaped;
mod fail_closed;
mod frames;
mod handle;
mod hooks;
mod lazy;
mod limits;
mod session;
mod sqlite;
mod sqlite_functions;
mod statements;
mod streams;
mod support;
mod transactions;
