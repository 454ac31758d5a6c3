//! The settings of a handle, from a configuration file or the environment.

pub(crate) mod dsn;
mod durations;
mod env;
pub(crate) mod secret;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Deserialize;

use crate::config::dsn::{Dsn, Options};
use crate::config::secret::{Credentials, Secret};
use crate::{Error, Kind, Result};

/// All settings of a handle.
///
/// Read it from a configuration file with serde or from the environment with [`from_env`](DbConfig::from_env), or start with
/// [`new`](DbConfig::new). In a file, only `dsn` is required, and an unknown field is an error. A duration is a text such as
/// `"250ms"`, `"30s"`, `"10min"`, or a number of seconds; `"off"` switches an optional one off.
///
/// ```
/// use std::time::Duration;
/// use cenote::DbConfig;
///
/// let mut config = DbConfig::new("sqlite:shop.db");
/// config.max = 4;
/// config.idle_timeout = Some(Duration::from_secs(60));
/// config.options.set("busy_timeout", "5s");
/// config.check()?;
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DbConfig {
    /// The DSN. Stored as a secret, because it may contain a password. No default.
    pub dsn: Secret,
    /// The user. Takes precedence over the user in the DSN. Default: none.
    pub user: Option<String>,
    /// The password. Takes precedence over the password in the DSN. Never serialised. Default: none.
    pub password: Option<Secret>,
    /// The pool's name in events and messages. Default: none.
    pub name: Option<String>,
    /// The number of connections that stay open while they are idle. Default: 0. Excludes `unpooled`.
    pub min: usize,
    /// The maximum number of connections, at least 1. Default: 10. An unpooled handle has one.
    pub max: usize,
    /// How long a call may wait for a connection, including its creation. Default: 30 s; `None` means without limit.
    #[serde(deserialize_with = "durations::optional")]
    pub acquire_timeout: Option<Duration>,
    /// How long opening a connection may take. Default: 10 s.
    #[serde(deserialize_with = "durations::required")]
    pub connect_timeout: Duration,
    /// How long rolling back, resetting or draining a connection may take before it is closed
    /// instead. Default: 5 s.
    #[serde(deserialize_with = "durations::required")]
    pub cleanup_timeout: Duration,
    /// The interval between health checks of an idle connection, also of the one that listens for notifications.
    /// Default: 30 s; `None` means never.
    #[serde(deserialize_with = "durations::optional")]
    pub healthcheck_interval: Option<Duration>,
    /// How long a connection may be idle before it is closed, if there are more than `min`.
    /// Default: 10 min; `None` means without limit.
    #[serde(deserialize_with = "durations::optional")]
    pub idle_timeout: Option<Duration>,
    /// How old a connection may become before a new one replaces it. Default: 30 min; `None` means any age.
    #[serde(deserialize_with = "durations::optional")]
    pub max_lifetime: Option<Duration>,
    /// The fraction by which `max_lifetime` varies between connections, so that they do not all end at once: from 0.0 to
    /// less than 1.0. Default: 0.1.
    pub lifetime_jitter: f64,
    /// How many connections may be opened at the same time, at least 1. Default: 4.
    pub max_creating: usize,
    /// How many prepared statements each connection caches. Default: 64; 0 means none.
    pub statement_cache: usize,
    /// How long a statement may run. Default: `None`, without limit.
    #[serde(deserialize_with = "durations::optional")]
    pub statement_timeout: Option<Duration>,
    /// How old a transaction may become. Default: `None`, any age.
    #[serde(deserialize_with = "durations::optional")]
    pub max_transaction_age: Option<Duration>,
    /// How long an open transaction may be without a statement. Default: `None`, without limit.
    #[serde(deserialize_with = "durations::optional")]
    pub idle_in_transaction: Option<Duration>,
    /// How long a call waits for a connection before a warning is logged. Default: 1 s; `None` means never.
    #[serde(deserialize_with = "durations::optional")]
    pub slow_acquire_warning: Option<Duration>,
    /// A connection that one task has held for this long is reported. Default: `None`, never.
    #[serde(deserialize_with = "durations::optional")]
    pub leak_warning: Option<Duration>,
    /// A statement that takes this long is reported. Default: `None`, never.
    #[serde(deserialize_with = "durations::optional")]
    pub slow_statements: Option<Duration>,
    /// Short reads of several tasks share a connection when none is idle: see [`Builder::share_connections`]. Default: `false`.
    ///
    /// [`Builder::share_connections`]: crate::Builder::share_connections
    pub share_connections: bool,
    /// One connection, opened on first use, instead of a pool. Default: `false`.
    pub unpooled: bool,
    /// The connection stays open as long as the handle lives. Requires `unpooled`, because a pool opens and closes
    /// connections by itself. Default: `false`.
    pub persistent: bool,
    /// When a session is reset before another task gets it. Default: when it may have changed.
    pub reset: ResetPolicy,
    /// The DSNs of replicas, for reads by [`Db::reading`](crate::Db::reading). Stored as secrets, because they may contain passwords.
    /// Default: none.
    pub replicas: Vec<Secret>,
    /// How long a read waits for a replica to reach what its coroutine has written. Default: 50 ms.
    #[serde(deserialize_with = "durations::required")]
    pub replica_wait: Duration,
    /// How far a replica may lag behind the primary to get reads. Default: 10 s; `None` means any lag.
    #[serde(deserialize_with = "durations::optional")]
    pub max_replica_lag: Option<Duration>,
    /// Options for the driver. They take precedence over those in the DSN. Default: none.
    pub options: Options,
}

