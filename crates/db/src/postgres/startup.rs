//! The startup of a connection: the startup message, the login, and what the server reports about itself.

use std::future::poll_fn;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::authenticate::authenticate;
use super::config::{Config, Login};
use super::error;
use super::net::socket::Socket;
use super::net::tls;
use super::protocol::inbox::Frame;
use super::protocol::message::{self, Reader, Report, lossy};
use super::wire::Wire;
use crate::driver::Status;
use crate::{Error, Kind, Result};

/// A connection that is logged in and ready for statements.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) wire: Wire,
    /// The settings that the server reports.
    pub(super) parameters: Vec<(String, String)>,
    /// Identifies the session in a cancel request.
    pub(super) key: CancelKey,
    pub(super) status: Status,
}

/// The numbers that a cancel request must contain.
#[derive(Clone, Copy, Default)]
pub(super) struct CancelKey {
    pub(super) process: i32,
    pub(super) secret: i32,
}

impl std::fmt::Debug for CancelKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "CancelKey({}, ***)", self.process)
    }
}

/// Logs in and waits until the server is ready.
///
/// # Cancel safety
///
/// If dropped, the socket is closed.
///
/// # Errors
///
/// [`Kind::Connect`], with the server's message.
pub(super) async fn start(socket: Socket, login: &Login, config: &Config) -> Result<Started> {
    let started = log_in(socket, login, config).await;
    started
        .map_err(tls::explain)
        .map_err(|error| match error.kind() {
            Kind::Connect | Kind::Config => error,
            _ => {
                let message = format!("the server refused: {}", error.message());
                error.wrapped(Kind::Connect, message)
            }
        })
}

async fn log_in(socket: Socket, login: &Login, config: &Config) -> Result<Started> {
    let socket = socket.watched_for_answers().map_err(error::lost)?;
    let mut started = Started {
        wire: Wire::new(socket),
        parameters: Vec::new(),
        key: CancelKey::default(),
        status: Status::Unknown,
    };
    started.send(|out| {
        let fixed = [
            ("user", &*login.user),
            ("database", &*login.database),
            ("client_encoding", "UTF8"),
        ];
        let own = config.parameters.iter();
        let own = own.map(|(name, value)| (&**name, &**value));
        let all = fixed.into_iter().chain(own);
        frontend::startup_message(all, out).map_err(|_| error::has_nul("an option"))
    })?;
    authenticate(&mut started, login, config).await?;
    started.wire.note_sync();
    started.read_until_ready().await?;
    Ok(started)
}

impl Started {
    pub(super) fn send(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<()> {
        let mut messages = BytesMut::new();
        write(&mut messages)?;
        self.wire.outbox().extend_from_slice(&messages);
        Ok(())
    }

    /// Sends a password or its hash, from a buffer that is wiped.
    pub(super) fn send_password(&mut self, password: &[u8]) -> Result<()> {
        if password.contains(&0) {
            return Err(error::has_nul("the password"));
        }
        self.wire.send_secret(b'p', &[password, &[0]]);
        Ok(())
    }

    /// Returns the next message, after those that may arrive at any time (settings, notices, notifications).
    pub(super) async fn next(&mut self) -> Result<Frame> {
        let frame = self.next_or_error().await?;
        if frame.tag != b'E' {
            return Ok(frame);
        }
        let report = Report::read(self.wire.body(frame));
        self.wire.set_broken();
        Err(match report {
            Some(report) => refused(report),
            None => self.wire.garbage("an error message cannot be read"),
        })
    }

    /// Returns the next message, which may be an error of the server.
    async fn next_or_error(&mut self) -> Result<Frame> {
        loop {
            while let Some(frame) = self.wire.frame()? {
                match frame.tag {
                    b'S' => {
                        if let Some((name, value)) = message::parameter(self.wire.body(frame)) {
                            self.note_parameter(lossy(name), lossy(value));
                        }
                    }
                    // NegotiateProtocolVersion ('v') offers an older protocol; this client speaks
                    // the oldest one already.
                    b'N' | b'v' | b'A' => {}
                    _ => return Ok(frame),
                }
                self.wire.consume(frame);
            }
            poll_fn(|cx| self.wire.poll_fill(cx)).await?;
        }
    }

    fn note_parameter(&mut self, name: String, value: String) {
        match self.parameters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.parameters.push((name, value)),
        }
    }

    async fn read_until_ready(&mut self) -> Result<()> {
        loop {
            let frame = self.next().await?;
            let mut body = Reader(self.wire.body(frame));
            match frame.tag {
                b'K' => {
                    let key = body.i32().zip(body.i32());
                    if let Some((process, secret)) = key {
                        self.key = CancelKey { process, secret };
                    }
                }
                b'Z' => {
                    self.status = message::status(body);
                    self.wire.consume(frame);
                    return self.wire.ready();
                }
                _ => return Err(self.wire.garbage("an unexpected message during startup")),
            }
            self.wire.consume(frame);
        }
    }

    /// Returns a setting that the server reported.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// Runs a query that the server may refuse, and returns its last value as text; `None` if the server refuses.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) async fn try_ask(&mut self, sql: &str) -> Result<Option<String>> {
        self.run(sql, true).await
    }

    /// Runs a query and returns its last value as text.
    ///
    /// # Errors
    ///
    /// The server's error.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Option<String>> {
        self.run(sql, false).await
    }

    async fn run(&mut self, sql: &str, may_fail: bool) -> Result<Option<String>> {
        self.send(|out| frontend::query(sql, out).map_err(|_| error::has_nul("the SQL")))?;
        self.wire.note_query();
        let mut value = None;
        loop {
            let frame = match may_fail {
                true => self.next_or_error().await?,
                false => self.next().await?,
            };
            let mut body = Reader(self.wire.body(frame));
            match frame.tag {
                b'D' => {
                    let first = body.u16().zip(body.i32());
                    let len = first.and_then(|(_, len)| usize::try_from(len).ok());
                    value = len.and_then(|len| body.bytes(len)).map(lossy);
                }
                b'Z' => {
                    self.status = message::status(body);
                    self.wire.consume(frame);
                    self.wire.ready()?;
                    return Ok(value);
                }
                _ => {}
            }
            self.wire.answered(frame.tag)?;
            self.wire.consume(frame);
        }
    }
}

/// A refused startup is not a lost connection, so the FATAL severity is replaced.
fn refused(report: Report) -> Error {
    let severity = "ERROR".to_owned();
    error::from_report(Report { severity, ..report })
}
