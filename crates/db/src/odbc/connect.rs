//! The template, which opens each connection on a thread of its own.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::cancel::{Control, Left};
use super::config::Config;
use super::connection::OdbcConnection;
use super::error;
use super::handle::Dbc;
use super::reconnect;
use super::session::Session;
use crate::driver::worker::Worker;
use crate::driver::{BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Template};
use crate::{Error, Kind, Result};

/// The maximum of abandoned threads that hang in the driver. At this number, connecting fails until some have ended.
const MAX_ABANDONED: usize = 64;

/// What all connections of a handle share.
#[derive(Debug)]
pub(super) struct OdbcTemplate {
    config: Arc<Config>,
    left: Arc<Left>,
}

impl OdbcTemplate {
    pub(super) fn new(config: Config) -> Self {
        OdbcTemplate {
            config: Arc::new(config),
            left: Arc::default(),
        }
    }

    fn check_threads(&self) -> Result<()> {
        let left = self.left.count();
        if left < MAX_ABANDONED {
            return Ok(());
        }
        let message = format!(
            "cannot connect to {}: {left} calls that were given up still hang in its ODBC driver, \
             which does not let them be cancelled; set its own time limits in the DSN",
            self.config.shown
        );
        Err(Error::new(Kind::Connect, message))
    }
}

impl Template for OdbcTemplate {
    fn dialect(&self) -> &'static Dialect {
        self.config.dialect
    }

    fn address(&self) -> String {
        self.config.shown.clone()
    }

    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            self.check_threads()?;
            let control = Control::new(&self.left);
            let own = control.clone();
            let config = Arc::clone(&self.config);
            let statement_cache = settings.statement_cache;
            let open = move || open(&config, &credentials, own, statement_cache);
            let worker = Worker::start(Arc::new(control), open).await?;
            let connection: Box<dyn Connection> = Box::new(OdbcConnection::new(worker));
            Ok(connection)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the lock under which connections of one driver are opened: psqlODBC changes the locale of the process
/// while it connects, and two connects at once would read freed memory.
fn turns_of(driver: String) -> Arc<Mutex<()>> {
    static DRIVERS: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut drivers = DRIVERS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(drivers.entry(driver).or_default())
}

fn open(
    config: &Arc<Config>,
    credentials: &Credentials,
    control: Control,
    statement_cache: usize,
) -> Result<Session> {
    let turns = turns_of(config.driver());
    let turn = turns.lock().unwrap_or_else(PoisonError::into_inner);
    if control.is_cancelled() {
        // The caller was dropped while this waited for the lock.
        return Err(error::cancelled());
    }
    reconnect::check_files(config)?;
    let text = config.connection_string(credentials);
    let opened = Dbc::connect(&text, config.login_timeout);
    drop((text, turn));
    let connection = opened.map_err(|error| {
        let password = credentials.password.as_ref();
        error::connecting(&error, &config.shown, password.map(|it| it.expose()))
    })?;
    Session::new(connection, Arc::clone(config), control, statement_cache)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::driver::{Dsn, Options};

    async fn refused(template: &OdbcTemplate) -> Error {
        let settings = ConnectSettings::new(0);
        let connecting = template.connect(Credentials::default(), &settings);
        connecting.await.expect_err("there is no such driver")
    }

    #[tokio::test]
    async fn driver_with_too_many_hung_calls_is_used_again_once_they_end() {
        let dsn: Dsn = "odbc:Driver=/no/such/driver.so".parse().unwrap();
        let config = Config::read(&dsn, &Options::new()).unwrap();
        let template = OdbcTemplate::new(config);
        let mut hanging = Vec::new();
        for _ in 0..MAX_ABANDONED {
            let (let_go, held) = mpsc::channel::<()>();
            hanging.push(let_go);
            // It ends when the sender is dropped.
            let hang = move || held.into_iter().count();
            template.left.add(std::thread::spawn(move || {
                assert_eq!(hang(), 0);
            }));
        }
        let error = refused(&template).await;
        assert_eq!(error.kind(), Kind::Connect);
        assert!(error.message().contains("64 calls"), "{error}");
        drop(hanging);
        while template.left.count() > 0 {
            std::thread::yield_now();
        }
        let error = refused(&template).await;
        assert!(error.message().contains("/no/such/driver.so"), "{error}");
    }
}
