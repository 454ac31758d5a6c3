//! A server that says what a test wants it to say.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::dsn_at;

/// Treats every connection by the same script. It is gone with this.
pub(crate) struct Scripted {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Scripted {
    pub(crate) async fn new<S, Playing>(script: S) -> Self
    where
        S: Fn(Client) -> Playing + Send + 'static,
        Playing: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = spawn(async move {
            let mut playing = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                playing.spawn(script(Client { stream }));
            }
        });
        Scripted { address, accepting }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Without TLS.
    pub(crate) fn dsn(&self) -> String {
        dsn_at(self.port())
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the server is no part of the program, and has its own tasks"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::task::spawn(task).abort_handle()
}

/// The client, as a scripted server sees it. What fails here ends the script: it is the
/// client that went.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads a message without a tag: the first of a connection.
    pub(crate) async fn read_startup(&mut self) -> Vec<u8> {
        let length = self.stream.read_u32().await.unwrap_or(4);
        let mut body = vec![0; usize::try_from(length).unwrap().saturating_sub(4)];
        let _ = self.stream.read_exact(&mut body).await;
        body
    }

    /// Reads a message: its tag, and what stands in it. `None` if the client has gone.
    pub(crate) async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let tag = self.stream.read_u8().await.ok()?;
        let length = self.stream.read_u32().await.ok()?;
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        self.stream.read_exact(&mut body).await.ok()?;
        Some((tag, body))
    }

    /// Reads until the client waits for an answer: a Sync, a Flush or a simple query.
    pub(crate) async fn read_request(&mut self) -> Option<()> {
        while let Some((tag, _)) = self.read().await {
            if matches!(tag, b'S' | b'H' | b'Q') {
                return Some(());
            }
        }
        None
    }

    /// Lets the client in without a password, and gets ready.
    pub(crate) async fn let_in(&mut self) {
        self.read_startup().await;
        let mut hello = message(b'R', &0_i32.to_be_bytes());
        hello.extend(message(b'S', b"server_version\x0015.0\0"));
        hello.extend(message(b'S', b"client_encoding\0UTF8\0"));
        hello.extend(message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]));
        hello.extend(message(b'Z', b"I"));
        self.send(&hello).await;
    }

    /// Says nothing more, until the client goes.
    pub(crate) async fn fall_silent(&mut self) {
        while let Ok(1..) = self.stream.read(&mut [0; 1024]).await {}
    }
}

/// A message of the protocol.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}
