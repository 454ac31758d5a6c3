//! Connects to the first suitable server of a list.
//!
//! ```text
//! server ──lookup──> addresses ──TCP, TLS──> socket ──login──> session ──> target_session_attrs?
//!   next <───────────── next <─────────────── failed              no: the next server
//! ```
//!
//! Servers are tried in the order of the options, but those first that are known to fit; the addresses of a name in the order
//! of the lookup, which is made for every connect. Where the order does not matter, a server that takes its time is not
//! waited for: the next one is tried beside it. As in libpq a refused login ends the search: another server would refuse it
//! too, and repeated attempts lock accounts. The servers that are being tried go on.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{Runtime, TokioRuntime, within};

#[cfg(unix)]
use super::super::config::SOCKET_FOLDERS;
use super::super::config::{Config, Login, Server, SessionAttrs};
use super::super::startup::{self, Started};
use super::role;
use super::socket::{self, Socket, TcpOptions};
use super::tls::{self, Negotiated, SslMode, Tls};
use crate::driver::time_limit::attempt_within;
use crate::driver::{BoxFuture, Credentials, Hosts};
use crate::hosts::Place;
use crate::{Error, Kind, Result};

/// The time limit of each address but the last, without `connect_timeout`: an address that does not answer
/// must leave time for the others.
const DEFAULT_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a server may take before the next one is tried beside it, where the order does not matter.
const STAGGER: Duration = Duration::from_millis(200);

/// An address of a server, and how to connect to it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: Address,
    /// The host name that the certificate must match.
    name: String,
    tcp: TcpOptions,
    /// `None` for a connection without TLS.
    tls: Option<Arc<Tls>>,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(String),
}

/// Whether a connection uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encryption {
    No,
    /// If the server offers it.
    Preferred,
    Required,
}

impl Peer {
    /// Opens another socket to the same server, with TLS if the first one uses it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// An error of the network or of TLS.
    pub(crate) fn open(&self) -> impl Future<Output = io::Result<Socket>> + Send + 'static {
        let encryption = match self.tls {
            Some(_) => Encryption::Required,
            None => Encryption::No,
        };
        let peer = self.clone();
        async move { peer.open_with(encryption).await.map_err(io::Error::other) }
    }

    async fn open_with(&self, encryption: Encryption) -> Result<Socket> {
        let address = match &self.address {
            #[cfg(unix)]
            // As in libpq, Unix sockets never use TLS.
            Address::Unix(path) => {
                let opened = socket::open_unix(path).await;
                return opened.map_err(|error| unreachable_by(&error).because(error));
            }
            Address::Tcp(address) => *address,
        };
        let tcp = socket::open_tcp(address, &self.tcp)
            .await
            .map_err(|error| unreachable_by(&error).because(error))?;
        let tls = match (&self.tls, encryption) {
            (Some(tls), Encryption::Preferred | Encryption::Required) => tls,
            _ => return Ok(Socket::from(tcp)),
        };
        match tls.negotiate(tcp, &self.name, address.ip()).await? {
            Negotiated::Encrypted(socket) => Ok(socket),
            Negotiated::Refused(tcp) if encryption == Encryption::Preferred => {
                Ok(Socket::from(tcp))
            }
            Negotiated::Refused(_) => {
                let message = "the server does not offer TLS, which sslmode requires";
                Err(Error::new(Kind::Connect, message))
            }
        }
    }

    /// Returns this peer for further sockets, with TLS only if the first one got it.
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
        match &self.address {
            Address::Tcp(address) if address.ip().to_string() == self.name => address.fmt(out),
            Address::Tcp(address) if self.name.is_empty() => address.fmt(out),
            Address::Tcp(address) => write!(out, "{} ({address})", self.name),
            #[cfg(unix)]
            Address::Unix(path) => path.fmt(out),
        }
    }
}

/// A session with a server that fits.
pub(crate) struct Connected {
    pub(crate) started: Started,
    pub(crate) peer: Peer,
    /// `None` where there is no choice of hosts.
    pub(crate) place: Option<Arc<Place>>,
}

