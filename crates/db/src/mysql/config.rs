//! The configuration of a handle, from the DSN and the builder.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::{ClientIdentity, Compression, OptsBuilder, SslOpts};

use super::engine::Engine;
use super::infile::Folder;
use super::param::setting_name;
use super::session::Session;
use crate::driver::{Credentials, Dialect, Dsn, Hosts, OptionReader, Options};
use crate::hosts::HostOptions;
use crate::sql::{Backslashes, DoubleQuotes};
use crate::{Error, Kind, Result};

/// MySQL's default port.
const PORT: u16 = 3306;

/// The servers, TLS, and the settings of every session.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Tried in this order. Never empty.
    pub(super) servers: Vec<Server>,
    pub(super) hosts: HostOptions,
    database: Option<String>,
    pub(super) tls: Tls,
    pub(super) session: Arc<Session>,
    pub(super) dialect: &'static Dialect,
    /// `None`: what the server says.
    pub(super) engine: Option<Engine>,
    /// The limit for each address.
    pub(super) connect_timeout: Option<Duration>,
    /// A password may be sent to a server whose identity was not verified.
    pub(super) unverified_login: bool,
    keepalive: Option<Duration>,
    compress: bool,
    found_rows: bool,
    infile: Option<Folder>,
}

/// A server, as the options describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// A name or address, and a port.
    Tcp(String, u16),
    Socket(String),
}

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) mode: SslMode,
    roots: Option<PathBuf>,
    /// The client certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Config {
    /// Reads the DSN and the options.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for an unknown option or an invalid value.
    pub(super) fn read(dsn: &Dsn, options: &Options) -> Result<Self> {
        let settings: Vec<String> = dsn
            .options()
            .chain(options.iter())
            .map(|(name, _)| name.to_owned())
            .filter(|name| prefixed(name).is_some())
            .collect();
        let mut reader = dsn.reader(options);
        let servers = read_servers(&mut reader)?;
        let database = reader.take("dbname").filter(|name| !name.is_empty());
        let tls = read_tls(&mut reader)?;
        let hosts = HostOptions::take(&mut reader)?;
        let engine = reader.take_choice("engine", &Engine::NAMES)?.flatten();
        let connect_timeout = reader.take_duration("connect_timeout", Duration::from_secs(1))?;
        let keepalive = reader.take_duration("tcp_keepalive", Duration::from_secs(1))?;
        let unverified_login = reader.take_bool("unverified_login")?.unwrap_or(false);
        let compress = reader.take_bool("compress")?.unwrap_or(false);
        let found_rows = reader.take_bool("found_rows")?.unwrap_or(false);
        let infile = match reader.take("local_infile").filter(|path| !path.is_empty()) {
            Some(path) if !path.starts_with('/') => {
                let wrong = "must be an absolute path: the folder whose files may be sent";
                return Err(reader.error("local_infile", wrong));
            }
            Some(path) => Some(Folder::new(path)),
            None => None,
        };
        // Accepted for other clients' sake, with the value that always applies here.
        reader.take_choice("charset", &[("utf8mb4", ()), ("utf8", ())])?;
        let sql_mode = reader.take("sql_mode");
        let session = Session::new(
            database,
            reader.take("collation"),
            reader.take("time_zone"),
            sql_mode,
            &read_settings(&mut reader, &settings)?,
        );
        reader.finish()?;
        Ok(Config {
            servers,
            hosts,
            database: database.map(str::to_owned),
            tls,
            session: Arc::new(session),
            dialect: dialect(sql_mode.unwrap_or_default()),
            engine,
            connect_timeout: connect_timeout.filter(|limit| !limit.is_zero()),
            unverified_login,
            keepalive: keepalive.filter(|time| !time.is_zero()),
            compress,
            found_rows,
            infile,
        })
    }

    /// Returns the servers and the database, without credentials, for messages.
    pub(super) fn address(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(Server::to_string).collect();
        match &self.database {
            Some(database) => format!("{}/{database}", servers.join(",")),
            None => servers.join(","),
        }
    }

    /// Returns the hosts to choose from; `None` if there is one, of any role.
    pub(super) fn choice(&self) -> Option<Arc<Hosts>> {
        let names = self.servers.iter().map(Server::to_string).collect();
        self.hosts.choice(names)
    }

    /// Returns the user.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if no user is configured.
    pub(super) fn user<'c>(&self, credentials: &'c Credentials) -> Result<&'c str> {
        let user = credentials.user.as_deref().filter(|user| !user.is_empty());
        user.ok_or_else(|| {
            let message = "no user configured: set it in the DSN (user=…) or the builder";
            Error::new(Kind::Config, message)
        })
    }

    /// Returns the client library's options, without the server.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if no user is configured.
    pub(super) fn client_options(&self, credentials: &Credentials) -> Result<OptsBuilder> {
        let user = self.user(credentials)?;
        let password = credentials.password.as_ref();
        let mut options = OptsBuilder::default()
            .user(Some(user))
            .pass(password.map(|password| password.expose()))
            .db_name(self.database.clone())
            .tcp_keepalive(self.keepalive)
            .client_found_rows(self.found_rows)
            // The session's set-up asks the server for its own limit.
            .max_allowed_packet(Some(LARGEST_PACKET))
            .wait_timeout(Some(0))
            // The library would otherwise switch from TCP to a Unix socket.
            .prefer_socket(false)
            // The driver has its own cache.
            .stmt_cache_size(0);
        if self.compress {
            options = options.compression(Compression::default());
        }
        if let Some(folder) = &self.infile {
            options = options.local_infile_handler(Some(folder.clone()));
        }
        Ok(options)
    }
}

/// The largest packet that any server accepts.
const LARGEST_PACKET: usize = 1 << 30;

