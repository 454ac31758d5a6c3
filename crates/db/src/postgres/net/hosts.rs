//! From a list of servers to a session on one that is fit.
//!
//! ```text
//! server ──name──> addresses ──TCP, TLS──> socket ──login──> session ──is it of the kind wanted?
//!   next <─────────── next <──────────────── it failed          no: the next server
//! ```
//!
//! Servers are tried in the order in which they were written, and each address of a name in the
//! order in which the system gives it. As in libpq a refused login ends it: another server would
//! say the same, and asking around locks accounts.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use super::super::config::SOCKET_FOLDERS;
use super::super::config::{Config, Login, Server, SessionAttrs};
use super::super::startup::{self, Started};
use super::socket::{self, Socket, TcpOptions};
use super::tls::{self, Negotiated, SslMode, Tls};
use crate::driver::Credentials;
use crate::{Error, Kind, Result};

/// Where there are several addresses to try, each but the last has so much time if
/// `connect_timeout` does not say otherwise: one that does not answer must not use up what the
/// others need.
const TIME_FOR_ONE_OF_MANY: Duration = Duration::from_secs(3);

/// What sort of server one has been connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Role {
    /// It follows another server.
    standby: bool,
    /// It writes nothing, unless a transaction says otherwise.
    read_only: bool,
}

/// The server that a connection leads to, and the way there.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    place: Place,
    /// What the certificate has to be for.
    name: String,
    tcp: TcpOptions,
    /// `None` if it is not encrypted.
    tls: Option<Arc<Tls>>,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(String),
}

/// Whether a peer is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    No,
    /// If the server can.
    Tried,
    Needed,
}

impl Peer {
    /// One more socket to the same server, in the clear or through TLS as the first one was.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// Of the way there, or of TLS.
    pub(crate) fn open(&self) -> impl Future<Output = io::Result<Socket>> + Send + 'static {
        let encryption = match self.tls {
            Some(_) => Encryption::Needed,
            None => Encryption::No,
        };
        let peer = self.clone();
        async move { peer.open_with(encryption).await.map_err(io::Error::other) }
    }

    async fn open_with(&self, encryption: Encryption) -> Result<Socket> {
        let address = match &self.place {
            #[cfg(unix)]
            // As in libpq, TLS is not for sockets that do not leave the machine.
            Place::Unix(path) => {
                let opened = socket::open_unix(path).await;
                return opened.map_err(|error| unreachable_by(&error).because(error));
            }
            Place::Tcp(address) => *address,
        };
        let tcp = socket::open_tcp(address, &self.tcp)
            .await
            .map_err(|error| unreachable_by(&error).because(error))?;
        let tls = match (&self.tls, encryption) {
            (Some(tls), Encryption::Tried | Encryption::Needed) => tls,
            _ => return Ok(Socket::from(tcp)),
        };
        match tls.negotiate(tcp, &self.name, address.ip()).await? {
            Negotiated::Encrypted(socket) => Ok(socket),
            Negotiated::Refused(tcp) if encryption == Encryption::Tried => Ok(Socket::from(tcp)),
            Negotiated::Refused(_) => {
                let message = "the server does not speak TLS, which this sslmode asks for";
                Err(Error::new(Kind::Connect, message))
            }
        }
    }

    /// The same, by the way that was found to work.
    fn as_reached(&self, is_tls: bool) -> Peer {
        let mut peer = self.clone();
        if !is_tls {
            peer.tls = None;
        }
        peer
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(address) if address.ip().to_string() == self.name => address.fmt(out),
            Place::Tcp(address) if self.name.is_empty() => address.fmt(out),
            Place::Tcp(address) => write!(out, "{} ({address})", self.name),
            #[cfg(unix)]
            Place::Unix(path) => path.fmt(out),
        }
    }
}

/// Connects to the first server that is there, lets one in, and is of the kind wanted.
///
/// # Cancel safety
///
/// Dropped, nothing stays open.
///
/// # Errors
///
/// [`Kind::Connect`], with what each server said and the SQLSTATE of the last one that gave any;
/// [`Kind::Timeout`] if all that was tried took too long; [`Kind::Config`] for what no server
/// can put right.
pub(crate) async fn connect(config: &Config, credentials: &Credentials) -> Result<(Started, Peer)> {
    let mut failures = Failures::default();
    for wanted in wanted_in_turn(config.session_attrs) {
        for (nth, server) in config.servers.iter().enumerate() {
            let login = config.login(server, credentials).await?;
            let peers = match peers_of(server, config).await {
                Ok(peers) => peers,
                Err(error) => {
                    failures.note(&server.to_string(), error);
                    continue;
                }
            };
            let is_last_server = nth + 1 == config.servers.len();
            for (nth, peer) in peers.iter().enumerate() {
                let is_last = is_last_server && nth + 1 == peers.len();
                let limit = match config.connect_timeout {
                    None if is_last => None,
                    limit => Some(limit.unwrap_or(TIME_FOR_ONE_OF_MANY)),
                };
                match within(limit, attempt(peer, config, &login, wanted)).await {
                    Ok(Some(connected)) => return Ok(connected),
                    Ok(None) => {
                        failures.note(&peer.to_string(), not_wanted(wanted));
                        break;
                    }
                    Err(error) if is_final(&error) => {
                        failures.note(&peer.to_string(), error);
                        return Err(failures.into_error());
                    }
                    Err(error) => failures.note(&peer.to_string(), error),
                }
            }
        }
    }
    Err(failures.into_error())
}