/// What is the same for all attempts of one connect.
struct Search<'c> {
    config: &'c Config,
    choice: Option<&'c Arc<Hosts>>,
    credentials: &'c Credentials,
    wanted: SessionAttrs,
    /// The session only listens: nothing is lost if it is cut.
    listens: bool,
}

/// How a server was tried.
enum Tried {
    Connected(Box<Connected>),
    /// The errors of its addresses, the last of which may end the search.
    Failed(Vec<(String, Error)>),
}

/// Connects to the first server that accepts the login and matches `target_session_attrs`.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
///
/// # Errors
///
/// [`Kind::Connect`], with the error of each server and the SQLSTATE of the last one that reported any;
/// [`Kind::Timeout`] if every attempt timed out; [`Kind::Config`] for a mistake in the configuration.
pub(crate) async fn connect(
    config: &Config,
    choice: Option<&Arc<Hosts>>,
    credentials: &Credentials,
    listens: bool,
) -> Result<Connected> {
    if let Some(hosts) = choice {
        hosts.begin();
    }
    let mut failures = Failures::default();
    for wanted in rounds(config.session_attrs) {
        let search = Search {
            config,
            choice,
            credentials,
            wanted,
            listens,
        };
        loop {
            failures.has_appeared = false;
            if let Some(connected) = side_by_side(&search, &mut failures).await {
                return Ok(*connected);
            }
            // The next search begins with the host that has appeared.
            if !failures.has_appeared {
                break;
            }
        }
        if failures.are_final {
            break;
        }
    }
    let is_without_host = choice.is_some() && failures.has_unfit && !failures.are_final;
    let error = failures.into_error();
    Err(match is_without_host {
        true => error.without_host(),
        false => error,
    })
}

/// Tries the servers in order: the next one when one has failed. Where the order does not matter, also when one has not
/// answered for [`STAGGER`]: the caller has asked for any of equal servers, or for the primary, which usually is one server.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
async fn side_by_side(search: &Search<'_>, failures: &mut Failures) -> Option<Box<Connected>> {
    let runtime = TokioRuntime::new();
    let mut appeared = pin!(search.choice.map(|hosts| hosts.fits_now()));
    if let Some(appeared) = appeared.as_mut().as_pin_mut() {
        // A host that fits from now on is not missed.
        appeared.enable();
    }
    let order = match search.choice {
        None => (0..search.config.servers.len()).collect(),
        Some(hosts) => hosts.order(|role| role::fits(search.wanted, role)),
    };
    let in_turn = search
        .choice
        .is_none_or(|hosts| !hosts.writes && !hosts.spread);
    let mut left = order.iter().enumerate();
    let mut trying: Vec<BoxFuture<'_, Tried>> = Vec::new();
    loop {
        // After a refused login those that are being tried go on: they may have let us in already.
        if failures.are_final {
            left = [].iter().enumerate();
        }
        if let Some((nth, &server)) = left.next() {
            let is_last = nth + 1 == order.len();
            trying.push(Box::pin(try_server(search, server, is_last)));
        } else if trying.is_empty() {
            return None;
        }
        let limit = (left.len() > 0 && !in_turn).then_some(STAGGER);
        let next = poll_fn(|cx| {
            for nth in 0..trying.len() {
                if let Poll::Ready(tried) = trying[nth].as_mut().poll(cx) {
                    drop(trying.swap_remove(nth));
                    return Poll::Ready(Some(tried));
                }
            }
            // A server that hangs need not be waited for.
            match appeared.as_mut().as_pin_mut() {
                Some(appeared) if failures.has_unfit && !failures.are_final => {
                    appeared.poll(cx).map(|()| None)
                }
                _ => Poll::Pending,
            }
        });
        match within(&runtime, limit, next).await {
            // The next server is tried beside those that have not answered.
            None => {}
            Some(None) => {
                failures.has_appeared = true;
                return None;
            }
            Some(Some(Tried::Connected(connected))) => return Some(connected),
            Some(Some(Tried::Failed(errors))) => {
                for (whom, error) in errors {
                    failures.note(&whom, error);
                }
            }
        }
    }
}