impl Tls {
    /// Returns the client library's TLS options; `None` for connections without TLS.
    pub(super) fn options(&self) -> Option<SslOpts> {
        if self.mode == SslMode::Disable {
            return None;
        }
        let mut options = SslOpts::default();
        if let Some(roots) = &self.roots {
            options = options
                .with_root_certs(vec![roots.clone().into()])
                .with_disable_built_in_roots(true);
        }
        if let Some((certificate, key)) = &self.identity {
            let identity = ClientIdentity::new(certificate.clone().into(), key.clone().into());
            options = options.with_client_identity(Some(identity));
        }
        Some(options.with_danger_accept_invalid_certs(!self.checks()))
    }

    /// Whether the server's certificate and name are verified: with `verify-full`, or with a root certificate.
    pub(super) fn checks(&self) -> bool {
        self.mode == SslMode::VerifyFull || self.roots.is_some()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Tcp(name, port) if name.contains(':') => write!(out, "[{name}]:{port}"),
            Server::Tcp(name, port) => write!(out, "{name}:{port}"),
            Server::Socket(path) => out.write_str(path),
        }
    }
}

fn read_servers(reader: &mut OptionReader<'_>) -> Result<Vec<Server>> {
    let hosts = reader.take_hosts()?;
    if let Some(path) = reader.take("unix_socket").filter(|path| !path.is_empty()) {
        if hosts
            .iter()
            .any(|host| !matches!(&*host.name, "" | "localhost"))
        {
            return Err(reader.error("unix_socket", "excludes host; use one of them"));
        }
        return Ok(vec![Server::Socket(path.to_owned())]);
    }
    let server = |host: crate::driver::Host| {
        if host.is_socket() {
            return Server::Socket(host.name);
        }
        let name = match host.name.is_empty() {
            true => "localhost".to_owned(),
            false => host.name,
        };
        Server::Tcp(name, host.port.unwrap_or(PORT))
    };
    let servers: Vec<_> = hosts.into_iter().map(server).collect();
    match servers.is_empty() {
        true => Ok(vec![Server::Tcp("localhost".to_owned(), PORT)]),
        false => Ok(servers),
    }
}

fn read_tls(reader: &mut OptionReader<'_>) -> Result<Tls> {
    let mode = reader.take_choice(
        "sslmode",
        &[
            ("disable", Some(SslMode::Disable)),
            ("prefer", Some(SslMode::Prefer)),
            ("require", Some(SslMode::Require)),
            ("verify-full", Some(SslMode::VerifyFull)),
            // Known, because other clients have it, but the client library cannot do it.
            ("verify-ca", None),
        ],
    )?;
    if mode == Some(None) {
        let wrong = "is verify-ca, which mysql_async cannot do: it verifies the host name together with the \
                     certificate; use verify-full, and connect by a name that the certificate contains";
        return Err(reader.error("sslmode", wrong));
    }
    let mode = mode.flatten();
    let mut path = |name| reader.take(name).filter(|path| !path.is_empty());
    let (roots, certificate, key) = (path("sslrootcert"), path("sslcert"), path("sslkey"));
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
        (None, None) => None,
        (Some(_), None) => return Err(reader.error("sslcert", "needs sslkey beside it")),
        (None, Some(_)) => return Err(reader.error("sslkey", "needs sslcert beside it")),
    };
    // A root certificate shows that the server must be verified, so there is no fallback to clear text.
    let usual = match roots {
        Some(_) => SslMode::Require,
        None => SslMode::Prefer,
    };
    Ok(Tls {
        mode: mode.unwrap_or(usual),
        roots: roots.map(PathBuf::from),
        identity,
    })
}

fn prefixed(option: &str) -> Option<&str> {
    let (prefix, name) = option.split_once('.')?;
    prefix.eq_ignore_ascii_case("set").then_some(name)
}

fn read_settings(
    reader: &mut OptionReader<'_>,
    settings: &[String],
) -> Result<Vec<(String, String)>> {
    let mut read = Vec::new();
    for option in settings {
        let name = prefixed(option).expect("only these were collected");
        if setting_name(name).is_err() {
            return Err(reader.error(option, "does not name a setting"));
        }
        // An option of both the DSN and the builder was collected twice.
        if let Some(value) = reader.take(option) {
            read.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(read)
}

/// Returns the SQL dialect of this `sql_mode`.
pub(super) fn dialect(sql_mode: &str) -> &'static Dialect {
    const fn with(double_quotes: DoubleQuotes, backslashes: Backslashes) -> Dialect {
        let mut dialect = Dialect::MYSQL;
        dialect.double_quotes = double_quotes;
        dialect.backslashes = backslashes;
        dialect
    }
    static USUAL: Dialect = Dialect::MYSQL;
    static ANSI: Dialect = with(DoubleQuotes::Identifier, Backslashes::InStrings);
    static PLAIN: Dialect = with(DoubleQuotes::String, Backslashes::Plain);
    static ANSI_PLAIN: Dialect = with(DoubleQuotes::Identifier, Backslashes::Plain);
    let has = |modes: &[&str]| {
        let mut words = sql_mode.split(',');
        words.any(|word| {
            modes
                .iter()
                .any(|mode| mode.eq_ignore_ascii_case(word.trim()))
        })
    };
    let ansi = has(&[
        "ANSI_QUOTES",
        "ANSI",
        "DB2",
        "MAXDB",
        "MSSQL",
        "ORACLE",
        "POSTGRESQL",
    ]);
    match (ansi, has(&["NO_BACKSLASH_ESCAPES"])) {
        (false, false) => &USUAL,
        (true, false) => &ANSI,
        (false, true) => &PLAIN,
        (true, true) => &ANSI_PLAIN,
    }
}
