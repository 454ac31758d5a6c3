//! The hooks that make, check, clean and close connections: the only file that names
//! both layers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cenote_pool::{AsyncHook, Manager, Runtime, Verdict};

use crate::deadline::SharedRuntime;
use crate::driver::{BoxFuture, ConnectSettings, Connection, Template};
use crate::link::Link;
use crate::secret::{CredentialProvider, Credentials};
use crate::value::Value;
use crate::{Error, Kind, Result};

/// What runs on every new connection: an [`AsyncHook`], as an object.
pub(crate) trait OnConnect: Send + Sync {
    fn run<'c>(&'c self, setup: &'c mut Setup) -> BoxFuture<'c, Result<()>>;
}

impl<H: for<'c> AsyncHook<'c, Setup, Result<()>>> OnConnect for H {
    fn run<'c>(&'c self, setup: &'c mut Setup) -> BoxFuture<'c, Result<()>> {
        self.call(setup)
    }
}

/// Makes, checks, cleans and closes the connections of one handle. The pool's
/// [`Manager`].
pub struct Connections {
    pub(crate) template: Arc<dyn Template>,
    pub(crate) credentials: CredentialProvider,
    pub(crate) dsn_credentials: Credentials,
    pub(crate) settings: ConnectSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) reset_always: bool,
    pub(crate) on_connect: Vec<Box<dyn OnConnect>>,
    pub(crate) runtime: SharedRuntime,
    pub(crate) defaults: Defaults,
}

/// Settings that every connection is given, in order.
#[derive(Default)]
pub(crate) struct Defaults {
    /// How many there have ever been. Release pairs with the acquire of `reached`.
    version: AtomicU64,
    settings: Mutex<Vec<(u64, String, Value<'static>)>>,
}

impl Defaults {
    pub(crate) fn set(&self, name: &str, value: Value<'static>) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.version.load(Ordering::Relaxed) + 1;
        settings.retain(|(_, of, _)| of != name);
        settings.push((version, name.to_owned(), value));
        self.version.store(version, Ordering::Release);
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn since(&self, version: u64) -> Vec<(String, Value<'static>)> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings
            .iter()
            .filter(|(of, _, _)| *of > version)
            .map(|(_, name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// After so long without use a connection is looked at before it is handed out.
const PROBE_AFTER: Duration = Duration::from_millis(500);

impl Connections {
    /// Opens a connection that is ready for use.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open: the driver's promise.
    pub(crate) async fn connect(&self) -> Result<Link> {
        let connecting = async {
            let credentials = self.credentials.get().await?;
            // What the provider leaves open, such as the user, the DSN may say.
            let credentials = credentials.or(self.dsn_credentials.clone());
            let connection = self.template.connect(credentials, &self.settings).await?;
            let mut setup = Setup { connection };
            for hook in &self.on_connect {
                hook.run(&mut setup).await?;
            }
            let mut link = Link::new(setup.connection, 0, self.runtime.coarse_now());
            self.restore(&mut link).await?;
            Ok(link)
        };
        let limit = Some(self.connect_timeout);
        self.runtime
            .within(limit, connecting)
            .await
            .unwrap_or_else(|| {
                let message = format!(
                    "connecting to {} took longer than {:?}",
                    self.template.address(),
                    self.connect_timeout
                );
                Err(Error::new(Kind::Timeout, message))
            })
    }

    /// Gives a connection all defaults anew.
    pub(crate) async fn restore(&self, link: &mut Link) -> Result<()> {
        link.set_defaults(0);
        self.bring_up_to_date(link).await
    }

    async fn bring_up_to_date(&self, link: &mut Link) -> Result<()> {
        let version = self.defaults.version();
        for (name, value) in self.defaults.since(link.defaults()) {
            link.connection().set(&name, &value).await?;
        }
        link.set_defaults(version);
        Ok(())
    }

    pub(crate) fn resets_always(&self) -> bool {
        self.reset_always
    }

    /// Closes a connection: after use, after a failed connect, after a failed check.
    async fn close(&self, link: Link) -> Result<()> {
        link.into_connection().close().await
    }
}

impl Manager for Connections {
    type Resource = Link;
    type Error = Error;

    async fn create(&self) -> Result<Link> {
        self.connect().await
    }

    async fn destroy(&self, link: Link) -> Result<()> {
        self.close(link).await
    }

    async fn healthcheck(&self, link: &mut Link) -> Result<bool> {
        let limit = Some(self.connect_timeout);
        let answered = self.runtime.within(limit, link.connection().ping()).await;
        // No answer in time is a no: the connection goes.
        let Some(answer) = answered else {
            return Ok(false);
        };
        answer?;
        Ok(!link.is_broken())
    }

    async fn before_acquire(&self, link: &mut Link) -> Result<bool> {
        let now = self.runtime.coarse_now();
        if Duration::from_nanos(now.saturating_sub(link.used())) > PROBE_AFTER {
            link.connection().probe();
        }
        if link.defaults() != self.defaults.version() {
            self.bring_up_to_date(link).await?;
        }
        Ok(!link.is_broken())
    }

    fn before_release(&self, link: &mut Link) -> Verdict {
        link.note_use(self.runtime.coarse_now());
        link.verdict(self.reset_always)
    }

    async fn recycle(&self, link: &mut Link) -> Result<bool> {
        link.clean(self).await
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connections")
            .field("template", &self.template)
            .finish_non_exhaustive()
    }
}

/// A new connection, before anybody else sees it: see
/// [`Builder::on_connect`](crate::Builder::on_connect).
#[derive(Debug)]
pub struct Setup {
    connection: Box<dyn Connection>,
}

impl Setup {
    /// Runs SQL without parameters: one statement, or a script.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection is closed.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub async fn exec(&mut self, sql: &str) -> Result<()> {
        let mut request = crate::driver::Request::new(sql, &[]);
        request.script = true;
        request.cache = false;
        request.rows = false;
        self.connection.run(request).await.map(drop)
    }

    /// The driver's own connection.
    pub fn driver(&mut self) -> &mut dyn Connection {
        &mut *self.connection
    }
}
