//! Opening a connection and making it what the options say.

use std::sync::{Arc, PoisonError};

use rusqlite::ffi;
use rusqlite::types::Value as SqlValue;

use super::config::{Blueprint, Config, JournalMode};
use super::control::Control;
use super::error;
use super::session::Session;
use super::worker::Worker;
use crate::{Error, Kind, Result};

/// Opens a connection on a thread of its own.
///
/// # Cancel safety
///
/// Dropped, it leaves nothing open.
pub(super) async fn connect(blueprint: &Arc<Blueprint>, statement_cache: usize) -> Result<Worker> {
    let control = Arc::new(Control::new(blueprint.config.busy_timeout));
    let own_control = Arc::clone(&control);
    let blueprint = Arc::clone(blueprint);
    let open = move || {
        open_session(&blueprint, own_control, statement_cache)
            .map_err(|error| failed(&blueprint.config, error))
    };
    Worker::start(control, open).await
}

fn failed(config: &Config, error: Error) -> Error {
    if error.kind() == Kind::Config {
        return error;
    }
    let message = format!(
        "cannot open the SQLite database {:?}: {}",
        config.name,
        error.message()
    );
    error.wrapped(Kind::Connect, message)
}

fn open_session(
    blueprint: &Blueprint,
    control: Arc<Control>,
    statement_cache: usize,
) -> Result<Session> {
    let config = &blueprint.config;
    if config.needs_anchor() {
        let mut anchor = blueprint
            .anchor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if anchor.is_none() {
            *anchor = Some(open(config)?);
        }
    }
    let mut db = open(config)?;
    control.interrupt_with(db.get_interrupt_handle());
    let waits = Arc::clone(&control);
    // SQLite's own handler cannot be cancelled.
    let wait = move |turn: i32| usize::try_from(turn).is_ok_and(|turn| waits.wait_for_lock(turn));
    db.busy_handler(Some(wait)).map_err(error::from_sqlite)?;
    let alarm = blueprint
        .functions
        .register(&db)
        .map_err(error::from_sqlite)?;
    let session = Session::new(db, control, alarm, statement_cache);
    configure(&session, config)?;
    Ok(session)
}

fn open(config: &Config) -> Result<rusqlite::Connection> {
    let Config { target, flags, .. } = config;
    let opened = match &config.vfs {
        Some(vfs) => rusqlite::Connection::open_with_flags_and_vfs(target, *flags, vfs.as_str()),
        None => rusqlite::Connection::open_with_flags(target, *flags),
    };
    opened.map_err(error::from_sqlite)
}

fn configure(session: &Session, config: &Config) -> Result<()> {
    // The first look into the file: only now does SQLite find that it is no database.
    session.command("PRAGMA schema_version")?;
    // First, because the size of pages, say, cannot be changed any more in WAL.
    for (name, value) in &config.pragmas {
        session.set_pragma(name, &SqlValue::Text(value.clone()))?;
    }
    match config.journal_mode {
        JournalMode::AsItIs => Ok(()),
        JournalMode::WalIfPossible => set_journal_mode(session, "wal", &CANNOT_BE_HAD_NOW),
        JournalMode::Asked(mode) => set_journal_mode(session, mode, &CANNOT_BE_HAD),
    }
}

/// The file or its folder cannot be written.
const CANNOT_BE_HAD: [i32; 3] = [ffi::SQLITE_READONLY, ffi::SQLITE_CANTOPEN, ffi::SQLITE_PERM];

/// Or others are using it, in their own mode.
const CANNOT_BE_HAD_NOW: [i32; 4] = [
    ffi::SQLITE_READONLY,
    ffi::SQLITE_CANTOPEN,
    ffi::SQLITE_PERM,
    ffi::SQLITE_BUSY,
];

fn set_journal_mode(session: &Session, mode: &str, acceptable: &[i32]) -> Result<()> {
    if session.pragma("journal_mode")?.eq_ignore_ascii_case(mode) {
        return Ok(());
    }
    // A database in memory answers that it stays what it is.
    let set = session.command_while_busy(&format!("PRAGMA journal_mode = {mode}"));
    set.or_else(|error| {
        let is_acceptable = |code: &i32| error::has_primary(&error, *code);
        match acceptable.iter().any(is_acceptable) {
            true => Ok(()),
            false => Err(error),
        }
    })
}
