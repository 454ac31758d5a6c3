//! ODBC's handles: the only `unsafe` code of this driver.
//!
//! `odbc-api` cannot cancel, query the driver's capabilities, or move to the next result of a text with several statements. So
//! this file uses its handles directly, behind a safe interface:
//!
//! - **Parameters** are bound for one call and unbound before it returns.
//! - **Columns** are never bound: cells are fetched one by one, into buffers of the call.
//! - A [`Stmt`] owns a reference to its connection, and is freed before it.
//! - A **cancel** comes from another thread. It reaches a statement only through [`Target`], under a lock that is also held
//!   to publish and to withdraw the handle. So the handle is alive and belongs to the call that is cancelled. It is published
//!   only while the driver runs a statement, and not while its diagnostics are read, because a cancel makes unixODBC discard
//!   them.
#![allow(unsafe_code, reason = "odbc-api does not wrap these functions")]

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use odbc_api::buffers::Indicator;
use odbc_api::handles::{self, ColumnDescription, SqlResult, SqlText, Statement, StatementImpl};
use odbc_api::parameter::{Binary, InputParameter, Text, VarCell, VarKind};
use odbc_api::sys::{
    ConnectionAttribute, FreeStmtOption, HDbc, HStmt, InfoType, Pointer, SQLCancel, SQLFreeStmt,
    SQLGetConnectAttr, SQLGetInfo, SqlReturn,
};
use odbc_api::{ConnectionOptions, Nullable, environment};
use zeroize::Zeroizing;

/// An error of ODBC.
pub(super) type OdbcError = odbc_api::Error;
type OdbcResult<T> = Result<T, OdbcError>;

/// A parameter that ODBC can bind.
pub(super) type Bound = Box<dyn InputParameter>;

/// A text with a final NUL. Drivers get its length, but psqlODBC reads until a NUL.
struct Ended(Zeroizing<String>);

impl Ended {
    fn new(text: &str) -> Self {
        let mut ended = Zeroizing::new(String::with_capacity(text.len() + 1));
        ended.push_str(text);
        ended.push('\0');
        Ended(ended)
    }

    fn as_str(&self) -> &str {
        &self.0[..self.0.len() - 1]
    }
}

/// An open connection.
pub(super) struct Dbc {
    open: Arc<Open>,
}

/// The handle that a connection shares with its statements. The last of them disconnects it.
struct Open {
    /// Taken only to disconnect.
    handle: Mutex<Option<handles::Connection<'static>>>,
}

