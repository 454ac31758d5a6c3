//! The SQLite driver.
//!
//! ```text
//! Sqlite ──template──> SqliteTemplate ──connect──> SqliteConnection ──programs──> thread: Session
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `config` | the DSN and the options, and the template |
//! | `connect` | opening a connection and making it what the options say |
//! | `connection` | the contract of a connection, towards the layer |
//! | `worker`, `cancel` | a thread for each connection, from which its rows come, and how a call on it is cancelled |
//! | `session`, `execute`, `statement`, `stream`, `transaction` | what runs on that thread |
//! | `in_place`, `timing`, `plan`, `coop_budget` | what runs inline, on the calling task: it is known to be short |
//! | `write_queue`, `writing`, `watchdog` | writers wait for the permit to write; the watchdog ends waits that take too long |
//! | `group_commit` | the owner of the permit runs independent writes of others in one transaction |
//! | `file` | whether the open file is still the one under its name |
//! | `reset` | the session of a private database, brought back |
//! | `types`, `insert` | values; what a statement inserts |
//! | `functions` | functions, aggregates and collations of the application |
//! | `error` | what SQLite says, as errors of this crate |

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

use crate::Result;
use crate::driver::{Driver, Dsn, Options, Template, Value};

use self::config::{Config, SqliteTemplate};
use self::functions::{Functions, Steps};

/// SQLite, with the functions and collations that an application adds to it.
///
/// `sqlite:` is opened by this driver without further ado. One with functions of its own is
/// given to [`Db::builder_with`](crate::Db::builder_with), before anything is opened; every connection knows
/// them then, and nothing can be added later:
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
/// (`sqlite:file:shop.db?mode=ro`). An option can stand after the `?` or be given to the builder, and is the
/// same for every connection. Users and passwords are not looked at: SQLite has none.
///
/// | option | values | default |
/// |---|---|---|
/// | `mode` | `ro`, `rw`, `rwc` (created if it is not there), `memory` | `rwc` |
/// | `cache` | `shared`, `private` | `private` |
/// | `immutable`, `nolock` | a boolean; see SQLite's URIs | off |
/// | `vfs` | the name of one that SQLite knows | SQLite's |
/// | `busy_timeout` | how long to wait for another's lock, or for the write queue: `250ms`, `5s`; a number is milliseconds | 30 s |
/// | `in_place` | a boolean: short statements run inline, on the calling task | on |
/// | `journal_mode` | `delete`, `truncate`, `persist`, `memory`, `wal`, `off` | `wal` for a file that can be written |
/// | `synchronous` | `off`, `normal`, `full`, `extra` | SQLite's |
/// | `foreign_keys` | a boolean | on |
/// | `cache_size` | pages, or KiB if it is negative | SQLite's |
/// | `mmap_size` | bytes: `256MiB` | SQLite's |
/// | `temp_store` | `default`, `file`, `memory` | SQLite's; `memory` for what runs inline |
/// | `locking_mode` | `normal`, `exclusive` | `normal` |
/// | `pragma.NAME` | any other pragma | |
///
/// A journal mode that the database cannot have (in memory, or read-only) is no error; an
/// option or a pragma that does not exist is.
///
/// # Databases in memory
///
/// A private one (`:memory:`, an empty path, `mode=memory` alone) exists once for each
/// connection, so it cannot be pooled. When its session is reset, temporary tables, attached
/// databases and changed pragmas go, and the database stays. With `cache=shared` and a name it can:
/// `sqlite:file:NAME?mode=memory&cache=shared`. It lives as long as the handle does, also while
/// the pool has no connection.
///
/// # Transactions
///
/// A transaction begins with `BEGIN IMMEDIATE`: it waits for the writer's lock at its beginning,
/// and cannot fail half-way because another was faster. A read-only one begins with
/// `BEGIN DEFERRED`, waits for nobody, and cannot write: that is an error.
/// SQLite's transactions are serializable. Every other level of isolation can be asked for,
/// and this one, which is stronger, is given.
///
/// A statement that is cancelled in a transaction after it has begun to write makes SQLite roll
/// the whole transaction back.
///
/// Many sets of parameters at once are one transaction of their own, all or nothing, unless
/// one is open: then an error leaves what was done before it in that transaction.
///
/// # Values
///
/// What SQLite has no type for is kept as text: decimals, dates, times, UUIDs, JSON. Datetimes are
/// written as SQLite's own functions do, `2024-02-29 09:05:00`, timestamps in UTC. Booleans are
/// 0 and 1. A number above `i64::MAX` and a NaN are errors.
///
/// The last insert id is the rowid of the row that the statement inserted last. There is none if it
/// inserted nothing, if the table is `WITHOUT ROWID`, and for an upsert that updated.
#[derive(Clone, Debug, Default)]
pub struct Sqlite {
    functions: Functions,
}

impl Sqlite {
    /// SQLite as it is.
    pub fn new() -> Self {
        Sqlite::default()
    }

    /// Adds an SQL function with so many arguments. A deterministic one gives
    /// the same answer to the same arguments, always, and may then be used in indexes.
    ///
    /// An error and a panic of it are errors of the statement. The same name may be given again
    /// with another number of arguments; with the same, opening the database is an error.
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

    /// Adds an SQL function that takes any number of arguments: see
    /// [`function`](Sqlite::function).
    #[must_use]
    pub fn variadic_function<F, R>(mut self, name: &str, deterministic: bool, call: F) -> Self
    where
        F: Fn(&Arguments<'_>) -> Result<R> + Send + Sync + 'static,
        R: Into<Value<'static>>,
    {
        self.functions.scalar(name, None, deterministic, call);
        self
    }

    /// Adds an aggregate: what `init` makes, `step` is given with every row, and `finish`
    /// turns it into the answer. Without rows it finishes what `init` made.
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
    /// Names and errors are those of [`function`](Sqlite::function).
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

    /// Adds a collation, for `ORDER BY name COLLATE …`. It must order any two texts, and always
    /// the same way.
    ///
    /// If it panics, the statement fails and the connection is not used again. Of two with the
    /// same name, opening the database is an error.
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
        )))
    }
}
