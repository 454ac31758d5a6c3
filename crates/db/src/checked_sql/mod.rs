//! SQL that one test, or the start of a service, checks against a real schema.
//!
//! [`sql!`](crate::sql!) registers a statement where it is written. [`check`] prepares all registered statements of the
//! program on a database, and lists the wrong ones with file and line: unknown tables and columns, syntax errors, wrong
//! numbers of parameters and columns, and on PostgreSQL wrong types.
//!
//! ```standalone_crate
//! use cenote::{Db, sql};
//!
//! async fn name_of(db: &Db, id: i64) -> cenote::Result<String> {
//!     db.query_as_one(sql!("SELECT name FROM customer WHERE id = ?", (i64) -> (String)), (id,)).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> cenote::Result<()> {
//! # let db = Db::open("sqlite:file:checked-doc?mode=memory&cache=shared").await?;
//! db.exec("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)", ()).await?;
//! let report = cenote::checked_sql::check(&db).await?;
//! assert!(report.is_ok(), "{report}");
//! # assert_eq!(report.checked, 1);
//! # assert_eq!(name_of(&db, 1).await.unwrap_err().kind(), cenote::Kind::NoRows);
//! # Ok(()) }
//! ```
//!
//! Preparing runs nothing and changes nothing. The check uses one connection of the pool, and closes it afterwards. This module
//! needs the feature `check`. Without it, `sql!` returns its text and registers nothing.

mod types;

use std::fmt;
use std::future::Future;
use std::panic::Location;

use cenote_pool::OwnedLease;

use crate::api::db::Db;
use crate::call::op::Prepare;
use crate::call::route::{self, Purpose};
use crate::driver::Prepared;
use crate::sql::{self, Keyword, Statements};
use crate::{Error, Result};

pub use self::types::{DeclaredType, SqlType};

/// A statement that [`sql!`](crate::sql!) has registered.
#[derive(Debug)]
#[non_exhaustive]
pub struct Registered {
    /// The text.
    pub sql: &'static str,
    /// The module of the call site, such as `shop::orders`.
    pub module: &'static str,
    /// The source file of the call site.
    pub file: &'static str,
    /// The line of the call site.
    pub line: u32,
    /// The declared types of the parameters, if there are any.
    pub params: Option<&'static [DeclaredType]>,
    /// The declared types of the columns, if there are any.
    pub columns: Option<&'static [DeclaredType]>,
}

impl Registered {
    /// For [`sql!`](crate::sql!).
    #[doc(hidden)]
    pub const fn new(
        sql: &'static str,
        module: &'static str,
        (file, line): (&'static str, u32),
        params: Option<&'static [DeclaredType]>,
        columns: Option<&'static [DeclaredType]>,
    ) -> Self {
        Registered {
            sql,
            module,
            file,
            line,
            params,
            columns,
        }
    }
}

inventory::collect!(Registered);

/// Returns all statements that the program has registered, in the order of files and lines.
pub fn registered() -> Vec<&'static Registered> {
    let mut all: Vec<_> = inventory::iter::<Registered>.into_iter().collect();
    all.sort_by_key(|statement| (statement.file, statement.line));
    all
}

/// Checks all registered statements on a database.
///
/// # Cancel safety
///
/// Dropped, nothing is lost.
///
/// # Errors
///
/// No connection is free in time, or the connection is lost. Wrong statements are no error: they are in the report.
#[track_caller]
pub fn check(db: &Db) -> impl Future<Output = Result<Report>> + Send + '_ {
    check_these(db, registered())
}

/// Checks these statements on a database: for a program with several databases.
///
/// ```
/// # async fn check_orders(orders: &cenote::Db) -> cenote::Result<()> {
/// use cenote::checked_sql::{check_these, registered};
/// let of_orders = registered().into_iter().filter(|of| of.module.starts_with("shop::orders"));
/// let report = check_these(orders, of_orders.collect()).await?;
/// # let _ = report; Ok(()) }
/// ```
///
/// # Cancel safety
///
/// As [`check`].
///
/// # Errors
///
/// As [`check`].
#[track_caller]
pub fn check_these<'a>(
    db: &'a Db,
    statements: Vec<&'static Registered>,
) -> impl Future<Output = Result<Report>> + Send + 'a {
    let site = Location::caller();
    async move {
        let mut report = Report::default();
        let checked = prepare_all(db, statements, site, &mut report).await;
        checked.map_err(|error| error.in_call(site, None))?;
        Ok(report)
    }
}