impl Dbc {
    /// Connects. Blocks as long as the driver does.
    pub(super) fn connect(connection_string: &str, login_seconds: u32) -> OdbcResult<Dbc> {
        let options = ConnectionOptions {
            login_timeout_sec: Some(login_seconds),
            ..ConnectionOptions::default()
        };
        let text = Ended::new(connection_string);
        let connection = environment()?.connect_with_connection_string(text.as_str(), options)?;
        let handle = Mutex::new(Some(connection.into_handle()));
        Ok(Dbc {
            open: Arc::new(Open { handle }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<handles::Connection<'static>>> {
        let handle = self.open.handle.lock();
        handle.unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&handles::Connection<'static>) -> SqlResult<T>,
    ) -> OdbcResult<T> {
        let handle = self.lock();
        let handle = handle.as_ref().expect("it is open until it is closed");
        call(handle).into_result_without_logging(handle)
    }

    pub(super) fn set_autocommit(&self, on: bool) -> OdbcResult<()> {
        self.with(|handle| handle.set_autocommit(on))
    }

    pub(super) fn commit(&self) -> OdbcResult<()> {
        self.with(handles::Connection::commit)
    }

    pub(super) fn rollback(&self) -> OdbcResult<()> {
        self.with(handles::Connection::rollback)
    }

    /// Whether the driver has noticed that the connection is lost. False if it does not know.
    pub(super) fn is_dead(&self) -> bool {
        self.with(handles::Connection::is_dead).unwrap_or(false)
    }

    /// Returns the name of the database system, such as `PostgreSQL`.
    pub(super) fn system_name(&self) -> String {
        let mut name = Vec::new();
        match self.with(|handle| handle.fetch_database_management_system_name(&mut name)) {
            Ok(()) => handles::slice_to_cow_utf8(&name).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// Returns a number that describes the driver; `None` if the driver does not report it.
    pub(super) fn info(&self, which: InfoType) -> Option<u32> {
        let handle = self.lock();
        let hdbc: HDbc = handle.as_ref()?.as_sys();
        // Some drivers write two bytes where the standard has four: the others stay zero.
        let mut value = 0_u32;
        let into: *mut u32 = &raw mut value;
        // SAFETY: the handle is open and locked; `value` has room for the four bytes that a number
        // takes, and the length that is not asked for may be null.
        let done = unsafe {
            SQLGetInfo(
                hdbc,
                which,
                into.cast::<c_void>(),
                FOUR_SHORT,
                std::ptr::null_mut(),
            )
        };
        is_done(done).then_some(value)
    }

    /// Returns a numeric attribute of the connection; `None` if the driver does not report it.
    pub(super) fn attribute(&self, which: ConnectionAttribute) -> Option<u32> {
        let handle = self.lock();
        let hdbc: HDbc = handle.as_ref()?.as_sys();
        // Some drivers write a long where the standard has four bytes.
        let mut value = 0_u64;
        let into: *mut u64 = &raw mut value;
        // SAFETY: the handle is open and locked; `value` has room for more than the four bytes that a
        // numeric attribute takes, and the length that is not asked for may be null.
        let done = unsafe {
            SQLGetConnectAttr(
                hdbc,
                which,
                into.cast::<c_void>(),
                FOUR,
                std::ptr::null_mut(),
            )
        };
        is_done(done).then(|| u32::try_from(value & u64::from(u32::MAX)).ok())?
    }

    /// Sets the isolation level of later transactions.
    pub(super) fn set_isolation(&self, level: u32) -> OdbcResult<()> {
        let value: Pointer = std::ptr::without_provenance_mut(usize::try_from(level).unwrap_or(0));
        self.with(|handle| {
            // SAFETY: the value of this attribute is a number, not an address, and all that
            // it changes is how transactions are kept apart.
            unsafe { handle.set_attribute(ConnectionAttribute::TXN_ISOLATION, value, FOUR) }
        })
    }

    /// Returns a new statement of this connection.
    pub(super) fn statement(&self) -> OdbcResult<Stmt> {
        let hstmt = self.with(|handle| handle.allocate_statement().map(StatementImpl::into_sys))?;
        // SAFETY: it was allocated just now, and nobody else has it. Its connection is kept beside it,
        // and open for as long as that.
        let handle = unsafe { StatementImpl::new(hstmt) };
        Ok(Stmt {
            handle,
            _open: Arc::clone(&self.open),
            part: vec![0; FIRST_PART],
        })
    }

    /// Disconnects; if there are statements left, with the last of them.
    pub(super) fn close(self) -> OdbcResult<()> {
        match Arc::into_inner(self.open) {
            Some(mut open) => open.disconnect(),
            None => Ok(()),
        }
    }
}

impl Open {
    fn disconnect(&mut self) -> OdbcResult<()> {
        let handle = self.handle.get_mut();
        let Some(mut handle) = handle.unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let mut done = handle.disconnect().into_result_without_logging(&handle);
        if done.is_err() {
            // An open transaction prevents the disconnect. If the rollback fails too, nothing more
            // can be done.
            let _ = handle.rollback();
            done = handle.disconnect().into_result_without_logging(&handle);
        }
        if done.is_err() {
            // odbc-api panics when a connected handle is freed.
            std::mem::forget(handle);
        }
        done
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A caller that wants the error calls `close`.
        let _ = self.disconnect();
    }
}

impl fmt::Debug for Dbc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Dbc").finish_non_exhaustive()
    }
}

const FOUR: i32 = 4;
const FOUR_SHORT: i16 = 4;

fn is_done(code: SqlReturn) -> bool {
    matches!(code, SqlReturn::SUCCESS | SqlReturn::SUCCESS_WITH_INFO)
}

/// Whether there is a next row or result.
pub(super) enum Next {
    There,
    Over,
}

/// A statement.
pub(super) struct Stmt {
    /// Freed before its connection: fields are dropped in this order.
    handle: StatementImpl<'static>,
    _open: Arc<Open>,
    /// Receives the parts of a long cell.
    part: Vec<u8>,
}

/// The initial and the maximum size of the buffer for a cell.
const FIRST_PART: usize = 4 * 1024;
const LARGEST_PART: usize = 1024 * 1024;

impl Stmt {
    fn checked<T>(&self, result: SqlResult<T>) -> OdbcResult<T> {
        result.into_result_without_logging(&self.handle)
    }

    pub(super) fn prepare(&mut self, sql: &str) -> OdbcResult<()> {
        let text = Ended::new(sql);
        let prepared = self.handle.prepare(&SqlText::new(text.as_str()));
        self.checked(prepared)
    }

    /// Sets a time limit for the statement, if the driver supports it; 0 means none.
    pub(super) fn set_timeout(&mut self, seconds: usize) -> OdbcResult<()> {
        let set = self.handle.set_query_timeout_sec(seconds);
        self.checked(set)
    }

    /// Returns the number of parameters; `None` if the driver does not know.
    pub(super) fn params(&mut self) -> Option<u16> {
        let result = self.handle.num_params();
        self.checked(result).ok()
    }

    /// Runs a text, or the prepared statement, up to its first result.
    pub(super) fn execute(
        &mut self,
        cancel: Cancel<'_>,
        sql: Option<&str>,
        params: &[Bound],
    ) -> OdbcResult<()> {
        let bound = self.bind(params);
        let text = sql.map(Ended::new);
        let done = bound.and_then(|()| {
            let run = cancel.around(&mut self.handle, |handle| match &text {
                // SAFETY: what is bound is `params`, which outlive this call, and no parameter
                // whose value comes later is among them.
                Some(text) => unsafe { handle.exec_direct(&SqlText::new(text.as_str())) },
                // SAFETY: as above.
                None => unsafe { handle.execute() },
            });
            // `NoData` means that no row was changed: not an error.
            self.checked(run.or_no_data()).map(drop)
        });
        // Also after an error, nothing stays bound when the parameters are dropped.
        let unbound = self.handle.reset_parameters();
        let unbound = self.checked(unbound);
        done.and(unbound)
    }

    fn bind(&mut self, params: &[Bound]) -> OdbcResult<()> {
        for (number, param) in (1..=u16::MAX).zip(params) {
            param.assert_completness();
            // SAFETY: only called by `execute`, which unbinds before `params` can go; the
            // parameter is complete, and the statement shares its bindings with no other.
            let bound = unsafe { self.handle.bind_input_parameter(number, param) };
            self.checked(bound)?;
        }
        Ok(())
    }

    /// Returns the number of columns of the current result; 0 if it has no rows.
    pub(super) fn width(&mut self) -> OdbcResult<u16> {
        let result = self.handle.num_result_cols();
        self.checked(result)
            .map(|width| u16::try_from(width).unwrap_or(0))
    }

    pub(super) fn column(&mut self, number: u16) -> OdbcResult<ColumnDescription> {
        let mut column = ColumnDescription::default();
        let result = self.handle.describe_col(number, &mut column);
        self.checked(result)?;
        Ok(column)
    }

    /// Returns the number of changed rows; `None` if the driver does not know.
    pub(super) fn affected(&mut self) -> OdbcResult<Option<u64>> {
        let result = self.handle.row_count();
        self.checked(result).map(|rows| u64::try_from(rows).ok())
    }

    /// Moves to the next row.
    pub(super) fn fetch(&mut self, cancel: Cancel<'_>) -> OdbcResult<Next> {
        // SAFETY: no column is bound.
        let fetched = cancel.around(&mut self.handle, |handle| unsafe { handle.fetch() });
        self.next(fetched)
    }

    /// Moves to the next result.
    pub(super) fn more(&mut self, cancel: Cancel<'_>) -> OdbcResult<Next> {
        // SAFETY: no column is bound that could be another one's now.
        let more = cancel.around(&mut self.handle, |handle| unsafe { handle.more_results() });
        self.next(more)
    }

    fn next(&self, result: SqlResult<()>) -> OdbcResult<Next> {
        Ok(match self.checked(result.or_no_data())? {
            Some(()) => Next::There,
            None => Next::Over,
        })
    }

    /// Discards the current result, if there is one.
    pub(super) fn close(&mut self) -> OdbcResult<()> {
        // SAFETY: the handle is alive, and this frees nothing that we have.
        let done = unsafe { SQLFreeStmt(self.handle.as_sys(), FreeStmtOption::Close) };
        match is_done(done) {
            true => Ok(()),
            false => self.checked(SqlResult::Error {
                function: "SQLFreeStmt",
            }),
        }
    }

    /// Reads a cell of the current row as text; returns false if it is NULL.
    pub(super) fn text(&mut self, column: u16, into: &mut Vec<u8>) -> OdbcResult<bool> {
        self.parts::<Text>(column, into)
    }

    /// Reads a cell of the current row as bytes; returns false if it is NULL.
    pub(super) fn bytes(&mut self, column: u16, into: &mut Vec<u8>) -> OdbcResult<bool> {
        self.parts::<Binary>(column, into)
    }

    /// Reads a cell of the current row as a number; `None` if it is NULL.
    pub(super) fn float(&mut self, column: u16) -> OdbcResult<Option<f64>> {
        let mut number = Nullable::<f64>::null();
        let result = self.handle.get_data(column, &mut number);
        self.checked(result.or_no_data())?;
        Ok(number.into_opt())
    }

    /// Reads a cell part by part.
    fn parts<K: VarKind<Element = u8>>(
        &mut self,
        column: u16,
        into: &mut Vec<u8>,
    ) -> OdbcResult<bool> {
        into.clear();
        loop {
            let room = self.part.len() - K::TERMINATING_ZEROES;
            let mut part = VarCell::<_, K>::from_buffer(&mut self.part[..], Indicator::Null);
            let got = self.handle.get_data(column, &mut part);
            let indicator = part.indicator();
            if self.checked(got.or_no_data())?.is_none() {
                // The last part filled the buffer exactly.
                return Ok(true);
            }
            match indicator {
                Indicator::Null => return Ok(false),
                Indicator::Length(left) if left <= room => {
                    into.extend_from_slice(&self.part[..left]);
                    return Ok(true);
                }
                Indicator::Length(left) => {
                    into.extend_from_slice(&self.part[..room]);
                    let next = (left - room + K::TERMINATING_ZEROES).min(LARGEST_PART);
                    self.grow(next);
                }
                Indicator::NoTotal => {
                    into.extend_from_slice(&self.part[..room]);
                    self.grow((self.part.len() * 2).min(LARGEST_PART));
                }
            }
        }
    }

    fn grow(&mut self, size: usize) {
        if size > self.part.len() {
            self.part.resize(size, 0);
        }
    }
}

impl fmt::Debug for Stmt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Stmt").finish_non_exhaustive()
    }
}

/// The running statement, for other threads to cancel.
#[derive(Default)]
pub(super) struct Target {
    /// The number of its call, and the statement.
    running: Mutex<Option<(u64, HStmt)>>,
}

// SAFETY: the handle is used for nothing but `SQLCancel`, which ODBC lets any thread call, and
// only under the lock.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    fn lock(&self) -> MutexGuard<'_, Option<(u64, HStmt)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the statement of this call, if it runs now.
    ///
    /// It may take as long as a connect, because some drivers open a connection for it.
    pub(super) fn cancel(&self, call: u64) {
        let running = self.lock();
        if let Some((_, hstmt)) = running.filter(|(of, _)| *of == call) {
            // SAFETY: the statement is alive: it is borrowed by `Cancel::around`, which cannot end
            // before it has taken the handle away, for which it needs the lock that is held here.
            // The thread that runs the statement sees the result.
            let _ = unsafe { SQLCancel(hstmt) };
        }
    }
}

