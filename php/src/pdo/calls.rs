//! What C calls for PDO objects and their statements.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;
use std::time::Duration;

use cenote::Params;
use cenote::driver::{Param, Value};

use crate::api::{answer, borrow, guarded};
use crate::engine::{Gc, GcBuffer, Status, Value as PhpValue, Zval};
use crate::pdo::cell::Cell;
use crate::pdo::error::{DbError, NO_ERROR};
use crate::pdo::handle::{Failure, Handle};
use crate::pdo::settings::{DriverKind, Settings};
use crate::pdo::stmt::{Kinds, Move, Stmt};
use crate::pool::PhpPool;

thread_local! {
    /// The text of the last error that C asked for.
    static SHOWN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A text of C.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    start: *const u8,
    len: usize,
}

impl Text {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.start.is_null() {
            true => &[],
            // SAFETY: C passes texts that outlive the call.
            false => unsafe { std::slice::from_raw_parts(self.start, self.len) },
        }
    }

    pub(crate) fn lossy(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    fn optional(&self) -> Option<String> {
        (!self.start.is_null()).then(|| self.lossy())
    }
}

/// See `cen_db_options`.
#[repr(C)]
struct Options {
    driver: DriverKind,
    dsn: Text,
    user: Text,
    password: Text,
    init_command: Text,
    /// Pairs of names and values, each with its NUL.
    options: Text,
    pooled: bool,
    min: i64,
    max: i64,
    healthcheck: i64,
    statement_cache: i64,
    /// Seconds; negative if it is not set.
    timeout: i64,
}

/// See `cen_db_error`.
#[repr(C)]
struct ShownError {
    state: [u8; 6],
    code: i64,
    message: Text,
}

fn show(error: Option<DbError>, to: &mut ShownError) -> bool {
    let Some(error) = error else {
        to.state[..5].copy_from_slice(NO_ERROR);
        return false;
    };
    to.state[..5].copy_from_slice(&error.state);
    to.code = error.code;
    SHOWN.with_borrow_mut(|shown| {
        *shown = error.message;
        to.message = Text {
            start: shown.as_ptr(),
            len: shown.len(),
        };
    });
    true
}

/// Returns what C has to do.
pub(crate) fn finished(done: Result<(), Failure>) -> Status {
    match done {
        Ok(()) => Status::Ok,
        Err(Failure::Database) => Status::Failed,
        Err(Failure::Interrupt(interrupt)) => interrupt.raise(),
    }
}

/// # Safety
///
/// `data` is a handle that C owns.
pub(crate) unsafe fn handle(data: *mut c_void) -> Rc<Handle> {
    let data = data.cast::<Handle>().cast_const();
    // SAFETY: as promised.
    unsafe { Rc::increment_strong_count(data) };
    // SAFETY: the count was raised for this one.
    unsafe { Rc::from_raw(data) }
}

pub(crate) fn sql_of(handle: &Handle, sql: &Text) -> Result<String, Failure> {
    match std::str::from_utf8(sql.bytes()) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(handle.fail(no_utf8("the SQL"))),
    }
}

fn no_utf8(what: &str) -> DbError {
    let message = format!(
        "{what} is no UTF-8, which connections of cenote use; bind bytes as PDO::PARAM_LOB"
    );
    DbError::new("22021", 0, message)
}

