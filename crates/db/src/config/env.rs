//! Settings from environment variables.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{DbConfig, ResetPolicy, durations, wrong};
use crate::Result;
use crate::config::dsn::texts::parse_bool;
use crate::config::dsn::{Dsn, Options};
use crate::config::secret::Secret;

impl DbConfig {
    /// Reads the settings from this process's environment variables.
    ///
    /// | variable | field | example |
    /// |---|---|---|
    /// | `CENOTE_DSN`, or `DATABASE_URL` if that is not set | `dsn` | `sqlite:shop.db` |
    /// | `CENOTE_USER` | `user` | `app` |
    /// | `CENOTE_PASSWORD` | `password` | |
    /// | `CENOTE_NAME` | `name` | `orders` |
    /// | `CENOTE_MIN` | `min` | `2` |
    /// | `CENOTE_MAX` | `max` | `10` |
    /// | `CENOTE_ACQUIRE_TIMEOUT` | `acquire_timeout` | `30s`, `off` |
    /// | `CENOTE_CONNECT_TIMEOUT` | `connect_timeout` | `10s` |
    /// | `CENOTE_CLEANUP_TIMEOUT` | `cleanup_timeout` | `5s` |
    /// | `CENOTE_HEALTHCHECK_INTERVAL` | `healthcheck_interval` | `30s`, `off` |
    /// | `CENOTE_IDLE_TIMEOUT` | `idle_timeout` | `10min`, `off` |
    /// | `CENOTE_MAX_LIFETIME` | `max_lifetime` | `30min`, `off` |
    /// | `CENOTE_LIFETIME_JITTER` | `lifetime_jitter` | `0.1` |
    /// | `CENOTE_MAX_CREATING` | `max_creating` | `4` |
    /// | `CENOTE_STATEMENT_CACHE` | `statement_cache` | `64` |
    /// | `CENOTE_STATEMENT_TIMEOUT` | `statement_timeout` | `1min`, `off` |
    /// | `CENOTE_MAX_TRANSACTION_AGE` | `max_transaction_age` | `5min`, `off` |
    /// | `CENOTE_IDLE_IN_TRANSACTION` | `idle_in_transaction` | `1min`, `off` |
    /// | `CENOTE_SLOW_ACQUIRE_WARNING` | `slow_acquire_warning` | `1s`, `off` |
    /// | `CENOTE_LEAK_WARNING` | `leak_warning` | `1min`, `off` |
    /// | `CENOTE_SLOW_STATEMENTS` | `slow_statements` | `500ms`, `off` |
    /// | `CENOTE_SHARE_CONNECTIONS` | `share_connections` | `true`, `1`, `no` |
    /// | `CENOTE_UNPOOLED` | `unpooled` | `true`, `1`, `no` |
    /// | `CENOTE_PERSISTENT` | `persistent` | `true`, `1`, `no` |
    /// | `CENOTE_RESET` | `reset` | `when_touched`, `always`, `replace` |
    /// | `CENOTE_REPLICAS` | `replicas` | DSNs with blanks between them |
    /// | `CENOTE_REPLICA_WAIT` | `replica_wait` | `50ms` |
    /// | `CENOTE_MAX_REPLICA_LAG` | `max_replica_lag` | `10s`, `off` |
    /// | `CENOTE_OPTIONS` | `options` | `busy_timeout=5s;mode=ro` |
    ///
    /// An empty variable counts as not set, and its field has its default. A duration without a unit is in seconds.
    /// [`check`](DbConfig::check) verifies that the fields fit together.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config), with the variable that is missing or invalid. The message quotes no secrets.
    pub fn from_env() -> Result<Self> {
        DbConfig::from_variables(|name| std::env::var_os(name))
    }

