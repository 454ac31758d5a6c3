//! The builder: every setting of a handle, and opening it.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cenote_pool::{AsyncHook, Pool, Runtime, Strategy, TokioRuntime};

use crate::api::db::Db;
use crate::binding::contention::Contention;
use crate::binding::writers::Writers;
use crate::call::trace::Origin;
use crate::config::dsn::Dsn;
use crate::config::secret::{CredentialProvider, Secret};
use crate::config::{DbConfig, ResetPolicy};
use crate::driver::{ConnectSettings, Driver, Template};
use crate::hosts::watch;
use crate::lane::{Lanes, eager};
use crate::listen::{Hub, Setup};
use crate::pooled::activity::Activities;
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::pooled::manager::{ConnectionManager, Defaults, Login, OnConnect};
use crate::pooled::shared::{DbId, Shared};
use crate::pooled::statement_events::StatementListeners;
use crate::pooled::statement_log::StatementLog;
use crate::pooled::statement_timings::StatementTimings;
use crate::replicas::{self, Replicas, Tracker};
use crate::{Error, Kind, Result};

/// The settings of a [`Db`], before [`open`](Builder::open) opens it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cenote::Db;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// let db = Db::builder("sqlite:file:builder-doc?mode=memory&cache=shared")
///     .max(4)
///     .acquire_timeout(Duration::from_secs(5))
///     .on_connect(async |conn: &mut cenote::PooledConnection| conn.exec("PRAGMA cache_size = -4000").await)
///     .open()
///     .await?;
/// assert_eq!(db.status().total, 0); // Nothing is connected before it is needed.
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until `open`"]
pub struct Builder {
    config: DbConfig,
    driver: Option<Arc<dyn Driver>>,
    provider: Option<CredentialProvider>,
    on_connect: Vec<Box<dyn OnConnect>>,
    runtime: Option<Arc<dyn Runtime>>,
    span_text: bool,
    breaker: Option<WithBreaker>,
    call_site: &'static Location<'static>,
}

type PoolBuilder = cenote_pool::Builder<ConnectionManager>;

impl Builder {
    #[track_caller]
    pub(crate) fn new(dsn: &str) -> Self {
        Builder::from_config(DbConfig::new(dsn))
    }

    #[track_caller]
    pub(crate) fn with_driver(driver: Arc<dyn Driver>, dsn: &str) -> Self {
        let mut builder = Builder::new(dsn);
        builder.driver = Some(driver);
        builder
    }

    /// Starts with a configuration from a file or the environment.
    #[track_caller]
    pub fn from_config(config: DbConfig) -> Self {
        Builder {
            config,
            driver: None,
            provider: None,
            on_connect: Vec::new(),
            runtime: None,
            span_text: false,
            breaker: None,
            call_site: Location::caller(),
        }
    }

