//! Addresses of proxies and servers: TCP or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

/// The address of a proxy or of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket. Unix only.
    Unix(PathBuf),
}

impl Address {
    /// Returns the TCP address, if it is one.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(socket) => Some(*socket),
            Address::Unix(_) => None,
        }
    }

    /// Returns the TCP port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.socket().map(|socket| socket.port())
    }

    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp(socket) => {
                let stream = TcpStream::connect(socket).await?;
                Stream::tcp(stream)
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Address::Tcp(socket)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Address::Unix(path)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(socket) => socket.fmt(out),
            Address::Unix(path) => path.display().fmt(out),
        }
    }
}

/// Accepts connections.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    pub(super) async fn bind(at: &Address) -> io::Result<Self> {
        match at {
            Address::Tcp(socket) => Ok(Listener::Tcp(TcpListener::bind(socket).await?)),
            #[cfg(unix)]
            Address::Unix(path) => Ok(Listener::Unix(UnixListener::bind(path)?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the bound address, with the port that the system chose.
    pub(super) fn address(&self, asked: Address) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?)),
            #[cfg(unix)]
            Listener::Unix(_) => Ok(asked),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Stream::tcp(listener.accept().await?.0),
            #[cfg(unix)]
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Stream {
    /// Wraps a TCP stream without Nagle's algorithm, so that pieces stay pieces.
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Resets the connection: bytes in flight are lost, and the peer gets an error. A Unix socket can do that only if
    /// it has unread bytes; else it is closed.
    pub(super) fn reset(self) {
        if let Stream::Tcp(stream) = &self {
            // A connection that is already closed needs no reset.
            let _ = stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            #[cfg(unix)]
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
