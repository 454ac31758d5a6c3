//! Where the tests find their ODBC sources: SQLite's driver with a file, PostgreSQL's and MariaDB's with the
//! servers of `ci/postgres.sh` and `ci/mariadb.sh`.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{ConnectSettings, Connection, Driver, Dsn, Options, Request};
use cenote::odbc::Odbc;
use cenote::{Result, Row};

/// The library of a driver, as Debian and Ubuntu install it.
///
/// # Panics
///
/// If there is none: a test that does nothing would look like one that passed.
pub(crate) fn library(name: &str) -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("there are libraries");
    let folders = folders.filter_map(|entry| Some(entry.ok()?.path().join("odbc")));
    let mut found = folders
        .chain([PathBuf::from("/usr/lib/odbc")])
        .map(|folder| folder.join(name));
    found.find(|path| path.exists()).unwrap_or_else(|| {
        panic!(
            "{name} is not there: run ci/test.sh, or \
             apt-get install libsqliteodbc odbc-postgresql odbc-mariadb"
        )
    })
}

/// A database in this file, by SQLite's ODBC driver.
pub(crate) fn sqlite_dsn(file: &Path) -> String {
    let driver = library("libsqlite3odbc.so");
    format!(
        "odbc:Driver={};Database={};FKSupport=1;Timeout=30000;JournalMode=WAL",
        driver.display(),
        file.display()
    )
}

/// The test server, by PostgreSQL's ODBC driver, as its superuser.
pub(crate) fn postgres_dsn() -> String {
    let native = variable("CENOTE_TEST_POSTGRES");
    let native = Dsn::parse(&native).expect("the script says where the server is");
    let port = native.option("port").and_then(|port| port.parse().ok());
    let credentials = native.credentials();
    let password = credentials.password.expect("it is in the DSN");
    format!(
        "{};UID={};PWD={}",
        postgres_at(port.expect("it is in the DSN")),
        credentials.user.expect("it is in the DSN"),
        password.expose()
    )
}

/// A server at this port, for nobody in particular.
pub(crate) fn postgres_at(port: u16) -> String {
    format!(
        "odbc:Driver={};Server=127.0.0.1;Port={port};Database=cenote;{POSTGRES_OPTIONS}",
        library("psqlodbcw.so").display()
    )
}

/// Booleans as what they are, and bytes of any length.
const POSTGRES_OPTIONS: &str = "BoolsAsChar=0;ByteaAsLongVarBinary=1";

/// What the script that starts the servers says.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set: run ci/test.sh, or \
             ci/postgres.sh run -- ci/mariadb.sh run -- cargo test …"
        )
    })
}

/// A DSN whose connections see an empty schema of their own.
pub(crate) async fn own_schema(dsn: &str) -> String {
    let schema = unique_name();
    let mut client = Client::open(dsn).await;
    client.must(&format!("CREATE SCHEMA {schema}")).await;
    client.close().await;
    format!("{dsn};ConnSettings={{SET search_path TO {schema}}}")
}

/// The test server, by MariaDB's ODBC driver. The option lets it run scripts.
pub(crate) fn mariadb_dsn() -> String {
    let native = variable("CENOTE_TEST_MARIADB");
    let native = Dsn::parse(&native).expect("the script says where the server is");
    let port = native.option("port").expect("it is in the DSN");
    let credentials = native.credentials();
    let password = credentials.password.expect("it is in the DSN");
    format!(
        "odbc:Driver={};Server=127.0.0.1;Port={port};UID={};PWD={};CHARSET=utf8mb4;OPTION=67108864",
        library("libmaodbc.so").display(),
        credentials.user.expect("it is in the DSN"),
        password.expose()
    )
}

/// A DSN whose connections see an empty database of their own.
pub(crate) async fn own_database(dsn: &str) -> String {
    let name = unique_name();
    let mut client = Client::open(dsn).await;
    client.must(&format!("CREATE DATABASE {name}")).await;
    client.close().await;
    format!("{dsn};Database={name}")
}

fn unique_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: it only has to be unique.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("cenote_odbc_{}_{n}", std::process::id())
}

/// A connection, with what the tests do to it. What must not fail panics.
pub(crate) struct Client {
    pub(crate) connection: Box<dyn Connection>,
}

pub(crate) async fn connect(dsn: &str) -> Result<Box<dyn Connection>> {
    let dsn = Dsn::parse(dsn)?;
    let template = Odbc::new().template(&dsn, &Options::new())?;
    let settings = ConnectSettings::new(16);
    template.connect(dsn.credentials(), &settings).await
}

impl Client {
    pub(crate) async fn open(dsn: &str) -> Self {
        let connection = connect(dsn).await;
        Client {
            connection: connection.expect("the source can be connected to"),
        }
    }

    /// Runs a text that must not fail, and gives its rows.
    pub(crate) async fn must(&mut self, sql: &str) -> Vec<Row> {
        let done = self.connection.run(Request::new(sql, &[])).await;
        let done = done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        done.rows
            .map_or_else(Vec::new, |rows| rows.into_rows().collect())
    }

    pub(crate) async fn close(self) {
        let closed = self.connection.close().await;
        closed.expect("a connection can be closed");
    }
}
