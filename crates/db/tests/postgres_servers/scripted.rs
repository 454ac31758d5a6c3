//! A server that says what a test wants it to say.

use std::collections::HashMap;
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

impl Client {
    /// Lets the client in, with more settings that the server reports.
    pub(crate) async fn let_in_with(&mut self, settings: &[(&str, &str)]) {
        self.read_startup().await;
        let mut hello = message(b'R', &0_i32.to_be_bytes());
        let usual = [("server_version", "15.0"), ("client_encoding", "UTF8")];
        for (name, value) in usual.iter().chain(settings) {
            hello.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
        }
        hello.extend(message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]));
        hello.extend(message(b'Z', b"I"));
        self.send(&hello).await;
    }

    /// Answers every statement as one without rows, until the client goes; `refuse` gives an SQLSTATE to those that fail.
    pub(crate) async fn converse(&mut self, refuse: impl Fn(&str) -> Option<&'static str>) {
        self.converse_and_tell(refuse, |_| None).await;
    }

    /// The same; `tell` gives one value to simple queries that ask for it.
    pub(crate) async fn converse_and_tell(
        &mut self,
        refuse: impl Fn(&str) -> Option<&'static str>,
        tell: impl Fn(&str) -> Option<String>,
    ) {
        self.play(refuse, tell, |_| false).await;
    }

    /// The same, until the client sends a simple query that the server never answers.
    pub(crate) async fn converse_until(&mut self, is_last: impl Fn(&str) -> bool) {
        self.play(|_| None, |_| None, is_last).await;
    }

    async fn play(
        &mut self,
        refuse: impl Fn(&str) -> Option<&'static str>,
        tell: impl Fn(&str) -> Option<String>,
        is_last: impl Fn(&str) -> bool,
    ) {
        let mut statements: HashMap<String, String> = HashMap::new();
        let (mut bound, mut status, mut is_skipping) = (String::new(), b'I', false);
        let texts = |body: &[u8]| -> Vec<String> {
            let texts = body.split(|byte| *byte == 0);
            texts
                .map(|it| String::from_utf8_lossy(it).into_owned())
                .collect()
        };
        while let Some((tag, body)) = self.read().await {
            let mut out = Vec::new();
            match tag {
                b'P' if !is_skipping => {
                    let texts = texts(&body);
                    statements.insert(texts[0].clone(), texts[1].clone());
                    out = message(b'1', b"");
                }
                b'B' if !is_skipping => {
                    bound.clone_from(&statements[&texts(&body)[1]]);
                    out = message(b'2', b"");
                }
                b'D' if !is_skipping => {
                    if body[0] == b'S' {
                        out = message(b't', &[0, 0]);
                    }
                    out.extend(message(b'n', b""));
                }
                b'C' if !is_skipping => out = message(b'3', b""),
                b'E' if !is_skipping => match refuse(&bound) {
                    Some(state) => {
                        (out, is_skipping) = (error(state), true);
                        status = after_error(&bound, status);
                    }
                    None => (out, status) = done(&bound, status),
                },
                b'Q' if is_last(&texts(&body)[0]) => return self.fall_silent().await,
                b'Q' => {
                    let sql = &texts(&body)[0];
                    match refuse(sql) {
                        Some(state) => {
                            out = error(state);
                            status = after_error(sql, status);
                        }
                        None => {
                            out = tell(sql).map(|value| row(&value)).unwrap_or_default();
                            let (tag, after) = done(sql, status);
                            out.extend(tag);
                            status = after;
                        }
                    }
                    out.extend(message(b'Z', &[status]));
                }
                b'S' => {
                    is_skipping = false;
                    out = message(b'Z', &[status]);
                }
                b'X' => return,
                _ => {}
            }
            self.send(&out).await;
        }
    }
}

/// A row of one text.
fn row(value: &str) -> Vec<u8> {
    let mut described = vec![0, 1, b'c', 0];
    described.extend([
        0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
    ]);
    let mut row = vec![0, 1];
    row.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
    row.extend(value.as_bytes());
    [message(b'T', &described), message(b'D', &row)].concat()
}

/// A server's error.
pub(crate) fn error(state: &str) -> Vec<u8> {
    let said = format!("SERROR\0VERROR\0C{state}\0Mthe server refuses\0\0");
    message(b'E', said.as_bytes())
}

fn after_error(sql: &str, status: u8) -> u8 {
    match (status, sql) {
        (b'I', _) | (_, "COMMIT") => b'I',
        _ => b'E',
    }
}

/// The answer to a statement that is carried out, and the status after it.
fn done(sql: &str, status: u8) -> (Vec<u8>, u8) {
    let verb = sql.split(' ').next().unwrap_or_default();
    let status = match verb {
        "BEGIN" => b'T',
        "COMMIT" | "ROLLBACK" => b'I',
        _ => status,
    };
    (message(b'C', format!("{verb}\0").as_bytes()), status)
}
