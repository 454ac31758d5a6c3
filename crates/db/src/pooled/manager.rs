//! The hooks that make, check, clean and close connections: the only file that names
//! both layers.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cenote_pool::{AsyncHook, Info, Manager, Runtime, Verdict, within};

use crate::call::op::Ping;
use crate::config::ResetPolicy;
use crate::config::secret::{CredentialProvider, Credentials};
use crate::driver::{BoxFuture, ConnectSettings, Connection, Status, Template};
use crate::error::rounded;
use crate::pooled::connection::PooledConnection;
use crate::pooled::shared::TimeLimit;
use crate::pooled::statement_log::StatementLog;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// What runs on every new connection: an [`AsyncHook`], as an object.
pub(crate) trait OnConnect: Send + Sync {
    fn run<'c>(&'c self, link: &'c mut PooledConnection) -> BoxFuture<'c, Result<()>>;
}

impl<H: for<'c> AsyncHook<'c, PooledConnection, Result<()>>> OnConnect for H {
    fn run<'c>(&'c self, link: &'c mut PooledConnection) -> BoxFuture<'c, Result<()>> {
        self.call(link)
    }
}

/// Makes, checks, cleans and closes the connections of one handle. The pool's
/// [`Manager`].
pub struct ConnectionManager {
    pub(crate) template: Arc<dyn Template>,
    pub(crate) credentials: CredentialProvider,
    pub(crate) dsn_credentials: Credentials,
    pub(crate) settings: ConnectSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) reset: ResetPolicy,
    pub(crate) on_connect: Vec<Box<dyn OnConnect>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) log: Arc<StatementLog>,
    pub(crate) defaults: Defaults,
    /// The tick of the coarse clock after which a connection must have answered to be trusted: the one
    /// at which a call last found its connection lost. 0 if none did.
    pub(crate) last_loss: AtomicU64,
}

/// Settings that every connection is given, in order.
#[derive(Default)]
pub(crate) struct Defaults {
    /// How many changes there have been. Release pairs with the acquire in `version`.
    version: AtomicU64,
    kept: Mutex<KeptDefaults>,
}