async fn prepare_all(
    db: &Db,
    statements: Vec<&'static Registered>,
    site: &'static Location<'static>,
    report: &mut Report,
) -> Result<()> {
    let handle = db.handle();
    let frame = crate::coroutine::call_context();
    let mut lease = route::acquire(handle, frame.frame(), Purpose::Other, site).await?;
    for statement in statements {
        let scan = match sql::cached_scan(handle.shared.dialect, statement.sql) {
            Ok(scan) => scan,
            Err(wrong) => {
                report.note(statement, vec![wrong.message().to_owned()]);
                continue;
            }
        };
        // SQLite runs some pragmas while it prepares them.
        let is_pragma = scan.class.verb == Some(Keyword::Pragma);
        let copies = scan.class.resolved.copies.is_some();
        if scan.class.statements != Statements::One || is_pragma || copies {
            report.unchecked.push(statement);
            continue;
        }
        let limit = handle.shared.statement_limit();
        let prepare = Prepare(scan.sql(), scan.written_sql());
        // A cancel from here on gives the connection back; the pool settles its unanswered call.
        let prepared = lease.send_within(&prepare, site, &handle.shared.runtime, limit);
        let prepared = scan.located(prepared.await);
        if lease.is_broken() {
            return prepared.map(drop);
        }
        match prepared {
            Ok(prepared) => report.note(statement, compare(statement, &prepared)),
            Err(error) if cannot_be_prepared(&error) => report.unchecked.push(statement),
            Err(error) => report.note(statement, vec![described(&error)]),
        }
    }
    if handle.pool.manager().template.check_poolable().is_ok() {
        // The connection has kept the statements in the place of those that the program uses.
        OwnedLease::discard(lease);
    }
    Ok(())
}

/// Returns whether the database cannot prepare statements of this kind: MySQL's 1295.
fn cannot_be_prepared(error: &Error) -> bool {
    error.code() == Some(1295) && error.sql_state() == Some("HY000")
}

fn described(error: &Error) -> String {
    let mut text = error.message().to_owned();
    if let Some(state) = error.sql_state() {
        text += &format!(" [{state}]");
    }
    if let Some(position) = error.position() {
        text += &format!(" at character {position}");
    }
    text
}

/// Compares what is declared with what the database describes.
fn compare(statement: &Registered, prepared: &Prepared) -> Vec<String> {
    let mut wrong = Vec::new();
    // Only a database that infers the types of parameters has types that are certain.
    let are_certain = prepared.param_types.is_some();
    if let Some(declared) = statement.params {
        let names = prepared.param_types.iter().flatten();
        let names: Vec<_> = names.map(String::as_str).collect();
        check_count("parameter", declared.len(), prepared.params, &mut wrong);
        for (n, (of, name)) in declared.iter().zip(names).enumerate() {
            if !of.fits_param(name) {
                let declared = of.name;
                wrong.push(format!(
                    "parameter {} is {name}, declared as {declared}",
                    n + 1
                ));
            }
        }
    }
    if let Some(declared) = statement.columns {
        let columns = prepared.columns.as_slice();
        check_count("column", declared.len(), columns.len(), &mut wrong);
        for (of, column) in declared.iter().zip(columns) {
            let name = column.type_name.as_deref().filter(|_| are_certain);
            if let Some(name) = name
                && !of.fits_column(name)
            {
                let (column, declared) = (&column.name, of.name);
                wrong.push(format!("column {column} is {name}, declared as {declared}"));
            }
        }
    }
    wrong
}

fn check_count(what: &str, declared: usize, is: usize, wrong: &mut Vec<String>) {
    if declared != is {
        let plural = if is == 1 { "" } else { "s" };
        wrong.push(format!(
            "it has {is} {what}{plural}, declared are {declared}"
        ));
    }
}

/// What [`check`] has found. `Display` lists all wrong statements.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The number of statements that the database has prepared, or refused to.
    pub checked: usize,
    /// The wrong ones.
    pub wrong: Vec<Wrong>,
    /// Statements that cannot be checked alone: scripts of several statements, SQLite's pragmas, PostgreSQL's COPY from and
    /// to the client, and what MySQL does not prepare.
    pub unchecked: Vec<&'static Registered>,
}

/// A wrong statement.
#[derive(Debug)]
#[non_exhaustive]
pub struct Wrong {
    /// The statement.
    pub statement: &'static Registered,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl Report {
    /// Returns whether no statement is wrong.
    pub fn is_ok(&self) -> bool {
        self.wrong.is_empty()
    }

    fn note(&mut self, statement: &'static Registered, problems: Vec<String>) {
        self.checked += 1;
        if !problems.is_empty() {
            self.wrong.push(Wrong {
                statement,
                problems,
            });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wrong, checked) = (self.wrong.len(), self.checked);
        write!(out, "{wrong} of {checked} registered statements are wrong")?;
        for Wrong {
            statement,
            problems,
        } in &self.wrong
        {
            let Registered {
                file, line, sql, ..
            } = statement;
            for problem in problems {
                write!(out, "\n{file}:{line}: {problem}")?;
            }
            let words: Vec<_> = sql.split_whitespace().collect();
            write!(out, "\n    {}", words.join(" "))?;
        }
        Ok(())
    }
}
