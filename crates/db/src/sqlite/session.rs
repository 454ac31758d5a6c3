//! An open database and its state. Everything here blocks: it runs on the thread of a
//! [`Worker`](super::worker::Worker), or inline if it is known to be short.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{CachedStatement, Row, Statement, StatementStatus, ToSql};

use super::cancel::Control;
use super::error;
use super::file::OpenFile;
use super::functions::Alarm;
use super::group_commit::GroupCommit;
use super::insert::{self, RowIds};
use super::late_functions::LateFunctions;
use super::reset::Origin;
use super::statement::{OwnedSql, Runnable, is_nothing, literal};
use super::timing::{Stopwatch, Timing};
use super::types::columns_of;
use super::writing::Writing;
use crate::driver::{Prepared, Reset};
use crate::{Error, Kind, Result};

/// See the [module](self).
pub(super) struct Session {
    pub(super) db: rusqlite::Connection,
    /// Dropped after `db`: the database has to be closed before the permit to write is passed on.
    pub(super) writing: Writing,
    pub(super) group_commit: GroupCommit,
    /// `None` if the database is in no file that can be identified.
    file: Option<OpenFile>,
    pub(super) control: Arc<Control>,
    pub(super) alarm: Alarm,
    pub(super) timing: Timing,
    pub(super) rowids: RowIds,
    /// The application has functions or collations of its own.
    has_functions: Cell<bool>,
    pub(super) late_functions: Option<LateFunctions>,
    /// How many additions to `late_functions` the connection knows.
    pub(super) known_additions: Cell<u64>,
    /// Only plain statements have run: no PRAGMA has changed the waits for locks, no other database is attached.
    is_plain: Cell<bool>,
    /// The session has no settings or temporary tables that other sessions of its kind lack.
    is_alike: Cell<bool>,
    /// The user has not set where temporary b-trees are kept.
    chooses_temp_store: Cell<bool>,
    /// The state after connecting, if the session can be reset to it.
    origin: Option<Origin>,
    /// How many statements of the user are kept.
    statement_cache: usize,
    /// The driver's own statements, which are kept in addition.
    own_statements: RefCell<Vec<&'static str>>,
    /// The value of `PRAGMA query_only` before a read-only transaction, until it is restored.
    query_only_before: Cell<Option<bool>>,
    /// SQLite reported an error after which the connection cannot be used.
    broken: Cell<bool>,
    compiled: Cell<u64>,
}

/// The parts of a session, besides the database.
pub(super) struct Setup {
    pub(super) control: Arc<Control>,
    pub(super) alarm: Alarm,
    pub(super) writing: Writing,
    pub(super) group_commit: GroupCommit,
    pub(super) file: Option<OpenFile>,
    /// Statements may run inline.
    pub(super) in_place: bool,
    pub(super) has_functions: bool,
    pub(super) late_functions: Option<LateFunctions>,
    pub(super) chooses_temp_store: bool,
    pub(super) statement_cache: usize,
}

impl Session {
    pub(super) fn new(db: rusqlite::Connection, setup: Setup) -> Self {
        let Setup {
            control,
            alarm,
            writing,
            group_commit,
            file,
            in_place,
            has_functions,
            late_functions,
            chooses_temp_store,
            statement_cache,
        } = setup;
        db.set_prepared_statement_cache_capacity(statement_cache);
        Session {
            db,
            writing,
            group_commit,
            file,
            control,
            alarm,
            timing: Timing::new(in_place, statement_cache),
            rowids: RowIds::default(),
            has_functions: Cell::new(has_functions),
            late_functions,
            known_additions: Cell::new(0),
            is_plain: Cell::new(true),
            is_alike: Cell::new(true),
            chooses_temp_store: Cell::new(chooses_temp_store),
            origin: None,
            statement_cache,
            own_statements: RefCell::default(),
            query_only_before: Cell::new(None),
            broken: Cell::new(false),
            compiled: Cell::new(0),
        }
    }

    pub(super) fn has_functions(&self) -> bool {
        self.has_functions.get()
    }

    /// Notes that the application has added a function or collation.
    pub(super) fn note_functions(&self) {
        self.has_functions.set(true);
    }

    pub(super) fn is_plain(&self) -> bool {
        self.is_plain.get()
    }