#[derive(Default)]
struct KeptDefaults {
    /// The version that each came with, its name and its value.
    settings: Vec<(u64, String, Value<'static>)>,
    /// The version that the last one was removed with.
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

    /// The settings that a connection lacks which has those up to this version.
    fn since(&self, version: u64) -> Vec<(String, Value<'static>)> {
        let kept = self.kept();
        let missing = kept.settings.iter().filter(|(of, _, _)| *of > version);
        missing
            .map(|(_, name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Whether a connection with the settings up to this version may have one that was removed.
    fn were_removed_since(&self, version: u64) -> bool {
        self.kept().removed > version
    }
}

impl ConnectionManager {
    /// Opens a connection that is ready for use.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open: the driver's promise.
    async fn connect(&self) -> Result<PooledConnection> {
        let connecting = async {
            let connection = self.open().await?;
            let mut link = PooledConnection::new(connection, &self.log, self.template.one_writer());
            self.set_up(&mut link).await?;
            Ok(link)
        };
        let limit = Some(self.connect_timeout);
        let connected = within(&self.runtime, limit, connecting).await;
        connected.unwrap_or_else(|| {
            let message = format!(
                "timed out after {} connecting to {} (connect_timeout)",
                rounded(self.connect_timeout),
                self.template.address()
            );
            Err(Error::new(Kind::Timeout, message))
        })
    }

    /// Puts a new connection in the place of a lost one.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lost one is still there.
    pub(crate) async fn reconnect(&self, link: &mut PooledConnection) -> Result<()> {
        let lost = link.take_over(self.connect().await?);
        // Without an await: from here on the new one is in use.
        self.runtime.spawn(Box::pin(async move {
            if let Err(error) = lost.close().await {
                tracing::debug!(%error, "closing a lost connection failed");
            }
        }));
        Ok(())
    }

    /// Opens a connection that nobody has told anything yet.
    pub(crate) async fn open(&self) -> Result<Box<dyn Connection>> {
        let credentials = self.credentials.get().await?;
        // What the provider leaves open, such as the user, the DSN may say.
        let credentials = credentials.or(self.dsn_credentials.clone());
        credentials.check()?;
        self.template.connect(credentials, &self.settings).await
    }

    /// Runs the hooks and sets the defaults on a connection that was just opened or reset.
    pub(crate) async fn set_up(&self, link: &mut PooledConnection) -> Result<()> {
        for hook in &self.on_connect {
            hook.run(link).await?;
            if link.is_unsettled() {
                let message = "on_connect dropped a call before it was answered, so the \
                               connection was closed: await every call in the hook";
                return Err(Error::new(Kind::Connect, message));
            }
        }
        if !self.on_connect.is_empty() {
            self.check_after_hooks(link).await?;
        }
        self.set_missing_defaults(link, 0).await?;
        link.set_untouched();
        Ok(())
    }

    /// Refuses a connection on which a hook left a transaction open: what callers do next would
    /// run in that transaction, and be rolled back with it.
    async fn check_after_hooks(&self, link: &mut PooledConnection) -> Result<()> {
        // A hook may have used the driver's connection itself: ends its streams and dropped calls.
        link.driver().settle().await?;
        match link.driver().status() {
            Status::Idle => Ok(()),
            Status::InTransaction | Status::Failed => {
                let message = "on_connect left a transaction open, so the connection was closed: \
                               end the transaction in the hook, with COMMIT or ROLLBACK";
                Err(Error::new(Kind::LeftTransaction, message))
            }
            // The database does not report it.
            Status::Unknown => link.driver().rollback().await,
        }
    }

    /// Sets the defaults that came after this version.
    async fn set_missing_defaults(&self, link: &mut PooledConnection, reached: u64) -> Result<()> {
        let version = self.defaults.version();
        for (name, value) in self.defaults.since(reached) {
            link.driver().set(&name, &value).await?;
        }
        link.set_defaults(version);
        Ok(())
    }

    /// Brings the defaults of a connection up to date. `false` if it can be used no more.
    #[cold]
    async fn catch_up(&self, link: &mut PooledConnection) -> Result<bool> {
        let reached = link.defaults();
        if self.defaults.were_removed_since(reached) {
            // Only a reset takes a setting back.
            link.touch();
            return link.clean(self).await;
        }
        self.set_missing_defaults(link, reached).await?;
        Ok(true)
    }

    /// A connection was lost: until the others have answered again, they may be lost as well.
    pub(crate) fn note_loss(&self) {
        // An answer of the same tick may be of before. Release pairs with the acquire of `is_suspect`.
        let now = self.runtime.coarse_now();
        self.last_loss.fetch_max(now + 1, Ordering::Release);
    }

    /// Whether the connection has not answered since another one was lost.
    #[inline]
    fn is_suspect(&self, link: &PooledConnection) -> bool {
        link.answered() < self.last_loss.load(Ordering::Acquire)
    }

    /// Every session is reset or replaced, whether it was touched or not.
    pub(crate) fn resets_always(&self) -> bool {
        self.reset != ResetPolicy::WhenTouched
    }

    /// A session is never reset: another connection takes its place.
    pub(crate) fn replaces_always(&self) -> bool {
        self.reset == ResetPolicy::Replace
    }
}

impl Manager for ConnectionManager {
    type Resource = PooledConnection;
    type Error = Error;

    async fn create(&self) -> Result<PooledConnection> {
        self.connect().await
    }

    async fn destroy(&self, link: PooledConnection) -> Result<()> {
        link.into_connection().close().await
    }

    async fn healthcheck(&self, link: &mut PooledConnection, _: Info<'_>) -> Result<bool> {
        let limit = TimeLimit {
            time: self.connect_timeout,
            setting: "connect_timeout",
        };
        let site = Location::caller();
        let answered = link.send_within(&Ping, site, &self.runtime, Some(limit));
        match answered.await {
            // A connection that does not answer in time is destroyed.
            Err(error) if error.kind() == Kind::StatementTimeout => Ok(false),
            answered => answered.map(|()| !link.is_broken()),
        }
    }

    async fn before_acquire(&self, link: &mut PooledConnection, info: Info<'_>) -> Result<bool> {
        if !link.probe() {
            return Ok(false);
        }
        if self.is_suspect(link)
            && !matches!(Box::pin(self.healthcheck(link, info)).await, Ok(true))
        {
            return Ok(false);
        }
        if link.defaults() != self.defaults.version() {
            // This future lies in that of every call: what is rare is boxed.
            let is_fit = Box::pin(self.catch_up(link)).await?;
            return Ok(is_fit && !link.is_broken());
        }
        Ok(!link.is_broken())
    }

    fn before_release(&self, link: &mut PooledConnection, _: Info<'_>) -> Verdict {
        link.set_writer(None);
        link.verdict(self.resets_always())
    }

    async fn recycle(&self, link: &mut PooledConnection, _: Info<'_>) -> Result<bool> {
        link.clean(self).await
    }
}

impl fmt::Debug for ConnectionManager {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ConnectionManager")
            .field("template", &self.template)
            .finish_non_exhaustive()
    }
}