/// Tries the addresses of a server, one after the other.
async fn try_server(search: &Search<'_>, index: usize, is_last_server: bool) -> Tried {
    let server = &search.config.servers[index];
    let login = match search.config.login(server, search.credentials).await {
        Ok(login) => login,
        Err(error) => return Tried::Failed(vec![(server.to_string(), error)]),
    };
    let peers = match peers_of(server, search.config).await {
        Ok(peers) => peers,
        Err(error) => return Tried::Failed(vec![(server.to_string(), error)]),
    };
    let mut errors = Vec::new();
    for (nth, peer) in peers.iter().enumerate() {
        let is_last = is_last_server && nth + 1 == peers.len();
        let limit = match search.config.connect_timeout {
            None if is_last => None,
            limit => Some(limit.unwrap_or(DEFAULT_ADDRESS_TIMEOUT)),
        };
        match attempt_within(limit, attempt(search, index, peer, &login)).await {
            Ok(Ok(connected)) => return Tried::Connected(Box::new(connected)),
            Ok(Err(unfit)) => {
                errors.push((peer.to_string(), unfit));
                break;
            }
            Err(error) => {
                let is_final = is_final(&error);
                errors.push((peer.to_string(), error));
                if is_final {
                    break;
                }
            }
        }
    }
    Tried::Failed(errors)
}

/// Returns the kinds of server to look for, one after the other.
fn rounds(attrs: SessionAttrs) -> Vec<SessionAttrs> {
    match attrs {
        SessionAttrs::PreferStandby => vec![SessionAttrs::Standby, SessionAttrs::Any],
        attrs => vec![attrs],
    }
}

/// Opens a session. The inner error says why the server does not fit.
async fn attempt(
    search: &Search<'_>,
    index: usize,
    peer: &Peer,
    login: &Login,
) -> Result<Result<Connected>> {
    let (mut started, peer) = log_in(peer, search.config, login).await?;
    // Dropping an unsuitable session closes its socket; no transaction is open.
    let mut role = None;
    if search.wanted != SessionAttrs::Any {
        let found = role.insert(role::ask(&mut started).await?);
        if search.choice.is_some_and(|hosts| hosts.writes) {
            found.history = role::history(&mut started, *found).await?;
        }
        if !role::fits(search.wanted, *found) {
            if let Some(hosts) = search.choice {
                hosts.observe(index, role, TokioRuntime::new().now());
            }
            return Ok(Err(not_wanted(search.wanted)));
        }
    }
    let mut place = None;
    if let Some(hosts) = search.choice {
        let cut = started.wire.socket().cutter();
        let cut = cut.map_err(|error| unreachable_by(&error).because(error))?;
        let now = TokioRuntime::new().now();
        place = hosts.admit(index, role, now, search.listens, cut);
        if place.is_none() {
            let message = "the server is a primary of an older timeline: another one was promoted";
            return Ok(Err(Error::new(Kind::Connect, message).without_host()));
        }
    }
    Ok(Ok(Connected {
        started,
        peer,
        place,
    }))
}

/// Logs in with or without TLS, as `sslmode` demands; `allow` and `prefer` have a second attempt.
async fn log_in(peer: &Peer, config: &Config, login: &Login) -> Result<(Started, Peer)> {
    let mode = peer.tls.as_ref().map_or(SslMode::Disable, |tls| tls.mode());
    let (first, second) = match mode {
        SslMode::Disable => (Encryption::No, None),
        SslMode::Allow => (Encryption::No, Some(Encryption::Required)),
        SslMode::Prefer => (Encryption::Preferred, Some(Encryption::No)),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (Encryption::Required, None),
    };
    let (refused, was_tls) = match log_in_with(peer, config, login, first).await {
        Ok(connected) => return Ok(connected),
        Err(refused) => refused,
    };
    // The second attempt makes sense if TLS failed, or if pg_hba.conf allows no login this way.
    // It makes none after a wrong password, or if the server cannot be reached.
    let lets_nobody_in = refused.sql_state() == Some("28000");
    let worth_it = match first {
        Encryption::Preferred => tls::is_failure(&refused) || was_tls && lets_nobody_in,
        Encryption::No | Encryption::Required => lets_nobody_in,
    };
    match second.filter(|_| worth_it) {
        None => Err(refused),
        Some(second) => match log_in_with(peer, config, login, second).await {
            Ok(connected) => Ok(connected),
            // Both attempts failed: 28000 is the less informative error.
            Err((error, _)) if error.sql_state() != Some("28000") => Err(error),
            Err(_) => Err(refused),
        },
    }
}

