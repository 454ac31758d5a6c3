//! The C API of `cenote-pool`. Its documentation is the header,
//! `include/cenote.h`, which is generated from the comments here.
//!
//! ```text
//! C ── cenote_pool* ──> handle.rs ──> Body ── callbacks, loans, events, waiters
//!         a number         │            │
//!         no address       └ refs       └ Pool<Callbacks> ── cenote-pool
//! ```
//!
//! A handle is a number with a generation, so that one that is out of date is seen.
//! A lease is a slot and a ticket, likewise. Each boundary function catches panics
//! and keeps the error for its thread; no lock is held while a callback runs.

#![allow(
    non_camel_case_types,
    reason = "these are the names that C programs see"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says what each function asks of C; all of them are unsafe by nature"
)]

mod acquire;
mod api;
mod body;
mod breaker;
mod callbacks;
mod error;
mod event;
#[cfg(unix)]
mod fork;
mod handle;
mod host;
mod info;
mod loans;
mod options;
mod pool;
mod retain;
mod status;
mod waiter;

pub use crate::acquire::*;
pub use crate::api::*;
pub use crate::breaker::*;
pub use crate::callbacks::{
    cenote_create_fn, cenote_dispose_fn, cenote_permanent_fn, cenote_resource_fn,
};
pub use crate::error::*;
pub use crate::event::*;
pub use crate::handle::cenote_pool;
pub use crate::host::*;
pub use crate::info::*;
pub use crate::loans::cenote_lease;
pub use crate::options::*;
pub use crate::pool::*;
pub use crate::retain::*;
pub use crate::status::*;
pub use crate::waiter::*;
