//! The client library's connection, which closes its socket on drop.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError, IoError, Opts};

/// Turns a panic of the client library into an error. The library panics on some violations of the protocol, such as an
/// empty packet. The connection is not used again after such an error.
#[inline]
pub(super) fn catch<T>(
    poll: impl FnOnce() -> Poll<mysql_async::Result<T>>,
) -> Poll<mysql_async::Result<T>> {
    // Only the connection can be in an inconsistent state, and it is not used again.
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| Poll::Ready(Err(garbage())))
}

/// Turns a panic during a whole call into an error.
pub(super) async fn caught<T>(
    call: impl Future<Output = mysql_async::Result<T>>,
) -> mysql_async::Result<T> {
    let mut call = pin!(call);
    poll_fn(|cx| catch(|| call.as_mut().poll(cx))).await
}

#[cold]
fn garbage() -> ClientError {
    let message = "the server violated the protocol, and the client library panicked";
    ClientError::Io(IoError::Io(io::Error::new(
        io::ErrorKind::InvalidData,
        message,
    )))
}

/// A [`Conn`] whose drop only closes its socket.
///
/// A plain `Conn` that is dropped with unread rows starts a task that reads all of them, without end for an endless query.
pub(super) struct Wire {
    conn: Option<Conn>,
}

impl Wire {
    fn new(conn: Conn) -> Self {
        Wire { conn: Some(conn) }
    }

    /// Connects and logs in.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the socket is closed.
    pub(super) async fn open(options: Opts) -> mysql_async::Result<Self> {
        caught(Conn::new(options)).await.map(Wire::new)
    }

    /// Disconnects in order.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the socket is closed.
    pub(super) async fn disconnect(mut self) -> mysql_async::Result<()> {
        match self.conn.take() {
            Some(conn) => conn.disconnect().await,
            None => Ok(()),
        }
    }
}

const IS_THERE: &str = "only a drop of the wire takes it";

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
        // Polling a ping and dropping it marks the connection as unusable, so its drop reads nothing.
        let mut given_up = pin!(conn.ping());
        let mut cx = Context::from_waker(Waker::noop());
        let _ = catch(|| given_up.as_mut().poll(&mut cx));
    }
}
