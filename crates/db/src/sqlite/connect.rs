//! Opens a connection and configures it as the options say.

use std::sync::{Arc, PoisonError};

use rusqlite::ffi;
use rusqlite::types::Value as SqlValue;

use super::cancel::Control;
use super::config::{Blueprint, Config, JournalMode};
use super::error;
use super::file::{DatabaseId, OpenFile};
use super::group_commit::GroupCommit;
use super::reset::Origin;
use super::session::{Session, Setup};
use super::watchdog::Watchdog;
use super::worker::Worker;
use super::write_queue::WriteQueue;
use super::writing::Writing;
use crate::{Error, Kind, Result};

/// Opens a connection on a thread of its own.
///
/// # Cancel safety
///
/// Dropped, it closes what it has opened.
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
    blueprint.file.check_not_gone()?;
    let mut db = open(config)?;
    // Right after opening, while the name still leads to the open file.
    let write_queue = write_queue_of(&db, config)?;
    let file = file_of(&db, blueprint);
    control.interrupt_with(db.get_interrupt_handle());
    let asks = Arc::clone(&control);
    db.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || asks.must_stop()))
        .map_err(error::from_sqlite)?;
    let alarm = blueprint
        .functions
        .register(&db, &control)
        .map_err(error::from_sqlite)?;
    let setup = Setup {
        control,
        alarm,
        writing: Writing::new(write_queue),
        group_commit: GroupCommit::new(blueprint.session_kind),
        file,
        // With a shared cache a connection waits inside SQLite for what another one runs.
        in_place: config.in_place && !config.shares_cache(),
        has_functions: !blueprint.functions.is_empty(),
        late_functions: blueprint.late_functions.clone(),
        chooses_temp_store: !config.sets("temp_store"),
        statement_cache,
    };
    let mut session = Session::new(db, setup);
    session.wait_for_locks(config.busy_timeout)?;
    configure(&session, config)?;
    if config.is_private() {
        let origin = Origin::of(&session, config)?;
        session.set_origin(origin);
    }
    // Without a journal a batch could not be rolled back; with late checks its writes would not be independent.
    let can_undo = session.pragma("journal_mode")? != "off";
    let is_late = session.pragma_flag("defer_foreign_keys")?;
    session.set_alike(can_undo && !is_late);
    Ok(session)
}

/// Returns the database's write queue. `None` if the connection cannot write, or no other connection can.
fn write_queue_of(db: &rusqlite::Connection, config: &Config) -> Result<Option<Arc<WriteQueue>>> {
    if config.is_private() || db.is_readonly("main").map_err(error::from_sqlite)? {
        return Ok(None);
    }
    let path = db.path().filter(|path| !path.is_empty());
    let (write_queue, is_new) = WriteQueue::of(match path {
        Some(path) if config.vfs.is_none() => match DatabaseId::of_file(path) {
            Some(id) => id,
            // The file was deleted in between: no other connection can open it.
            None => return Ok(None),
        },
        _ => DatabaseId::Name(format!("{:?} {}", config.vfs, config.target)),
    });
    if is_new {
        Watchdog::add(&write_queue);
    }
    Ok(Some(write_queue))
}

/// Returns the open file, if it can be identified.
fn file_of(db: &rusqlite::Connection, blueprint: &Blueprint) -> Option<OpenFile> {
    let path = db.path().filter(|path| !path.is_empty())?;
    if blueprint.config.is_private() || blueprint.config.vfs.is_some() {
        return None;
    }
    let id = DatabaseId::of_file(path)?;
    Some(blueprint.file.opened(path, id))
}

/// SQLite calls the progress handler after this many steps. An inline step takes up to 0.1 ms: to compare values
/// of 64 KiB, for example.
const STEPS_BETWEEN_LOOKS: i32 = 16;

fn open(config: &Config) -> Result<rusqlite::Connection> {
    let Config { target, flags, .. } = config;
    let opened = match &config.vfs {
        Some(vfs) => rusqlite::Connection::open_with_flags_and_vfs(target, *flags, vfs.as_str()),
        None => rusqlite::Connection::open_with_flags(target, *flags),
    };
    opened.map_err(error::from_sqlite)
}

fn configure(session: &Session, config: &Config) -> Result<()> {
    // SQLite reads the file now, and reports if it is no database.
    session.command("PRAGMA schema_version")?;
    // Before the journal mode: the page size, for example, cannot change in WAL.
    for (name, value) in &config.pragmas {
        session.set_pragma(name, &SqlValue::Text(value.clone()))?;
    }
    match config.journal_mode {
        JournalMode::AsItIs => Ok(()),
        JournalMode::WalIfPossible => set_journal_mode(session, "wal", &UNAVAILABLE_NOW),
        JournalMode::Asked(mode) => set_journal_mode(session, mode, &UNAVAILABLE),
    }
}

/// The file or its folder is read-only: the journal mode stays as it is.
const UNAVAILABLE: [i32; 3] = [ffi::SQLITE_READONLY, ffi::SQLITE_CANTOPEN, ffi::SQLITE_PERM];

/// As above, or other connections use the file in its present mode.
const UNAVAILABLE_NOW: [i32; 4] = [
    ffi::SQLITE_READONLY,
    ffi::SQLITE_CANTOPEN,
    ffi::SQLITE_PERM,
    ffi::SQLITE_BUSY,
];

fn set_journal_mode(session: &Session, mode: &str, acceptable: &[i32]) -> Result<()> {
    if session.pragma("journal_mode")?.eq_ignore_ascii_case(mode) {
        return Ok(());
    }
    // A database in memory keeps its mode, and reports no error.
    let set = session.command_while_busy(&format!("PRAGMA journal_mode = {mode}"));
    set.or_else(|error| {
        let is_acceptable = |code: &i32| error::has_primary(&error, *code);
        match acceptable.iter().any(is_acceptable) {
            true => Ok(()),
            false => Err(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Dsn, Options};
    use crate::sqlite::functions::Functions;

    #[test]
    fn cancelled_statement_ends_if_sqlite_forgets_the_interrupt() {
        let dsn: Dsn = "sqlite::memory:".parse().unwrap();
        let config = Config::read(&dsn, &Options::new()).unwrap();
        let control = Arc::new(Control::new(config.busy_timeout));
        let blueprint = Blueprint::new(config, Functions::default());
        let session = open_session(&blueprint, Arc::clone(&control), 0).unwrap();
        // Interrupts go to another connection from now on.
        let other = rusqlite::Connection::open_in_memory().unwrap();
        control.interrupt_with(other.get_interrupt_handle());
        control.begin(2);
        std::thread::scope(|threads| {
            let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                           SELECT count(*) FROM n";
            let running = threads.spawn(move || session.command(endless));
            control.cancel(2);
            assert!(running.join().unwrap().is_err());
        });
    }
}
