//! Pinned connections: an open transaction, a live statement, changed session state or an explicit pin keeps a
//! connection.
//!
//! [`Bound`] owns the lease of a pinned connection. Each call on it takes a [`ConnectionTurn`], one at a time. When a
//! turn or a pin ends and nothing pins the connection any more, the lease is dropped, and the pool's release hook
//! does the rest (`pooled/manager.rs`).
//!
//! ```text
//!   frame ──> Bound { seat, levels, pins, undo } <── transaction guards, statements, pins
//!               │ seat: Here(lease) <──> Lent(turn)
//!               └ nothing pins the connection: unbound, lease dropped
//! ```
//!
//! 1. At most one turn exists, and only the turn uses the connection.
//! 2. Levels form a stack: the transaction, then savepoints. A call runs only in or below the frame of the top level;
//!    other calls wait until that level ends.
//! 3. The transaction of a dropped guard is undone before any other call.
//! 4. While a level is open and the transaction is lost, every call fails.
//! 5. Nothing is awaited, woken or dropped under the lock.

mod aborted;
mod bound;
pub(crate) mod contention;
mod level;
mod limits;
mod pins;
mod state;
mod turn;
pub(crate) mod writers;

pub(crate) use self::bound::{Bound, Lease, PinGuard};
pub(crate) use self::level::{AfterCommit, LastCall, Level, TransactionEffect};
pub(crate) use self::limits::watch;
pub(crate) use self::pins::PinKind;
pub(crate) use self::turn::{Caller, ConnectionTurn};
