//! The byte stream to a server: TCP, a Unix socket, or TLS over TCP.
//!
//! It knows nothing of messages. Beyond `AsyncRead` and `AsyncWrite` it can read what has arrived before the executor
//! reports it ([`try_read`](Socket::try_read)), and check for data or a close without reading ([`peek`](Socket::peek)).

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ProtocolVersion;

#[cfg(unix)]
use super::read_watched_stream::{Plain, Raw};
use crate::driver::{Tls, Verified};
use crate::hosts::Cut;

/// The stream of one connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    end_point: Option<Vec<u8>>,
    /// What was verified of the other end when TLS began.
    verified: Verified,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Unencrypted; the executor watches for reads only.
    #[cfg(unix)]
    Plain(Plain),
}

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peek {
    /// Nothing has arrived: normal while no call is open.
    Quiet,
    /// Bytes have arrived. With TLS they may contain no data.
    Data,
    /// The other side has closed the connection.
    Closed,
}

/// TCP options; `None` leaves the system's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TcpOptions {
    /// Whether the system probes an idle connection.
    pub(crate) keepalives: bool,
    /// The idle time before the first probe.
    pub(crate) keepalives_idle: Option<Duration>,
    /// The time between probes.
    pub(crate) keepalives_interval: Option<Duration>,
    /// The number of unanswered probes after which the connection is lost.
    pub(crate) keepalives_count: Option<u32>,
    /// How long sent data may stay unacknowledged. Linux only.
    pub(crate) user_timeout: Option<Duration>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            keepalives: true,
            keepalives_idle: None,
            keepalives_interval: None,
            keepalives_count: None,
            user_timeout: None,
        }
    }
}

impl TcpOptions {
    fn apply(&self, socket: SockRef<'_>) -> io::Result<()> {
        // Messages are written as a whole, so Nagle's algorithm would only delay them.
        socket.set_tcp_nodelay(true)?;
        if self.keepalives {
            socket.set_keepalive(true)?;
            let mut keepalive = TcpKeepalive::new();
            if let Some(idle) = self.keepalives_idle {
                keepalive = keepalive.with_time(idle);
            }
            if let Some(interval) = self.keepalives_interval {
                keepalive = keepalive.with_interval(interval);
            }
            #[cfg(not(windows))]
            if let Some(count) = self.keepalives_count {
                keepalive = keepalive.with_retries(count);
            }
            socket.set_tcp_keepalive(&keepalive)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        Ok(())
    }
}

/// Connects by TCP.
///
/// # Cancel safety
///
/// If dropped, the socket is closed.
pub(crate) async fn open_tcp(address: SocketAddr, options: &TcpOptions) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Before connecting, so that the limits apply to the connect, too.
    options.apply(SockRef::from(&socket))?;
    socket.connect(address).await
}

/// Connects to a Unix socket. `@` begins an abstract name.
///
/// # Cancel safety
///
/// If dropped, the socket is closed.
#[cfg(unix)]
pub(crate) async fn open_unix(path: &str) -> io::Result<Socket> {
    let path = match path.strip_prefix('@') {
        Some(name) => format!("\0{name}"),
        None => path.to_owned(),
    };
    Ok(Socket::new(
        Stream::Unix(UnixStream::connect(path).await?),
        None,
    ))
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Self {
        Socket::new(Stream::Tcp(tcp), None)
    }
}

impl Socket {
    fn new(stream: Stream, end_point: Option<Vec<u8>>) -> Self {
        Socket {
            stream,
            end_point,
            verified: Verified::Nothing,
        }
    }

    /// Wraps a TLS stream, with the channel binding data of its certificate.
    pub(crate) fn encrypted(
        tls: TlsStream<TcpStream>,
        end_point: Option<Vec<u8>>,
        verified: Verified,
    ) -> Self {
        Socket {
            verified,
            ..Socket::new(Stream::Tls(Box::new(tls)), end_point)
        }
    }

