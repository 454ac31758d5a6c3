//! Coroutines: the units that own connections.
//!
//! A coroutine is a future with an identity (not `std::ops::Coroutine`). It is always explicit: [`scope`], [`spawn`], or
//! a [`Coroutine`] that a host drives. Nothing is guessed from threads or executor tasks, because two tasks that shared
//! an identity by accident would share a transaction.
//!
//! ```text
//! coroutine ── root frame ── frame of a transaction closure ── frame of one inside it
//!                  │                    │
//!               bindings             bindings        (frame, Db) ──> connection
//! ```
//!
//! A thread-local holds the frame while its scope is polled: it is set when a poll begins and cleared when the poll ends
//! or panics.

mod current;
mod frame;
mod host;
mod positions;
mod scope;
#[cfg(debug_assertions)]
mod spawned;

pub use self::current::current;
pub(crate) use self::current::{CallContext, call_context, hidden_frame, is_hidden};
pub use self::frame::CoroutineId;
pub(crate) use self::frame::{Bind, Frame};
pub use self::host::Coroutine;
pub(crate) use self::scope::Inside;
pub use self::scope::{Detached, Scope, detached, scope, spawn};
