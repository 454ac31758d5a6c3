//! The driver around the driver: it opens one connection, once.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Rules;
use super::connection::SandboxConnection;
use crate::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Driver, Dsn, Listening, Options,
    Template,
};
use crate::{Error, Kind, Result};

#[derive(Debug)]
pub(super) struct SandboxDriver {
    inner: Arc<dyn Driver>,
    rules: Arc<Rules>,
}

impl SandboxDriver {
    pub(super) fn around(inner: Arc<dyn Driver>, rules: &Arc<Rules>) -> Result<Arc<dyn Driver>> {
        if inner.name() == "odbc" {
            let message = "a sandbox needs savepoints and a known transaction status, which ODBC does not have: use a \
                           database for each test";
            return Err(Error::new(Kind::Unsupported, message));
        }
        Ok(Arc::new(SandboxDriver {
            inner,
            rules: Arc::clone(rules),
        }))
    }
}

impl Driver for SandboxDriver {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn aliases(&self) -> &'static [&'static str] {
        self.inner.aliases()
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        Ok(Arc::new(SandboxTemplate {
            inner: self.inner.template(dsn, options)?,
            driver: self.inner.name(),
            rules: Arc::clone(&self.rules),
        }))
    }
}

#[derive(Debug)]
struct SandboxTemplate {
    inner: Arc<dyn Template>,
    driver: &'static str,
    rules: Arc<Rules>,
}

impl Template for SandboxTemplate {
    fn dialect(&self) -> &'static Dialect {
        self.inner.dialect()
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn check_poolable(&self) -> Result<()> {
        // The connection is never replaced.
        Err(Error::new(
            Kind::Config,
            "a sandbox has one connection: it cannot be pooled",
        ))
    }

    fn one_writer(&self) -> bool {
        self.inner.one_writer()
    }

    /// Refuses a second connection, on which everything done so far would be missing.
    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            // Acquire pairs with the release in `session_is_set_up`.
            if self.rules.opened.load(Ordering::Acquire) {
                return Err(self.rules.lost());
            }
            let inner = self.inner.connect(credentials, settings).await?;
            let (driver, dialect) = (self.driver, self.inner.dialect());
            let rules = Arc::clone(&self.rules);
            let connection = SandboxConnection::around(inner, driver, dialect, rules);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn connect_listening(
        &self,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn Listening>>> {
        drop(credentials);
        let message = "a sandbox never commits, so no notification of it is delivered: use a database for this test";
        Box::pin(async move { Err(Error::new(Kind::Unsupported, message)) })
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