    /// Sets the user. Default: the user in the DSN.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.config.user = Some(user.into());
        self
    }

    /// Sets the password. No message, log line or `Debug` output shows it. Default: the password in the DSN.
    pub fn password(mut self, password: impl Into<Secret>) -> Self {
        self.config.password = Some(password.into());
        self
    }

    /// Sets a provider that is asked for the credentials of every new connection: for passwords and tokens that
    /// change. If it gives no user, the DSN's is used. It excludes [`user`](Builder::user)
    /// and [`password`](Builder::password).
    pub fn credentials(mut self, provider: impl Into<CredentialProvider>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets the name of the handle in logs and metrics. Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = Some(name.into());
        self
    }

    /// Sets the least number of connections, which are open when [`open`](Builder::open) returns. Default: 0.
    pub fn min(mut self, min: usize) -> Self {
        self.config.min = min;
        self
    }

    /// Sets the largest number of connections. Default: 10.
    pub fn max(mut self, max: usize) -> Self {
        self.config.max = max;
        self
    }

    /// Limits the time that a call waits for a connection, or for its turn on one; `None` for no limit.
    /// Default: 30 s.
    pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.acquire_timeout = timeout.into();
        self
    }

    /// Limits the time for opening a connection. Default: 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Limits the time for a rollback, a reset or the cancelling of a dropped call. After that the
    /// connection is closed instead. Default: 5 s.
    pub fn cleanup_timeout(mut self, timeout: Duration) -> Self {
        self.config.cleanup_timeout = timeout;
        self
    }

    /// Sets how often idle connections are pinged; `None` for never. Default: every 30 s. The connection of
    /// [`Db::listen`] is pinged when it has received nothing for this long.
    pub fn healthcheck_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.config.healthcheck_interval = interval.into();
        self
    }

    /// Closes connections that have been idle for this long, as long as [`min`](Builder::min) are left; `None` for
    /// never. Default: 10 min.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.idle_timeout = timeout.into();
        self
    }

    /// Replaces connections of this age; `None` for never. Default: 30 min, a tenth more or less.
    pub fn max_lifetime(mut self, lifetime: impl Into<Option<Duration>>) -> Self {
        self.config.max_lifetime = lifetime.into();
        self
    }

    /// Varies the lifetime of each connection by up to this share, so that connections
    /// do not all end together. Default: 0.1.
    pub fn lifetime_jitter(mut self, share: f64) -> Self {
        self.config.lifetime_jitter = share;
        self
    }

    /// Logs a warning for every call that waits for a connection for this long; `None` for
    /// never. Default: 1 s.
    pub fn slow_acquire_warning(mut self, slow: impl Into<Option<Duration>>) -> Self {
        self.config.slow_acquire_warning = slow.into();
        self
    }

    /// Logs a warning, once, for a connection that one task has held for this long, with the line that took it; `None`
    /// for never. Default: never.
    pub fn leak_warning(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.config.leak_warning = after.into();
        self
    }

    /// Logs a warning for every statement that takes this long, with the time, the rows, the line of the program and
    /// the shortened SQL, in which `***` stands for every literal; `None` for never. The target of the event is
    /// `cenote::statement`; with the same target every statement is logged at level DEBUG, whatever this says.
    /// Default: never.
    pub fn slow_statements(mut self, threshold: impl Into<Option<Duration>>) -> Self {
        self.config.slow_statements = threshold.into();
        self
    }

    /// Limits how many connections are opened at the same time. Default: 4.
    pub fn max_creating(mut self, limit: usize) -> Self {
        self.config.max_creating = limit;
        self
    }

    /// Sets how many prepared statements each connection keeps; 0 for none. Default: 64.
    pub fn statement_cache(mut self, statements: usize) -> Self {
        self.config.statement_cache = statements;
        self
    }

    /// Cancels statements that run for this long. Default: never. A COMMIT
    /// that is not answered in time is [`Kind::OutcomeUnknown`](crate::Kind::OutcomeUnknown).
    pub fn statement_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.statement_timeout = timeout.into();
        self
    }

    /// Rolls transactions of this age back. Default: never.
    pub fn max_transaction_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.config.max_transaction_age = age.into();
        self
    }

    /// Rolls transactions back that have been open for this long without a call. Default: never.
    pub fn idle_in_transaction(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.config.idle_in_transaction = time.into();
        self
    }

    /// Sets when a released connection has its session reset, or is replaced. Default: a changed session is reset.
    pub fn reset(mut self, when: ResetPolicy) -> Self {
        self.config.reset = when;
        self
    }

    /// Adds a replica of this DSN, which answers reads of [`Db::reading`]. May be given several times. For PostgreSQL with
    /// streaming replication, and for MariaDB with GTIDs. Default: none.
    ///
    /// Each replica has a pool of its own with up to [`max`](Builder::max) connections, opened when they are needed, and one more
    /// connection that asks for the lag. It inherits what is set on the builder (user, password, credentials, options, hooks, settings), but
    /// not [`min`](Builder::min), the breaker and the option `target_session_attrs`. It inherits nothing from the DSN of the primary: repeat
    /// user, password and `sslmode` in the DSN of each replica.
    ///
    /// With replicas, a COMMIT in a coroutine, and a statement that may write, also asks for the position in the log: in the same
    /// round trip, except for statements on MariaDB. MySQL has no such positions: then the primary answers all reads.
    pub fn replica(mut self, dsn: impl Into<Secret>) -> Self {
        self.config.replicas.push(dsn.into());
        self
    }

    /// Limits how long a read waits for a replica to reach what its coroutine has written; then the primary answers. Default: 50 ms.
    pub fn replica_wait(mut self, wait: Duration) -> Self {
        self.config.replica_wait = wait;
        self
    }

    /// Sets how far a replica may lag behind the primary to get reads; `None` for any lag. Default: 10 s.
    ///
    /// The lag is how long ago the handle first saw, on the primary, a position in the log that the replica has not replayed. It is 0 while
    /// the replica lacks nothing.
    pub fn max_replica_lag(mut self, lag: impl Into<Option<Duration>>) -> Self {
        self.config.max_replica_lag = lag.into();
        self
    }

    /// Sets an option of the driver: see its documentation. [`open`](Builder::open) refuses an unknown option.
    pub fn option(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.config.options.set(name, value);
        self
    }

    /// Lets short reads of several tasks share a connection of PostgreSQL when none is idle: each is sent at once, and the
    /// server answers one after the other. See [the guide](crate::guide::shared_connections) for which reads share, and for
    /// what that means. Other drivers, poolers and [`ResetPolicy`] other than the default never share. Default: no.
    pub fn share_connections(mut self, share: bool) -> Self {
        self.config.share_connections = share;
        self
    }

    /// Uses one connection instead of a pool, opened by the first call. While one coroutine
    /// pins the connection, the others wait.
    pub fn unpooled(mut self) -> Self {
        self.config.unpooled = true;
        self
    }

    /// Asks for one connection that stays open for as long as the handle lives, as PDO's
    /// `ATTR_PERSISTENT` does. Every [unpooled](Builder::unpooled) handle has such a connection; a pool opens
    /// and closes connections by itself, so [`open`](Builder::open) refuses `persistent` together with a
    /// pool. The connection closes with the last clone of the handle. Default: no.
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.config.persistent = persistent;
        self
    }

    /// Runs a hook on every new connection before anybody uses it, and again after a reset. May be
    /// given several times. A hook ends what it begins: one that leaves a transaction open
    /// ([`Kind::LeftTransaction`]), or drops a call before it is answered, fails the connect.
    pub fn on_connect(
        mut self,
        hook: impl for<'c> AsyncHook<'c, PooledConnection, Result<()>>,
    ) -> Self {
        self.on_connect.push(Box::new(hook));
        self
    }

    /// Shows the SQL of statements in their spans, as `db.query.text`: shortened, with `?` for every literal. Spans have the
    /// target `cenote::span` and the level DEBUG. Default: they show only the operation and the tables.
    pub fn span_text(mut self) -> Self {
        self.span_text = true;
        self
    }

    /// Sets the executor. Default: Tokio.
    pub fn runtime(mut self, runtime: impl Runtime) -> Self {
        self.runtime = Some(Arc::new(runtime));
        self
    }

    /// Sets the strategy of the circuit breaker: see [`Strategy`]. Default: none.
    pub fn breaker(mut self, strategy: impl Strategy) -> Self {
        self.breaker = Some(Box::new(|pool| pool.breaker(strategy)));
        self
    }

    /// Checks the settings, opens the first [`min`](Builder::min) connections and returns the handle. With a minimum of 0,
    /// the default, nothing connects before the first call.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if the DSN or an option is invalid; the error of opening the first
    /// connections.
    pub async fn open(self) -> Result<Db> {
        self.config.check()?;
        let dsn = self.config.parse_dsn()?;
        let driver = match &self.driver {
            Some(driver) => Arc::clone(driver),
            None => driver_named(dsn.driver())?,
        };
        Ok(Db::of(self.build(&dsn, &*driver).await?))
    }

    /// Puts a driver around the one that the DSN names.
    pub(crate) fn with_driver_around(
        mut self,
        wrap: impl FnOnce(Arc<dyn Driver>) -> Result<Arc<dyn Driver>>,
    ) -> Result<Self> {
        let driver = match self.driver.take() {
            Some(driver) => driver,
            None => driver_named(self.config.parse_dsn()?.driver())?,
        };
        self.driver = Some(wrap(driver)?);
        // A replica would see nothing of the transaction that the driver around this one keeps open.
        self.config.replicas.clear();
        Ok(self)
    }

    async fn build(self, dsn: &Dsn, driver: &dyn Driver) -> Result<Arc<Handle>> {
        let config = self.config;
        if let Some((name, _)) = config
            .options
            .iter()
            .find(|(_, value)| value.contains('\0'))
        {
            let message = format!("there is a NUL in the option {name}");
            return Err(Error::new(Kind::Config, message));
        }
        let template = driver.template(dsn, &config.options)?;
        if !config.unpooled {
            template.check_poolable()?;
        }
        let given = config.user.is_some() || config.password.is_some();
        if self.provider.is_some() && given {
            let message = "credentials are given twice: by user or password, and by a provider";
            return Err(Error::new(Kind::Config, message));
        }
        let runtime = self
            .runtime
            .unwrap_or_else(|| Arc::new(TokioRuntime::new()));
        let common = Common {
            id: DbId::next(),
            driver: driver.name(),
            provider: self.provider,
            log: Arc::new(StatementLog {
                slow: config.slow_statements,
                dialect: template.dialect(),
                runtime: runtime.clone(),
                timings: StatementTimings::new(),
                listeners: StatementListeners::default(),
                activities: Activities::default(),
            }),
            runtime,
            on_connect: Arc::new(self.on_connect),
            defaults: Arc::default(),
            span_text: self.span_text,
            call_site: self.call_site,
        };
        let replicas = common.open_replicas(&config, driver, &*template).await?;
        let opened = common.open(config, dsn, template, self.breaker, replicas);
        opened.await
    }
}

