//! The driver that is being tested, and how to talk to its database.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cenote::Result;
use cenote::driver::{ConnectSettings, Connection, Credentials, Driver, Dsn, Options, Template};

/// A driver that is to be tested, with an empty database.
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
    /// What has to live as long as the database does.
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

/// What a database may be unable to do. What depends on it is not asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// To see that a key is there twice, or that a value is missing.
    Constraints,
    /// To keep uncommitted rows from other connections, or let these read at the same time.
    Isolation,
    /// To go back to a point within a transaction.
    Savepoints,
    /// To keep a read-only transaction from writing.
    ReadOnly,
    /// To run several statements in one text.
    Scripts,
    /// To use a connection again after a dropped call: settling it fails, and it is broken.
    Settling,
    /// To tell of a transaction that the text of a statement has begun or ended. The driver then says
    /// that it does not know, and that the session has changed.
    Control,
    /// To give back a floating-point number to its last digit: fifteen of them arrive.
    Digits,
    /// To find out what is wrong with a text when it is prepared: it is told when it is run.
    EarlyErrors,
}

/// What the database is told. The default is SQL that most understand.
///
/// A text that is `None` is not told, and what depends on it is not asked of the database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sql {
    /// Creates the table of the suite, with a key and a text that must not be NULL.
    pub create: String,
    /// Adds a row to it: two parameters, a number and a text.
    pub insert: String,
    /// Gives all rows of it, both columns, in the order of the key.
    pub select: String,
    /// Deletes all rows of it.
    pub delete: String,
    /// Gives one row with the number 7.
    pub seven: String,
    /// BEGIN, COMMIT and ROLLBACK, as texts whose effect the driver can see.
    pub control: Option<[String; 3]>,
    /// Is not understood.
    pub syntax_error: Option<String>,
    /// Needs a table that is not there.
    pub undefined_table: Option<String>,
    /// Adds a column to the table of the suite.
    pub add_column: Option<String>,
    /// Creates a table that goes with the session, and a query that fails without it.
    pub temporary_table: Option<[String; 2]>,
    /// Creates a table whose rows the database numbers, and adds a row to it.
    pub numbered: Option<[String; 2]>,
    /// Runs until it is cancelled. Default: there is none.
    pub endless: Option<String>,
    /// The types of columns.
    pub types: Types,
}

/// What the types of columns are called. `None` where a database cannot keep such values, not even
/// as text.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the neutral values")]
pub struct Types {
    pub bool: Option<String>,
    /// All of `i64`.
    pub int: Option<String>,
    /// All of `u64`. Where there is none, the largest are refused.
    pub uint: Option<String>,
    pub float: Option<String>,
    /// Ten digits, four of them decimals.
    pub decimal: Option<String>,
    /// A mebibyte.
    pub text: Option<String>,
    /// A mebibyte.
    pub bytes: Option<String>,
    pub date: Option<String>,
    /// To the microsecond.
    pub time: Option<String>,
    /// To the microsecond.
    pub date_time: Option<String>,
    /// To the microsecond.
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
    /// No types at all: a database without columns of any type.
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
    /// A driver, and where it finds an empty database. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// What the driver says to the DSN.
    pub fn new(driver: impl Driver, dsn: &str) -> Result<Self> {
        Subject::with_options(driver, dsn, Options::new())
    }

    /// A driver with options, and where it finds an empty database. Connects to nothing yet.
    ///
    /// # Errors
    ///
    /// What the driver says to the DSN and to the options.
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

    /// With what to connect. Default: what the DSN says.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Changes what the database is told.
    #[must_use]
    pub fn sql(mut self, change: impl FnOnce(&mut Sql)) -> Self {
        change(&mut self.sql);
        self
    }

    /// Says what the database cannot do.
    #[must_use]
    pub fn lacks(mut self, lack: Lack) -> Self {
        self.lacks.push(lack);
        self
    }

    /// A DSN with which connecting fails. Default: there is none, and it is not tried.
    ///
    /// # Errors
    ///
    /// If it is no DSN.
    pub fn unreachable(mut self, dsn: &str) -> Result<Self> {
        self.unreachable = Some(Dsn::parse(dsn)?);
        Ok(self)
    }

    /// Keeps something for as long as the database is used: a folder, a server.
    #[must_use]
    pub fn keep(mut self, guard: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(guard));
        self
    }

    /// Whether a promise has to be kept that needs this.
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
