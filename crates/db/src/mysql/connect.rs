//! The template, which connects to a server and logs in.

use std::any::Any;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mysql_async::{DriverError, Error as ClientError, IoError, Opts, OptsBuilder};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

use super::config::{Config, Server, SslMode};
use super::connection::MysqlConnection;
use super::engine::Engine;
use super::error;
use super::session::{Facts, Running};
use super::wire::{Wire, caught};
use crate::driver::time_limit::attempt_within;
use crate::driver::{BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Template};
use crate::{Error, Kind, Result};

/// What all connections of a handle share.
#[derive(Debug)]
pub(super) struct MysqlTemplate {
    config: Config,
}

impl MysqlTemplate {
    pub(super) fn new(config: Config) -> Self {
        MysqlTemplate { config }
    }
}

impl Template for MysqlTemplate {
    fn dialect(&self) -> &'static Dialect {
        self.config.dialect
    }

    fn address(&self) -> String {
        self.config.address()
    }

    fn server(&self) -> Option<(String, Option<u16>)> {
        match &self.config.servers[..] {
            [Server::Tcp(host, port)] => Some((host.clone(), Some(*port))),
            [Server::Socket(path)] => Some((path.clone(), None)),
            _ => None,
        }
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let (wire, facts, running) = connect(&self.config, &credentials).await?;
            let session = &self.config.session;
            let cache = settings.statement_cache;
            let engine = self.config.engine.unwrap_or(facts.engine);
            let connection = MysqlConnection::new(wire, facts, running, session, cache, engine);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The time limit of each address but the last, without `connect_timeout`: an address that does not answer
/// must leave time for the others.
const DEFAULT_ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Connects to the first server that can be reached. A refused login ends the search.
///
/// # Cancel safety
///
/// If dropped, nothing stays open.
async fn connect(config: &Config, credentials: &Credentials) -> Result<(Wire, Facts, Running)> {
    config.user(credentials)?;
    let mut said = Vec::new();
    let mut last = None;
    let mut places = Vec::new();
    for server in &config.servers {
        match addresses(server).await {
            Ok(found) => places.extend(found.into_iter().map(|address| (server, address))),
            Err(wrong) => {
                let wrong = unreachable_by(&wrong);
                said.push(format!("{server}: {}", wrong.message()));
                last = Some(wrong);
            }
        }
    }
    let count = places.len();
    for (n, (server, address)) in places.into_iter().enumerate() {
        let limit = match config.connect_timeout {
            None if n + 1 < count => Some(DEFAULT_ADDRESS_TIMEOUT),
            limit => limit,
        };
        let attempt = log_in(config, credentials, server, address);
        match attempt_within(limit, attempt).await {
            Ok(connected) => return Ok(connected),
            Err(wrong) => {
                let is_final = wrong.kind() == Kind::Config || is_refused_login(&wrong);
                said.push(format!("{server}: {}", wrong.message()));
                last = Some(wrong);
                if is_final {
                    break;
                }
            }
        }
    }
    let last = last.expect("there is at least one server to fail");
    let kind = match last.kind() {
        Kind::Config => return Err(last),
        Kind::Timeout => Kind::Timeout,
        _ => Kind::Connect,
    };
    // The addresses of one name usually fail with the same error.
    said.dedup();
    Err(last.wrapped(kind, format!("cannot connect to {}", said.join("; "))))
}

/// Whether the server refused the login for another reason than too many connections.
fn is_refused_login(error: &Error) -> bool {
    const TOO_MANY: [i64; 3] = [1040, 1203, 1226];
    error.code().is_some_and(|code| !TOO_MANY.contains(&code))
}

/// Returns the addresses of a server; a Unix socket has none.
async fn addresses(server: &Server) -> io::Result<Vec<Option<IpAddr>>> {
    let Server::Tcp(name, port) = server else {
        return Ok(vec![None]);
    };
    if let Ok(address) = name.parse() {
        return Ok(vec![Some(address)]);
    }
    let found = tokio::net::lookup_host((name.as_str(), *port)).await?;
    let mut found: Vec<_> = found.map(|found: SocketAddr| Some(found.ip())).collect();
    found.dedup();
    match found.is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the host name has no address",
        )),
        false => Ok(found),
    }
}

