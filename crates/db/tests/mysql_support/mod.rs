//! Where the tests find their MariaDB server, and what they do on it.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{
    Begin, ConnectSettings, Connection, Driver, Dsn, Options, Outcome, Param, Request, Value,
};
use cenote::mysql::{Mysql, MysqlConnection};
use cenote::{FromValue, Result, Row};

/// The DSN of the server that the tests run on.
///
/// # Panics
///
/// If there is none: a test that does nothing would look like one that passed.
pub(crate) fn dsn() -> String {
    variable("CENOTE_TEST_MARIADB")
}

/// The same server by its unix socket.
pub(crate) fn unix_dsn() -> String {
    variable("CENOTE_TEST_MARIADB_UNIX")
}

/// What the script that starts the server says.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run ci/test.sh, or ci/mariadb.sh run -- cargo test …")
    })
}

/// A name that no other test has.
pub(crate) fn unique(start: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: it only has to be unique.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{start}_{}_{n}", std::process::id())
}

/// A DSN whose connections see an empty database of their own.
pub(crate) async fn own_database(dsn: &str) -> String {
    let database = unique("cenote_test");
    let mut client = Client::open(dsn).await;
    client.must(&format!("CREATE DATABASE {database}")).await;
    client.close().await;
    with_option(dsn, "dbname", &database)
}

/// A DSN in PDO's form, with another value for an option.
pub(crate) fn with_option(dsn: &str, name: &str, value: &str) -> String {
    let (driver, rest) = dsn.split_once(':').expect("a DSN has a driver");
    let is_other = |pair: &&str| pair.split('=').next() != Some(name);
    let value = value.replace(';', ";;");
    let pairs: Vec<_> = rest.split(';').filter(is_other).collect();
    format!("{driver}:{};{name}={value}", pairs.join(";"))
}

/// A connection, with what the tests do to it. What must not fail panics.
pub(crate) struct Client {
    pub(crate) connection: Box<dyn Connection>,
}

pub(crate) async fn connect(dsn: &str, statement_cache: usize) -> Result<Box<dyn Connection>> {
    let dsn = Dsn::parse(dsn)?;
    let template = Mysql::new().template(&dsn, &Options::new())?;
    let settings = ConnectSettings::new(statement_cache);
    template.connect(dsn.credentials(), &settings).await
}

impl Client {
    /// To the test server, in whatever database there is.
    pub(crate) async fn new() -> Self {
        Client::open(&dsn()).await
    }

    /// To the test server, in an empty database of its own.
    pub(crate) async fn in_own_database() -> Self {
        Client::open(&own_database(&dsn()).await).await
    }

    pub(crate) async fn open(dsn: &str) -> Self {
        Client::with_cache(dsn, 16).await
    }

    pub(crate) async fn with_cache(dsn: &str, statement_cache: usize) -> Self {
        let connection = connect(dsn, statement_cache).await;
        Client {
            connection: connection.expect("the server can be connected to"),
        }
    }

    /// The driver's own.
    pub(crate) fn own(&mut self) -> &mut MysqlConnection {
        let own = self.connection.as_any().downcast_mut();
        own.expect("it is MySQL's")
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.own().connection_id()
    }

    pub(crate) async fn run(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Outcome> {
        self.connection.run(Request::new(sql, params)).await
    }

    /// Runs a text that must not fail.
    pub(crate) async fn must(&mut self, sql: &str) -> Outcome {
        let done = self.run(sql, &[]).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a text that must fail.
    pub(crate) async fn must_not(&mut self, sql: &str) -> cenote::Error {
        match self.run(sql, &[]).await {
            Ok(done) => panic!("{sql}: should have failed, and gave {done:?}"),
            Err(error) => error,
        }
    }

    /// Runs several statements in one text.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<Outcome> {
        let mut request = Request::new(sql, &[]);
        request.script = true;
        request.cache = false;
        self.connection.run(request).await
    }

    pub(crate) async fn begin(&mut self) {
        let begun = self.connection.begin_with(&Begin::default(), None).await;
        begun.expect("a transaction can be begun");
    }

    pub(crate) async fn rows(&mut self, sql: &str, params: &[Param<'_>]) -> Vec<Row> {
        let done = self.run(sql, params).await;
        let done = done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        done.rows.expect("rows were wanted").into_rows().collect()
    }

    /// The only value of the only row.
    pub(crate) async fn value(&mut self, sql: &str, params: &[Param<'_>]) -> Value<'static> {
        let rows = self.rows(sql, params).await;
        assert_eq!(rows.len(), 1, "{sql}");
        let value = rows[0].value(0);
        value
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
            .into_owned()
    }

    /// The only value of the only row, as a type.
    pub(crate) async fn get<T>(&mut self, sql: &str) -> T
    where
        T: for<'r> FromValue<'r>,
    {
        let rows = self.rows(sql, &[]).await;
        assert_eq!(rows.len(), 1, "{sql}");
        rows[0]
            .get(0)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) async fn close(self) {
        let closed = self.connection.close().await;
        closed.expect("a connection can be closed");
    }
}

/// A value as a parameter.
pub(crate) fn value(value: impl Into<Value<'static>>) -> Param<'static> {
    Param::Value(value.into())
}
