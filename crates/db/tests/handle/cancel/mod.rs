//! Drops everything that can be awaited after 0, 1, 2, … polls, and checks that only what the documentation
//! says happens.
//!
//! ```text
//! operations ── things to do with a database, each polled a number of times and dropped
//!   ├─ fake:   on a fake database, with every kind of driver and surroundings
//!   └─ sqlite: on SQLite
//! closing ── `close`, after which the handle cannot be used
//! random ── branches of one coroutine that run operations concurrently, against a model
//! ```

mod closing;
mod fake;
mod operations;
mod random;
mod sqlite;