/// How a running statement can be cancelled, and for which call.
#[derive(Clone, Copy)]
pub(super) struct Cancel<'a> {
    /// `None` if it cannot be cancelled.
    pub(super) target: Option<&'a Target>,
    pub(super) call: u64,
    /// An idle statement whose cancel cancels everything on its connection, for a driver that does not support
    /// a cancel of the running statement.
    pub(super) proxy: Option<&'a Stmt>,
}

impl Cancel<'_> {
    /// For a statement that cannot be cancelled.
    pub(super) const NEVER: Cancel<'static> = Cancel {
        target: None,
        call: 0,
        proxy: None,
    };

    /// Runs a function of a statement that other threads may cancel meanwhile.
    fn around<T>(
        self,
        handle: &mut StatementImpl<'static>,
        run: impl FnOnce(&mut StatementImpl<'static>) -> T,
    ) -> T {
        let Some(target) = self.target else {
            return run(handle);
        };
        let named = self
            .proxy
            .map_or(handle.as_sys(), |proxy| proxy.handle.as_sys());
        *target.lock() = Some((self.call, named));
        let hide = Hide(target);
        let done = run(handle);
        drop(hide);
        done
    }
}

/// Withdraws the published handle, also if the call panics.
struct Hide<'t>(&'t Target);

impl Drop for Hide<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Target").finish_non_exhaustive()
    }
}
