//! The pool's hooks: they open, check, clean and close connections. Here the pool's rules meet the driver contract: in
//! what condition a connection goes back, and when it is checked, reset or replaced.

use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cenote_pool::{AsyncHook, Info, Manager, Runtime, Verdict, within};

use crate::call::op::Ping;
use crate::config::ResetPolicy;
use crate::config::secret::{CredentialProvider, Credentials};
use crate::driver::{BoxFuture, ConnectSettings, Connection, Status, Template};
use crate::error::rounded;
use crate::hosts::Hosts;
use crate::pooled::connection::PooledConnection;
use crate::pooled::shared::TimeLimit;
use crate::pooled::statement_log::StatementLog;
use crate::replicas::Tracker;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// Runs on every new connection: an [`AsyncHook`] as a trait object.
pub(crate) trait OnConnect: Send + Sync {
    fn run<'c>(&'c self, connection: &'c mut PooledConnection) -> BoxFuture<'c, Result<()>>;
}

impl<H: for<'c> AsyncHook<'c, PooledConnection, Result<()>>> OnConnect for H {
    fn run<'c>(&'c self, connection: &'c mut PooledConnection) -> BoxFuture<'c, Result<()>> {
        self.call(connection)
    }
}

/// Opens, checks, cleans and closes the connections of one handle: the pool's [`Manager`].
pub struct ConnectionManager {
    pub(crate) template: Arc<dyn Template>,
    pub(crate) login: Arc<Login>,
    pub(crate) settings: ConnectSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) reset: ResetPolicy,
    pub(crate) on_connect: Arc<Vec<Box<dyn OnConnect>>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) log: Arc<StatementLog>,
    /// Shared with the replicas.
    pub(crate) defaults: Arc<Defaults>,
    /// Takes the positions of writes, if the handle has replicas.
    pub(crate) tracker: Option<Arc<Tracker>>,
    /// When a call last found its connection lost, by the coarse clock; 0 if none did. Only a connection that has
    /// answered since then is trusted.
    pub(crate) last_loss: AtomicU64,
    /// The handle has been opened.
    pub(crate) is_open: AtomicBool,
}

/// Where the credentials of each connection come from.
pub(crate) struct Login {
    pub(crate) provider: CredentialProvider,
    /// Completes what the provider leaves out, such as the user.
    pub(crate) dsn: Credentials,
}

impl Login {
    /// Returns the credentials for one connect.
    pub(crate) async fn credentials(&self) -> Result<Credentials> {
        let credentials = self.provider.get().await?.or(self.dsn.clone());
        credentials.check()?;
        Ok(credentials)
    }
}

/// The default settings of every connection, in order.
#[derive(Default)]
pub(crate) struct Defaults {
    /// The number of changes. Release pairs with the acquire in `version`.
    version: AtomicU64,
    kept: Mutex<KeptDefaults>,
}

#[derive(Default)]
struct KeptDefaults {
    /// Version, name and value of each setting.
    settings: Vec<(u64, String, Value<'static>)>,
    /// The version of the last removal.
    removed: u64,
}

impl Defaults {
    pub(crate) fn set(&self, name: &str, value: Value<'static>) {
        let mut kept = self.kept();
        let version = self.version.load(Ordering::Relaxed) + 1;
        kept.settings.retain(|(_, of, _)| of != name);
        kept.settings.push((version, name.to_owned(), value));
        self.version.store(version, Ordering::Release);
    }

    pub(crate) fn unset(&self, name: &str) {
        let mut kept = self.kept();
        let before = kept.settings.len();
        kept.settings.retain(|(_, of, _)| of != name);
        if kept.settings.len() < before {
            kept.removed = self.version.load(Ordering::Relaxed) + 1;
            self.version.store(kept.removed, Ordering::Release);
        }
    }

