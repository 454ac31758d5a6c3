//! The configuration of a handle, and its connection string.
use std::time::Duration;

use zeroize::Zeroizing;

use super::reconnect;
use crate::driver::{Credentials, Dialect, Dsn, Options, Secret};
use crate::sql::PlaceholderStyle;
use crate::{Error, Kind, Result};

/// The configuration, from the DSN and the builder.
#[derive(Debug)]
pub(super) struct Config {
    /// The displayed form of the DSN.
    pub(super) shown: String,
    /// The ODBC driver's own attributes, in the order of the DSN.
    attributes: Vec<(String, Secret)>,
    pub(super) dialect: &'static Dialect,
    /// In seconds; 0 means none.
    pub(super) query_timeout: usize,
    pub(super) login_timeout: u32,
    /// The statement that checks whether the database answers.
    pub(super) ping: String,
    /// Whether statements of dropped calls are cancelled.
    pub(super) cancel: bool,
}

/// The default time limit of a connect.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Restricts placeholders to `?`, the only one that ODBC drivers understand.
const fn by_question_marks(mut dialect: Dialect) -> Dialect {
    dialect.placeholders = PlaceholderStyle::Question;
    dialect.doubled_question_marks = false;
    dialect
}

pub(super) static SQLITE: Dialect = by_question_marks(Dialect::SQLITE);
pub(super) static POSTGRES: Dialect = by_question_marks(Dialect::POSTGRES);
pub(super) static MYSQL: Dialect = by_question_marks(Dialect::MYSQL);

impl Config {
    /// Reads the DSN and the options. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for an unknown option or an invalid value.
    pub(super) fn read(dsn: &Dsn, options: &Options) -> Result<Self> {
        if dsn.rest().starts_with("//") {
            let message = "ODBC has no URLs; a right DSN: odbc:NAME, or \
                           odbc:Driver={PostgreSQL Unicode};Server=localhost;Database=shop";
            return Err(Error::new(Kind::Config, message));
        }
        let mut reader = dsn.reader(options);
        let second = Duration::from_secs(1);
        let query_timeout = reader.take_duration("query_timeout", second)?;
        let login_timeout = reader.take_duration("login_timeout", second)?;
        let dialect = reader.take_choice(
            "dialect",
            &[
                ("ansi", &Dialect::ODBC),
                ("sqlite", &SQLITE),
                ("postgres", &POSTGRES),
                ("mysql", &MYSQL),
            ],
        )?;
        let ping = reader.take("ping").unwrap_or("SELECT 1").to_owned();
        let cancel = reader.take_bool("cancel")?.unwrap_or(true);
        // The rest of the DSN belongs to the ODBC driver. An option of the builder may replace such a value;
        // otherwise it is unknown.
        let mut attributes = Vec::new();
        if let Some(name) = dsn.path().filter(|name| !name.trim().is_empty()) {
            attributes.push(("DSN".to_owned(), Secret::from(name.trim())));
        }
        for (name, _) in dsn.options() {
            if let Some(value) = reader.take(name) {
                reconnect::check(name, value)?;
                attributes.push((name.to_owned(), Secret::from(value)));
            }
        }
        reader.finish()?;
        if attributes.is_empty() {
            let message = "the DSN names neither a data source nor a driver; a right one: \
                           odbc:NAME or odbc:Driver={PostgreSQL Unicode};Server=localhost";
            return Err(Error::new(Kind::Config, message));
        }
        let login_timeout = login_timeout.unwrap_or(LOGIN_TIMEOUT);
        Ok(Config {
            shown: dsn.to_string(),
            attributes,
            dialect: dialect.unwrap_or(&Dialect::ODBC),
            query_timeout: query_timeout.map_or(0, whole_seconds),
            login_timeout: u32::try_from(whole_seconds(login_timeout)).unwrap_or(u32::MAX),
            ping,
            cancel,
        })
    }

    /// Returns the name of the ODBC driver or of the data source.
    pub(super) fn driver(&self) -> String {
        let named = |(name, _): &&(String, Secret)| {
            name.eq_ignore_ascii_case("driver") || name.eq_ignore_ascii_case("dsn")
        };
        let found = self.attributes.iter().find(named);
        found.map_or_else(String::new, |(_, value)| value.expose().to_lowercase())
    }

