//! The driver under test, and the statements for its database.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cenote::Result;
use cenote::driver::{ConnectSettings, Connection, Credentials, Driver, Dsn, Options, Template};

/// A driver under test, with an empty database.
///
/// ```
/// use cenote_testkit::{Fake, suite::{Lack, Subject}};
///
/// let subject = Subject::new(Fake::new().driver(), "fake:")?
///     .sql(|sql| sql.syntax_error = None)
///     .lacks(Lack::Savepoints);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct Subject {
    pub(super) driver: Box<dyn Driver>,
    pub(super) dsn: Dsn,
    pub(super) options: Options,
    pub(super) template: Arc<dyn Template>,
    pub(super) credentials: Credentials,
    pub(super) sql: Sql,
    pub(super) unreachable: Option<Dsn>,
    lacks: Vec<Lack>,
    /// Values that must live as long as the database.
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

/// A capability that a database or driver lacks. The suite skips the checks that need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// Primary-key and NOT NULL constraints.
    Constraints,
    /// Isolation: other connections can read, and do not see uncommitted rows.
    Isolation,
    /// Savepoints.
    Savepoints,
    /// Rejecting writes in a read-only transaction.
    ReadOnly,
    /// Several statements in one text.
    Scripts,
    /// Reusing a connection after a dropped call: `settle` fails, and the connection is broken.
    Settling,
    /// Reporting a transaction that a statement's text has begun or ended. The driver reports an
    /// unknown status and a changed session instead.
    Control,
    /// Exact floating-point numbers: only fifteen digits are returned.
    Digits,
    /// Reporting an invalid statement in `prepare`: only the run reports it.
    EarlyErrors,
}

/// The statements that the suite sends to the database. The defaults are SQL that most databases
/// accept.
///
/// If a statement is `None`, the suite skips the checks that need it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sql {
    /// Creates the table of the suite, with a key and a text that must not be NULL.
    pub create: String,
    /// Inserts a row into it: two parameters, a number and a text.
    pub insert: String,
    /// Selects all rows of it, both columns, ordered by key.
    pub select: String,
    /// Deletes all rows of it.
    pub delete: String,
    /// Returns one row with the number 7.
    pub seven: String,
    /// BEGIN, COMMIT and ROLLBACK, as statements whose effect the driver detects.
    pub control: Option<[String; 3]>,
    /// A statement with a syntax error.
    pub syntax_error: Option<String>,
    /// A statement on a table that does not exist.
    pub undefined_table: Option<String>,
    /// Adds a column to the table of the suite.
    pub add_column: Option<String>,
    /// Creates a temporary table of the session; and a query that fails without it.
    pub temporary_table: Option<[String; 2]>,
    /// Creates a table with generated ids; and inserts a row into it.
    pub numbered: Option<[String; 2]>,
    /// A statement that runs until it is cancelled. Default: none.
    pub endless: Option<String>,
    /// The names of the column types.
    pub types: Types,
}

/// The names of the column types. `None` if the database cannot store such values, not even as
/// text.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the neutral values")]
pub struct Types {
    pub bool: Option<String>,
    /// The whole range of `i64`.
    pub int: Option<String>,
    /// The whole range of `u64`. If `None`, the driver must reject values above `i64::MAX`.
    pub uint: Option<String>,
    pub float: Option<String>,
    /// Ten digits, four of them decimals.
    pub decimal: Option<String>,
    /// A mebibyte.
    pub text: Option<String>,
    /// A mebibyte.
    pub bytes: Option<String>,
    pub date: Option<String>,
    /// Must keep microseconds.
    pub time: Option<String>,
    /// Must keep microseconds.
    pub date_time: Option<String>,
    /// Must keep microseconds.
    pub timestamp: Option<String>,
    pub uuid: Option<String>,
    pub json: Option<String>,
}

