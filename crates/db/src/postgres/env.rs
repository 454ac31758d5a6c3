//! libpq's environment variables: defaults for options that neither the builder, the DSN nor a service sets.

use std::ffi::OsString;
use std::path::PathBuf;

use super::service::ServiceFiles;
use crate::config::dsn::{Dsn, Options};
use crate::config::secret::Secret;
use crate::{Error, Kind, Result};

/// Variables and the options that they set.
const OPTIONS: &[(&str, &str)] = &[
    ("PGHOST", "host"),
    ("PGHOSTADDR", "hostaddr"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGPASSFILE", "passfile"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGCLIENTENCODING", "client_encoding"),
    ("PGOPTIONS", "options"),
    ("PGREQUIREAUTH", "require_auth"),
    ("PGAPPNAME", "application_name"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLCERTMODE", "sslcertmode"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLSNI", "sslsni"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGTZ", "set.timezone"),
];

/// The relevant part of the environment, as it was when the handle was opened.
#[derive(Default)]
pub(super) struct Environment {
    /// The variable, its option, and its value.
    options: Vec<(&'static str, &'static str, String)>,
    /// `PGUSER`, otherwise the operating system's user name.
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) home: Option<PathBuf>,
    /// `PGSERVICE`.
    pub(super) service: Option<String>,
    pub(super) service_files: ServiceFiles,
}

impl Environment {
    /// Reads the variables through `lookup`. An empty variable counts as not set.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for a variable that is not UTF-8.
    pub(super) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let text = |name: &str| -> Result<Option<String>> {
            let value = lookup(name).filter(|value| !value.is_empty());
            value
                .map(OsString::into_string)
                .transpose()
                .map_err(|_| wrong(format!("the environment variable {name} is not UTF-8")))
        };
        let mut options = Vec::new();
        for (variable, option) in OPTIONS {
            if let Some(value) = text(variable)? {
                options.push((*variable, *option, value));
            }
        }
        let path = |name: &str| {
            let value = lookup(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        Ok(Environment {
            options,
            // libpq asks the operating system for the name. These variables contain the same
            // name, unless somebody has set another one on purpose.
            user: match text("PGUSER")? {
                Some(user) => Some(user),
                None => text("USER")?.or(text("LOGNAME")?),
            },
            password: text("PGPASSWORD")?.map(Secret::from),
            home: path("HOME"),
            service: text("PGSERVICE")?,
            service_files: ServiceFiles {
                named: path("PGSERVICEFILE"),
                home: path("HOME"),
                system: path("PGSYSCONFDIR"),
            },
        })
    }

    /// Adds the options that neither the DSN nor `options` has. Returns the variables that they come from.
    pub(super) fn merge(&self, dsn: &Dsn, options: &mut Options) -> Vec<&'static str> {
        let mut used = Vec::new();
        for (variable, option, value) in &self.options {
            if dsn.option(option).is_none() && options.get(option).is_none() {
                options.set(*option, value.as_str());
                used.push(*variable);
            }
        }
        used
    }
}

fn wrong(message: String) -> Error {
    Error::new(Kind::Config, message)
}