    /// Notes that a statement has run that is not plain.
    pub(super) fn note_not_plain(&self) {
        self.is_plain.set(false);
    }

    /// Returns whether the session is like all others of its kind.
    pub(super) fn is_alike(&self) -> bool {
        self.is_plain.get() && self.is_alike.get()
    }

    pub(super) fn set_alike(&self, is_alike: bool) {
        self.is_alike.set(is_alike);
    }

    pub(super) fn chooses_temp_store(&self) -> bool {
        self.chooses_temp_store.get()
    }

    /// Marks the connection as unusable.
    pub(super) fn set_broken(&self) {
        self.broken.set(true);
    }

    /// Notes the value of `PRAGMA query_only` before a read-only transaction.
    pub(super) fn begin_query_only(&self, before: bool) {
        self.query_only_before.set(Some(before));
    }

    /// Sets how long calls wait for locks of others. Unlike SQLite's own busy timeout, these waits can be cancelled.
    pub(super) fn wait_for_locks(&mut self, timeout: Duration) -> Result<()> {
        self.control.set_busy_timeout(timeout);
        let control = Arc::clone(&self.control);
        let wait = move |turn| usize::try_from(turn).is_ok_and(|turn| control.wait_for_lock(turn));
        self.db.busy_handler(Some(wait)).map_err(error::from_sqlite)
    }

    /// Sets the state that [`reset`](Session::reset) restores.
    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    pub(super) fn can_be_reset(&self) -> bool {
        self.origin.is_some()
    }

    pub(super) fn reset(&mut self) -> Result<Reset> {
        let Some(origin) = self.origin.take() else {
            return Ok(Reset::Replace);
        };
        let restored = origin.restore(self);
        self.origin = Some(origin);
        self.is_plain.set(restored.is_ok());
        restored.map(|()| Reset::Done)
    }

    pub(super) fn in_transaction(&self) -> bool {
        !self.db.is_autocommit()
    }

    pub(super) fn is_broken(&self) -> bool {
        // A transaction may still end on a file that was replaced: the caller learns whether it is committed.
        self.broken.get() || self.check_file().is_err()
    }

    /// Refuses to begin anything on a file that was deleted or replaced: writes to it would be lost.
    #[inline]
    pub(super) fn check_file(&self) -> Result<()> {
        match self.is_on_another_file() && !self.in_transaction() {
            true => Err(error::file_replaced()),
            false => Ok(()),
        }
    }

