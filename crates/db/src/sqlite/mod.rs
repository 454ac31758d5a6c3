//! The SQLite driver.
//!
//! ```text
//! Sqlite ──template──> SqliteTemplate ──connect──> SqliteConnection ──programs──> thread: Session
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config` | the DSN, the options and the template |
//! | `connect` | opens and configures a connection |
//! | `connection` | implements the driver contract |
//! | `worker`, `cancel` | one thread per connection; cancelling a call on it |
//! | `session`, `execute`, `statement`, `stream`, `transaction` | run on that thread |
//! | `in_place`, `timing`, `plan`, `coop_budget` | which statements run inline, on the calling task, and how |
//! | `write_queue`, `writing`, `watchdog` | writers wait for the permit to write; the watchdog ends waits that take too long |
//! | `group_commit` | the owner of the permit runs independent writes of others in one transaction |
//! | `file` | notices that the open file was deleted or replaced |
//! | `reset` | resets the session of a private database |
//! | `types`, `insert` | values; the id of an inserted row |
//! | `functions`, `late_functions` | functions, aggregates and collations of the application; those added to open connections |
//! | `error` | converts SQLite's errors |

mod batch;
mod cancel;
mod config;
mod connect;
mod connection;
mod coop_budget;
mod error;
mod execute;
mod file;
mod functions;
mod group_commit;
mod in_place;
mod insert;
mod late_functions;
mod plan;
mod reset;
mod session;
mod statement;
mod stream;
mod timing;
mod transaction;
mod types;
mod watchdog;
mod worker;
mod write_queue;
mod writing;

use std::cmp::Ordering;
use std::sync::Arc;

pub use connection::SqliteConnection;
pub use functions::Arguments;
pub use late_functions::LateFunctions;

use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template, Value};

use self::config::{Config, SqliteTemplate};
use self::functions::{Functions, Steps};

/// The SQLite driver, with functions and collations of the application.
///
/// [`Db::open`](crate::Db::open) uses this driver for every DSN that begins with `sqlite:`. To add functions or
/// collations, pass a driver to [`Db::builder_with`](crate::Db::builder_with). Every connection then has them.
/// [`LateFunctions`] are added while the database is open.
///
/// ```
/// use cenote::sqlite::Sqlite;
///
/// let driver = Sqlite::new()
///     .function("double", 1, true, |args| Ok(args.get::<i64>(0)? * 2))
///     .collation("by_length", |a, b| a.len().cmp(&b.len()));
/// ```
///
/// # DSN and options
///
/// `sqlite:PATH`, `sqlite:///PATH`, or `sqlite:` and one of SQLite's own URIs
/// (`sqlite:file:shop.db?mode=ro`). An option can stand after the `?` or be set on the builder, and applies to every
/// connection. SQLite has no users: user and password are ignored.
///
/// | option | values | default |
/// |---|---|---|
/// | `mode` | `ro`, `rw`, `rwc` (creates a missing file), `memory` | `rwc` |
/// | `cache` | `shared`, `private` | `private` |
/// | `immutable`, `nolock` | a boolean; see SQLite's URIs | off |
/// | `vfs` | the name of a VFS that SQLite knows | SQLite's |
/// | `busy_timeout` | the longest wait for another connection's lock, or in the write queue: `250ms`, `5s`; a number is milliseconds | 30 s |
/// | `in_place` | a boolean: short statements run inline, on the calling task | on |
/// | `journal_mode` | `delete`, `truncate`, `persist`, `memory`, `wal`, `off`; `keep` for the mode that the file has | `wal` for a file that can be written |
/// | `synchronous` | `off`, `normal`, `full`, `extra` | SQLite's |
/// | `foreign_keys` | a boolean | on |
/// | `cache_size` | pages; a negative number is KiB | SQLite's |
/// | `mmap_size` | bytes: `256MiB` | SQLite's |
/// | `temp_store` | `default`, `file`, `memory` | SQLite's; `memory` during inline statements |
/// | `locking_mode` | `normal`, `exclusive` | `normal` |
/// | `pragma.NAME` | any other pragma | |
///
/// A journal mode that the database cannot have (in memory, or read-only) is ignored. An option or a pragma that does
/// not exist is an error.
///
/// # Databases in memory
///
/// A private database (`:memory:`, an empty path, `mode=memory` alone) belongs to one connection, so it cannot be
/// pooled. A reset of its session removes temporary tables, attached databases and changed pragmas; the database
/// stays. A shared database can be pooled: `sqlite:file:NAME?mode=memory&cache=shared`. It lives as long as the
/// handle, also while the pool has no connection.
///
/// # Transactions
///
/// A transaction begins with `BEGIN IMMEDIATE`: it waits for the write lock at its beginning, and cannot fail
/// half-way because another writer was faster. A read-only transaction begins with `BEGIN DEFERRED` and waits for
/// no writer; a write in it is an error. SQLite's transactions are serializable. Every other isolation level is
/// accepted, and runs as serializable, which is stronger.
///
/// If a statement in a transaction is cancelled while it writes, SQLite rolls the whole transaction back.
///
/// A batch (many sets of parameters) is a transaction of its own: all or nothing. In an open transaction, an
/// error leaves the sets before it in that transaction.
///
/// # Values
///
/// Values without a SQLite type are stored as text: decimals, dates, times, UUIDs, JSON. Datetimes have the form of
/// SQLite's own functions, `2024-02-29 09:05:00`; timestamps are in UTC. Booleans are 0 and 1. A number above
/// `i64::MAX` and a NaN are errors.
///
/// The last insert id is the rowid of the row that the statement inserted last. There is none if the statement
/// inserted nothing, if the table is `WITHOUT ROWID`, and for an upsert that updated.
#[derive(Clone, Debug, Default)]
pub struct Sqlite {
    functions: Functions,
    late: Option<LateFunctions>,
}