    /// Reads the settings from the variables that `lookup` returns.
    ///
    /// Their names are those of [`from_env`](DbConfig::from_env).
    ///
    /// # Errors
    ///
    /// Those of [`from_env`](DbConfig::from_env).
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let variables = Variables { lookup };
        let mut config = DbConfig::new(variables.dsn()?);
        config.user = variables.text("CENOTE_USER")?;
        config.password = variables.text("CENOTE_PASSWORD")?.map(Secret::from);
        config.name = variables.text("CENOTE_NAME")?;
        variables.number("CENOTE_MIN", &mut config.min)?;
        variables.number("CENOTE_MAX", &mut config.max)?;
        variables.optional("CENOTE_ACQUIRE_TIMEOUT", &mut config.acquire_timeout)?;
        variables.duration("CENOTE_CONNECT_TIMEOUT", &mut config.connect_timeout)?;
        variables.duration("CENOTE_CLEANUP_TIMEOUT", &mut config.cleanup_timeout)?;
        variables.optional(
            "CENOTE_HEALTHCHECK_INTERVAL",
            &mut config.healthcheck_interval,
        )?;
        variables.optional("CENOTE_IDLE_TIMEOUT", &mut config.idle_timeout)?;
        variables.optional("CENOTE_MAX_LIFETIME", &mut config.max_lifetime)?;
        variables.number("CENOTE_LIFETIME_JITTER", &mut config.lifetime_jitter)?;
        variables.number("CENOTE_MAX_CREATING", &mut config.max_creating)?;
        variables.number("CENOTE_STATEMENT_CACHE", &mut config.statement_cache)?;
        variables.optional("CENOTE_STATEMENT_TIMEOUT", &mut config.statement_timeout)?;
        variables.optional(
            "CENOTE_MAX_TRANSACTION_AGE",
            &mut config.max_transaction_age,
        )?;
        variables.optional(
            "CENOTE_IDLE_IN_TRANSACTION",
            &mut config.idle_in_transaction,
        )?;
        variables.optional(
            "CENOTE_SLOW_ACQUIRE_WARNING",
            &mut config.slow_acquire_warning,
        )?;
        variables.optional("CENOTE_LEAK_WARNING", &mut config.leak_warning)?;
        variables.optional("CENOTE_SLOW_STATEMENTS", &mut config.slow_statements)?;
        variables.read(
            "CENOTE_SHARE_CONNECTIONS",
            &mut config.share_connections,
            parse_bool,
        )?;
        variables.read("CENOTE_UNPOOLED", &mut config.unpooled, parse_bool)?;
        variables.read("CENOTE_PERSISTENT", &mut config.persistent, parse_bool)?;
        variables.read("CENOTE_RESET", &mut config.reset, parse_reset)?;
        config.replicas = variables.secrets("CENOTE_REPLICAS")?;
        variables.duration("CENOTE_REPLICA_WAIT", &mut config.replica_wait)?;
        variables.optional("CENOTE_MAX_REPLICA_LAG", &mut config.max_replica_lag)?;
        config.options = variables.options("CENOTE_OPTIONS")?;
        Ok(config)
    }
}

struct Variables<L> {
    lookup: L,
}

impl<L: Fn(&str) -> Option<OsString>> Variables<L> {
    fn text(&self, name: &str) -> Result<Option<String>> {
        let value = (self.lookup)(name).filter(|value| !value.is_empty());
        let text = value.map(OsString::into_string).transpose();
        text.map_err(|_| wrong(format!("the environment variable {name} is no UTF-8")))
    }

    fn dsn(&self) -> Result<Secret> {
        for name in ["CENOTE_DSN", "DATABASE_URL"] {
            if let Some(dsn) = self.text(name)?.map(Secret::from) {
                Dsn::parse(dsn.expose())
                    .map_err(|error| wrong(format!("the environment variable {name}: {error}")))?;
                return Ok(dsn);
            }
        }
        Err(wrong(
            "neither of the environment variables CENOTE_DSN and DATABASE_URL is set; \
             one of them has to say where the database is, such as sqlite:shop.db",
        ))
    }

    fn secrets(&self, name: &str) -> Result<Vec<Secret>> {
        let text = self.text(name)?.map(Secret::from).unwrap_or_default();
        let each = text.expose().split_ascii_whitespace();
        Ok(each.map(Secret::from).collect())
    }

    fn options(&self, name: &str) -> Result<Options> {
        let text = self.text(name)?.map(Secret::from).unwrap_or_default();
        Options::parse(text.expose())
            .map_err(|malformed| wrong(format!("the environment variable {name}: {malformed}")))
    }

    fn number<T: FromStr>(&self, name: &str, field: &mut T) -> Result<()> {
        self.read(name, field, |text| {
            text.trim().parse().map_err(|_| "is not a number that fits")
        })
    }

    fn optional(&self, name: &str, field: &mut Option<Duration>) -> Result<()> {
        self.read(name, field, durations::parse)
    }

    fn duration(&self, name: &str, field: &mut Duration) -> Result<()> {
        self.read(name, field, |text| {
            durations::parse(text)?.ok_or("would switch off what cannot be switched off")
        })
    }

    /// Reads a variable that is not a secret into a field. Without the variable the field keeps its value.
    fn read<T, Wrong: fmt::Display>(
        &self,
        name: &str,
        field: &mut T,
        parse: impl FnOnce(&str) -> Result<T, Wrong>,
    ) -> Result<()> {
        let Some(text) = self.text(name)? else {
            return Ok(());
        };
        *field = parse(&text).map_err(|why| {
            let value: String = text.chars().take(60).collect();
            wrong(format!(
                "the environment variable {name} is {value:?}, which {why}"
            ))
        })?;
        Ok(())
    }
}

fn parse_reset(text: &str) -> Result<ResetPolicy, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "when_touched" => Ok(ResetPolicy::WhenTouched),
        "always" => Ok(ResetPolicy::Always),
        "replace" => Ok(ResetPolicy::Replace),
        _ => Err("is none of when_touched, always and replace"),
    }
}