    fn kept(&self) -> MutexGuard<'_, KeptDefaults> {
        // Nothing that can panic runs under this lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the settings after this version.
    fn since(&self, version: u64) -> Vec<(String, Value<'static>)> {
        let kept = self.kept();
        let missing = kept.settings.iter().filter(|(of, _, _)| *of > version);
        missing
            .map(|(_, name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Returns whether a setting was removed after this version.
    fn were_removed_since(&self, version: u64) -> bool {
        self.kept().removed > version
    }
}

/// The pauses between two attempts to connect while no host fits.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl ConnectionManager {
    /// Opens a connection that is ready for use.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no connection stays open: the driver promises it.
    async fn connect(&self) -> Result<PooledConnection> {
        let connecting = async {
            let connection = self.open().await?;
            let mut connection =
                PooledConnection::new(connection, &self.log, self.template.one_writer());
            self.set_up(&mut connection).await?;
            connection.set_tracker(self.tracker.clone());
            Ok(connection)
        };
        let limit = Some(self.connect_timeout);
        let connected = within(&self.runtime, limit, connecting).await;
        connected.unwrap_or_else(|| {
            let late = connect_timed_out(self.connect_timeout, &*self.template);
            // One host hangs and the others do not fit: that is no failure of theirs.
            let none_fits = self.template.hosts().is_some_and(|hosts| hosts.none_fits());
            Err(if none_fits { late.without_host() } else { late })
        })
    }

    /// Opens a connection to a host that fits. While there is none, tries again: at once when one appears, and otherwise
    /// after pauses. So callers wait until their deadline, and the breaker counts no failure.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    async fn connect_to_any(&self, hosts: &Hosts) -> Result<PooledConnection> {
        let mut pause = FIRST_PAUSE;
        let search = hosts.search();
        loop {
            let mut appeared = pin!(hosts.fits_now());
            // From now on no appearance is missed.
            appeared.as_mut().enable();
            let failed = match self.connect().await {
                Err(error) if error.is_without_host() => error,
                connected => {
                    search.set_failure(None);
                    return connected;
                }
            };
            // While the handle is being opened, the program wants to know.
            if !self.is_open.load(Ordering::Acquire) {
                return Err(failed);
            }
            tracing::debug!(error = %failed, "no host fits, trying again");
            search.set_failure(Some(failed));
            within(&self.runtime, Some(pause), appeared).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Replaces a lost connection by a new one.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lost connection stays.
    pub(crate) async fn reconnect(
        &self,
        connection: &mut PooledConnection,
        limit: Option<Duration>,
    ) -> Result<()> {
        let fresh = match self.template.hosts() {
            None => self.connect().await?,
            Some(hosts) => {
                // What the search has noted outlives its time-out.
                let _search = hosts.search();
                let fresh = within(&self.runtime, limit, Box::pin(self.connect_to_any(hosts)));
                fresh.await.unwrap_or_else(|| Err(no_host_in_time(hosts)))?
            }
        };
        let lost = connection.take_over(fresh);
        // No await follows: the new connection is in use now.
        self.runtime.spawn(Box::pin(async move {
            if let Err(error) = lost.close().await {
                tracing::debug!(%error, "closing a lost connection failed");
            }
        }));
        Ok(())
    }

    /// Opens a connection, without hooks and defaults.
    pub(crate) async fn open(&self) -> Result<Box<dyn Connection>> {
        let credentials = self.login.credentials().await?;
        self.template.connect(credentials, &self.settings).await
    }

    /// Runs the hooks and sets the defaults on a new or reset connection.
    pub(crate) async fn set_up(&self, connection: &mut PooledConnection) -> Result<()> {
        for hook in self.on_connect.iter() {
            hook.run(connection).await?;
            if connection.is_unsettled() {
                let message = "on_connect dropped a call before it was answered, so the \
                               connection was closed: await every call in the hook";
                return Err(Error::new(Kind::Connect, message));
            }
        }
        if !self.on_connect.is_empty() {
            self.check_after_hooks(connection).await?;
        }
        self.set_missing_defaults(connection, 0).await?;
        connection.set_untouched();
        Ok(())
    }

    /// Refuses a connection on which a hook left a transaction open: the next calls would run in that transaction, and be
    /// rolled back with it.
    async fn check_after_hooks(&self, connection: &mut PooledConnection) -> Result<()> {
        // A hook may have used the driver's connection: its streams and dropped calls end here.
        connection.driver().settle().await?;
        match connection.driver().status() {
            Status::Idle => Ok(()),
            Status::InTransaction | Status::Failed => {
                let message = "on_connect left a transaction open, so the connection was closed: \
                               end the transaction in the hook, with COMMIT or ROLLBACK";
                Err(Error::new(Kind::LeftTransaction, message))
            }
            // The database reports no status.
            Status::Unknown => connection.driver().rollback().await,
        }
    }

    /// Sets the defaults after this version.
    async fn set_missing_defaults(
        &self,
        connection: &mut PooledConnection,
        reached: u64,
    ) -> Result<()> {
        let version = self.defaults.version();
        for (name, value) in self.defaults.since(reached) {
            connection.driver().set(&name, &value).await?;
        }
        connection.set_defaults(version);
        Ok(())
    }

    /// Updates the defaults of a connection. Returns `false` if the connection cannot be used any more.
    #[cold]
    async fn catch_up(&self, connection: &mut PooledConnection) -> Result<bool> {
        let reached = connection.defaults();
        if self.defaults.were_removed_since(reached) {
            // Only a reset removes a setting.
            connection.touch();
            return connection.clean(self).await;
        }
        self.set_missing_defaults(connection, reached).await?;
        Ok(true)
    }

    /// Notes that a connection was lost: the others are suspect until they have answered again.
    pub(crate) fn note_loss(&self) {
        // An answer in the same tick may be older. Release pairs with the acquire of `is_suspect`.
        let now = self.runtime.coarse_now();
        self.last_loss.fetch_max(now + 1, Ordering::Release);
    }

    /// Returns whether the connection has not answered since another one was lost.
    #[inline]
    fn is_suspect(&self, connection: &PooledConnection) -> bool {
        connection.answered() < self.last_loss.load(Ordering::Acquire)
    }

    /// Returns whether another read may join those that are in flight on the connection.
    pub(crate) fn may_share(&self, connection: &PooledConnection) -> bool {
        let is_fit = !connection.is_broken() && !connection.is_outdated();
        is_fit && !self.is_suspect(connection) && connection.defaults() == self.defaults.version()
    }

    /// Returns whether every session is reset or replaced, also an unchanged one.
    pub(crate) fn resets_always(&self) -> bool {
        self.reset != ResetPolicy::WhenTouched
    }

    /// Returns whether connections are replaced instead of reset.
    pub(crate) fn replaces_always(&self) -> bool {
        self.reset == ResetPolicy::Replace
    }
}

/// Returns the error of a connection that was not opened in time.
pub(crate) fn connect_timed_out(limit: Duration, template: &dyn Template) -> Error {
    let message = format!(
        "timed out after {} connecting to {} (connect_timeout)",
        rounded(limit),
        template.address()
    );
    Error::new(Kind::Timeout, message)
}

/// Returns the error of a call whose deadline has passed before a host fitted.
fn no_host_in_time(hosts: &Hosts) -> Error {
    let message = "timed out waiting for a host that fits";
    match hosts.why_none() {
        Some(why) => {
            Error::new(Kind::Timeout, format!("{message}: {}", why.message())).because(why)
        }
        None => Error::new(Kind::Timeout, message),
    }
}

impl Manager for ConnectionManager {
    type Resource = PooledConnection;
    type Error = Error;

    async fn create(&self) -> Result<PooledConnection> {
        match self.template.hosts() {
            None => self.connect().await,
            Some(hosts) => Box::pin(self.connect_to_any(hosts)).await,
        }
    }

    async fn destroy(&self, connection: PooledConnection) -> Result<()> {
        connection.into_connection().close().await
    }

    async fn healthcheck(&self, connection: &mut PooledConnection, _: Info<'_>) -> Result<bool> {
        let limit = TimeLimit {
            time: self.connect_timeout,
            setting: "connect_timeout",
        };
        let site = Location::caller();
        let answered = connection.send_within(&Ping, site, &self.runtime, Some(limit));
        match answered.await {
            // A connection that does not answer in time is destroyed.
            Err(error) if error.kind() == Kind::StatementTimeout => Ok(false),
            answered => answered.map(|()| !connection.is_broken()),
        }
    }

    async fn before_acquire(
        &self,
        connection: &mut PooledConnection,
        info: Info<'_>,
    ) -> Result<bool> {
        if !connection.is_numbered() {
            connection.set_number(info.id());
        }
        if !connection.probe() || connection.is_outdated() {
            return Ok(false);
        }
        if self.is_suspect(connection)
            && !matches!(Box::pin(self.healthcheck(connection, info)).await, Ok(true))
        {
            return Ok(false);
        }
        if connection.defaults() != self.defaults.version() {
            // This future is part of every call's future: the rare branch is boxed.
            let is_fit = Box::pin(self.catch_up(connection)).await?;
            return Ok(is_fit && !connection.is_broken());
        }
        // The probe or the health check has found it intact.
        Ok(true)
    }

    fn before_release(&self, connection: &mut PooledConnection, _: Info<'_>) -> Verdict {
        connection.set_writer(None);
        connection.verdict(self.resets_always())
    }

    async fn recycle(&self, connection: &mut PooledConnection, _: Info<'_>) -> Result<bool> {
        connection.clean(self).await
    }
}

impl fmt::Debug for ConnectionManager {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ConnectionManager")
            .field("template", &self.template)
            .finish_non_exhaustive()
    }
}
