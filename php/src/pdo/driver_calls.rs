//! What C calls for the methods that only one driver has.

use std::ffi::c_void;

use crate::api::guarded;
use crate::engine::{Call, RawCall, Status, Value as PhpValue, Zval};
use crate::pdo::calls::{Text, finished, handle, sql_of};
use crate::pdo::error::DbError;

// ---- functions of SQLite --------------------------------------------------------------

/// Adds a function, an aggregate or a collation; see `cen_function_kind`.
#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_add_function(
    data: *mut c_void,
    name: Text,
    arguments: i64,
    kind: i32,
    call: *mut RawCall,
    last: *mut RawCall,
) -> Status {
    guarded(|| {
        let (call, last) = (Call::from_raw(call), Call::from_raw(last));
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        let name = name.lossy();
        let (Some(late), Some(call)) = (&handle.late, call) else {
            return Status::Failed;
        };
        let refused = |why: String| {
            drop(handle.fail(DbError::new("HY000", 0, why)));
            Status::Failed
        };
        if handle.pooled && handle.is_frozen.get() {
            return refused(format!(
                "{name} cannot be added: connections of the pool are in use already; add functions and \
                 collations before the first statement (PDO::ATTR_POOL_ENABLED)"
            ));
        }
        let counted = if kind == 2 { -2 } else { arguments };
        if !handle.callables.note_name(&name, counted) && handle.pooled {
            return refused(format!(
                "{name} with {arguments} arguments is there already (PDO::ATTR_POOL_ENABLED)"
            ));
        }
        let remote = handle.callables.remote();
        let at = handle.callables.add(call);
        let added = match (kind, last) {
            (1, Some(last)) => {
                let last = handle.callables.add(last);
                remote.aggregate(&name, arguments, at, last)
            }
            (2, _) => remote.collation(&name, at),
            (flags, _) => remote.function(&name, arguments, flags == 3, at),
        };
        match late.add(added) {
            Ok(()) => Status::Ok,
            Err(error) => refused(error.message().to_owned()),
        }
    })
}

// ---- COPY of PostgreSQL --------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_copy_in(data: *mut c_void, sql: Text, rows: Text) -> Status {
    guarded(|| {
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        let rows = rows.bytes().to_vec();
        let done = sql_of(&handle, &sql).and_then(|sql| {
            handle.call(|db| async move {
                let mut copy = db.copy_in(&sql).await?;
                copy.send(rows).await?;
                copy.finish().await
            })
        });
        finished(done.map(drop))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_db_copy_out(data: *mut c_void, sql: Text, to: &mut Zval) -> Status {
    guarded(|| {
        // SAFETY: C passes a handle.
        let handle = unsafe { handle(data) };
        let done = sql_of(&handle, &sql).and_then(|sql| {
            handle.call(|db| async move {
                let mut copy = db.copy_out(&sql).await?;
                let mut all = Vec::new();
                while let Some(part) = copy.try_next().await? {
                    all.extend_from_slice(&part);
                }
                Ok(all)
            })
        });
        finished(done.map(|all| PhpValue::string(&all).write_to(to)))
    })
}