/// When a session is reset before another task gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResetPolicy {
    /// When a statement's text or a report of the server shows a change: `"when_touched"`. Changes by functions of the
    /// application's own schema may go unnoticed.
    #[default]
    WhenTouched,
    /// Every time a connection is released: `"always"`. For schemas whose functions have side effects on the session.
    /// The driver undoes everything that it can. On PostgreSQL that is `DISCARD ALL` (which also discards cached statements),
    /// `dblink` connections, the replication origin and the seed of `random()`. What the server cannot undo stays: loaded
    /// libraries, temporary replication slots, a started backup, variables of PL/Perl, PL/Python and PL/Tcl.
    Always,
    /// Never: a new connection replaces each released one: `"replace"`. Nothing survives, and every call outside of a
    /// transaction or a coroutine costs a new connection.
    Replace,
}

impl Default for DbConfig {
    fn default() -> Self {
        DbConfig {
            dsn: Secret::default(),
            user: None,
            password: None,
            name: None,
            min: 0,
            max: 10,
            acquire_timeout: Some(Duration::from_secs(30)),
            connect_timeout: Duration::from_secs(10),
            cleanup_timeout: Duration::from_secs(5),
            healthcheck_interval: Some(Duration::from_secs(30)),
            idle_timeout: Some(Duration::from_secs(10 * 60)),
            max_lifetime: Some(Duration::from_secs(30 * 60)),
            lifetime_jitter: 0.1,
            max_creating: 4,
            statement_cache: 64,
            statement_timeout: None,
            max_transaction_age: None,
            idle_in_transaction: None,
            slow_acquire_warning: Some(Duration::from_secs(1)),
            leak_warning: None,
            slow_statements: None,
            share_connections: false,
            unpooled: false,
            persistent: false,
            reset: ResetPolicy::WhenTouched,
            replicas: Vec::new(),
            replica_wait: Duration::from_millis(50),
            max_replica_lag: Some(Duration::from_secs(10)),
            options: Options::new(),
        }
    }
}

impl DbConfig {
    /// Returns the default settings for this database.
    pub fn new(dsn: impl Into<Secret>) -> Self {
        DbConfig {
            dsn: dsn.into(),
            ..DbConfig::default()
        }
    }