    /// Returns how the stream is encrypted; `None` if it is not.
    pub(crate) fn tls(&self) -> Option<Tls> {
        let Stream::Tls(stream) = &self.stream else {
            return None;
        };
        let mut tls = Tls::new(self.verified);
        let version = stream.get_ref().1.protocol_version();
        tls.protocol = version.map(|version| match version {
            ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
            ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
            other => format!("{other:?}"),
        });
        Some(tls)
    }

    /// Returns the same socket; without TLS, one that the executor watches for reads only. See [`Plain`].
    ///
    /// # Errors
    ///
    /// An error of the operating system.
    pub(crate) fn watched_for_answers(self) -> io::Result<Self> {
        #[cfg(unix)]
        {
            let raw = match self.stream {
                Stream::Tcp(tcp) => Raw::Tcp(tcp.into_std()?),
                Stream::Unix(unix) => Raw::Unix(unix.into_std()?),
                stream => return Ok(Socket { stream, ..self }),
            };
            let stream = Stream::Plain(Plain::new(raw)?);
            Ok(Socket { stream, ..self })
        }
        #[cfg(not(unix))]
        Ok(self)
    }

    /// Whether the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Returns what shuts the socket down, while its owner uses it or waits for it: the owner then reads the end of the
    /// stream.
    pub(crate) fn cutter(&self) -> io::Result<Cut> {
        let socket = match &self.stream {
            Stream::Tcp(tcp) => SockRef::from(tcp),
            #[cfg(unix)]
            Stream::Unix(unix) => SockRef::from(unix),
            Stream::Tls(tls) => SockRef::from(tls.get_ref().0),
            #[cfg(unix)]
            Stream::Plain(plain) => SockRef::from(plain),
        };
        let socket = socket.try_clone()?;
        // Fails if the socket is closed already.
        Ok(Box::new(move || drop(socket.shutdown(Shutdown::Both))))
    }