/// Logs in with or without TLS. An error comes with whether the connection used TLS.
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

/// Logs in to the first address of a server that answers, whatever it is.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
pub(super) async fn log_in_to(
    config: &Config,
    index: usize,
    credentials: &Credentials,
) -> Result<Started> {
    let server = &config.servers[index];
    let login = config.login(server, credentials).await?;
    let mut failures = Failures::default();
    for peer in peers_of(server, config).await? {
        match log_in(&peer, config, &login).await {
            Ok((started, _)) => return Ok(started),
            Err(error) => failures.note(&peer.to_string(), error),
        }
    }
    Err(failures.into_error())
}

/// Returns the addresses of a server, in the order in which they are tried.
async fn peers_of(server: &Server, config: &Config) -> Result<Vec<Peer>> {
    let peer = |address, is_local: bool| Peer {
        address,
        name: server.name.clone(),
        tcp: config.tcp.clone(),
        tls: (!is_local && config.tls.mode() != SslMode::Disable).then(|| Arc::clone(&config.tls)),
    };
    let over_tcp = |address| peer(Address::Tcp(address), false);
    let port = server.port;
    if let Some(address) = server.address {
        return Ok(vec![over_tcp(SocketAddr::new(address, port))]);
    }
    #[cfg(unix)]
    {
        if server.is_socket() {
            let path = Server::socket_path(&server.name, port);
            return Ok(vec![peer(Address::Unix(path), true)]);
        }
        if server.name.is_empty() {
            let paths = SOCKET_FOLDERS.map(|folder| Server::socket_path(folder, port));
            if let Some(path) = paths.into_iter().find(|path| exists(path)) {
                return Ok(vec![peer(Address::Unix(path), true)]);
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
            let message = format!("the host name cannot be looked up: {error}");
            Error::new(Kind::Connect, message).because(error)
        })?;
    let mut peers: Vec<Peer> = Vec::new();
    for address in found {
        let known = |peer: &Peer| matches!(peer.address, Address::Tcp(known) if known == address);
        // Some systems return an address once per socket type.
        if !peers.iter().any(known) {
            peers.push(over_tcp(address));
        }
    }
    match peers.is_empty() {
        true => Err(Error::new(Kind::Connect, "the host name has no address")),
        false => Ok(peers),
    }
}

#[cfg(unix)]
fn exists(path: &str) -> bool {
    std::fs::exists(path).unwrap_or(false)
}

/// Whether every other server would fail with the same error: a refused login, or a mistake in the configuration.
fn is_final(error: &Error) -> bool {
    let refused = error
        .sql_state()
        .is_some_and(|state| state.starts_with("28"));
    refused || error.kind() == Kind::Config
}

fn not_wanted(wanted: SessionAttrs) -> Error {
    let what = match wanted {
        SessionAttrs::ReadWrite => "the server is read-only, but target_session_attrs=read-write",
        SessionAttrs::ReadOnly => "the server is writable, but target_session_attrs=read-only",
        SessionAttrs::Primary => "the server is a standby, but target_session_attrs=primary",
        _ => "the server is not a standby, which target_session_attrs demands",
    };
    Error::new(Kind::Connect, what).without_host()
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

/// The errors of all attempts.
#[derive(Default)]
struct Failures {
    said: Vec<String>,
    /// A server answered that does not fit, or does not let anybody in yet.
    has_unfit: bool,
    /// The search ended because a host fits that did not before.
    has_appeared: bool,
    /// Every other server would fail with the last error.
    are_final: bool,
    all_too_slow: Option<bool>,
    last: Option<Error>,
}

impl Failures {
    fn note(&mut self, whom: &str, error: Error) {
        self.are_final |= is_final(&error);
        let is_starting = matches!(error.sql_state(), Some("57P01" | "57P02" | "57P03"));
        self.has_unfit |= is_starting || error.is_without_host();
        let line = match error.kind() {
            Kind::Config => error.message().to_owned(),
            _ => format!("{whom}: {}", error.message()),
        };
        // The second round of prefer-standby repeats the errors of the first.
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
