//! The first messages of a connection: who we are, the proof of it, and what the server tells of
//! itself.

use std::future::poll_fn;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::message::frontend;
use zeroize::Zeroizing;

use super::config::{ChannelBinding, Config, Login};
use super::error;
use super::net::socket::Socket;
use super::protocol::inbox::Frame;
use super::protocol::message::{self, Reader, Report, lossy};
use super::protocol::scram::{Binding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, Scram, Wrong};
use super::require_auth::{Method, RequireAuth};
use super::wire::Wire;
use crate::driver::Status;
use crate::{Error, Kind, Result};

/// A connection that the server is ready to be asked on.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) wire: Wire,
    /// What the server reports of its settings.
    pub(super) parameters: Vec<(String, String)>,
    /// With what a query of this connection can be cancelled.
    pub(super) key: CancelKey,
    pub(super) status: Status,
}

/// What a server wants to see before it cancels a query.
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

/// Logs in.
///
/// # Cancel safety
///
/// Dropped, the socket is closed.
///
/// # Errors
///
/// [`Kind::Connect`], with what the server said in it.
pub(super) async fn start(socket: Socket, login: &Login, config: &Config) -> Result<Started> {
    let started = log_in(socket, login, config).await;
    started.map_err(|error| match error.kind() {
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
    fn send(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<()> {
        let mut messages = BytesMut::new();
        write(&mut messages)?;
        self.wire.outbox().extend_from_slice(&messages);
        Ok(())
    }

    /// Sends a password, or what stands for it.
    fn send_password(&mut self, password: &[u8]) -> Result<()> {
        if password.contains(&0) {
            return Err(error::has_nul("the password"));
        }
        self.wire.send_secret(b'p', &[password, &[0]]);
        Ok(())
    }

    /// The next message that is none of those that may come at any time.
    async fn next(&mut self) -> Result<Frame> {
        loop {
            while let Some(frame) = self.wire.frame()? {
                match frame.tag {
                    b'S' => {
                        if let Some((name, value)) = message::parameter(self.wire.body(frame)) {
                            self.note_parameter(lossy(name), lossy(value));
                        }
                    }
                    // A NegotiateProtocolVersion only says that a younger protocol would not
                    // have been understood: what is spoken here is the oldest.
                    b'N' | b'v' | b'A' => {}
                    b'E' => {
                        let report = Report::read(self.wire.body(frame));
                        self.wire.set_broken();
                        return Err(match report {
                            Some(report) => refused(report),
                            None => self.wire.garbage("an error cannot be read"),
                        });
                    }
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
                _ => return Err(self.wire.garbage("it did not get ready")),
            }
            self.wire.consume(frame);
        }
    }

    /// What the server reports of one of its settings.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// Asks for one value, which comes as text.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Option<String>> {
        self.send(|out| frontend::query(sql, out).map_err(|_| error::has_nul("the SQL")))?;
        self.wire.note_query();
        let mut value = None;
        loop {
            let frame = self.next().await?;
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

/// Not a lost connection: there was none.
fn refused(report: Report) -> Error {
    let severity = "ERROR".to_owned();
    error::from_report(Report { severity, ..report })
}

const OK: i32 = 0;
const CLEAR_TEXT: i32 = 3;
const MD5: i32 = 5;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Proves who we are, in the way that the server asks for.
async fn authenticate(started: &mut Started, login: &Login, config: &Config) -> Result<()> {
    let (method, rest) = next_step(started).await?;
    check_allowed(method, config.require_auth)?;
    let bound = config.channel_binding == ChannelBinding::Require;
    if bound && method != SASL {
        let message = "channel_binding=require, and the server asks for no SCRAM";
        return Err(Error::new(Kind::Connect, message));
    }
    match method {
        OK => return Ok(()),
        CLEAR_TEXT => started.send_password(password(login)?.as_bytes())?,
        MD5 => {
            let salt = rest.try_into();
            let salt = salt.map_err(|_| started.wire.garbage("the salt has not four bytes"))?;
            let hash = md5_hash(login.user.as_bytes(), password(login)?.as_bytes(), salt);
            started.send_password(Zeroizing::new(hash).as_bytes())?;
        }
        SASL => scram(started, login, config, &rest).await?,
        other => {
            let message = format!(
                "the server asks for a kind of login that is not known here (number {other}); \
                 passwords by scram-sha-256, md5 and password are"
            );
            return Err(Error::new(Kind::Connect, message));
        }
    }
    match next_step(started).await? {
        (OK, _) => Ok(()),
        _ => Err(started.wire.garbage("the login has one step too many")),
    }
}

/// Refuses a kind of login that `require_auth` does not allow, before anything of the password is sent.
fn check_allowed(asked: i32, allowed: RequireAuth) -> Result<()> {
    let method = match asked {
        OK => Method::None,
        CLEAR_TEXT => Method::Password,
        MD5 => Method::Md5,
        SASL => Method::ScramSha256,
        // Those that are not known here are refused anyway.
        _ => return Ok(()),
    };
    if allowed.allows(method) {
        return Ok(());
    }
    let asks = match method {
        Method::None => "asks for no login",
        Method::Password => "asks for the password in the clear",
        _ => "asks for another kind of login",
    };
    let message = format!(
        "the server {asks} ({}), which require_auth does not allow; nothing was sent",
        method.name()
    );
    Err(Error::new(Kind::Connect, message))
}

/// What the server asks for next, and what it says about it.
async fn next_step(started: &mut Started) -> Result<(i32, Vec<u8>)> {
    let frame = started.next().await?;
    let mut body = Reader(started.wire.body(frame));
    let step = body.i32().filter(|_| frame.tag == b'R');
    let rest = body.0.to_vec();
    started.wire.consume(frame);
    match step {
        Some(step) => Ok((step, rest)),
        None => Err(started.wire.garbage("it did not ask for a login")),
    }
}

fn password(login: &Login) -> Result<&str> {
    let password = login.password.as_ref().map(|password| password.expose());
    password.ok_or_else(|| {
        let message = format!(
            "the server asks for the password of {:?}, and there is none: not in the DSN, not in \
             the builder, not in PGPASSWORD, not in the password file",
            login.user
        );
        Error::new(Kind::Connect, message)
    })
}

async fn scram(
    started: &mut Started,
    login: &Login,
    config: &Config,
    mechanisms: &[u8],
) -> Result<()> {
    let mut offered = mechanisms.split(|byte| *byte == 0);
    let has = |name: &str| {
        mechanisms
            .split(|byte| *byte == 0)
            .any(|it| it == name.as_bytes())
    };
    let end_point = started.wire.socket().tls_server_end_point();
    let end_point = end_point.map(<[u8]>::to_vec);
    let end_point = end_point.filter(|_| config.channel_binding != ChannelBinding::Disable);
    let (mechanism, binding) = match &end_point {
        Some(end_point) if has(SCRAM_SHA_256_PLUS) => {
            (SCRAM_SHA_256_PLUS, Binding::EndPoint(end_point))
        }
        // It says that we could have: should someone have taken the offer away on its way,
        // the server will notice.
        Some(_) => (SCRAM_SHA_256, Binding::Unrequested),
        None => (SCRAM_SHA_256, Binding::Unsupported),
    };
    if config.channel_binding == ChannelBinding::Require && mechanism != SCRAM_SHA_256_PLUS {
        let message = "channel_binding=require, and it cannot be had: it needs TLS and a server \
                       that offers SCRAM-SHA-256-PLUS";
        return Err(Error::new(Kind::Connect, message));
    }
    if !has(mechanism) {
        let offered: Vec<_> = offered
            .by_ref()
            .filter(|name| !name.is_empty())
            .map(lossy)
            .collect();
        let message = format!(
            "the server offers logins by {}, and none that is known here",
            offered.join(", ")
        );
        return Err(Error::new(Kind::Connect, message));
    }
    let scram = Scram::new(binding).map_err(not_proven)?;
    started.send(|out| {
        frontend::sasl_initial_response(mechanism, scram.first().as_bytes(), out)
            .map_err(|_| error::has_nul("the login"))
    })?;
    let challenge = sasl_step(started, SASL_CONTINUE).await?;
    let (message, proving) = scram
        .answer(password(login)?, &challenge)
        .map_err(not_proven)?;
    started.send(|out| {
        frontend::sasl_response(message.as_bytes(), out).map_err(|_| error::has_nul("the login"))
    })?;
    let proof = sasl_step(started, SASL_FINAL).await?;
    proving.check(&proof).map_err(not_proven)
}

async fn sasl_step(started: &mut Started, wanted: i32) -> Result<Vec<u8>> {
    match next_step(started).await? {
        (step, data) if step == wanted => Ok(data),
        _ => Err(started
            .wire
            .garbage("the steps of its login are out of order")),
    }
}

fn not_proven(wrong: Wrong) -> Error {
    let message = format!("the server could not prove that it knows the password: it {wrong}");
    Error::new(Kind::Connect, message)
}
