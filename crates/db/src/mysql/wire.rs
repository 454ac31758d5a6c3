//! The client's connection, which hangs up when it is dropped.

use std::future::{Future, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError, IoError, Opts};

/// Makes an error of a panic in the client library, which happens when a server sends what nobody expects, such as an empty
/// packet. The connection is not used again after such an error.
#[inline]
pub(super) fn catch<T>(
    poll: impl FnOnce() -> Poll<mysql_async::Result<T>>,
) -> Poll<mysql_async::Result<T>> {
    // The connection is all that the library can have left half done.
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|_| Poll::Ready(Err(garbage())))
}

/// The same for a whole call.
pub(super) async fn caught<T>(
    call: impl Future<Output = mysql_async::Result<T>>,
) -> mysql_async::Result<T> {
    let mut call = pin!(call);
    poll_fn(|cx| catch(|| call.as_mut().poll(cx))).await
}

#[cold]
fn garbage() -> ClientError {
    let message =
        "the server sent what the protocol does not have, and the client library panicked over it";
    ClientError::Io(IoError::Io(io::Error::new(
        io::ErrorKind::InvalidData,
        message,
    )))
}

/// A [`Conn`] that closes its socket when it is dropped, and does nothing else then.
///
/// Left to itself, a `Conn` that is dropped with rows to come starts a task that reads all of
/// them: of a query without an end, for ever.
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
    /// Dropped, the socket is closed.
    pub(super) async fn open(options: Opts) -> mysql_async::Result<Self> {
        caught(Conn::new(options)).await.map(Wire::new)
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
        let mut given_up = pin!(conn.ping());
        let mut cx = Context::from_waker(Waker::noop());
        let _ = catch(|| given_up.as_mut().poll(&mut cx));
    }
}
