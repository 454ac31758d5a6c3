//! A connection that something pins: an open transaction, a live statement, touched
//! session state, an explicit pin.
//!
//! [`Bound`] owns the lease while it is pinned. Whoever wants to use the connection
//! takes a [`ConnectionTurn`], one at a time; when a turn or a pin ends and nothing pins it any more,
//! the lease is dropped, and the pool's release hook does the rest (`pooled/manager.rs`).
//!
//! ```text
//!   frame ──> Bound { seat, levels, pins, undo } <── transaction guards, statements, pins
//!               │ seat: Here(lease) <──> Lent(turn)
//!               └ nothing pins it: unbound, lease dropped
//! ```
//!
//! 1. At most one turn is out, and only it touches the connection.
//! 2. Levels form a stack: the transaction, then savepoints. A call runs only in or below the
//!    frame of the top one; others wait until it ends.
//! 3. What a dropped guard leaves to be undone is undone before anybody else's call.
//! 4. While a level is open and the transaction is lost, every call fails.
//! 5. Nothing is awaited, woken or dropped under the lock.

mod aborted;
mod bound;
pub(crate) mod contention;
mod level;
mod limits;
mod release;
mod state;
mod turn;
pub(crate) mod writers;

pub(crate) use self::bound::{Bound, Lease, PinGuard};
pub(crate) use self::level::{AfterCommit, Control, Level};
pub(crate) use self::limits::watch;
pub(crate) use self::release::PinKind;
pub(crate) use self::turn::{ConnectionTurn, Position};
