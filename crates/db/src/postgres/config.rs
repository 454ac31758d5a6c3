//! The configuration of a handle: from the builder, the DSN, a service file and libpq's environment variables, in this order.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::engine::Engine;
use super::env::Environment;
use super::net::client_certificate::{CertificateMode, ClientCertificate, FileOption};
use super::net::socket::TcpOptions;
use super::net::tls::{Negotiation, SslMode, Tls, TlsSettings};
use super::net::verify::Roots;
use super::passfile::{self, Wanted};
use super::require_auth::RequireAuth;
use super::service::{Service, ServiceFiles};
use crate::driver::{Credentials, Dsn, Hosts, OptionReader, Options, Secret};
use crate::hosts::HostOptions;
use crate::{Error, Kind, Result};

/// PostgreSQL's default port.
const PORT: u16 = 5432;

/// The folders of a local server's Unix socket: Debian's, and PostgreSQL's own.
#[cfg(unix)]
pub(super) const SOCKET_FOLDERS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The servers, the login, and the settings of every session.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Tried in this order. Never empty.
    pub(super) servers: Vec<Server>,
    /// `None` for the database that is named like the user.
    database: Option<String>,
    /// User and password of the service file or the environment, if the credentials lack them.
    user: Option<String>,
    password: Option<Secret>,
    passfile: Option<PathBuf>,
    /// Settings in the startup message, which a reset of the session restores: `application_name`,
    /// `options`, `search_path` and `set.…`.
    pub(super) parameters: Vec<(String, String)>,
    pub(super) tls: Arc<Tls>,
    pub(super) channel_binding: ChannelBinding,
    pub(super) require_auth: RequireAuth,
    pub(super) hosts: HostOptions,
    /// `None`: what the server says.
    pub(super) engine: Option<Engine>,
    /// The limit for each address.
    pub(super) connect_timeout: Option<Duration>,
    /// Values of rows stay as the server writes them.
    pub(super) text_values: bool,
    pub(super) tcp: TcpOptions,
}

/// A server, as the options describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// A name, an address, or the folder of a Unix socket. Empty for a local server with its socket
    /// in one of the usual folders.
    pub(super) name: String,
    /// The address from `hostaddr`, which spares the name lookup.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

/// Whether a login is bound to its TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelBinding {
    Disable,
    /// Binds if both sides can.
    Prefer,
    /// Refuses a server that cannot, and a login without SCRAM.
    Require,
}

/// User, database and password of a login.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) password: Option<Secret>,
}

impl Config {
    /// Reads the DSN and the options; the service file and the environment supply what they lack.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for an unknown option or an invalid value, with its origin.
    pub(super) fn read(dsn: &Dsn, options: &Options) -> Result<Self> {
        Config::read_with(dsn, options, |name| std::env::var_os(name))
    }

