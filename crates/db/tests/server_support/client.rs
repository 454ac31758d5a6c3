//! A connection of a driver, without a pool, and what tests do to it.
//!
//! `client` of `mysql_servers` and of `postgres_servers` takes this in, and says whose by `driver`.

use cenote::driver::{
    Begin, ConnectSettings, Connection, Driver, Dsn, Options, Outcome, Param, Request, Template,
    Value,
};
use cenote::{Error, FromValue, Result, Row};

use super::driver;

/// A connection, with what the tests do to it. What must not fail panics.
pub(crate) struct Client {
    pub(crate) connection: Box<dyn Connection>,
}

pub(crate) async fn connect(dsn: &str, statement_cache: usize) -> Result<Box<dyn Connection>> {
    let dsn = Dsn::parse(dsn)?;
    let template = driver().template(&dsn, &Options::new())?;
    connect_to(&*template, &dsn, statement_cache).await
}

pub(crate) async fn connect_to(
    template: &dyn Template,
    dsn: &Dsn,
    statement_cache: usize,
) -> Result<Box<dyn Connection>> {
    let settings = ConnectSettings::new(statement_cache);
    template.connect(dsn.credentials(), &settings).await
}

impl Client {
    pub(crate) async fn open(dsn: &str) -> Self {
        Client::with_cache(dsn, 16).await
    }

    pub(crate) async fn with_cache(dsn: &str, statement_cache: usize) -> Self {
        let connection = connect(dsn, statement_cache).await;
        Client {
            connection: connection.expect("the server can be connected to"),
        }
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
    pub(crate) async fn must_not(&mut self, sql: &str) -> Error {
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

/// A DSN in PDO's form, with another value for an option.
pub(crate) fn with_option(dsn: &str, name: &str, value: &str) -> String {
    let (driver, rest) = dsn.split_once(':').expect("a DSN has a driver");
    let is_other = |pair: &&str| pair.split('=').next() != Some(name);
    let value = value.replace(';', ";;");
    let pairs: Vec<_> = rest.split(';').filter(is_other).collect();
    format!("{driver}:{};{name}={value}", pairs.join(";"))
}

/// A value as a parameter.
pub(crate) fn value(value: impl Into<Value<'static>>) -> Param<'static> {
    Param::Value(value.into())
}