/// What the handles of a database share: its own, and those of its replicas.
struct Common {
    id: DbId,
    driver: &'static str,
    provider: Option<CredentialProvider>,
    runtime: Arc<dyn Runtime>,
    log: Arc<StatementLog>,
    on_connect: Arc<Vec<Box<dyn OnConnect>>>,
    defaults: Arc<Defaults>,
    span_text: bool,
    call_site: &'static Location<'static>,
}

type WithBreaker = Box<dyn FnOnce(PoolBuilder) -> PoolBuilder + Send>;

impl Common {
    /// Opens the handles of the replicas. None of them connects yet.
    async fn open_replicas(
        &self,
        config: &DbConfig,
        driver: &dyn Driver,
        template: &dyn Template,
    ) -> Result<Option<(Arc<Tracker>, Arc<Replicas>)>> {
        if config.replicas.is_empty() {
            return Ok(None);
        }
        if !template.has_positions() {
            let message = format!(
                "the driver {} has no replicas; those of PostgreSQL and MariaDB have",
                self.driver
            );
            return Err(Error::new(Kind::Unsupported, message));
        }
        let mut handles = Vec::new();
        for dsn in &config.replicas {
            let config = config.of_replica(dsn);
            let dsn = config.parse_dsn()?;
            if dsn.driver() != self.driver && !driver.aliases().contains(&dsn.driver()) {
                let message = "a replica has another driver than the primary";
                return Err(Error::new(Kind::Config, message));
            }
            let replica = driver.template(&dsn, &config.options)?;
            if replica.dialect() != template.dialect() {
                // The texts are read once, for the primary.
                let message = "a replica reads quotes or backslashes otherwise than the primary; give its DSN the same sql_mode";
                return Err(Error::new(Kind::Config, message));
            }
            handles.push(Box::pin(self.open(config, &dsn, replica, None, None)).await?);
        }
        let tracker = Tracker::new(self.id, config.max_replica_lag);
        let (wait, max_lag) = (config.replica_wait, config.max_replica_lag);
        let replicas = Replicas::new(handles, Arc::clone(&tracker), wait, max_lag);
        Ok(Some((tracker, replicas)))
    }

