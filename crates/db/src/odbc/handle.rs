//! The handles of ODBC, and the only file of this crate with `unsafe` in it.
//!
//! `odbc-api` has no way to cancel, to ask the driver what it can do, or to go on to the next result
//! of a text with several statements. So this goes down to its handles, and is safe to use:
//!
//! - **Parameters** are bound for the length of one call and unbound before it returns.
//! - **Columns** are never bound: cells are asked for one by one, into buffers of the call.
//! - A [`Stmt`] keeps its connection, and is freed before that.
//! - A **cancel** comes from another thread. It reaches a statement only through [`Target`], under a
//!   lock that is also taken to name the statement and to take the name away; so the
//!   handle it is given is alive, and belongs to the call that was to be cancelled. A name is there
//!   only while the driver runs something, and not while one asks it for what it said: unixODBC
//!   forgets that when a cancel comes.
//!
//! Everything else of the driver is in the other files, and forbids itself `unsafe`.
#![allow(unsafe_code, reason = "what odbc-api leaves to its users")]

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

/// What ODBC says when it refuses.
pub(super) type OdbcError = odbc_api::Error;
type OdbcResult<T> = Result<T, OdbcError>;

/// A parameter, in a form that ODBC takes.
pub(super) type Bound = Box<dyn InputParameter>;

/// A text with a NUL behind it. Drivers are told how long it is; psqlODBC reads on until there is one.
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

/// What a connection shares with its statements, which need it to be there and nothing else of it:
/// it is disconnected with the last of them.
struct Open {
    /// Taken out to disconnect, and never before.
    handle: Mutex<Option<handles::Connection<'static>>>,
}

impl Dbc {
    /// Connects, which takes as long as the driver takes.
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

    /// Whether the driver has found that the other side is gone. `false` if it cannot tell.
    pub(super) fn is_dead(&self) -> bool {
        self.with(handles::Connection::is_dead).unwrap_or(false)
    }

