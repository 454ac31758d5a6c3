//! Coroutines: the units that own connections.
//!
//! A coroutine is a future with an identity. It is always explicit ([`scope`], [`spawn`], a
//! [`Coroutine`] that a host drives): nothing is guessed from threads or executor
//! tasks, because two tasks that shared an identity by accident would share a
//! transaction.
//!
//! ```text
//! coroutine ── root frame ── frame of a transaction closure ── frame of one inside it
//!                  │                    │
//!               bindings             bindings        (frame, Db) ──> connection
//! ```
//!
//! While a scope is polled its frame stands in a thread-local, and nowhere else: it is put
//! there when the poll begins and taken away when it ends, panicking or not.

mod current;
mod frame;
mod host;
mod scope;
#[cfg(debug_assertions)]
mod spawned;

pub use self::current::current;
pub(crate) use self::current::{Seen, hidden_frame, is_hidden, seen};
pub use self::frame::CoroutineId;
pub(crate) use self::frame::{Bind, Frame};
pub use self::host::Coroutine;
pub(crate) use self::scope::InFrame;
pub use self::scope::{Detached, Scope, detached, scope, spawn};
