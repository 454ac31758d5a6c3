//! No client library: a Tokio socket sends the bytes of the query and reads the answer without decoding it. This is
//! the cost of the kernel and the runtime alone.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;

use crate::{Outcome, Peer, SQL, Server};

pub struct Socket {
    way: Mutex<Way>,
}

enum Way {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Peer for Socket {
    /// Connects as a user without a password.
    async fn open(server: &Server, _connections: usize) -> Outcome<Self> {
        let mut way = match server.host.starts_with('/') {
            true => {
                let path = format!("{}/.s.PGSQL.{}", server.host, server.port);
                Way::Unix(UnixStream::connect(path).await?)
            }
            false => {
                let socket = TcpStream::connect((&*server.host, server.port)).await?;
                socket.set_nodelay(true)?;
                Way::Tcp(socket)
            }
        };
        let body = [
            &196_608_i32.to_be_bytes()[..],
            b"user\0trusted\0database\0cenote\0\0",
        ]
        .concat();
        let length = i32::try_from(body.len() + 4)?.to_be_bytes();
        way.ask(&[&length[..], &body].concat()).await?;
        let parse = message(b'P', &[b"s\0", SQL.as_bytes(), b"\0\0\0"].concat())?;
        way.ask(&[parse, message(b'S', b"")?].concat()).await?;
        Ok(Socket {
            way: Mutex::new(way),
        })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        let mut way = self.way.lock().await;
        for n in 0..i32::try_from(count)? {
            // The unnamed portal of `s`: one parameter and all columns in binary.
            let head = b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x04";
            let bind = [&head[..], &n.to_be_bytes(), b"\0\x01\0\x01"].concat();
            let execute = message(b'E', b"\0\0\0\0\0")?;
            let query = [message(b'B', &bind)?, execute, message(b'S', b"")?].concat();
            way.ask(&query).await?;
        }
        Ok(())
    }

    async fn transactions(&self, _count: u64) -> Outcome<()> {
        Err("only `one` is asked by hand".into())
    }

    async fn rows(&self, _count: u64) -> Outcome<()> {
        Err("only `one` is asked by hand".into())
    }
}

fn message(kind: u8, body: &[u8]) -> Outcome<Vec<u8>> {
    let length = i32::try_from(body.len() + 4)?.to_be_bytes();
    Ok([&[kind], &length[..], body].concat())
}

impl Way {
    /// Sends, and reads until the server is ready for more.
    async fn ask(&mut self, query: &[u8]) -> Outcome<()> {
        const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];
        let mut answer = [0; 1024];
        let mut end = 0;
        match self {
            Way::Tcp(socket) => socket.write_all(query).await?,
            Way::Unix(socket) => socket.write_all(query).await?,
        }
        while !answer[..end].ends_with(&READY) {
            let room = &mut answer[end..];
            end += match self {
                Way::Tcp(socket) => socket.read(room).await?,
                Way::Unix(socket) => socket.read(room).await?,
            };
            if answer.starts_with(b"E") || end == answer.len() {
                return Err(String::from_utf8_lossy(&answer[..end]).into());
            }
        }
        Ok(())
    }
}