impl Default for Sql {
    fn default() -> Self {
        let own = |text: &str| text.to_owned();
        Sql {
            create: own(
                "CREATE TABLE cenote_suite (id INTEGER PRIMARY KEY, name VARCHAR(100) NOT NULL)",
            ),
            insert: own("INSERT INTO cenote_suite VALUES (?, ?)"),
            select: own("SELECT id, name FROM cenote_suite ORDER BY id"),
            delete: own("DELETE FROM cenote_suite"),
            seven: own("SELECT 7"),
            control: Some(["BEGIN", "COMMIT", "ROLLBACK"].map(own)),
            syntax_error: Some(own("SELEC 7")),
            undefined_table: Some(own("SELECT * FROM cenote_nowhere")),
            add_column: Some(own("ALTER TABLE cenote_suite ADD COLUMN extra INTEGER")),
            temporary_table: Some([
                own("CREATE TEMPORARY TABLE cenote_scratch (id INTEGER)"),
                own("SELECT * FROM cenote_scratch"),
            ]),
            numbered: Some([
                own("CREATE TABLE cenote_numbered \
                     (id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name VARCHAR(100))"),
                own("INSERT INTO cenote_numbered (name) VALUES ('a')"),
            ]),
            endless: None,
            types: Types::default(),
        }
    }
}

impl Default for Types {
    fn default() -> Self {
        let named = |name: &str| Some(name.to_owned());
        Types {
            bool: named("BOOLEAN"),
            int: named("BIGINT"),
            uint: named("DECIMAL(20)"),
            float: named("DOUBLE PRECISION"),
            decimal: named("DECIMAL(10, 4)"),
            text: named("TEXT"),
            bytes: named("BLOB"),
            date: named("DATE"),
            time: named("TIME(6)"),
            date_time: named("TIMESTAMP(6)"),
            timestamp: named("TIMESTAMP(6) WITH TIME ZONE"),
            uuid: named("CHAR(36)"),
            json: named("TEXT"),
        }
    }
}

impl Types {
    /// Returns no types: for a database without typed columns.
    pub fn none() -> Self {
        Types {
            bool: None,
            int: None,
            uint: None,
            float: None,
            decimal: None,
            text: None,
            bytes: None,
            date: None,
            time: None,
            date_time: None,
            timestamp: None,
            uuid: None,
            json: None,
        }
    }
}

impl Subject {
    /// Creates a subject from a driver and the DSN of an empty database. Does not connect yet.
    ///
    /// # Errors
    ///
    /// The driver rejects the DSN.
    pub fn new(driver: impl Driver, dsn: &str) -> Result<Self> {
        Subject::with_options(driver, dsn, Options::new())
    }

    /// Creates a subject from a driver, its options and the DSN of an empty database. Does not
    /// connect yet.
    ///
    /// # Errors
    ///
    /// The driver rejects the DSN or the options.
    pub fn with_options(driver: impl Driver, dsn: &str, options: Options) -> Result<Self> {
        let dsn = Dsn::parse(dsn)?;
        let template = driver.template(&dsn, &options)?;
        template.check_poolable()?;
        Ok(Subject {
            driver: Box::new(driver),
            credentials: dsn.credentials(),
            dsn,
            options,
            template,
            sql: Sql::default(),
            unreachable: None,
            lacks: Vec::new(),
            _kept: Vec::new(),
        })
    }

    /// Sets the credentials. Default: those of the DSN.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Changes the statements that the suite sends.
    #[must_use]
    pub fn sql(mut self, change: impl FnOnce(&mut Sql)) -> Self {
        change(&mut self.sql);
        self
    }

    /// Declares a capability that the database lacks.
    #[must_use]
    pub fn lacks(mut self, lack: Lack) -> Self {
        self.lacks.push(lack);
        self
    }

    /// Sets a DSN with which connecting fails. Default: none, and the check is skipped.
    ///
    /// # Errors
    ///
    /// The driver rejects the DSN.
    pub fn unreachable(mut self, dsn: &str) -> Result<Self> {
        self.unreachable = Some(Dsn::parse(dsn)?);
        Ok(self)
    }

    /// Keeps a value alive as long as the subject, for example a folder or a server.
    #[must_use]
    pub fn keep(mut self, guard: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(guard));
        self
    }

    /// Whether the driver has this capability.
    pub(super) fn can(&self, what: Lack) -> bool {
        !self.lacks.contains(&what)
    }

    /// Opens a connection with a statement cache of this size.
    pub(super) async fn open(&self, statement_cache: usize) -> Result<Box<dyn Connection>> {
        let settings = ConnectSettings::new(statement_cache);
        let connecting = self.template.connect(self.credentials.clone(), &settings);
        connecting.await
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Subject")
            .field("driver", &self.driver)
            .field("dsn", &self.dsn)
            .field("sql", &self.sql)
            .field("lacks", &self.lacks)
            .finish_non_exhaustive()
    }
}
