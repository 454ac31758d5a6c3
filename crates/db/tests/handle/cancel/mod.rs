//! Everything that can be awaited is dropped after 0, 1, 2, … polls, and nothing must come of it but
//! what the documentation says.
//!
//! ```text
//! deeds ── things to do with a database, each polled so many times and dropped
//!   ├─ fake:   on a fake database, with every kind of driver and surroundings
//!   └─ sqlite: on SQLite
//! closing ── the one deed after which a handle is of no more use
//! random ── branches of one coroutine that do such things at once, against a model
//! ```

mod closing;
mod deeds;
mod fake;
mod random;
mod sqlite;
