//! The database of a run: the user's, or a temporary file.

use std::path::PathBuf;
use std::time::Duration;

use cenote::driver::Dsn;
use cenote::{Builder, Db, DbConfig, Secret};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::run::Error;

/// Which database to use.
#[derive(Clone, Debug)]
pub enum Database {
    /// A SQLite file that is removed afterwards.
    Temporary,
    /// A database of the user's.
    Theirs {
        /// Its DSN.
        dsn: Secret,
        /// The user; wins over the one in the DSN.
        user: Option<String>,
        /// The password; wins over the one in the DSN.
        password: Option<Secret>,
    },
}

/// Opens handles to a database. Dropped, it removes the temporary file.
#[derive(Debug)]
pub struct Source {
    config: DbConfig,
    shown: String,
    folder: Option<TempDir>,
}

impl Source {
    /// Reads the DSN, or creates a folder for the temporary file. Opens nothing.
    ///
    /// # Errors
    ///
    /// The DSN is malformed, or there is no room for a temporary file.
    pub fn new(database: &Database) -> Result<Self, Error> {
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
                    shown: Dsn::parse(dsn.expose())?.to_string(),
                    config,
                    folder: None,
                })
            }
        }
    }

    /// The primary of a cluster, whichever host it is.
    pub(crate) fn of_cluster(cluster: &Cluster) -> Self {
        Source {
            config: cluster.config(),
            shown: "a temporary PostgreSQL cluster of three hosts".to_owned(),
            folder: None,
        }
    }

    fn temporary() -> Result<Self, Error> {
        let cannot = |why: &str| Error::Other(format!("no temporary file can be made: {why}"));
        let folder = tempfile::Builder::new().prefix("cenote-").tempdir();
        let folder = folder.map_err(|error| cannot(&error.to_string()))?;
        let file = folder.path().join("bank.db");
        let path = file
            .to_str()
            .ok_or_else(|| cannot("the name of its folder is not valid UTF-8"))?;
        // These mean something in a URL.
        let path = path
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        Ok(Source {
            config: DbConfig::new(format!("sqlite://{path}")),
            shown: "a temporary SQLite file".to_owned(),
            folder: Some(folder),
        })
    }

    /// Opens a handle with at most `max` connections.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    pub async fn open(&self, max: usize) -> cenote::Result<Db> {
        let mut config = self.config.clone();
        config.max = max;
        Builder::from_config(config).open().await
    }

    /// The configuration of every handle, except for its size.
    pub fn config(&self) -> &DbConfig {
        &self.config
    }

    /// The name of the database, without a password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Keeps a temporary file, and returns where the tables are.
    pub fn keep(&mut self) -> String {
        match &mut self.folder {
            None => self.shown.clone(),
            Some(folder) => {
                folder.disable_cleanup(true);
                folder.path().join("bank.db").display().to_string()
            }
        }
    }
}

/// Returns the option `mode` with which a file of SQLite is opened and left as it was; `None` for other databases, and if
/// the DSN has a mode. A missing file is not created.
///
/// To read, a file is opened read-only, so that its journal mode does not become WAL. A WAL file cannot be: the files
/// beside it would stay, because only a writable connection removes them. It is opened for both, unless they are there
/// already.
pub fn sqlite_mode(dsn: &Dsn, reads_only: bool) -> Option<&'static str> {
    let is_sqlite = ["sqlite", "sqlite3"].contains(&dsn.driver());
    let path = dsn
        .path()
        .filter(|_| is_sqlite && dsn.option("mode").is_none())?;
    if path.is_empty() || path.starts_with(':') || path.contains("mode=") {
        return None;
    }
    let is_open = std::path::Path::new(&format!("{path}-wal")).exists();
    match reads_only && (is_open || !is_wal(path)) {
        true => Some("ro"),
        false => Some("rw"),
    }
}

/// The file that SQLite keeps beside a database in WAL mode while it is open.
#[derive(Debug)]
pub struct WalFile(Option<PathBuf>);

impl WalFile {
    /// Notes whether there is one, before the database is opened.
    pub fn before_opening(dsn: &Dsn) -> Self {
        let is_sqlite = ["sqlite", "sqlite3"].contains(&dsn.driver());
        let path = dsn.path().filter(|_| is_sqlite);
        let wal = path.map(|path| PathBuf::from(format!("{path}-wal")));
        // One that is there belongs to another program.
        WalFile(wal.filter(|wal| !wal.exists()))
    }

    /// Waits until it is gone, for a second at most: each connection is closed by its thread, after the handle.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may still be there for a moment.
    pub async fn gone(&self) {
        let Some(wal) = &self.0 else { return };
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        for _ in 0..500 {
            looks.tick().await;
            if !wal.exists() {
                return;
            }
        }
    }
}

/// Whether a file says in its header that it is in WAL mode.
fn is_wal(path: &str) -> bool {
    use std::io::Read;
    let mut header = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.is_ok() && header.starts_with(b"SQLite format 3\0") && header[18] == 2
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
        let error = theirs("no driver, but hush").unwrap_err();
        assert!(!error.to_string().contains("hush"), "{error}");
        assert!(matches!(error, Error::Database(_)), "{error:?}");
    }

    #[test]
    fn a_temporary_file_is_removed_unless_it_is_kept() {
        let source = Source::new(&Database::Temporary).unwrap();
        let folder = source.folder.as_ref().unwrap().path().to_owned();
        assert!(folder.exists());
        drop(source);
        assert!(!folder.exists());

        let mut kept = Source::new(&Database::Temporary).unwrap();
        let folder = kept.folder.as_ref().unwrap().path().to_owned();
        assert_eq!(kept.keep(), folder.join("bank.db").display().to_string());
        drop(kept);
        assert!(folder.exists());
        std::fs::remove_dir(folder).unwrap();
    }
}