/// The kinds of servers to look for, one after the other.
fn wanted_in_turn(attrs: SessionAttrs) -> Vec<SessionAttrs> {
    match attrs {
        SessionAttrs::PreferStandby => vec![SessionAttrs::Standby, SessionAttrs::Any],
        attrs => vec![attrs],
    }
}

/// A session on this one; `None` if it is not of the kind wanted.
async fn attempt(
    peer: &Peer,
    config: &Config,
    login: &Login,
    wanted: SessionAttrs,
) -> Result<Option<(Started, Peer)>> {
    let (mut started, peer) = log_in(peer, config, login).await?;
    // What does not fit is dropped, and its socket closed with it: no transaction is open there.
    let fits = wanted == SessionAttrs::Any || fits(wanted, role(&mut started).await?);
    Ok(fits.then_some((started, peer)))
}

/// Servers since PostgreSQL 14 say it by themselves; others, and poolers in between, are asked.
async fn role(started: &mut Started) -> Result<Role> {
    let standby = match started.parameter("in_hot_standby") {
        Some(told) => told == "on",
        None => {
            let told = started.ask("SELECT pg_catalog.pg_is_in_recovery()").await?;
            told.as_deref() == Some("t")
        }
    };
    let read_only = match started.parameter("default_transaction_read_only") {
        Some(told) => told == "on",
        None => started.ask("SHOW transaction_read_only").await?.as_deref() == Some("on"),
    };
    Ok(Role { standby, read_only })
}

fn fits(wanted: SessionAttrs, role: Role) -> bool {
    match wanted {
        SessionAttrs::Any | SessionAttrs::PreferStandby => true,
        // A standby writes nothing either.
        SessionAttrs::ReadWrite => !role.read_only && !role.standby,
        SessionAttrs::ReadOnly => role.read_only || role.standby,
        SessionAttrs::Primary => !role.standby,
        SessionAttrs::Standby => role.standby,
    }
}

/// With TLS or without, and the other way round where the mode allows that.
async fn log_in(peer: &Peer, config: &Config, login: &Login) -> Result<(Started, Peer)> {
    let mode = peer.tls.as_ref().map_or(SslMode::Disable, |tls| tls.mode());
    let (first, second) = match mode {
        SslMode::Disable => (Encryption::No, None),
        SslMode::Allow => (Encryption::No, Some(Encryption::Needed)),
        SslMode::Prefer => (Encryption::Tried, Some(Encryption::No)),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (Encryption::Needed, None),
    };
    let (refused, was_tls) = match log_in_with(peer, config, login, first).await {
        Ok(connected) => return Ok(connected),
        Err(refused) => refused,
    };
    // The other way is worth a try if TLS itself failed, or if the server lets nobody in this
    // way. It is not for a wrong password, and not for a server that is not there.
    let lets_nobody_in = refused.sql_state() == Some("28000");
    let worth_it = match first {
        Encryption::Tried => tls::is_failure(&refused) || was_tls && lets_nobody_in,
        Encryption::No | Encryption::Needed => lets_nobody_in,
    };
    match second.filter(|_| worth_it) {
        None => Err(refused),
        Some(second) => match log_in_with(peer, config, login, second).await {
            Ok(connected) => Ok(connected),
            // Both ways were refused. That the server lets nobody in this way says less.
            Err((error, _)) if error.sql_state() != Some("28000") => Err(error),
            Err(_) => Err(refused),
        },
    }
}

/// Logs in this way; or what was said, and whether it was said through TLS.
async fn log_in_with(
    peer: &Peer,
    config: &Config,
    login: &Login,
    encryption: Encryption,
) -> Result<(Started, Peer), (Error, bool)> {
    let opened = peer.open_with(encryption).await;
    let socket = opened.map_err(|error| (error, false))?;
    let is_tls = socket.is_tls();
    let started = startup::start(socket, login, config).await;
    let started = started.map_err(|error| (error, is_tls))?;
    Ok((started, peer.as_reached(is_tls)))
}

