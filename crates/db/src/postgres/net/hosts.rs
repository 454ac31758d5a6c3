//! Connects to PostgreSQL for [the search](search): addresses, sockets, logins with and without TLS.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use super::super::config::SOCKET_FOLDERS;
use super::super::config::{Config, Login, Server};
use super::super::startup::{self, Started};
use super::role;
use super::socket::{self, Socket, TcpOptions};
use super::tls::{self, Negotiated, SslMode, Tls};
use crate::driver::{Credentials, HostRole, Hosts};
use crate::hosts::search::{self, Connector};
use crate::hosts::{Cut, SessionAttrs};
use crate::{Error, Kind, Result};

/// An address of a server, and how to connect to it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: At,
    /// The host name that the certificate must match.
    name: String,
    tcp: TcpOptions,
    /// `None` for a connection without TLS.
    tls: Option<Arc<Tls>>,
}

#[derive(Clone, Debug)]
enum At {
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
            At::Unix(path) => {
                let opened = socket::open_unix(path).await;
                return opened.map_err(|error| unreachable_by(&error).because(error));
            }
            At::Tcp(address) => *address,
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
            At::Tcp(address) if address.ip().to_string() == self.name => address.fmt(out),
            At::Tcp(address) if self.name.is_empty() => address.fmt(out),
            At::Tcp(address) => write!(out, "{} ({address})", self.name),
            #[cfg(unix)]
            At::Unix(path) => path.fmt(out),
        }
    }
}

/// A session, and how to open further sockets to its server.
pub(crate) struct Session {
    pub(crate) started: Started,
    pub(crate) peer: Peer,
}

pub(crate) type Connected = search::Connected<Session>;

/// Connects to the first server that accepts the login and matches `target_session_attrs`.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
///
/// # Errors
///
/// See [`search::connect`].
pub(crate) async fn connect(
    config: &Config,
    choice: Option<&Arc<Hosts>>,
    credentials: &Credentials,
    listens: bool,
) -> Result<Connected> {
    let connector = ToPostgres {
        config,
        credentials,
    };
    // Nothing is lost if a session is cut that only listens.
    search::connect(&connector, config.hosts.attrs, choice, listens).await
}

/// Logs in to the first address of a server that answers, whatever it is.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
pub(super) async fn log_in_to(
    config: &Config,
    server: usize,
    credentials: &Credentials,
) -> Result<Started> {
    let connector = ToPostgres {
        config,
        credentials,
    };
    Ok(search::log_in_to(&connector, server).await?.started)
}

/// Marks the errors of a server that shuts down, or starts.
fn passing(error: Error) -> Error {
    match error.sql_state() {
        Some("57P01" | "57P02" | "57P03") => error.without_host(),
        _ => error,
    }
}

struct ToPostgres<'c> {
    config: &'c Config,
    credentials: &'c Credentials,
}

/// An address of a server, and the login there.
struct Address {
    peer: Peer,
    login: Arc<Login>,
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(out)
    }
}

impl Connector for ToPostgres<'_> {
    type Address = Address;
    type Session = Session;

    fn servers(&self) -> usize {
        self.config.servers.len()
    }

    fn name(&self, server: usize) -> String {
        self.config.servers[server].to_string()
    }

    fn connect_timeout(&self) -> Option<Duration> {
        self.config.connect_timeout
    }

    async fn addresses(&self, server: usize) -> Result<Vec<Address>> {
        let server = &self.config.servers[server];
        let login = Arc::new(self.config.login(server, self.credentials).await?);
        let peers = peers_of(server, self.config).await?;
        let with_login = |peer| Address {
            peer,
            login: Arc::clone(&login),
        };
        Ok(peers.into_iter().map(with_login).collect())
    }

    async fn log_in(&self, _: usize, address: &Address) -> Result<Session> {
        let logged_in = log_in(&address.peer, self.config, &address.login).await;
        let (started, peer) = logged_in.map_err(passing)?;
        Ok(Session { started, peer })
    }

    async fn role(
        &self,
        session: &mut Session,
        wanted: SessionAttrs,
        choice: Option<&Arc<Hosts>>,
    ) -> Result<Option<HostRole>> {
        if wanted == SessionAttrs::Any {
            return Ok(None);
        }
        let started = &mut session.started;
        let mut role = role::ask(started).await.map_err(passing)?;
        if choice.is_some_and(|hosts| hosts.writes) {
            let history = role::history(started, role).await;
            role.history = history.map_err(passing)?;
        }
        Ok(Some(role))
    }

    async fn set_up(&self, _: &mut Session) -> Result<()> {
        // The startup has done it.
        Ok(())
    }

    fn cutter(&self, session: &mut Session) -> Result<Cut> {
        let cut = session.started.wire.socket().cutter();
        cut.map_err(|error| unreachable_by(&error).because(error))
    }

    fn is_final(error: &Error) -> bool {
        let refused = error
            .sql_state()
            .is_some_and(|state| state.starts_with("28"));
        refused || error.kind() == Kind::Config
    }
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

/// Returns the addresses of a server, in the order in which they are tried.
async fn peers_of(server: &Server, config: &Config) -> Result<Vec<Peer>> {
    let peer = |address, is_local: bool| Peer {
        address,
        name: server.name.clone(),
        tcp: config.tcp.clone(),
        tls: (!is_local && config.tls.mode() != SslMode::Disable).then(|| Arc::clone(&config.tls)),
    };
    let over_tcp = |address| peer(At::Tcp(address), false);
    let port = server.port;
    if let Some(address) = server.address {
        return Ok(vec![over_tcp(SocketAddr::new(address, port))]);
    }
    #[cfg(unix)]
    {
        if server.is_socket() {
            let path = Server::socket_path(&server.name, port);
            return Ok(vec![peer(At::Unix(path), true)]);
        }
        if server.name.is_empty() {
            let paths = SOCKET_FOLDERS.map(|folder| Server::socket_path(folder, port));
            if let Some(path) = paths.into_iter().find(|path| exists(path)) {
                return Ok(vec![peer(At::Unix(path), true)]);
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
        let known = |peer: &Peer| matches!(peer.address, At::Tcp(known) if known == address);
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

fn unreachable_by(error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is the server running there?"
        }
        _ => "",
    };
    Error::new(Kind::Connect, format!("{error}{hint}"))
}