// ---- handles ----------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn cenote_db_open(
    options: &Options,
    to: &mut *mut c_void,
    error: &mut ShownError,
) -> Status {
    guarded(|| {
        let size = |number: i64| usize::try_from(number).unwrap_or(0);
        let mut pairs = options.options.lossy();
        pairs.truncate(pairs.trim_end_matches('\0').len());
        let mut words = pairs.split('\0').map(str::to_owned);
        let mut given = Vec::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            given.push((name, value));
        }
        let settings = Settings {
            driver: options.driver,
            dsn: options.dsn.lossy(),
            user: options.user.optional(),
            password: options.password.optional(),
            pooled: options.pooled,
            min: size(options.min),
            max: size(options.max),
            healthcheck: Duration::from_millis(options.healthcheck.max(0).unsigned_abs()),
            statement_cache: size(options.statement_cache),
            timeout: u64::try_from(options.timeout).ok().map(Duration::from_secs),
            options: given,
            init_command: options.init_command.optional(),
        };
        match Handle::open(settings) {
            Ok(Ok(handle)) => {
                *to = Rc::into_raw(handle).cast_mut().cast();
                Status::Ok
            }
            Ok(Err(wrong)) => {
                show(Some(wrong), error);
                Status::Failed
            }
            Err(interrupt) => interrupt.raise(),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_free(data: *mut c_void) {
    answer((), || {
        // SAFETY: C owned the handle, and gives it back.
        let handle = unsafe { Rc::from_raw(data.cast::<Handle>().cast_const()) };
        handle.close();
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_gc(data: *mut c_void, buffer: *mut GcBuffer) {
    answer((), || {
        // SAFETY: C passes a handle, and the buffer of this call.
        let (handle, gc) = unsafe { (handle(data), Gc::new(buffer)) };
        handle.callables.report_to_gc(&gc);
    });
}

/// Returns the SQLSTATE of the current coroutine; an empty one before its first call.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_state(data: *mut c_void, state: &mut [u8; 6]) {
    answer((), || {
        // SAFETY: C passes a handle.
        let now = unsafe { handle(data) }.state();
        *state = [0; 6];
        if let Some(now) = now {
            state[..5].copy_from_slice(&now);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_error(
    data: *mut c_void,
    stmt: *mut c_void,
    to: &mut ShownError,
) -> bool {
    answer(false, || {
        if stmt.is_null() {
            // SAFETY: C passes a handle.
            return show(unsafe { handle(data) }.error(), to);
        }
        // SAFETY: C passes a statement.
        let stmt = unsafe { borrow::<Stmt>(stmt) };
        let error = stmt.error.borrow().clone();
        show(error, to)
    })
}

/// Notes an error that C has found.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_fail(data: *mut c_void, state: Text, code: i64, message: Text) {
    answer((), || {
        let error = DbError::new(&state.lossy(), code, message.lossy());
        // SAFETY: C passes a handle.
        drop(unsafe { handle(data) }.fail(error));
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_exec(data: *mut c_void, sql: Text, affected: &mut i64) -> Status {
    guarded(|| {
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        let done = sql_of(&handle, &sql).and_then(|sql| handle.exec(sql));
        finished(done.map(|rows| *affected = i64::try_from(rows).unwrap_or(i64::MAX)))
    })
}

/// Returns the first value of the first row as text; NULL if there is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_ask(
    data: *mut c_void,
    sql: Text,
    params: *const GivenParam,
    count: usize,
    to: &mut Zval,
) -> Status {
    guarded(|| {
        // SAFETY: C passes a handle and this many parameters.
        let (handle, given) = unsafe { (handle(data), params_of(params, count)) };
        let done = sql_of(&handle, &sql)
            .and_then(|sql| Ok((sql, bind(&handle, given)?)))
            .and_then(|(sql, params)| handle.run(sql, params, false, false));
        finished(done.map(|outcome| {
            let value = match outcome.rows.as_ref().and_then(|rows| rows.raw(0, 0)) {
                Some((_, bytes)) => match outcome.rows.as_ref().and_then(|rows| {
                    let column = rows.columns().get(0)?;
                    let (tag, bytes) = rows.raw(0, 0)?;
                    rows.columns().decode().value(column, tag, bytes).ok()
                }) {
                    Some(Value::Int(number)) => PhpValue::string(number.to_string().as_bytes()),
                    Some(Value::UInt(number)) => PhpValue::string(number.to_string().as_bytes()),
                    _ => PhpValue::string(bytes),
                },
                None => PhpValue::null(),
            };
            value.write_to(to);
        }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_begin(data: *mut c_void) -> Status {
    // SAFETY: C passes a handle.
    guarded(|| finished(unsafe { handle(data) }.begin()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_end(data: *mut c_void, commits: bool) -> Status {
    // SAFETY: C passes a handle.
    guarded(|| finished(unsafe { handle(data) }.end(commits)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_in_transaction(data: *mut c_void) -> bool {
    // SAFETY: C passes a handle.
    answer(false, || unsafe { handle(data) }.in_transaction())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_last_id(data: *mut c_void, id: &mut i64) -> bool {
    answer(false, || {
        // SAFETY: C passes a handle.
        let last = unsafe { handle(data) }.last_id();
        *id = last.unwrap_or(0);
        last.is_some()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_extended_codes(data: *mut c_void, on: bool) {
    // SAFETY: C passes a handle.
    answer((), || unsafe { handle(data) }.extended_codes.set(on));
}

/// Writes the `Async\Pool` of a pooled handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_pool(data: *mut c_void, to: &mut Zval) {
    answer((), || {
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        if let Some(db) = handle.db().filter(|_| handle.pooled) {
            PhpValue::from_object(PhpPool::view(db)).write_to(to);
        }
    });
}

// ---- statements -------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_new(
    data: *mut c_void,
    sql: Text,
    kinds: Kinds,
    to: &mut *mut c_void,
) -> Status {
    guarded(|| {
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        let made = sql_of(&handle, &sql).and_then(|sql| Stmt::new(handle, sql, kinds));
        finished(made.map(|stmt| *to = Box::into_raw(Box::new(stmt)).cast()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_free(stmt: *mut c_void) {
    // SAFETY: C owned the statement, and gives it back.
    answer((), || drop(unsafe { Box::from_raw(stmt.cast::<Stmt>()) }));
}

/// A parameter; see `cen_param`.
#[repr(C)]
struct GivenParam {
    kind: i32,
    /// From 0; negative if it has a name.
    position: i64,
    name: Text,
    int: i64,
    double: f64,
    text: Text,
}

/// # Safety
///
/// There are so many parameters.
unsafe fn params_of<'a>(params: *const GivenParam, count: usize) -> &'a [GivenParam] {
    match count {
        0 => &[],
        // SAFETY: as promised.
        _ => unsafe { std::slice::from_raw_parts(params, count) },
    }
}

fn bind(handle: &Handle, given: &[GivenParam]) -> Result<Params<'static>, Failure> {
    let mut values = Vec::with_capacity(given.len());
    for param in given {
        let value = match param.kind {
            0 => Value::Null,
            1 => Value::Int(param.int),
            2 => Value::Float(param.double),
            3 => match String::from_utf8(param.text.bytes().to_vec()) {
                Ok(text) => Value::Text(text.into()),
                Err(bytes) if handle.driver == DriverKind::Mysql => {
                    Value::Bytes(bytes.into_bytes().into())
                }
                Err(_) => {
                    let error = no_utf8("a parameter");
                    return Err(handle.fail(error));
                }
            },
            _ => Value::Bytes(param.text.bytes().to_vec().into()),
        };
        values.push((param, Param::Value(value)));
    }
    if given.first().is_some_and(|param| param.position < 0) {
        let named = values.into_iter().map(|(param, value)| {
            let name = param.name.lossy();
            let name = name.strip_prefix(':').unwrap_or(&name).to_owned();
            (Cow::Owned(name), value)
        });
        return Ok(Params::Named(named.collect()));
    }
    values.sort_by_key(|(param, _)| param.position);
    let in_order = values.iter().zip(0..);
    if in_order
        .clone()
        .any(|((param, _), at)| param.position != at)
    {
        let message =
            "parameters are missing between those that are bound, or they mix names and positions";
        return Err(handle.fail(DbError::new("HY093", 0, message)));
    }
    Ok(Params::Positional(
        values.into_iter().map(|(_, value)| value).collect(),
    ))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_execute(
    stmt: *mut c_void,
    text: Text,
    params: *const GivenParam,
    count: usize,
) -> Status {
    guarded(|| {
        // SAFETY: C passes a statement and this many parameters.
        let (stmt, given) = unsafe { (borrow::<Stmt>(stmt), params_of(params, count)) };
        let handle = Rc::clone(stmt.handle());
        let text = match text.start.is_null() {
            true => Ok(None),
            false => sql_of(&handle, &text).map(Some),
        };
        let bound = text.and_then(|text| Ok((text, bind(&handle, given)?)));
        let done = match bound {
            Ok((text, params)) => stmt.execute(text, params),
            Err(failure) => {
                *stmt.error.borrow_mut() = handle.error();
                Err(failure)
            }
        };
        finished(done)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_counts(stmt: *mut c_void, columns: &mut i64, affected: &mut i64) {
    answer((), || {
        // SAFETY: C passes a statement.
        let stmt = unsafe { borrow::<Stmt>(stmt) };
        *columns = i64::try_from(stmt.column_count()).unwrap_or(i64::MAX);
        *affected = i64::try_from(stmt.affected()).unwrap_or(i64::MAX);
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_fetch(stmt: *mut c_void, direction: Move, offset: i64) -> bool {
    // SAFETY: C passes a statement.
    unsafe { borrow::<Stmt>(stmt) }.fetch(direction, offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_has_param(stmt: *mut c_void, name: Text, position: i64) -> bool {
    answer(true, || {
        // SAFETY: C passes a statement.
        let stmt = unsafe { borrow::<Stmt>(stmt) };
        stmt.has_param(name.optional().as_deref(), position)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_fail(stmt: *mut c_void, state: Text, code: i64, message: Text) {
    answer((), || {
        let error = DbError::new(&state.lossy(), code, message.lossy());
        // SAFETY: C passes a statement.
        unsafe { borrow::<Stmt>(stmt) }.fail(error);
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_cell(stmt: *mut c_void, column: usize, to: &mut Cell) {
    answer((), || {
        // SAFETY: C passes a statement.
        *to = unsafe { borrow::<Stmt>(stmt) }.cell(column);
    });
}

/// Returns the name of a column and of its type, valid until the next run, and the number of the type.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_column(
    stmt: *mut c_void,
    column: usize,
    name: &mut Text,
    type_name: &mut Text,
    type_id: &mut u32,
) -> bool {
    answer(false, || {
        let text = |text: &str| Text {
            start: text.as_ptr(),
            len: text.len(),
        };
        // SAFETY: C passes a statement.
        let stmt = unsafe { borrow::<Stmt>(stmt) };
        let found = stmt.column(column, |column| {
            *name = text(&column.name);
            *type_name = text(column.type_name.as_deref().unwrap_or_default());
            *type_id = column.type_id;
        });
        found.is_some()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_next_result(stmt: *mut c_void) -> bool {
    // SAFETY: C passes a statement.
    answer(false, || unsafe { borrow::<Stmt>(stmt) }.next_result())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_stmt_close(stmt: *mut c_void) {
    // SAFETY: C passes a statement.
    answer((), || unsafe { borrow::<Stmt>(stmt) }.close());
}