/// The ways to a server, in the order in which they are tried.
async fn peers_of(server: &Server, config: &Config) -> Result<Vec<Peer>> {
    let peer = |place, is_local: bool| Peer {
        place,
        name: server.name.clone(),
        tcp: config.tcp.clone(),
        tls: (!is_local && config.tls.mode() != SslMode::Disable).then(|| Arc::clone(&config.tls)),
    };
    let over_tcp = |address| peer(Place::Tcp(address), false);
    let port = server.port;
    if let Some(address) = server.address {
        return Ok(vec![over_tcp(SocketAddr::new(address, port))]);
    }
    #[cfg(unix)]
    {
        if server.is_socket() {
            let path = Server::socket_path(&server.name, port);
            return Ok(vec![peer(Place::Unix(path), true)]);
        }
        if server.name.is_empty() {
            let paths = SOCKET_FOLDERS.map(|folder| Server::socket_path(folder, port));
            if let Some(path) = paths.into_iter().find(|path| exists(path)) {
                return Ok(vec![peer(Place::Unix(path), true)]);
            }
        }
    }
    let name = match server.name.as_str() {
        "" => "localhost",
        name => name,
    };
    let found = tokio::net::lookup_host((name, port))
        .await
        .map_err(|error| {
            let message = format!("its name cannot be looked up: {error}");
            Error::new(Kind::Connect, message).because(error)
        })?;
    let mut peers: Vec<Peer> = Vec::new();
    for address in found {
        let known = |peer: &Peer| matches!(peer.place, Place::Tcp(known) if known == address);
        // Some systems give an address once for every kind of socket.
        if !peers.iter().any(known) {
            peers.push(over_tcp(address));
        }
    }
    match peers.is_empty() {
        true => Err(Error::new(Kind::Connect, "its name has no address")),
        false => Ok(peers),
    }
}

#[cfg(unix)]
fn exists(path: &str) -> bool {
    std::fs::exists(path).unwrap_or(false)
}

async fn within<T>(limit: Option<Duration>, attempt: impl Future<Output = Result<T>>) -> Result<T> {
    let Some(limit) = limit else {
        return attempt.await;
    };
    let outcome = tokio::time::timeout(limit, attempt).await;
    outcome.unwrap_or_else(|_| {
        let message = format!("connecting took longer than {limit:?}");
        Err(Error::new(Kind::Timeout, message))
    })
}

/// What another server would say as well: who may come in, and what was wrong before anybody was
/// asked.
fn is_final(error: &Error) -> bool {
    let refused = error
        .sql_state()
        .is_some_and(|state| state.starts_with("28"));
    refused || error.kind() == Kind::Config
}

fn not_wanted(wanted: SessionAttrs) -> Error {
    let what = match wanted {
        SessionAttrs::ReadWrite => "it writes nothing, and target_session_attrs=read-write",
        SessionAttrs::ReadOnly => "it can be written to, and target_session_attrs=read-only",
        SessionAttrs::Primary => "it is a standby, and target_session_attrs=primary",
        _ => "it is no standby, which target_session_attrs asks for",
    };
    Error::new(Kind::Connect, what)
}

fn unreachable_by(error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is the server running there?"
        }
        _ => "",
    };
    Error::new(Kind::Connect, format!("{error}{hint}"))
}

/// What each server said.
#[derive(Default)]
struct Failures {
    said: Vec<String>,
    all_too_slow: Option<bool>,
    last: Option<Error>,
}

impl Failures {
    fn note(&mut self, whom: &str, error: Error) {
        let line = match error.kind() {
            Kind::Config => error.message().to_owned(),
            _ => format!("{whom}: {}", error.message()),
        };
        // A second round, for a server of any kind, need not repeat the first.
        if !self.said.contains(&line) {
            self.said.push(line);
        }
        let too_slow = error.kind() == Kind::Timeout;
        self.all_too_slow = Some(self.all_too_slow.unwrap_or(true) && too_slow);
        let says_more = error.sql_state().is_some() || error.kind() == Kind::Config;
        if says_more
            || self
                .last
                .as_ref()
                .is_none_or(|last| last.sql_state().is_none())
        {
            self.last = Some(error);
        }
    }

    fn into_error(self) -> Error {
        let last = self.last.expect("there is at least one server to fail");
        let kind = match last.kind() {
            Kind::Config => return last,
            _ if self.all_too_slow == Some(true) => Kind::Timeout,
            _ => Kind::Connect,
        };
        let message = match self.said.len() {
            1 => format!("cannot connect to {}", self.said[0]),
            _ => format!("cannot connect to any server: {}", self.said.join("; ")),
        };
        last.wrapped(kind, message)
    }
}
