//! The client's connection, which hangs up when it is dropped.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::task::{Context, Waker};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

/// A [`Conn`] that closes its socket when it is dropped, and does nothing else then.
///
/// Left to itself, a `Conn` that is dropped with rows to come starts a task that reads all of
/// them: of a query without an end, for ever.
pub(super) struct Wire {
    conn: Option<Conn>,
}

impl Wire {
    pub(super) fn new(conn: Conn) -> Self {
        Wire { conn: Some(conn) }
    }

    /// Says goodbye.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the socket is closed.
    pub(super) async fn part(mut self) -> mysql_async::Result<()> {
        match self.conn.take() {
            Some(conn) => conn.disconnect().await,
            None => Ok(()),
        }
    }
}

const IS_THERE: &str = "it goes only when the wire does";

impl Deref for Wire {
    type Target = Conn;

    #[inline]
    fn deref(&self) -> &Conn {
        self.conn.as_ref().expect(IS_THERE)
    }
}

impl DerefMut for Wire {
    #[inline]
    fn deref_mut(&mut self) -> &mut Conn {
        self.conn.as_mut().expect(IS_THERE)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(mut conn) = self.conn.take() else {
            return;
        };
        if conn.is_disconnected() || std::thread::panicking() {
            return;
        }
        // A call that was begun and given up makes it one that has nothing to say any more.
        let given_up = pin!(conn.ping());
        let _ = given_up.poll(&mut Context::from_waker(Waker::noop()));
    }
}