    /// Returns an attribute of the ODBC driver, if the DSN contains it.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.expose())
    }

    /// Returns the connection string, with user and password.
    pub(super) fn connection_string(&self, credentials: &Credentials) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(256));
        for (name, value) in &self.attributes {
            add(&mut text, name, value.expose());
        }
        if let Some(user) = &credentials.user {
            add(&mut text, "UID", user);
        }
        if let Some(password) = &credentials.password {
            add(&mut text, "PWD", password.expose());
        }
        text
    }
}

/// Rounds up to whole seconds, because a shorter limit would break its promise.
fn whole_seconds(time: Duration) -> usize {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    usize::try_from(seconds).unwrap_or(usize::MAX)
}

/// Adds an attribute. Puts its value in braces only if it needs them: not all drivers remove braces.
fn add(text: &mut Zeroizing<String>, name: &str, value: &str) {
    let needs_braces = value.contains(|c: char| "[]{}(),;?*=!@".contains(c))
        || value.trim() != value
        || value.is_empty();
    text.push_str(name);
    text.push('=');
    if needs_braces {
        text.push('{');
        for c in value.chars() {
            text.push(c);
            if c == '}' {
                text.push(c);
            }
        }
        text.push('}');
    } else {
        text.push_str(value);
    }
    text.push(';');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dsn: &str, options: &[(&str, &str)]) -> Result<Config> {
        let dsn: Dsn = dsn.parse().unwrap();
        let mut given = Options::new();
        for (name, value) in options {
            given.set(*name, *value);
        }
        Config::read(&dsn, &given)
    }

    fn string(dsn: &str, user: Option<&str>, password: Option<&str>) -> String {
        let credentials = Credentials {
            user: user.map(str::to_owned),
            password: password.map(Secret::from),
        };
        let config = read(dsn, &[]).unwrap();
        config.connection_string(&credentials).to_string()
    }

    #[test]
    fn connection_string_contains_the_credentials() {
        assert_eq!(string("odbc:shop", None, None), "DSN=shop;");
        assert_eq!(
            string(
                "odbc:Driver={My Driver};Server=x",
                Some("app"),
                Some("secret")
            ),
            "Driver=My Driver;Server=x;UID=app;PWD=secret;"
        );
    }

    #[test]
    fn value_that_needs_braces_gets_them() {
        assert_eq!(
            string("odbc:DSN=x", None, Some("a;b}c=d")),
            "DSN=x;PWD={a;b}}c=d};"
        );
        assert_eq!(string("odbc:DSN=x", None, Some(" a ")), "DSN=x;PWD={ a };");
        assert_eq!(
            string("odbc:DSN={a;b}", None, Some("")),
            "DSN={a;b};PWD={};"
        );
    }

    #[test]
    fn own_options_stand_in_or_beside_the_dsn_and_not_in_the_driver() {
        let config = read("odbc:DSN=x;query_timeout=2500ms", &[("dialect", "mysql")]).unwrap();
        assert_eq!(config.query_timeout, 3);
        assert_eq!(config.dialect.name, Dialect::MYSQL.name);
        let text = config.connection_string(&Credentials::default());
        assert_eq!(*text, "DSN=x;");
    }

    #[test]
    fn builder_option_replaces_one_of_the_dsn_or_is_unknown() {
        let config = read("odbc:DSN=x;Database=a", &[("database", "b")]).unwrap();
        let text = config.connection_string(&Credentials::default());
        assert_eq!(*text, "DSN=x;Database=b;");
        let error = read("odbc:DSN=x", &[("databse", "b")]).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.message().contains("databse"), "{error}");
    }

    #[test]
    fn error_about_a_dsn_shows_a_valid_one() {
        for dsn in ["odbc://localhost/shop", "odbc:", "odbc:UID=x;PWD=y"] {
            let error = read(dsn, &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.message().contains("odbc:NAME"), "{error}");
        }
    }

    #[test]
    fn password_is_never_shown() {
        let config = read("odbc:DSN=x;UID=app;PWD={hunter2;};KeyPassword=hunter2", &[]).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    }
}