    /// Returns whether the file was deleted or replaced.
    fn is_on_another_file(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.is_current())
    }

    /// Returns how many statements were compiled to run.
    pub(super) fn compiled(&self) -> u64 {
        self.compiled.get()
    }

    /// Closes the database. SQLite rolls an open transaction back.
    pub(super) fn close(self) -> Result<()> {
        self.db
            .close()
            .map_err(|(_, error)| error::from_sqlite(error))
    }

    pub(super) fn prepare(&self, sql: &OwnedSql) -> Result<Prepared> {
        if !insert::is_plain(sql.class()) {
            // A pragma may take effect while it is compiled.
            self.is_plain.set(false);
        }
        let statement = self.statement(sql, true)?;
        Ok(Prepared::new(
            statement.parameter_count(),
            columns_of(&statement),
        ))
    }

    /// Checks that SQLite answers and the file is still there.
    pub(super) fn ping(&self) -> Result<()> {
        self.command("SELECT 1")?;
        self.look_at_file();
        match self.is_on_another_file() {
            true => Err(error::file_replaced()),
            false => Ok(()),
        }
    }

    /// Checks the file if the last check was a while ago. Called after a statement.
    pub(super) fn note_time(&self, watch: Stopwatch) {
        if let (Some(file), Some(began)) = (&self.file, watch.began()) {
            file.check_sometimes(began);
        }
    }

    /// Checks whether the file is still the one under its name, for [`is_broken`](Session::is_broken).
    pub(super) fn look_at_file(&self) {
        if let Some(file) = &self.file {
            file.check();
        }
    }

    /// Sets a pragma.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if no pragma has this name. SQLite itself would ignore it.
    pub(super) fn set_pragma(&self, name: &str, value: &SqlValue) -> Result<()> {
        self.is_alike.set(false);
        if name.eq_ignore_ascii_case("busy_timeout") {
            let timeout = as_milliseconds(value).ok_or_else(|| {
                Error::new(Kind::Config, "busy_timeout is a number of milliseconds")
            })?;
            self.control.set_busy_timeout(timeout);
            return Ok(());
        }
        let known = "SELECT 1 FROM pragma_pragma_list WHERE name = lower(?1)";
        if !self.any_row(known, name)? {
            let message = format!("SQLite has no pragma {name}");
            return Err(Error::new(Kind::Config, message));
        }
        let value = literal(value).ok_or_else(|| {
            let message = format!("the pragma {name} cannot be set to such a value");
            Error::new(Kind::Type, message)
        })?;
        self.command(&format!("PRAGMA {name} = {value}"))?;
        if name.eq_ignore_ascii_case("temp_store") {
            self.chooses_temp_store.set(false);
        }
        Ok(())
    }

    /// Returns the value of a pragma, as text.
    pub(super) fn pragma(&self, name: &str) -> Result<String> {
        let ask = || {
            self.db.pragma_query_value(None, name, |row| {
                row.get_ref(0).map(|value| match value {
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => String::new(),
                })
            })
        };
        self.patiently(ask)
    }

    /// Returns the version of the schema, which changes with every change of it.
    pub(super) fn schema_version(&self) -> Option<i64> {
        let mut ask = self.own_statement("PRAGMA schema_version").ok()?;
        ask.query_row([], |row| row.get(0)).ok()
    }

    pub(super) fn pragma_flag(&self, name: &str) -> Result<bool> {
        self.pragma(name).map(|answer| answer == "1")
    }

    /// Cleans up after every program: releases what belonged to a transaction that has ended.
    pub(super) fn tidy(&self) {
        self.leave_write_queue();
        if self.in_transaction() {
            return;
        }
        self.rowids.end_transaction();
        if self.is_reading() {
            // A read is open though nothing runs: some of SQLite's modules leave one behind after an error. It
            // would keep an old snapshot.
            self.set_broken();
        }
        if let Some(before) = self.query_only_before.take() {
            let restore = if before {
                "PRAGMA query_only = 1"
            } else {
                "PRAGMA query_only = 0"
            };
            if self.db.execute_batch(restore).is_err() {
                self.set_broken();
            }
        }
    }

    /// Runs SQL without parameters, and ignores its rows.
    pub(super) fn command(&self, sql: &str) -> Result<()> {
        let mut statement = self.patiently(|| self.db.prepare(sql))?;
        self.each_row(&mut statement, |_| Ok(true))
    }

    /// As [`command`](Session::command), for a statement that runs often: it is kept prepared.
    pub(super) fn often(&self, sql: &'static str) -> Result<()> {
        let mut statement = self.patiently(|| self.own_statement(sql))?;
        self.each_row(&mut statement, |_| Ok(true))
    }

    /// Returns a statement of the driver's own, which is kept in addition to those of the user.
    pub(super) fn own_statement(&self, sql: &'static str) -> rusqlite::Result<CachedStatement<'_>> {
        let mut own = self.own_statements.borrow_mut();
        if self.statement_cache > 0 && !own.contains(&sql) {
            own.push(sql);
            let room = self.statement_cache + own.len();
            self.db.set_prepared_statement_cache_capacity(room);
        }
        drop(own);
        self.db.prepare_cached(sql)
    }

    /// As [`command`](Session::command), repeated while another connection holds a lock for which SQLite does not
    /// call the busy handler.
    pub(super) fn command_while_busy(&self, sql: &str) -> Result<()> {
        let mut turn = 0;
        loop {
            self.control.take_gave_up();
            let done = self.command(sql);
            let is_busy = done.as_ref().is_err_and(error::is_busy);
            let is_over = !is_busy || self.control.take_gave_up();
            if is_over || !self.control.wait_for_lock(turn) {
                return done;
            }
            turn += 1;
        }
    }

    /// Returns the first column of all rows, as texts.
    pub(super) fn names(&self, sql: &str) -> Result<Vec<String>> {
        self.patiently(|| {
            let mut statement = self.db.prepare(sql)?;
            let names = statement.query_map([], |row| row.get(0))?;
            names.collect()
        })
    }

    fn any_row(&self, sql: &str, param: &str) -> Result<bool> {
        self.patiently(|| self.db.prepare(sql)?.exists([param]))
    }

    pub(super) fn statement(&self, sql: &str, cache: bool) -> Result<Runnable<'_>> {
        let statement = self.patiently(|| match cache && self.statement_cache > 0 {
            true => self.db.prepare_cached(sql).map(Runnable::Kept),
            false => self.db.prepare(sql).map(Runnable::Once),
        })?;
        if is_nothing(&statement) {
            return Err(error::nothing_to_run());
        }
        Ok(statement)
    }

    pub(super) fn bind(&self, statement: &mut Statement<'_>, params: &[impl ToSql]) -> Result<()> {
        for (n, param) in params.iter().enumerate() {
            self.bind_one(statement, n + 1, param)?;
        }
        Ok(())
    }

    /// Binds one parameter; the first has the number 1.
    #[inline]
    pub(super) fn bind_one(
        &self,
        statement: &mut Statement<'_>,
        number: usize,
        param: &impl ToSql,
    ) -> Result<()> {
        let bound = statement.raw_bind_parameter(number, param);
        bound.map_err(|error| self.said(error))
    }

    /// Runs a statement to its end, or until `take` returns `false`.
    pub(super) fn each_row(
        &self,
        statement: &mut Statement<'_>,
        mut take: impl FnMut(&Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let mut turn = 0;
        'again: loop {
            self.control.check()?;
            let mut rows = statement.raw_query();
            let mut is_first = true;
            loop {
                match rows.next() {
                    Ok(Some(row)) => {
                        if !take(row)? {
                            return self.heed_alarm();
                        }
                    }
                    Ok(None) => return self.heed_alarm(),
                    Err(error) => {
                        self.heed_alarm()?;
                        // No row has come yet, so the statement can start again.
                        if is_first && self.is_worth_waiting(&error, turn) {
                            turn += 1;
                            continue 'again;
                        }
                        return Err(self.said(error));
                    }
                }
                is_first = false;
            }
        }
    }

    /// Repeats `ask` while another connection holds a lock of the shared cache. For all other locks SQLite itself
    /// calls the busy handler.
    pub(super) fn patiently<T>(&self, mut ask: impl FnMut() -> rusqlite::Result<T>) -> Result<T> {
        let mut turn = 0;
        loop {
            self.control.check()?;
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) if self.is_worth_waiting(&error, turn) => turn += 1,
                Err(error) => return Err(self.said(error)),
            }
        }
    }

    fn is_worth_waiting(&self, error: &rusqlite::Error, turn: usize) -> bool {
        error::is_shared_cache_lock(error) && self.control.wait_for_lock(turn)
    }

    /// Fails if a collation panicked: SQLite takes no error from it, and has sorted wrongly.
    fn heed_alarm(&self) -> Result<()> {
        match self.alarm.take() {
            Some(collation) => {
                // An index may be sorted wrongly now.
                self.set_broken();
                Err(error::collation_panicked(&collation))
            }
            None => Ok(()),
        }
    }

    /// Converts an error, and marks the connection as unusable if the error is fatal.
    fn said(&self, error: rusqlite::Error) -> Error {
        if error::is_fatal(&error) {
            self.set_broken();
        }
        match error::lock_refused(&error) {
            Some(extended) => error::locked(extended, self.writing.other_writer(), || {
                self.locked_from_outside()
            }),
            None => error::from_sqlite(error),
        }
    }

    /// Returns the message of a lock that no writer of this program holds.
    fn locked_from_outside(&self) -> String {
        let mode = |row: &Row<'_>| row.get::<_, String>(0);
        let mode = self.db.pragma_query_value(None, "journal_mode", mode);
        let readers = match mode.as_deref() {
            Ok("wal") => "",
            // Without a write-ahead log readers and writers exclude each other.
            _ => ", or by a reader, which journal_mode=wal would not let wait",
        };
        format!(
            "database is locked by another process, or by a connection that cenote did not \
             open{readers}"
        )
    }

    pub(super) fn note_run(&self, statement: &Statement<'_>) {
        if statement.get_status(StatementStatus::Run) == 0 {
            self.compiled.set(self.compiled.get() + 1);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session")
            .field("db", &self.db)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

fn as_milliseconds(value: &SqlValue) -> Option<Duration> {
    let number = match value {
        SqlValue::Integer(number) => u64::try_from(*number).ok(),
        SqlValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.map(Duration::from_millis)
}
