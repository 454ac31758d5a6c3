//! libpq's environment variables: what holds where a DSN and the builder are silent.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::dsn::{Dsn, Options};
use crate::config::secret::Secret;
use crate::{Error, Kind, Result};

/// Variables that stand for an option of the same meaning.
///
/// `PGSERVICE` and what has to do with Kerberos and client certificates is not among them.
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
    ("PGSSLMODE", "sslmode"),
    ("PGSSLNEGOTIATION", "sslnegotiation"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLSNI", "sslsni"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGTZ", "set.timezone"),
];

/// What of the environment matters here, as it was when it was read.
#[derive(Default)]
pub(super) struct Environment {
    /// The variable, the option that it stands for, and its value.
    options: Vec<(&'static str, &'static str, String)>,
    /// `PGUSER`, or else the name under which the program runs.
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) home: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables that `lookup` knows. One that is empty counts as one that is not set.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] for a variable that is no UTF-8.
    pub(super) fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let text = |name: &str| -> Result<Option<String>> {
            let value = lookup(name).filter(|value| !value.is_empty());
            value
                .map(OsString::into_string)
                .transpose()
                .map_err(|_| wrong(format!("the environment variable {name} is no UTF-8")))
        };
        let mut options = Vec::new();
        for (variable, option) in OPTIONS {
            if let Some(value) = text(variable)? {
                options.push((*variable, *option, value));
            }
        }
        Ok(Environment {
            options,
            // libpq asks the system for the name. These say the same, and a program that
            // was given another one by them wants just that.
            user: match text("PGUSER")? {
                Some(user) => Some(user),
                None => text("USER")?.or(text("LOGNAME")?),
            },
            password: text("PGPASSWORD")?.map(Secret::from),
            home: lookup("HOME")
                .filter(|home| !home.is_empty())
                .map(PathBuf::from),
        })
    }

    /// The builder's options, and those of the environment that neither it nor the DSN gives;
    /// and which variables these came from.
    pub(super) fn merge(&self, dsn: &Dsn, options: &Options) -> (Options, Vec<&'static str>) {
        let mut merged = options.clone();
        let mut used = Vec::new();
        for (variable, option, value) in &self.options {
            if dsn.option(option).is_none() && options.get(option).is_none() {
                merged.set(*option, value.as_str());
                used.push(*variable);
            }
        }
        (merged, used)
    }
}

fn wrong(message: String) -> Error {
    Error::new(Kind::Config, message)
}
