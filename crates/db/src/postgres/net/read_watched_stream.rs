//! An unencrypted socket that the executor watches for reads only.
//!
//! Tokio's own streams also register for writability. Then each acknowledged request makes the socket writable again
//! and wakes the thread that waits for the answer, for nothing, while the server works. This stream registers for
//! writability only while the socket's buffer is full.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A non-blocking socket.
#[derive(Debug)]
pub(crate) enum Raw {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Raw {
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Raw::Tcp(tcp) => (&mut &*tcp).read(into),
            Raw::Unix(unix) => (&mut &*unix).read(into),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Raw::Tcp(tcp) => (&mut &*tcp).write(bytes),
            Raw::Unix(unix) => (&mut &*unix).write(bytes),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Raw::Tcp(tcp) => Raw::Tcp(tcp.try_clone()?),
            Raw::Unix(unix) => Raw::Unix(unix.try_clone()?),
        })
    }

    fn shut_down(&self) -> io::Result<()> {
        match self {
            Raw::Tcp(tcp) => tcp.shutdown(std::net::Shutdown::Write),
            Raw::Unix(unix) => unix.shutdown(std::net::Shutdown::Write),
        }
    }
}

impl AsRawFd for Raw {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Raw::Tcp(tcp) => tcp.as_fd(),
            Raw::Unix(unix) => unix.as_fd(),
        }
    }
}

/// The stream of an unencrypted connection.
#[derive(Debug)]
pub(crate) struct Plain {
    socket: AsyncFd<Raw>,
    /// The same socket, registered for writability, while its buffer is full.
    room: Option<AsyncFd<Raw>>,
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl Plain {
    /// # Errors
    ///
    /// The executor cannot register the socket.
    pub(crate) fn new(raw: Raw) -> io::Result<Self> {
        Ok(Plain {
            socket: watch(raw, Interest::READABLE)?,
            room: None,
        })
    }

    pub(crate) fn raw(&self) -> &Raw {
        self.socket.get_ref()
    }

    /// Whether the executor has reported data since the last read. Clears a false report.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        let peek = |raw: &Raw| {
            let mut byte = [std::mem::MaybeUninit::uninit(); 1];
            socket2::SockRef::from(raw).peek(&mut byte)
        };
        match self.socket.try_io(Interest::READABLE, peek) {
            Err(wrong) => wrong.kind() != io::ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let room = match &self.room {
            Some(room) => room,
            None => {
                let again = self.raw().try_clone()?;
                self.room.insert(watch(again, Interest::WRITABLE)?)
            }
        };
        // Cleared each time: only a write shows whether there is room.
        ready!(room.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}

#[allow(
    deprecated,
    reason = "what takes its place is unsafe, because a type could change its file descriptor \
              while it is watched; a Raw owns its socket and has no other one, ever"
)]
fn watch(raw: Raw, interest: Interest) -> io::Result<AsyncFd<Raw>> {
    AsyncFd::with_interest(raw, interest)
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            let room = into.initialize_unfilled();
            let len = room.len();
            match ready.try_io(|socket| socket.get_ref().read(room)) {
                Ok(Ok(read)) => {
                    if read > 0 && read < len {
                        // That was all; the executor reports more when it arrives.
                        ready.clear_ready();
                    }
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(wrong)) if wrong.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(wrong)) => return Poll::Ready(Err(wrong)),
                // A false report.
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.raw().write(bytes) {
                Ok(written) => {
                    self.room = None;
                    return Poll::Ready(Ok(written));
                }
                Err(wrong) if wrong.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_room(cx))?;
                }
                Err(wrong) if wrong.kind() == io::ErrorKind::Interrupted => {}
                Err(wrong) => return Poll::Ready(Err(wrong)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.raw().shut_down())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (Plain, Plain) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).unwrap();
        }
        let plain = |socket| Plain::new(Raw::Unix(socket)).unwrap();
        (plain(ours), plain(theirs))
    }

    #[tokio::test]
    async fn written_bytes_are_read_on_the_other_side() {
        let (mut ours, mut theirs) = pair();
        for n in 0..100_u8 {
            ours.write_all(&[n; 3]).await.unwrap();
            let mut read = [0; 3];
            theirs.read_exact(&mut read).await.unwrap();
            assert_eq!(read, [n; 3]);
        }
        ours.shutdown().await.unwrap();
        assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
        drop(theirs);
        let gone = ours.write_all(&[0; 8]).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn full_socket_is_woken_when_it_has_room() {
        const MUCH: usize = 4 << 20;
        let (mut ours, mut theirs) = pair();
        let writing = async {
            ours.write_all(&vec![7; MUCH]).await.unwrap();
            ours
        };
        let reading = async {
            let mut read = vec![0; MUCH];
            theirs.read_exact(&mut read).await.unwrap();
            assert!(read.iter().all(|byte| *byte == 7));
        };
        let (ours, ()) = tokio::join!(writing, reading);
        assert!(
            ours.room.is_none(),
            "registered for writability only while the buffer is full"
        );
    }
}