    async fn open(
        &self,
        config: DbConfig,
        dsn: &Dsn,
        template: Arc<dyn Template>,
        breaker: Option<WithBreaker>,
        replicas: Option<(Arc<Tracker>, Arc<Replicas>)>,
    ) -> Result<Arc<Handle>> {
        let runtime = Arc::clone(&self.runtime);
        let (tracker, replicas) = replicas.unzip();
        let provider = match &self.provider {
            Some(provider) => provider.clone(),
            None => config.credentials(dsn).into_provider(),
        };
        let shared = Arc::new(Shared {
            id: self.id,
            dialect: template.dialect(),
            origin: Origin::new(self.driver, &*template, self.span_text),
            one_writer: template.one_writer(),
            writers: match template.one_writer() {
                true => Writers::among(config.max),
                false => None,
            },
            runtime: runtime.clone(),
            acquire_timeout: config.acquire_timeout,
            cleanup_timeout: config.cleanup_timeout,
            statement_timeout: config.statement_timeout,
            max_transaction_age: config.max_transaction_age,
            idle_in_transaction: config.idle_in_transaction,
            contention: Arc::new(Contention::default()),
            closed: AtomicBool::new(false),
            handle: OnceLock::new(),
        });
        let login = Arc::new(Login {
            provider,
            dsn: dsn.credentials(),
        });
        let hub = Hub::new(Setup {
            template: Arc::clone(&template),
            login: Arc::clone(&login),
            runtime: runtime.clone(),
            connect_timeout: config.connect_timeout,
            cleanup_timeout: config.cleanup_timeout,
            ping_after: config.healthcheck_interval,
            join_timeout: config.acquire_timeout,
        });
        let connections = ConnectionManager {
            template,
            login,
            log: Arc::clone(&self.log),
            settings: ConnectSettings {
                full_reset: config.reset == ResetPolicy::Always,
                ..ConnectSettings::new(config.statement_cache)
            },
            connect_timeout: config.connect_timeout,
            reset: config.reset,
            on_connect: Arc::clone(&self.on_connect),
            runtime: runtime.clone(),
            defaults: Arc::clone(&self.defaults),
            tracker,
            last_loss: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
        };
        // Where every released session is reset, a connection has one user at a time.
        let wants_to_share = config.share_connections || eager::is_on();
        let shares = wants_to_share && config.reset == ResetPolicy::WhenTouched;
        let lanes = shares.then(|| Lanes::new(Arc::clone(&runtime)));
        let mut pool = pool_builder(connections, &config, runtime).call_site(self.call_site);
        if let Some(breaker) = breaker {
            pool = breaker(pool);
        }
        let pool = pool.open().await.map_err(not_opened)?;
        let handle = Arc::new(Handle {
            shared,
            pool,
            hub,
            config,
            replicas,
            driver: self.driver,
            next_check: AtomicU64::new(0),
            lanes,
        });
        let _ = handle.shared.handle.set(Arc::downgrade(&handle));
        // Release pairs with the acquire of `connect_to_any`.
        handle.pool.manager().is_open.store(true, Ordering::Release);
        watch::start(&handle);
        replicas::watch::start(&handle);
        Ok(handle)
    }
}

