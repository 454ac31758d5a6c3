//! The C API of `cenote-pool`. Its documentation is the header,
//! `include/cenote.h`, which is generated from the comments here.
//!
//! ```text
//! C ── cenote_pool* ──> handle.rs ──> Body ── callbacks, loans, events, waiters
//!         a number         │            │
//!         no address       └ refs       └ Pool<Callbacks> ── cenote-pool
//! ```
//!
//! A handle is a number with a generation, and a lease is a slot with a ticket: so the library
//! detects stale ones. Each exported function catches panics and stores the last error of its
//! thread. No lock is held while a callback runs.

#![allow(non_camel_case_types, reason = "C programs see these names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header documents what each function requires of C"
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
