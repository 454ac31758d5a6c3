//! The template, which connects to a server and logs in.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::{Conn, DriverError, Error as ClientError, IoError, Opts, OptsBuilder};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

use super::config::{Config, Server, SslMode};
use super::connection::MysqlConnection;
use super::cut::{AtHost, Switch};
use super::engine::Engine;
use super::error;
use super::role::{self, Probe};
use super::session::{Facts, Running};
use super::suspicion;
use super::wire::{Wire, caught};
use crate::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, HostProbe, HostRole, Hosts,
    Template,
};
use crate::hosts::promotions::Promotions;
use crate::hosts::search::{self, Connected, Connector};
use crate::hosts::{Cut, SessionAttrs};
use crate::{Error, Kind, Result};

/// What all connections of a handle share.
#[derive(Debug)]
pub(super) struct MysqlTemplate {
    config: Config,
    /// `None` where there is no choice: one host of any role.
    hosts: Option<Arc<Hosts>>,
    promotions: SharedPromotions,
}

impl MysqlTemplate {
    pub(super) fn new(config: Config) -> Self {
        let hosts = config.choice();
        let writes = hosts.as_ref().is_some_and(|hosts| hosts.writes);
        MysqlTemplate {
            config,
            hosts,
            promotions: SharedPromotions(writes.then(Arc::default)),
        }
    }

    fn connector<'t>(&'t self, credentials: &'t Credentials) -> ToMysql<'t> {
        ToMysql {
            config: &self.config,
            credentials,
            promotions: self.promotions.clone(),
        }
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
            self.config.user(&credentials)?;
            let (attrs, choice) = (self.config.hosts.attrs, self.hosts.as_ref());
            let connector = self.connector(&credentials);
            let Connected { session, place } =
                search::connect(&connector, attrs, choice, false).await?;
            let (facts, running) = session.facts.expect("the search has set it up");
            let host = place.map(|place| AtHost {
                place,
                switch: session.switch,
                is_demoted: false,
            });
            let cache = settings.statement_cache;
            let engine = self.config.engine.unwrap_or(facts.engine);
            let settings = &self.config.session;
            let mut connection =
                MysqlConnection::new(session.wire, facts, running, settings, cache, engine);
            connection.host = host;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn hosts(&self) -> Option<&Arc<Hosts>> {
        self.hosts.as_ref()
    }

    fn open_probe(
        &self,
        host: usize,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn HostProbe>>> {
        Box::pin(async move {
            let probe = Probe::open(&self.connector(&credentials), host).await?;
            Ok(Box::new(probe) as Box<dyn HostProbe>)
        })
    }

    /// Whether the server is MariaDB is known when there is a connection; others leave all reads to the primary.
    fn has_positions(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The promotions that the handle has seen; `None` if it need not know: hosts of any role fit, or standbys.
#[derive(Clone, Debug)]
pub(super) struct SharedPromotions(Option<Arc<Mutex<Promotions>>>);

impl SharedPromotions {
    /// Asks a server what it is. Returns its role with the history that it writes.
    pub(super) async fn ask(&self, conn: &mut Conn) -> mysql_async::Result<HostRole> {
        let question = self.lock().map(|mut promotions| promotions.ask());
        let described = caught(role::ask(conn)).await?;
        Ok(match (self.lock(), described.server, question) {
            (Some(mut promotions), Some(server), Some(question)) => {
                promotions.note(&server, described.role, question)
            }
            _ => described.role,
        })
    }

    fn lock(&self) -> Option<MutexGuard<'_, Promotions>> {
        // Nothing that can panic runs under this lock.
        let locked = self.0.as_ref().map(|promotions| promotions.lock());
        locked.map(|locked| locked.unwrap_or_else(PoisonError::into_inner))
    }
}

/// Connects for [the search](search).
pub(super) struct ToMysql<'t> {
    config: &'t Config,
    credentials: &'t Credentials,
    pub(super) promotions: SharedPromotions,
}

/// An address of a server; `None` for a Unix socket. Its text is the server's name, because the addresses of one name usually
/// fail with the same error.
pub(super) struct Address {
    server: Server,
    address: Option<IpAddr>,
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(out)
    }
}

pub(super) struct Session {
    pub(super) wire: Wire,
    switch: Arc<Switch>,
    /// `None` until it is set up.
    facts: Option<(Facts, Running)>,
}

impl Connector for ToMysql<'_> {
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
        let found = addresses(server)
            .await
            .map_err(|wrong| unreachable_by(&wrong))?;
        let address = |address| Address {
            server: server.clone(),
            address,
        };
        Ok(found.into_iter().map(address).collect())
    }

    async fn log_in(&self, _: usize, address: &Address) -> Result<Session> {
        let (config, credentials) = (self.config, self.credentials);
        let wire = log_in(config, credentials, &address.server, address.address).await;
        Ok(Session {
            wire: wire.map_err(passing)?,
            switch: Arc::default(),
            facts: None,
        })
    }

    /// Any role fits only where all hosts serve: a node of Galera may not.
    async fn role(
        &self,
        session: &mut Session,
        _: SessionAttrs,
        choice: Option<&Arc<Hosts>>,
    ) -> Result<Option<HostRole>> {
        if choice.is_none() {
            return Ok(None);
        }
        let told = self.promotions.ask(&mut session.wire).await;
        told.map(Some).map_err(|wrong| passing(refused(wrong)))
    }

    async fn set_up(&self, session: &mut Session) -> Result<()> {
        let wire = &mut session.wire;
        let set_up = async {
            let facts = self.config.session.set_up(wire).await?;
            Ok::<_, ClientError>((facts, Running::ask(wire).await?))
        };
        let (facts, running) = caught(set_up)
            .await
            .map_err(|wrong| passing(refused(wrong)))?;
        facts.check(self.config.dialect)?;
        session.facts = Some((facts, running));
        Ok(())
    }

    fn cutter(&self, session: &mut Session) -> Result<Cut> {
        let switch = Arc::clone(&session.switch);
        Ok(Box::new(move || switch.cut()))
    }

    fn is_final(error: &Error) -> bool {
        error.kind() == Kind::Config || is_refused_login(error)
    }
}

/// Marks the errors of a server that serves nobody at present.
fn passing(error: Error) -> Error {
    match suspicion::is_passing(&error) {
        true => error.without_host(),
        false => error,
    }
}

/// Whether the server refused the account, as another server would. Every other error may be this server's: too many connections,
/// an end, a kill.
fn is_refused_login(error: &Error) -> bool {
    /// A method of login that the account has and the client has not, an expired password, a locked account.
    const OF_THE_ACCOUNT: [i64; 8] = [1251, 1275, 1524, 1820, 1862, 3118, 3955, 4151];
    let is_login = error
        .sql_state()
        .is_some_and(|state| state.starts_with("28"));
    is_login
        || error
            .code()
            .is_some_and(|code| OF_THE_ACCOUNT.contains(&code))
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

/// Logs in, without the settings of the session.
async fn log_in(
    config: &Config,
    credentials: &Credentials,
    server: &Server,
    address: Option<IpAddr>,
) -> Result<Wire> {
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
    wire.map_err(refused)
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
pub(super) fn refused(wrong: ClientError) -> Error {
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