    /// Returns the channel binding data `tls-server-end-point`, if there is any.
    pub(crate) fn tls_server_end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// Reads what has arrived, by a system call: after a request the answer often arrives before the executor
    /// reports it.
    ///
    /// Returns 0 at the end of the stream. Registers no waker.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if nothing has arrived.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(tcp) => (&*SockRef::from(&*tcp)).read(into),
            #[cfg(unix)]
            Stream::Unix(unix) => (&*SockRef::from(&*unix)).read(into),
            #[cfg(unix)]
            Stream::Plain(plain) => plain.raw().read(into),
            Stream::Tls(tls) => {
                let mut arrived = ReadBuf::new(into);
                let mut nobody = Context::from_waker(Waker::noop());
                match Pin::new(tls).poll_read(&mut nobody, &mut arrived) {
                    Poll::Ready(done) => done.map(|()| arrived.filled().len()),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Whether the executor has reported data since the last read. Makes a system call only if it has.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        let reported = || Ok(());
        let readable = Interest::READABLE;
        match &self.stream {
            Stream::Tcp(tcp) => tcp.try_io(readable, reported).is_ok(),
            #[cfg(unix)]
            Stream::Unix(unix) => unix.try_io(readable, reported).is_ok(),
            Stream::Tls(tls) => tls.get_ref().0.try_io(readable, reported).is_ok(),
            #[cfg(unix)]
            Stream::Plain(plain) => plain.is_readable(),
        }
    }

    /// Checks for data or a close, without reading.
    pub(crate) fn peek(&self) -> Peek {
        let mut byte = [MaybeUninit::uninit(); 1];
        let seen = match &self.stream {
            Stream::Tcp(tcp) => SockRef::from(tcp).peek(&mut byte),
            #[cfg(unix)]
            Stream::Unix(unix) => SockRef::from(unix).peek(&mut byte),
            Stream::Tls(tls) => SockRef::from(tls.get_ref().0).peek(&mut byte),
            #[cfg(unix)]
            Stream::Plain(plain) => SockRef::from(plain.raw()).peek(&mut byte),
        };
        match seen {
            Ok(0) => Peek::Closed,
            Ok(_) => Peek::Data,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Quiet,
            Err(_) => Peek::Closed,
        }
    }
}

/// Whether data has arrived on a stream that is not a [`Socket`] yet.
pub(crate) fn has_data(tcp: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit(); 1];
    matches!(SockRef::from(tcp).peek(&mut byte), Ok(1))
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_read(cx, into),
            #[cfg(unix)]
            Stream::Unix(unix) => Pin::new(unix).poll_read(cx, into),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, into),
            #[cfg(unix)]
            Stream::Plain(plain) => Pin::new(plain).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            #[cfg(unix)]
            Stream::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            #[cfg(unix)]
            Stream::Plain(plain) => Pin::new(plain).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            #[cfg(unix)]
            Stream::Unix(unix) => Pin::new(unix).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
            #[cfg(unix)]
            Stream::Plain(plain) => Pin::new(plain).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            #[cfg(unix)]
            Stream::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            #[cfg(unix)]
            Stream::Plain(plain) => Pin::new(plain).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ours = open_tcp(address, &TcpOptions::default()).await.unwrap();
        let (theirs, _) = listener.accept().await.unwrap();
        (Socket::from(ours), theirs)
    }

    /// Loopback delivers bytes at once, but not necessarily within the same system call.
    async fn until(mut holds: impl FnMut() -> bool) {
        for _ in 0..1_000_000 {
            if holds() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the condition never became true");
    }

    #[tokio::test]
    async fn peek_distinguishes_quiet_data_and_closed() {
        let (mut ours, mut theirs) = pair().await;
        assert_eq!(ours.peek(), Peek::Quiet);
        theirs.write_all(b"hello").await.unwrap();
        until(|| ours.peek() == Peek::Data).await;
        let mut read = [0; 9];
        assert_eq!(ours.try_read(&mut read).unwrap(), 5);
        assert_eq!((&read[..5], ours.peek()), (&b"hello"[..], Peek::Quiet));
        drop(theirs);
        until(|| ours.peek() == Peek::Closed).await;
        assert_eq!(ours.try_read(&mut read).unwrap(), 0);
    }

    #[tokio::test]
    async fn non_blocking_read_takes_nothing_from_a_waiting_one() {
        let (mut ours, mut theirs) = pair().await;
        let mut read = [0; 2];
        let nothing = ours.try_read(&mut read).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"ab").await.unwrap();
        until(|| ours.try_read(&mut read).is_ok()).await;
        // The executor reports the first bytes only now; that must not hide the next ones.
        theirs.write_all(b"cd").await.unwrap();
        let mut rest = [0; 2];
        ours.read_exact(&mut rest).await.unwrap();
        assert_eq!((&read, &rest), (b"ab", b"cd"));
    }

    #[tokio::test]
    async fn tcp_options_reach_the_operating_system() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = TcpOptions {
            keepalives: true,
            keepalives_idle: Some(Duration::from_secs(31)),
            keepalives_interval: Some(Duration::from_secs(7)),
            keepalives_count: Some(4),
            user_timeout: Some(Duration::from_millis(12_345)),
        };
        let tcp = open_tcp(listener.local_addr().unwrap(), &options)
            .await
            .unwrap();
        let socket = SockRef::from(&tcp);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(
                socket.tcp_keepalive_time().unwrap(),
                Duration::from_secs(31)
            );
            assert_eq!(
                socket.tcp_keepalive_interval().unwrap(),
                Duration::from_secs(7)
            );
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
            assert_eq!(socket.tcp_user_timeout().unwrap(), options.user_timeout);
        }
        let without = TcpOptions {
            keepalives: false,
            ..TcpOptions::default()
        };
        let tcp = open_tcp(listener.local_addr().unwrap(), &without)
            .await
            .unwrap();
        assert!(!SockRef::from(&tcp).keepalive().unwrap());
    }
}
