//! Where the bank is: a database of the user's, or a temporary file.

use cenote::driver::Dsn;
use cenote::{Builder, Db, DbConfig, Secret};

use crate::args::Database;
use crate::failure::Failure;
use crate::scratch::Scratch;

/// A database that handles can be opened to.
#[derive(Debug)]
pub(crate) struct Source {
    config: DbConfig,
    shown: String,
    scratch: Option<Scratch>,
}

impl Source {
    /// Looks at what was asked for. Opens nothing.
    pub(crate) fn new(database: &Database) -> Result<Self, Failure> {
        match database {
            Database::Temporary => Source::temporary(),
            Database::Theirs {
                dsn,
                user,
                password,
            } => {
                let mut config = DbConfig::new(dsn.clone());
                config.user.clone_from(user);
                config.password.clone_from(password);
                Ok(Source {
                    shown: shown(dsn)?,
                    config,
                    scratch: None,
                })
            }
        }
    }

    fn temporary() -> Result<Self, Failure> {
        let cannot = |why: String| Failure::other(format!("no temporary file can be made: {why}"));
        let scratch = Scratch::new().map_err(|error| cannot(error.to_string()))?;
        let file = scratch.path().join("bank.db");
        let path = file
            .to_str()
            .ok_or_else(|| cannot("the name of its folder is not valid UTF-8".to_owned()))?;
        // These mean something in a URL.
        let path = path
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        Ok(Source {
            config: DbConfig::new(format!("sqlite://{path}")),
            shown: "a temporary SQLite file".to_owned(),
            scratch: Some(scratch),
        })
    }

    /// Opens a handle with so many connections.
    pub(crate) async fn open(&self, max: usize) -> cenote::Result<Db> {
        let mut config = self.config.clone();
        config.max = max;
        Builder::from_config(config).open().await
    }

    /// How handles are opened, but for their size.
    pub(crate) fn config(&self) -> &DbConfig {
        &self.config
    }

    /// What it is called, without a password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Leaves a temporary file where it is, and says where.
    pub(crate) fn keep(&mut self) -> String {
        match &mut self.scratch {
            None => self.shown.clone(),
            Some(scratch) => {
                scratch.keep();
                scratch.path().join("bank.db").display().to_string()
            }
        }
    }
}

fn shown(dsn: &Secret) -> Result<String, Failure> {
    Ok(Dsn::parse(dsn.expose())?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_shown_without_its_password() {
        let theirs = |dsn: &str| {
            Source::new(&Database::Theirs {
                dsn: Secret::from(dsn),
                user: None,
                password: None,
            })
        };
        let source = theirs("postgres://app:hush@localhost/shop").unwrap();
        assert_eq!(source.shown(), "postgres://app:***@localhost/shop");
        assert!(!format!("{source:?}").contains("hush"));
        let failure = theirs("no driver, but hush").unwrap_err();
        assert!(!failure.to_string().contains("hush"), "{failure}");
        assert_eq!(failure.code(), 3);
    }
}