impl Sqlite {
    /// Returns the driver without functions or collations.
    pub fn new() -> Self {
        Sqlite::default()
    }

    /// Adds an SQL function with this number of arguments. A deterministic function always returns the same value for
    /// the same arguments; SQLite allows it in indexes.
    ///
    /// If the function fails or panics, the statement fails. Functions of one name may differ in their number of
    /// arguments; if two do not, opening the database is an error.
    #[must_use]
    pub fn function<F, R>(mut self, name: &str, arguments: u8, deterministic: bool, call: F) -> Self
    where
        F: Fn(&Arguments<'_>) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        self.functions
            .scalar(name, Some(arguments), deterministic, call);
        self
    }

    /// Adds an SQL function with any number of arguments, as [`function`](Sqlite::function) does.
    #[must_use]
    pub fn variadic_function<F, R>(mut self, name: &str, deterministic: bool, call: F) -> Self
    where
        F: Fn(&Arguments<'_>) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        self.functions.scalar(name, None, deterministic, call);
        self
    }

    /// Adds an aggregate. `init` makes its state, `step` adds a row to the state, and `finish` turns the state into the
    /// result. Without rows, `finish` gets the state of `init`.
    ///
    /// ```
    /// use cenote::sqlite::Sqlite;
    ///
    /// let driver = Sqlite::new().aggregate(
    ///     "product",
    ///     1,
    ///     true,
    ///     || 1_i64,
    ///     |product, args| {
    ///         *product *= args.get::<i64>(0)?;
    ///         Ok(())
    ///     },
    ///     Ok,
    /// );
    /// ```
    ///
    /// Names and errors are as for [`function`](Sqlite::function).
    #[must_use]
    pub fn aggregate<A, I, S, F, R>(
        mut self,
        name: &str,
        arguments: u8,
        deterministic: bool,
        init: I,
        step: S,
        finish: F,
    ) -> Self
    where
        A: Send + 'static,
        I: Fn() -> A + Send + Sync + 'static,
        S: Fn(&mut A, &Arguments<'_>) -> Result<()> + Send + Sync + 'static,
        F: Fn(A) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        let steps = Steps { init, step, finish };
        self.functions
            .aggregate(name, Some(arguments), deterministic, steps);
        self
    }

    /// Adds an aggregate with any number of arguments, as [`aggregate`](Sqlite::aggregate) does.
    #[must_use]
    pub fn variadic_aggregate<A, I, S, F, R>(
        mut self,
        name: &str,
        deterministic: bool,
        init: I,
        step: S,
        finish: F,
    ) -> Self
    where
        A: Send + 'static,
        I: Fn() -> A + Send + Sync + 'static,
        S: Fn(&mut A, &Arguments<'_>) -> Result<()> + Send + Sync + 'static,
        F: Fn(A) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        let steps = Steps { init, step, finish };
        self.functions.aggregate(name, None, deterministic, steps);
        self
    }

    /// Gives every connection what is in this set, and what is added to the set later.
    #[must_use]
    pub fn late_functions(mut self, late: &LateFunctions) -> Self {
        self.late = Some(late.clone());
        self
    }

    /// Adds a collation, for `ORDER BY name COLLATE …`. It must order any two texts, always in the same way.
    ///
    /// If the collation panics, the statement fails and the connection is not used again. If two collations have one
    /// name, opening the database is an error.
    #[must_use]
    pub fn collation<F>(mut self, name: &str, compare: F) -> Self
    where
        F: Fn(&str, &str) -> Ordering + Send + Sync + 'static,
    {
        self.functions.collation(name, compare);
        self
    }
}

impl Driver for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["sqlite3"]
    }

    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>> {
        self.functions.check()?;
        let config = Config::read(dsn, options)?;
        Ok(Arc::new(SqliteTemplate::new(
            config,
            self.functions.clone(),
            self.late.clone(),
        )))
    }
}
