//! A server that sends the packets that a test wants.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One side of a connection that speaks in packets.
pub(crate) struct Peer {
    stream: TcpStream,
    sequence: u8,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Peer {
            stream,
            sequence: 0,
        }
    }

    pub(crate) async fn send(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let mut packet = vec![length[0], length[1], length[2], self.sequence];
        packet.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        // The client may have hung up.
        let _ = self.stream.write_all(&packet).await;
    }

    pub(crate) async fn read(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        self.sequence = head[3].wrapping_add(1);
        Some(payload)
    }

    /// Greets the client, and lets it in without a look at its password.
    pub(crate) async fn let_in(&mut self, version: &str) {
        self.send(&greeting_of(version, "mysql_native_password"))
            .await;
        self.read().await;
        self.send(OK).await;
    }

    /// Greets the client, and refuses its login.
    pub(crate) async fn turn_away(&mut self, version: &str, refusal: Refusal) {
        self.send(&greeting_of(version, "mysql_native_password"))
            .await;
        self.read().await;
        self.refuse(refusal).await;
    }

    /// Answers the statements by which the driver sets a session up and kills one. Returns whether this is one of them.
    pub(crate) async fn serve_driver(&mut self, text: &str, version: &str) -> bool {
        if text.starts_with("SET NAMES") {
            self.send(OK_AND_MORE).await;
            let facts = [
                Some(""),
                Some("16777216"),
                None,
                None,
                Some("scripted:1"),
                Some(version),
                Some("utf8mb4"),
                Some("utf8mb4"),
            ];
            self.send_rows(&[&facts]).await;
        } else if text.starts_with("SHOW GLOBAL STATUS LIKE 'Uptime'") {
            self.send_rows(&[&[Some("Uptime"), Some("100")]]).await;
        } else if text.contains("UNIX_TIMESTAMP") {
            self.send_rows(&[&[Some("scripted:1"), Some("1000")]]).await;
        } else if text.contains("information_schema.PROCESSLIST") {
            self.send_rows(&[&[Some("0")]]).await;
        } else {
            return false;
        }
        true
    }

    pub(crate) async fn refuse(&mut self, refusal: Refusal) {
        let mut packet = vec![0xff];
        packet.extend(refusal.code.to_le_bytes());
        packet.extend(format!("#{}{}", refusal.state, refusal.message).into_bytes());
        self.send(&packet).await;
    }

    /// Sends rows of texts, which have as many columns as the first one. There is one at least.
    pub(crate) async fn send_rows(&mut self, rows: &[&[Option<&str>]]) {
        self.send_rows_before(rows, false).await;
    }

    /// As [`send_rows`](Peer::send_rows), perhaps with another result behind it.
    pub(crate) async fn send_rows_before(&mut self, rows: &[&[Option<&str>]], has_more: bool) {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        self.send(&[u8::try_from(rows[0].len()).unwrap()]).await;
        for _ in rows[0] {
            let mut column: Vec<u8> = ["def", "", "", "", "c", ""].map(text).concat();
            column.extend([0x0c, 45, 0, 255, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0]);
            self.send(&column).await;
        }
        for row in rows {
            let values = row.iter().map(|value| value.map_or(vec![0xfb], text));
            self.send(&values.collect::<Vec<_>>().concat()).await;
        }
        let flags = if has_more { 10 } else { 2 };
        self.send(&[0xfe, 0, 0, flags, 0, 0, 0]).await;
    }
}

/// The first packet of a server without TLS that wants this login.
pub(crate) fn greeting(plugin: &str) -> Vec<u8> {
    greeting_of("8.0.30", plugin)
}

/// The first packet of a server of this version.
pub(crate) fn greeting_of(version: &str, plugin: &str) -> Vec<u8> {
    // Protocol 41, secure connections, plugins, transactions, several statements and results, no EOF.
    let capabilities = 0x010f_a209_u32.to_le_bytes();
    let mut packet = format!("\x0a{version}\0").into_bytes();
    packet.extend_from_slice(&7_u32.to_le_bytes());
    packet.extend_from_slice(b"12345678\0");
    packet.extend_from_slice(&capabilities[..2]);
    packet.extend_from_slice(&[45, 2, 0]);
    packet.extend_from_slice(&capabilities[2..]);
    packet.push(21);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(b"123456789012\0");
    packet.extend_from_slice(plugin.as_bytes());
    packet.push(0);
    packet
}

pub(crate) const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// An OK inside of a transaction.
pub(crate) const OK_INSIDE: &[u8] = &[0, 0, 0, 3, 0, 0, 0];

/// An OK that another result follows.
pub(crate) const OK_AND_MORE: &[u8] = &[0, 0, 0, 10, 0, 0, 0];

/// An error of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) state: &'static str,
    pub(crate) message: &'static str,
}

/// A server of some version that lets everybody in, and refuses the first of these statements once.
pub(crate) struct Engine {
    port: u16,
    /// Every statement that it got after the login.
    got: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    pub(crate) async fn start(
        version: &'static str,
        refused: &'static str,
        refusal: Refusal,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let got = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&got);
        tokio::spawn(async move {
            let left = Arc::new(Mutex::new(Some(refusal)));
            while let Ok((stream, _)) = listener.accept().await {
                let session = Session {
                    peer: Peer::new(stream),
                    version,
                    refused,
                    left: Arc::clone(&left),
                    got: Arc::clone(&all),
                };
                tokio::spawn(session.run());
            }
        });
        Engine { port, got }
    }

    pub(crate) fn dsn(&self) -> String {
        format!("mysql:host=127.0.0.1;port={};user=app", self.port)
    }

    /// How often it got this statement.
    pub(crate) fn count(&self, sql: &str) -> usize {
        let got = self.got.lock().unwrap();
        got.iter().filter(|it| *it == sql).count()
    }
}

struct Session {
    peer: Peer,
    version: &'static str,
    refused: &'static str,
    left: Arc<Mutex<Option<Refusal>>>,
    got: Arc<Mutex<Vec<String>>>,
}

impl Session {
    async fn run(mut self) {
        self.peer.let_in(self.version).await;
        let mut is_inside = false;
        while let Some(request) = self.peer.read().await {
            let (command, text) = request.split_first().unwrap();
            let text = String::from_utf8_lossy(text).into_owned();
            if *command != 3 {
                self.peer.send(if is_inside { OK_INSIDE } else { OK }).await;
                continue;
            }
            if !self.peer.serve_driver(&text, self.version).await {
                let refusal = match text == self.refused {
                    true => self.left.lock().unwrap().take(),
                    false => None,
                };
                is_inside = text == "START TRANSACTION" && refusal.is_none();
                self.got.lock().unwrap().push(text);
                match refusal {
                    Some(refusal) => self.peer.refuse(refusal).await,
                    None => self.peer.send(if is_inside { OK_INSIDE } else { OK }).await,
                }
            }
        }
    }
}