/// A connection that is opening keeps its place in the pool for this much longer than the connect timeout.
const CREATE_GRACE: Duration = Duration::from_secs(2);

/// Translates the configuration into settings of the pool.
fn pool_builder(
    connections: ConnectionManager,
    config: &DbConfig,
    runtime: Arc<dyn Runtime>,
) -> PoolBuilder {
    let waits_for_hosts = connections.template.hosts().is_some();
    let mut pool = Pool::builder(connections)
        .min(config.min)
        .max(if config.unpooled { 1 } else { config.max })
        // The error of the connect timeout names the server. This time-out only frees the place of a
        // connection whose executor does not run.
        .create_timeout(config.connect_timeout.saturating_add(CREATE_GRACE))
        .cleanup_timeout(config.cleanup_timeout)
        .lifetime_jitter(config.lifetime_jitter)
        .concurrent_creations(config.max_creating)
        .runtime(runtime);
    if waits_for_hosts {
        // While no host fits, a creation goes on; each of its attempts has the connect timeout.
        pool = pool.no_create_timeout();
    }
    if let Some(name) = &config.name {
        pool = pool.name(name.clone());
    }
    if let Some(timeout) = config.acquire_timeout {
        pool = pool.acquire_timeout(timeout);
    }
    pool = match config.slow_acquire_warning {
        Some(slow) => pool.slow_acquire_warning(slow),
        None => pool.no_slow_acquire_warning(),
    };
    if let Some(after) = config.leak_warning {
        pool = pool.leak_warning(after);
    }
    if config.unpooled {
        // The pool neither replaces nor closes the only connection of an unpooled handle.
        return pool;
    }
    if let Some(interval) = config.healthcheck_interval {
        pool = pool.healthcheck_interval(interval);
    }
    if let Some(timeout) = config.idle_timeout {
        pool = pool.idle_timeout(timeout);
    }
    if let Some(lifetime) = config.max_lifetime {
        pool = pool.max_lifetime(lifetime);
    }
    pool
}