    /// The name of the database system, such as `PostgreSQL`.
    pub(super) fn system_name(&self) -> String {
        let mut name = Vec::new();
        match self.with(|handle| handle.fetch_database_management_system_name(&mut name)) {
            Ok(()) => handles::slice_to_cow_utf8(&name).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// A number that the driver tells about itself; `None` if it does not.
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

    /// A numeric attribute of the connection; `None` if the driver does not tell.
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

    /// Sets the level of isolation for transactions that begin from now on.
    pub(super) fn set_isolation(&self, level: u32) -> OdbcResult<()> {
        let value: Pointer = std::ptr::without_provenance_mut(usize::try_from(level).unwrap_or(0));
        self.with(|handle| {
            // SAFETY: the value of this attribute is a number, not an address, and all that
            // it changes is how transactions are kept apart.
            unsafe { handle.set_attribute(ConnectionAttribute::TXN_ISOLATION, value, FOUR) }
        })
    }

    /// A new statement of this connection.
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

    /// Disconnects; with the last of its statements, if there are any left.
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
            // An open transaction is in the way. If that cannot be ended either, there is
            // nothing more that one could do.
            let _ = handle.rollback();
            done = handle.disconnect().into_result_without_logging(&handle);
        }
        if done.is_err() {
            // To free what is still connected is an error that odbc-api panics at.
            std::mem::forget(handle);
        }
        done
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Whoever wants to know what becomes of it calls `close`.
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

/// What the next step of a statement came to.
pub(super) enum Next {
    There,
    Over,
}

/// A statement.
pub(super) struct Stmt {
    /// Freed before its connection: fields are dropped in this order.
    handle: StatementImpl<'static>,
    _open: Arc<Open>,
    /// Where the parts of a long cell arrive.
    part: Vec<u8>,
}

/// The buffer for a cell, at first; and the largest that it grows to.
const FIRST_PART: usize = 4 * 1024;
const LARGEST_PART: usize = 1024 * 1024;

impl Stmt {
    fn told<T>(&self, result: SqlResult<T>) -> OdbcResult<T> {
        result.into_result_without_logging(&self.handle)
    }

    pub(super) fn prepare(&mut self, sql: &str) -> OdbcResult<()> {
        let text = Ended::new(sql);
        let prepared = self.handle.prepare(&SqlText::new(text.as_str()));
        self.told(prepared)
    }

    /// Gives up a statement that runs longer than this, if the driver can; 0 is never.
    pub(super) fn set_timeout(&mut self, seconds: usize) -> OdbcResult<()> {
        let set = self.handle.set_query_timeout_sec(seconds);
        self.told(set)
    }

    /// How many parameters it takes; `None` if the driver cannot tell.
    pub(super) fn params(&mut self) -> Option<u16> {
        let told = self.handle.num_params();
        self.told(told).ok()
    }

    /// Runs a text, or what was prepared, until there is a first result.
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
            // Nothing was changed, says `NoData`: no error.
            self.told(run.or_no_data()).map(drop)
        });
        // Whatever came of it: nothing stays bound when the parameters go.
        let unbound = self.handle.reset_parameters();
        let unbound = self.told(unbound);
        done.and(unbound)
    }

    fn bind(&mut self, params: &[Bound]) -> OdbcResult<()> {
        for (number, param) in (1..=u16::MAX).zip(params) {
            param.assert_completness();
            // SAFETY: only called by `execute`, which unbinds before `params` can go; the
            // parameter is complete, and the statement shares its bindings with no other.
            let bound = unsafe { self.handle.bind_input_parameter(number, param) };
            self.told(bound)?;
        }
        Ok(())
    }

    /// How many columns the present result has: none if it is no query's.
    pub(super) fn width(&mut self) -> OdbcResult<u16> {
        let told = self.handle.num_result_cols();
        self.told(told)
            .map(|width| u16::try_from(width).unwrap_or(0))
    }

    pub(super) fn column(&mut self, number: u16) -> OdbcResult<ColumnDescription> {
        let mut column = ColumnDescription::default();
        let told = self.handle.describe_col(number, &mut column);
        self.told(told)?;
        Ok(column)
    }

    /// How many rows were changed; `None` if the driver cannot tell.
    pub(super) fn affected(&mut self) -> OdbcResult<Option<u64>> {
        let told = self.handle.row_count();
        self.told(told).map(|rows| u64::try_from(rows).ok())
    }

    /// Goes on to the next row.
    pub(super) fn fetch(&mut self, cancel: Cancel<'_>) -> OdbcResult<Next> {
        // SAFETY: no column is bound.
        let fetched = cancel.around(&mut self.handle, |handle| unsafe { handle.fetch() });
        self.next(fetched)
    }

    /// Goes on to the next result.
    pub(super) fn more(&mut self, cancel: Cancel<'_>) -> OdbcResult<Next> {
        // SAFETY: no column is bound that could be another one's now.
        let more = cancel.around(&mut self.handle, |handle| unsafe { handle.more_results() });
        self.next(more)
    }

    fn next(&self, result: SqlResult<()>) -> OdbcResult<Next> {
        Ok(match self.told(result.or_no_data())? {
            Some(()) => Next::There,
            None => Next::Over,
        })
    }

    /// Forgets the result that is there, if there is one.
    pub(super) fn close(&mut self) -> OdbcResult<()> {
        // SAFETY: the handle is alive, and this frees nothing that we have.
        let done = unsafe { SQLFreeStmt(self.handle.as_sys(), FreeStmtOption::Close) };
        match is_done(done) {
            true => Ok(()),
            false => self.told(SqlResult::Error {
                function: "SQLFreeStmt",
            }),
        }
    }

    /// The text in a cell of the present row, as the driver writes it; `false` if it is NULL.
    pub(super) fn text(&mut self, column: u16, into: &mut Vec<u8>) -> OdbcResult<bool> {
        self.parts::<Text>(column, into)
    }

    /// The bytes in a cell of the present row; `false` if it is NULL.
    pub(super) fn bytes(&mut self, column: u16, into: &mut Vec<u8>) -> OdbcResult<bool> {
        self.parts::<Binary>(column, into)
    }

    /// The number in a cell of the present row; `None` if it is NULL.
    pub(super) fn float(&mut self, column: u16) -> OdbcResult<Option<f64>> {
        let mut number = Nullable::<f64>::null();
        let told = self.handle.get_data(column, &mut number);
        self.told(told.or_no_data())?;
        Ok(number.into_opt())
    }

    /// A cell part by part, until it is whole.
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
            if self.told(got.or_no_data())?.is_none() {
                // The last part was full to the brim.
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

/// The statement that runs, for others to cancel.
#[derive(Default)]
pub(super) struct Target {
    /// The number of the call that it runs for, and the statement.
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

    /// Cancels what runs for this call. Nothing, if that is another call, or no statement.
    ///
    /// It may take as long as a connect does: there are drivers that open a connection for it.
    pub(super) fn cancel(&self, call: u64) {
        let running = self.lock();
        if let Some((_, hstmt)) = running.filter(|(of, _)| *of == call) {
            // SAFETY: the statement is alive: it is borrowed by `Cancel::around`, which cannot end
            // before it has taken the handle away, for which it needs the lock that is held here.
            // What the driver thinks of it is seen by whoever waits for the statement.
            let _ = unsafe { SQLCancel(hstmt) };
        }
    }
}

/// Through what a running statement can be cancelled, and for which call.
#[derive(Clone, Copy)]
pub(super) struct Cancel<'a> {
    /// None if nobody may.
    pub(super) target: Option<&'a Target>,
    pub(super) call: u64,
    /// A statement that runs nothing, whose cancelling cancels everything on its connection: for a
    /// driver that cannot bear it on the one that runs.
    pub(super) bell: Option<&'a Stmt>,
}

impl Cancel<'_> {
    /// Nobody may.
    pub(super) const NEVER: Cancel<'static> = Cancel {
        target: None,
        call: 0,
        bell: None,
    };

    /// Runs something of a statement that others may cancel meanwhile.
    fn around<T>(
        self,
        handle: &mut StatementImpl<'static>,
        run: impl FnOnce(&mut StatementImpl<'static>) -> T,
    ) -> T {
        let Some(target) = self.target else {
            return run(handle);
        };
        let named = self
            .bell
            .map_or(handle.as_sys(), |bell| bell.handle.as_sys());
        *target.lock() = Some((self.call, named));
        let hide = Hide(target);
        let done = run(handle);
        drop(hide);
        done
    }
}

/// Takes the statement away from others, also if its call panics.
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