    /// Like [`read`](Self::read), with the variables that `lookup` returns.
    pub(super) fn read_with(
        dsn: &Dsn,
        options: &Options,
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self> {
        let mut environment = Environment::read(lookup)?;
        // Alone first: an error now is one of the DSN or of the builder.
        Config::read_options(dsn, options, &environment)?;
        let mut merged = options.clone();
        if let Some(service) = find_service(dsn, options, &environment)? {
            service.merge(dsn, &mut merged);
            if let Some(user) = service.get("user") {
                environment.user = Some(user.expose().to_owned());
            }
            if let Some(password) = service.get("password") {
                environment.password = Some(password.clone());
            }
            Config::read_options(dsn, &merged, &environment)
                .map_err(|error| service.blame(&error))?;
        }
        let variables = environment.merge(dsn, &mut merged);
        Config::read_options(dsn, &merged, &environment).map_err(|error| {
            let message = format!(
                "{}; it comes from the environment ({})",
                error.message(),
                variables.join(", ")
            );
            Error::new(Kind::Config, message)
        })
    }

    fn read_options(dsn: &Dsn, options: &Options, environment: &Environment) -> Result<Self> {
        let settings: Vec<String> = dsn
            .options()
            .chain(options.iter())
            .map(|(name, _)| name.to_owned())
            .filter(|name| setting_name(name).is_some())
            .collect();
        let mut reader = dsn.reader(options);
        // Their options are in `options` already.
        reader.take("service");
        reader.take("servicefile");
        let servers = read_servers(&mut reader)?;
        let database = reader.take("dbname").filter(|name| !name.is_empty());
        let passfile = reader.take("passfile").filter(|path| !path.is_empty());
        let tls = read_tls(&mut reader, environment)?;
        let channel_binding = reader.take_choice(
            "channel_binding",
            &[
                ("disable", ChannelBinding::Disable),
                ("prefer", ChannelBinding::Prefer),
                ("require", ChannelBinding::Require),
            ],
        )?;
        let require_auth = match reader.take("require_auth") {
            Some(list) => {
                let list = list.to_owned();
                RequireAuth::parse(&list).map_err(|wrong| reader.error("require_auth", wrong))?
            }
            None => RequireAuth::ANY,
        };
        let hosts = HostOptions::take(&mut reader)?;
        let engine = reader.take_choice("engine", &Engine::NAMES)?.flatten();
        let connect_timeout = take_limit(&mut reader, "connect_timeout", Duration::from_secs(1))?;
        let tcp = read_tcp(&mut reader)?;
        let text_values = reader.take_bool("text_values")?.unwrap_or(false);
        let parameters = read_parameters(&mut reader, &settings)?;
        // Accepted for other clients' sake, with the values that always apply here.
        reader.take_choice("gssencmode", &[("disable", ()), ("prefer", ())])?;
        reader.take_choice("client_encoding", &ALWAYS_UTF8)?;
        reader.finish()?;
        let default_passfile = || environment.home.as_ref().map(|home| home.join(".pgpass"));
        Ok(Config {
            servers,
            database: database.map(str::to_owned),
            user: environment.user.clone(),
            password: environment.password.clone(),
            passfile: passfile.map(PathBuf::from).or_else(default_passfile),
            parameters,
            tls: Arc::new(Tls::new(tls)),
            channel_binding: channel_binding.unwrap_or(ChannelBinding::Prefer),
            require_auth,
            hosts,
            engine,
            connect_timeout,
            tcp,
            text_values,
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

    /// Returns the host and the port, if there is one server.
    pub(super) fn only_server(&self) -> Option<(String, Option<u16>)> {
        let [server] = &self.servers[..] else {
            return None;
        };
        match (&server.address, server.name.as_str()) {
            (None, "") => None,
            (Some(address), "") => Some((address.to_string(), Some(server.port))),
            (None, folder) if folder.starts_with(['/', '@']) => Some((folder.to_owned(), None)),
            (_, name) => Some((name.to_owned(), Some(server.port))),
        }
    }

    /// Returns the hosts to choose from; `None` if there is one, of any role.
    pub(super) fn choice(&self) -> Option<Arc<Hosts>> {
        let names = self.servers.iter().map(Server::to_string).collect();
        self.hosts.choice(names)
    }

    /// Returns the login for this server: the credentials, completed by the service file, the environment and the
    /// password file.
    ///
    /// # Cancel safety
    ///
    /// If dropped, nothing remains.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if no user is configured.
    pub(super) async fn login(&self, server: &Server, credentials: &Credentials) -> Result<Login> {
        let user = credentials.user.as_ref().or(self.user.as_ref());
        let user = user.filter(|user| !user.is_empty()).ok_or_else(|| {
            let message = "no user configured: set it in the DSN (user=…), the builder, a service \
                           file or PGUSER";
            Error::new(Kind::Config, message)
        })?;
        let database = self.database.as_ref().unwrap_or(user);
        let given = credentials.password.clone().or(self.password.clone());
        let password = match (given, &self.passfile) {
            (Some(password), _) => Some(password),
            (None, None) => None,
            (None, Some(path)) => {
                let wanted = Wanted {
                    host: server.name_in_passfile(),
                    port: server.port,
                    database: database.clone(),
                    user: user.clone(),
                };
                passfile::find(path.clone(), wanted).await
            }
        };
        Ok(Login {
            user: user.clone(),
            database: database.clone(),
            password,
        })
    }
}

impl Server {
    /// Whether the name is the folder of a Unix socket, or an abstract one.
    pub(super) fn is_socket(&self) -> bool {
        self.address.is_none() && self.name.starts_with(['/', '@'])
    }

    /// Returns the path of the socket in this folder, or with this abstract name.
    #[cfg(unix)]
    pub(super) fn socket_path(folder: &str, port: u16) -> String {
        format!("{folder}/.s.PGSQL.{port}")
    }

    /// Returns the host as a password file names it: as in libpq, `localhost` for a socket in a usual folder.
    fn name_in_passfile(&self) -> String {
        #[cfg(unix)]
        if SOCKET_FOLDERS.contains(&self.name.as_str()) {
            return "localhost".to_owned();
        }
        match (&self.name, self.address) {
            (name, Some(address)) if name.is_empty() => address.to_string(),
            (name, None) if name.is_empty() => "localhost".to_owned(),
            (name, _) => name.clone(),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match (self.name.as_str(), self.address) {
            ("", None) => write!(out, "localhost:{port}"),
            ("", Some(address)) => write!(out, "{}", std::net::SocketAddr::new(address, port)),
            (folder, None) if self.is_socket() => write!(out, "{folder}:{port}"),
            (name, _) if name.contains(':') => write!(out, "[{name}]:{port}"),
            (name, _) => write!(out, "{name}:{port}"),
        }
    }
}

/// Returns the service that the builder, the DSN or `PGSERVICE` names.
fn find_service(
    dsn: &Dsn,
    options: &Options,
    environment: &Environment,
) -> Result<Option<Service>> {
    let option = |name| {
        let set = options.get(name).or(dsn.option(name));
        set.filter(|value| !value.is_empty())
    };
    let Some(name) = option("service").or(environment.service.as_deref()) else {
        return Ok(None);
    };
    let files = &environment.service_files;
    let found = match option("servicefile") {
        None => files.find(name),
        Some(path) => {
            let named = Some(PathBuf::from(path));
            ServiceFiles {
                named,
                ..files.clone()
            }
            .find(name)
        }
    };
    found.map(Some)
}

const ALWAYS_UTF8: [(&str, ()); 4] = [("utf8", ()), ("utf-8", ()), ("unicode", ()), ("auto", ())];

fn read_servers(reader: &mut OptionReader<'_>) -> Result<Vec<Server>> {
    let addresses = reader.take("hostaddr").filter(|list| !list.is_empty());
    let hosts = reader.take_hosts()?;
    let mut servers: Vec<_> = hosts
        .into_iter()
        .map(|host| Server {
            name: host.name,
            address: None,
            port: host.port.unwrap_or(PORT),
        })
        .collect();
    if servers.is_empty() {
        servers.push(Server {
            name: String::new(),
            address: None,
            port: PORT,
        });
    }
    let Some(addresses) = addresses else {
        return Ok(servers);
    };
    let addresses: Vec<_> = addresses.split(',').map(str::trim).collect();
    if servers.len() == 1 && servers[0].name.is_empty() {
        // Addresses without hosts: each is a server, and one port applies to all.
        servers.resize(addresses.len(), servers[0].clone());
    }
    if addresses.len() != servers.len() {
        let wrong = format!(
            "has {} addresses for {} hosts",
            addresses.len(),
            servers.len()
        );
        return Err(reader.error("hostaddr", wrong));
    }
    for (server, address) in servers.iter_mut().zip(addresses) {
        // For an empty address, the host's name is looked up.
        if !address.is_empty() {
            let parsed = address.trim_matches(['[', ']']).parse();
            let parsed = parsed.map_err(|_| {
                reader.error("hostaddr", "contains something that is not an IP address")
            })?;
            server.address = Some(parsed);
        }
    }
    Ok(servers)
}

fn read_tls(reader: &mut OptionReader<'_>, environment: &Environment) -> Result<TlsSettings> {
    let mode = reader.take_choice(
        "sslmode",
        &[
            ("disable", SslMode::Disable),
            ("allow", SslMode::Allow),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ],
    )?;
    let negotiation = reader.take_choice(
        "sslnegotiation",
        &[
            ("postgres", Negotiation::Request),
            ("direct", Negotiation::Direct),
        ],
    )?;
    let sni = reader.take_bool("sslsni")?.unwrap_or(true);
    let default = |file| {
        environment
            .home
            .as_ref()
            .map(|home| home.join(".postgresql").join(file))
    };
    let mut path = |name| reader.take(name).filter(|path| !path.is_empty());
    let roots = match path("sslrootcert") {
        Some("system") => Roots::System,
        Some(path) => Roots::File(PathBuf::from(path)),
        None => Roots::Default(default("root.crt")),
    };
    let mut file = |option, file| match path(option) {
        Some(path) => FileOption::Named(PathBuf::from(path)),
        None => FileOption::Default(default(file)),
    };
    let certificate = file("sslcert", "postgresql.crt");
    let key = file("sslkey", "postgresql.key");
    let password = path("sslpassword").map(Secret::from);
    let certificate_mode = reader.take_choice(
        "sslcertmode",
        &[
            ("disable", CertificateMode::Disable),
            ("allow", CertificateMode::Allow),
            ("require", CertificateMode::Require),
        ],
    )?;
    // As in libpq: any public authority would do, so the name must count.
    let mode = match (mode, &roots) {
        (None, Roots::System) => SslMode::VerifyFull,
        (Some(mode), Roots::System) if mode != SslMode::VerifyFull => {
            return Err(reader.error("sslrootcert", "is system, which needs sslmode=verify-full"));
        }
        (mode, _) => mode.unwrap_or(SslMode::Prefer),
    };
    let negotiation = negotiation.unwrap_or(Negotiation::Request);
    let certificate_mode = certificate_mode.unwrap_or(CertificateMode::Allow);
    for (option, value, needs_tls) in [
        (
            "sslnegotiation",
            "direct",
            negotiation == Negotiation::Direct,
        ),
        (
            "sslcertmode",
            "require",
            certificate_mode == CertificateMode::Require,
        ),
    ] {
        if needs_tls && !mode.needs_tls() {
            let wrong =
                format!("is {value}, which needs sslmode=require, verify-ca or verify-full");
            return Err(reader.error(option, wrong));
        }
    }
    Ok(TlsSettings {
        mode,
        roots,
        negotiation,
        sni,
        client: ClientCertificate {
            mode: certificate_mode,
            certificate,
            key,
            password,
        },
    })
}

fn read_tcp(reader: &mut OptionReader<'_>) -> Result<TcpOptions> {
    let second = Duration::from_secs(1);
    Ok(TcpOptions {
        keepalives: reader.take_bool("keepalives")?.unwrap_or(true),
        keepalives_idle: take_limit(reader, "keepalives_idle", second)?,
        keepalives_interval: take_limit(reader, "keepalives_interval", second)?,
        keepalives_count: reader
            .take_parsed::<u32>("keepalives_count")?
            .filter(|count| *count > 0),
        user_timeout: take_limit(reader, "tcp_user_timeout", Duration::from_millis(1))?,
    })
}

/// Takes a duration; as in libpq, 0 means no limit.
fn take_limit(
    reader: &mut OptionReader<'_>,
    name: &str,
    unit: Duration,
) -> Result<Option<Duration>> {
    let limit = reader.take_duration(name, unit)?;
    Ok(limit.filter(|limit| !limit.is_zero()))
}

/// The setting that an option such as `set.work_mem` is for.
fn setting_name(option: &str) -> Option<&str> {
    let (prefix, name) = option.split_once('.')?;
    prefix.eq_ignore_ascii_case("set").then_some(name)
}

fn read_parameters(
    reader: &mut OptionReader<'_>,
    settings: &[String],
) -> Result<Vec<(String, String)>> {
    let mut parameters = Vec::new();
    let mut set = |name: &str, value: &str| parameters.push((name.to_owned(), value.to_owned()));
    let fallback = reader.take("fallback_application_name");
    let application = reader.take("application_name").or(fallback);
    for (name, value) in [
        ("application_name", application),
        ("options", reader.take("options")),
        ("search_path", reader.take("search_path")),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            set(name, value);
        }
    }
    for option in settings {
        let name = setting_name(option).expect("only these were collected");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(reader.error(option, "does not name a setting"));
        }
        // An option of both the DSN and the builder was collected twice.
        if let Some(value) = reader.take(option) {
            set(name, value);
        }
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests;
