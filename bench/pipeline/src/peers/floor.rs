//! The floor: sockets that pipeline, each read with a Sync of its own, without a client library. The tasks of a connection are
//! only a number, the reads that it has in flight. The answers are counted and not decoded.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;

use crate::{Outcome, Peer, SQL, Server, TWENTY, key};

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub struct Floor {
    connections: Vec<Mutex<Connection>>,
    /// The units that the tasks of each connection have announced.
    announced: Vec<AtomicU64>,
}

struct Connection {
    stream: Box<dyn Stream>,
    /// Received bytes that are no whole message yet.
    inbox: Vec<u8>,
}

impl Peer for Floor {
    /// Connects as a user without a password.
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Mutex::new(Connection::open(server).await?));
        }
        Ok(Floor {
            announced: open.iter().map(|_| AtomicU64::new(0)).collect(),
            connections: open,
        })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        self.together(task, count, 1).await
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        self.together(task, count, TWENTY).await
    }
}

impl Floor {
    /// The first task of each connection works for all of its tasks: `width` reads in flight for each.
    async fn together(&self, task: usize, count: u64, width: u64) -> Outcome<()> {
        let index = task % self.connections.len();
        self.announced[index].fetch_add(1, Ordering::Relaxed);
        // Lets the other tasks announce themselves.
        tokio::task::yield_now().await;
        let mut connection = self.connections[index].lock().await;
        let tasks = self.announced[index].swap(0, Ordering::Relaxed);
        connection
            .read_all(task, tasks * count * width, tasks * width, width)
            .await
    }
}

impl Connection {
    async fn open(server: &Server) -> Outcome<Self> {
        let stream: Box<dyn Stream> = match server.host.starts_with('/') {
            true => {
                let path = format!("{}/.s.PGSQL.{}", server.host, server.port);
                Box::new(UnixStream::connect(path).await?)
            }
            false => {
                let socket = TcpStream::connect((&*server.host, server.port)).await?;
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
        };
        let mut connection = Connection {
            stream,
            inbox: Vec::new(),
        };
        let body = [
            &196_608_i32.to_be_bytes()[..],
            b"user\0trusted\0database\0cenote\0\0",
        ]
        .concat();
        let length = i32::try_from(body.len() + 4)?.to_be_bytes();
        let hello = [&length[..], &body].concat();
        connection.stream.write_all(&hello).await?;
        connection.ready(1).await?;
        let mut parse = Vec::new();
        message(
            &mut parse,
            b'P',
            &[b"s\0", SQL.as_bytes(), b"\0\0\0"].concat(),
        );
        message(&mut parse, b'S', b"");
        connection.stream.write_all(&parse).await?;
        connection.ready(1).await?;
        Ok(connection)
    }

    /// Makes `count` reads, with up to `width` in flight; sends `unit` at a time.
    async fn read_all(&mut self, task: usize, count: u64, width: u64, unit: u64) -> Outcome<()> {
        let (mut sent, mut answered) = (0, 0);
        let mut out = Vec::new();
        while answered < count {
            out.clear();
            while sent < count && sent - answered + unit <= width {
                for n in sent..sent + unit {
                    read(&mut out, key(task, n));
                }
                sent += unit;
            }
            self.stream.write_all(&out).await?;
            answered += self.ready(1).await?;
        }
        Ok(())
    }

    /// Reads until at least so many ReadyForQuery have arrived, and returns how many did.
    async fn ready(&mut self, wanted: u64) -> Outcome<u64> {
        let mut ready = 0;
        while ready < wanted {
            if self.stream.read_buf(&mut self.inbox).await? == 0 {
                return Err("the server has closed the connection".into());
            }
            let mut at = 0;
            while let Some([tag, a, b, c, d]) = self.inbox.get(at..at + 5) {
                let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize + 1;
                if self.inbox.len() < at + length {
                    break;
                }
                match tag {
                    b'Z' => ready += 1,
                    b'E' => return Err(String::from_utf8_lossy(&self.inbox[at..]).into()),
                    _ => {}
                }
                at += length;
            }
            self.inbox.drain(..at);
        }
        Ok(ready)
    }
}

/// Appends a read: Bind of the unnamed portal, with one parameter and all columns in binary; Execute; Sync.
fn read(out: &mut Vec<u8>, id: i32) {
    let head = b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x04";
    message(
        out,
        b'B',
        &[&head[..], &id.to_be_bytes(), b"\0\x01\0\x01"].concat(),
    );
    message(out, b'E', b"\0\0\0\0\0");
    message(out, b'S', b"");
}

fn message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    let length = i32::try_from(body.len() + 4).expect("a message is short");
    out.push(tag);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}
