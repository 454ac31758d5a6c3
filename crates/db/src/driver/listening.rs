//! Connections that receive notifications.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::BoxFuture;
use crate::Result;

/// A connection that receives notifications and runs nothing else: see
/// [`Template::connect_listening`](super::Template::connect_listening).
///
/// One background task of the layer owns it. The layer decides which channels it listens to, keeps the
/// notifications and opens a new connection after a loss.
pub trait Listening: fmt::Debug + Send + 'static {
    /// Asks the server to listen to some channels and not to others, both at once or neither. Without any channel it
    /// asks for an answer only, as a ping does. Sends nothing yet: [`poll_heard`](Listening::poll_heard) does. The layer
    /// makes one request at a time and waits for its [`Heard::Answer`].
    ///
    /// # Errors
    ///
    /// The request cannot be sent. The layer closes the connection.
    fn request(&mut self, listen: &[Arc<str>], unlisten: &[Arc<str>]) -> Result<()>;

    /// Sends what was requested, and returns what the server sends next, in the server's order. Keeps nothing back and
    /// buffers a bounded number of bytes.
    ///
    /// # Errors
    ///
    /// The connection is lost. The layer closes it.
    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Result<Heard>>;

    /// Returns the server's number of the session, as in [`Heard::Notification`]; `None` if there is none.
    fn process_id(&self) -> Option<i32> {
        None
    }

    /// Closes the connection. If the layer's deadline passes first, dropping the future must close it.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// What a server sends to a [`Listening`] connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Heard {
    /// A notification.
    Notification {
        /// The channel.
        channel: String,
        /// The payload; `None` if it is not valid UTF-8.
        payload: Option<Arc<str>>,
        /// The server's number of the session that sent it.
        pid: i32,
    },
    /// The answer to the request: accepted, or the server's error, after which nothing of the request has happened.
    Answer(Result<()>),
}
