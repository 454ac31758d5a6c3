//! Notifications: [`Db::listen`](crate::Db::listen) receives what PostgreSQL's NOTIFY sends.
//!
//! The [guide](crate::guide::listen) shows how to use it.
//!
//! ```text
//! Listener ── Mailbox <──push── task (one per Db) ──owns── Listening (a connection outside the pool)
//!     └──── join, leave ──> Hub ──plan──┘
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `listener` | what the program holds: [`Listener`], and [`Listen`], the options of one |
//! | `mailbox` | the bounded buffer of one listener: where Gaps stand |
//! | `hub` | who listens to what, what the server has acknowledged, who is owed a Gap |
//! | `task` | the background task: connects, sends LISTEN and UNLISTEN, pings, reconnects |

mod hub;
mod listener;
mod mailbox;
mod task;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::hub::{Hub, Setup};
pub use self::listener::{Listen, Listener};

use crate::Error;

/// What a [`Listener`] receives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A notification.
    Notification {
        /// The channel, exactly as the server names it.
        channel: Arc<str>,
        /// The payload; empty if NOTIFY had none.
        payload: Arc<str>,
        /// The process id of the server's session that sent it: `pg_backend_pid()`.
        pid: i32,
    },
    /// Notifications may be missing at this place. The listener receives again: whatever is committed after the program
    /// has read this event arrives. So reload what the notifications are about.
    Gap {
        /// Why notifications may be missing.
        cause: GapCause,
    },
}

/// Why notifications may be missing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GapCause {
    /// The connection was lost, for this reason, and a new one listens again.
    ConnectionLost(Error),
    /// The connection was replaced by [`Db::replace_all`](crate::Db::replace_all).
    Replaced,
    /// The listener's buffer was full: see [`Listen::buffer`].
    Overflow,
    /// A payload was not valid UTF-8. PostgreSQL sends none such: it ends the session instead.
    NotText,
}

impl fmt::Display for GapCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapCause::ConnectionLost(error) => write!(out, "connection lost: {error}"),
            GapCause::Replaced => out.write_str("connection replaced"),
            GapCause::Overflow => out.write_str("buffer full"),
            GapCause::NotText => out.write_str("payload not valid UTF-8"),
        }
    }
}

/// The state of the connection that listens: see [`Db::listen_status`](crate::Db::listen_status).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenStatus {
    /// The connection is open, and the server has acknowledged the channels of every listener that is ready.
    pub connected: bool,
    /// How long it has been so: connected, or not connected.
    pub unchanged_for: Duration,
    /// The process id of the server's session, if connected.
    pub process_id: Option<i32>,
    /// The number of listeners, including those that are not ready yet.
    pub listeners: usize,
    /// Their channels, in alphabetical order.
    pub channels: Vec<Arc<str>>,
    /// How often the connection was lost and came back since the handle was opened.
    pub reconnects: u64,
    /// The last loss or failed attempt to connect since the handle was opened.
    pub last_error: Option<Error>,
}