/// Logs in and sets the session up.
async fn log_in(
    config: &Config,
    credentials: &Credentials,
    server: &Server,
    address: Option<IpAddr>,
) -> Result<(Wire, Facts, Running)> {
    // Made for each attempt: the client library does not wipe the password, so it lives as short as possible.
    let options = || -> Result<OptsBuilder> {
        let options = config.client_options(credentials)?;
        Ok(match server {
            Server::Socket(path) => options.socket(Some(path.clone())),
            // One address only, so that a kill reaches the same server.
            Server::Tcp(name, port) => options
                .ip_or_hostname(name.clone())
                .tcp_port(*port)
                .resolved_ips(address.map(|address| vec![address])),
        })
    };
    let tls = match server {
        Server::Socket(_) => None,
        Server::Tcp(..) => config.tls.options(),
    };
    let has_password = credentials
        .password
        .as_ref()
        .is_some_and(|password| !password.expose().is_empty());
    let is_near = match address {
        None => true,
        Some(address) => address.to_canonical().is_loopback(),
    };
    let check_login = |is_verified: bool| match is_verified
        || is_near
        || !has_password
        || config.unverified_login
    {
        true => Ok(()),
        false => Err(unverified()),
    };
    check_login(tls.is_some() && config.tls.checks())?;
    let wire = match tls {
        None => Wire::open(Opts::from(options()?)).await,
        Some(tls) => {
            install_crypto();
            let encrypted = options()?.ssl_opts(tls);
            match Wire::open(Opts::from(encrypted)).await {
                Err(wrong) if config.tls.mode == SslMode::Prefer && is_about_tls(&wrong) => {
                    tracing::debug!(%wrong, %server, "connecting without TLS, because sslmode=prefer");
                    check_login(false)?;
                    Wire::open(Opts::from(options()?)).await
                }
                done => done,
            }
        }
    };
    let mut wire = wire.map_err(refused)?;
    let set_up = caught(config.session.set_up(&mut wire)).await;
    let facts = set_up.map_err(refused)?;
    facts.check(config.dialect)?;
    let running = caught(Running::ask(&mut wire)).await.map_err(refused)?;
    Ok((wire, facts, running))
}

/// Returns the error of a password login to a server whose identity was not verified.
fn unverified() -> Error {
    let message = "refusing to send a password to a server whose identity is not verified, because any server that answers \
                   could get it: use sslmode=verify-full (with sslrootcert for a CA of your own), a Unix socket or a \
                   loopback address, or set unverified_login=true if you trust the network";
    Error::new(Kind::Config, message)
}

/// Installs `ring` as the process's crypto provider, unless there is one. The client library uses the default, and panics if
/// two are compiled in and none is installed.
fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster, which is fine.
        let _ = ring::default_provider().install_default();
    }
}

fn is_about_tls(wrong: &ClientError) -> bool {
    match wrong {
        ClientError::Driver(DriverError::NoClientSslFlagFromServer) => true,
        ClientError::Io(IoError::Tls(_)) => true,
        ClientError::Io(IoError::Io(wrong)) => is_tls_failure(wrong),
        _ => false,
    }
}

/// Whether an error of the socket is a failed TLS handshake.
fn is_tls_failure(wrong: &io::Error) -> bool {
    let inner = wrong.get_ref();
    inner.is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>())
}

/// Returns the error of a failed connect.
fn refused(wrong: ClientError) -> Error {
    match wrong {
        ClientError::Server(said) => error::from_server(said, Engine::Mysql),
        ClientError::Io(IoError::Io(wrong)) if is_tls_failure(&wrong) => {
            Error::new(Kind::Connect, format!("TLS: {wrong}")).because(wrong)
        }
        ClientError::Io(IoError::Io(wrong)) => unreachable_by(&wrong),
        ClientError::Io(IoError::Tls(wrong)) => {
            Error::new(Kind::Connect, format!("TLS: {wrong}")).because(wrong)
        }
        ClientError::Driver(DriverError::NoClientSslFlagFromServer) => {
            let message = "the server does not offer TLS, which sslmode requires";
            Error::new(Kind::Connect, message)
        }
        wrong => Error::new(Kind::Connect, wrong.to_string()).because(wrong),
    }
}

fn unreachable_by(wrong: &io::Error) -> Error {
    let hint = match wrong.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is the server running there?"
        }
        _ => "",
    };
    Error::new(Kind::Connect, format!("{wrong}{hint}"))
}
