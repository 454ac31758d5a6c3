//! Opens the user's database, and explains why that fails.

use std::error::Error as _;

use cenote::driver::Dsn;
use cenote::{Builder, Db, DbConfig, Error};
use cenote_bank::{Database, WalFile};

use crate::failure::Failure;

/// The drivers that a build of the command can have: the names in a DSN, the feature, and whether
/// this build has it.
const DRIVERS: [(&[&str], &str, bool); 3] = [
    (
        &["pgsql", "postgres", "postgresql"],
        "postgres",
        cfg!(feature = "postgres"),
    ),
    (&["mysql", "mariadb"], "mysql", cfg!(feature = "mysql")),
    (&["odbc"], "odbc", cfg!(feature = "odbc")),
];

/// Fails if this build has no driver for a database, with the command that has one.
pub(crate) fn check_driver(database: &Database) -> Result<(), Failure> {
    let Database::Theirs { dsn, .. } = database else {
        return Ok(());
    };
    // A wrong DSN is reported when it is opened.
    let Ok(dsn) = Dsn::parse(dsn.expose()) else {
        return Ok(());
    };
    has_driver(dsn.driver())
}

/// Fails if this build does not have a driver, with the command that has it.
pub(crate) fn has_driver(driver: &str) -> Result<(), Failure> {
    match DRIVERS.iter().find(|(names, ..)| names.contains(&driver)) {
        Some((_, feature, false)) => Err(Failure::database(format!(
            "this build has no driver for {driver}: run cargo run --release -p cenote-cli --features {feature} -- \
             with the same arguments"
        ))),
        _ => Ok(()),
    }
}

/// Whether a command writes to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    /// A file of SQLite is neither created nor changed, and nothing stays beside it.
    Read,
}

/// Opens a database of the user's with at most two connections. Returns its name without a password, too.
pub(crate) async fn open(database: &Database, access: Access) -> Result<(Db, String), Error> {
    let Database::Theirs {
        dsn,
        user,
        password,
    } = database
    else {
        unreachable!("only the bank has a temporary database");
    };
    let parsed = Dsn::parse(dsn.expose())?;
    let mut config = DbConfig::new(dsn.clone());
    config.user.clone_from(user);
    config.password.clone_from(password);
    config.max = 2;
    if access == Access::Read && is_sqlite(&parsed) && !dsn.expose().contains("mode=") {
        let mode = cenote_bank::sqlite_mode(&parsed, true);
        config.options.set("mode", mode.unwrap_or("ro"));
    }
    let db = Builder::from_config(config).open().await?;
    Ok((db, parsed.to_string()))
}

/// Notes what is beside a file of SQLite, to wait until a command has left nothing there.
pub(crate) fn wal_file(database: &Database) -> Option<WalFile> {
    let Database::Theirs { dsn, .. } = database else {
        return None;
    };
    let parsed = Dsn::parse(dsn.expose()).ok()?;
    Some(WalFile::before_opening(&parsed))
}

/// Closes a handle. Every file of its own is gone then.
pub(crate) async fn close(db: &Db, wal: Option<WalFile>) {
    // What was done is done, whether or not a connection says goodbye.
    let _ = db.close().await;
    if let Some(wal) = wal {
        wal.gone().await;
    }
}

/// Returns the name of the database without a password, if it is a file of SQLite that does not exist and could be created: the
/// folder exists.
pub(crate) fn missing_file(database: &Database) -> Option<String> {
    let Database::Theirs { dsn, .. } = database else {
        return None;
    };
    let parsed = Dsn::parse(dsn.expose()).ok()?;
    let path = parsed.path().filter(|_| is_sqlite(&parsed))?;
    let is_file = !path.is_empty() && !path.starts_with(':') && !path.starts_with("file:");
    let path = std::path::Path::new(path);
    let folder = path.parent()?;
    let has_folder = folder.as_os_str().is_empty() || folder.is_dir();
    (is_file && has_folder && !path.exists()).then(|| parsed.to_string())
}

fn is_sqlite(dsn: &Dsn) -> bool {
    ["sqlite", "sqlite3"].contains(&dsn.driver())
}

/// Returns an error with its causes, in one line. A cause that an error repeats is left out.
pub(crate) fn explained(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}