fn not_opened(error: cenote_pool::OpenError<Error>) -> Error {
    match error {
        cenote_pool::OpenError::Config(error) => Error::new(Kind::Config, error.to_string()),
        cenote_pool::OpenError::Warmup(error) => crate::call::route::from_pool(error, None),
        other => Error::new(Kind::Config, other.to_string()),
    }
}

/// Returns the driver of this name, if it is compiled in.
fn driver_named(name: &str) -> Result<Arc<dyn Driver>> {
    let drivers = compiled_in();
    let known: Vec<_> = drivers.iter().map(|driver| driver.name()).collect();
    let advice = match name {
        "odbc" => "; switch on the feature `odbc` of cenote",
        "sqlite" | "sqlite3" => "; switch on the feature `sqlite` of cenote",
        "pgsql" | "postgres" | "postgresql" => "; switch on the feature `postgres` of cenote",
        "mysql" | "mariadb" => "; switch on the feature `mysql` of cenote",
        _ => "",
    };
    let message = format!(
        "the DSN asks for the driver {name:?}, which this program does not have; it has: {}{advice}",
        known.join(", ")
    );
    drivers
        .into_iter()
        .find(|driver| driver.name() == name || driver.aliases().contains(&name))
        .ok_or_else(|| Error::new(Kind::Config, message))
}

fn compiled_in() -> Vec<Arc<dyn Driver>> {
    vec![
        #[cfg(feature = "odbc")]
        Arc::new(crate::odbc::Odbc::new()),
        #[cfg(feature = "sqlite")]
        Arc::new(crate::sqlite::Sqlite::new()),
        #[cfg(feature = "postgres")]
        Arc::new(crate::postgres::Postgres::new()),
        #[cfg(feature = "mysql")]
        Arc::new(crate::mysql::Mysql::new()),
    ]
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