    /// Parses the DSN.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if it is missing or malformed.
    pub fn parse_dsn(&self) -> Result<Dsn> {
        if self.dsn.is_empty() {
            return Err(wrong("dsn is missing; a right one: sqlite:shop.db"));
        }
        Dsn::parse(self.dsn.expose())
    }

    /// Returns a copy of the credentials: those of this configuration, completed by those of the DSN.
    pub fn credentials(&self, dsn: &Dsn) -> Credentials {
        let mut own = Credentials::default();
        own.user.clone_from(&self.user);
        own.password.clone_from(&self.password);
        own.or(dsn.credentials())
    }

    /// Returns the settings for a replica of this DSN.
    pub(crate) fn of_replica(&self, dsn: &Secret) -> Self {
        let mut options = Options::new();
        for (name, value) in self.options.iter() {
            // The role of the primary is demanded of the primary.
            if !name.eq_ignore_ascii_case("target_session_attrs") {
                options.set(name, value);
            }
        }
        DbConfig {
            dsn: dsn.clone(),
            min: 0,
            replicas: Vec::new(),
            options,
            ..self.clone()
        }
    }

    /// Checks the settings. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for a DSN that is missing or malformed, for an invalid value, and for two settings that exclude each
    /// other, with the names of both.
    pub fn check(&self) -> Result<()> {
        self.parse_dsn()?;
        let (min, max) = (self.min, self.max);
        if max == 0 {
            return Err(wrong("max is 0, but it must be at least 1"));
        }
        if min > max {
            let what = format!("min is {min}, but it cannot be more than max, which is {max}");
            return Err(wrong(what));
        }
        if self.persistent && !self.unpooled {
            return Err(wrong(
                "persistent and a pool exclude each other: add unpooled, or remove persistent",
            ));
        }
        if self.unpooled && min > 0 {
            let what = format!(
                "min is {min}, but unpooled is set: its one connection is opened on first use"
            );
            return Err(wrong(what));
        }
        if self.unpooled && !self.replicas.is_empty() {
            return Err(wrong(
                "replicas and unpooled exclude each other: remove one of them",
            ));
        }
        if self.max_creating == 0 {
            return Err(wrong("max_creating is 0, but it must be at least 1"));
        }
        if !(0.0..1.0).contains(&self.lifetime_jitter) {
            let jitter = self.lifetime_jitter;
            let what = format!("lifetime_jitter is {jitter}, but it must be from 0.0 to below 1.0");
            return Err(wrong(what));
        }
        self.check_durations()
    }

    fn check_durations(&self) -> Result<()> {
        let required = [
            ("connect_timeout", self.connect_timeout),
            ("cleanup_timeout", self.cleanup_timeout),
        ];
        if let Some((name, _)) = required.iter().find(|(_, duration)| duration.is_zero()) {
            let what = format!("{name} is zero, but nothing is done in no time");
            return Err(wrong(what));
        }
        let optional = [
            ("acquire_timeout", self.acquire_timeout),
            ("healthcheck_interval", self.healthcheck_interval),
            ("idle_timeout", self.idle_timeout),
            ("max_lifetime", self.max_lifetime),
            ("statement_timeout", self.statement_timeout),
            ("max_transaction_age", self.max_transaction_age),
            ("idle_in_transaction", self.idle_in_transaction),
            ("slow_acquire_warning", self.slow_acquire_warning),
            ("leak_warning", self.leak_warning),
            ("slow_statements", self.slow_statements),
            ("max_replica_lag", self.max_replica_lag),
        ];
        let zero = |duration: &Option<Duration>| *duration == Some(Duration::ZERO);
        match optional.iter().find(|(_, duration)| zero(duration)) {
            Some((name, _)) => Err(wrong(format!(
                "{name} is zero; \"off\" (None) switches it off"
            ))),
            None => Ok(()),
        }
    }
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(Kind::Config, what)
}
