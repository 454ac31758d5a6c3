//! The options of the constructor, and the builder of a handle.

use std::time::Duration;

use cenote::sqlite::{LateFunctions, Sqlite};
use cenote::{Builder, Db, PooledConnection};

/// The kinds of databases; see `cen_driver`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(dead_code, reason = "C makes the values")]
pub(crate) enum DriverKind {
    Sqlite,
    Pgsql,
    Mysql,
}

/// How a handle is opened.
pub(crate) struct Settings {
    pub(crate) driver: DriverKind,
    pub(crate) dsn: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) pooled: bool,
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) healthcheck: Duration,
    /// 0 if the program has not asked for a cache.
    pub(crate) statement_cache: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) init_command: Option<String>,
}

/// How many statements a connection keeps if the program does not say it: those that run a second time.
const KEPT_STATEMENTS: usize = 64;

/// Returns the builder of a handle with these settings.
pub(crate) fn builder(settings: &Settings, late: Option<&LateFunctions>) -> Builder {
    let mut builder = match late {
        Some(late) => Db::builder_with(Sqlite::new().late_functions(late), &settings.dsn),
        None => Db::builder(&settings.dsn),
    };
    if let Some(user) = &settings.user {
        builder = builder.user(user.clone());
    }
    if let Some(password) = &settings.password {
        builder = builder.password(password.clone());
    }
    builder = match settings.pooled {
        true => {
            let max = settings.max.max(settings.min).max(1);
            let interval = (!settings.healthcheck.is_zero()).then_some(settings.healthcheck);
            builder
                .min(settings.min)
                .max(max)
                .max_creating(max)
                .healthcheck_interval(interval)
        }
        false => builder.unpooled(),
    };
    builder = builder.statement_cache(match settings.statement_cache {
        0 => KEPT_STATEMENTS,
        asked => asked,
    });
    for (name, value) in &settings.options {
        builder = builder.option(name.clone(), value.clone());
    }
    if let Some(timeout) = settings
        .timeout
        .filter(|_| settings.driver != DriverKind::Sqlite)
    {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(command) = settings.init_command.clone() {
        builder = builder.on_connect(cenote_pool::with(
            command,
            async |command: &String, connection: &mut PooledConnection| {
                connection.exec(command).await
            },
        ));
    }
    builder
}
