//! What tests share for servers of any make.
//!
//! `mysql_servers` and `postgres_servers` include this module. Each defines under the same names what is different
//! on its own server, so that a test of both can be written once: its [`Make`], `SESSION_ID`, `kill`,
//! `assert_killed`, `gives_no_other_reason`, `is_gone`, `is_running`, `sleep`, `lock_all`, `pause_replay`, `resume_replay` and
//! `catch_up`.

pub(crate) mod bank;
pub(crate) mod eager;
pub(crate) mod ledger;
mod names;
pub(crate) mod network;
pub(crate) mod own;
pub(crate) mod replicas;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use cenote::{Builder, Db, Error};

pub(crate) use self::names::{required_variable, unique};
use super::{MAKE, SESSION_ID, catch_up, pause_replay, resume_replay};

/// The constants in which the makes of servers differ.
pub(crate) struct Make {
    /// Its DSNs begin with this.
    pub(crate) driver: &'static str,
    /// The prefix of the variables that its script sets.
    pub(crate) variables: &'static str,
    /// The kind of namespace for tables, and the option that names it.
    pub(crate) space: (&'static str, &'static str),
    /// The type of a column with generated numbers.
    pub(crate) counter: &'static str,
    /// A connection on which a call was dropped can be used again, and is not replaced.
    pub(crate) settles: bool,
    /// The settings under which commits survive a crash.
    pub(crate) durable: &'static [&'static str],
    /// The settings of a primary, and of its replicas.
    pub(crate) replicates: &'static [&'static str],
    /// An expression that is true on a replica.
    pub(crate) is_replica: &'static str,
    /// The log message when the server is ready.
    pub(crate) is_ready: &'static str,
    /// The signal after which it is gone at once, as if the machine had lost its power.
    pub(crate) crash: &'static str,
    /// The signal after which it ends in order, and waits for no client.
    pub(crate) stop: &'static str,
}

/// How long anything may take before a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The administrator, as options of a DSN.
pub(crate) const WHO: &str = "dbname=cenote;user=cenote;password=cenote-secret";

/// Returns a variable of the script of this make.
fn variable_of_make(name: &str) -> String {
    eager::share_if_asked();
    required_variable(&format!("{}{name}", MAKE.variables))
}

/// The server, by TCP, as a user who may do anything.
pub(crate) fn dsn() -> String {
    variable_of_make("")
}

/// The same server by its Unix socket.
pub(crate) fn unix_dsn() -> String {
    variable_of_make("_UNIX")
}

/// The server by TCP, with more options.
pub(crate) fn dsn_with(options: &str) -> String {
    format!("{};{options}", dsn())
}

/// A server of this machine on this port, without TLS.
pub(crate) fn dsn_at(port: u16) -> String {
    eager::share_if_asked();
    let driver = MAKE.driver;
    format!("{driver}:host=127.0.0.1;port={port};{WHO};sslmode=disable")
}

pub(crate) fn port() -> u16 {
    variable_of_make("_PORT").parse().unwrap()
}

/// Returns the path of a file for TLS: `ca.crt`, `stranger.crt` …
pub(crate) fn tls_file(name: &str) -> String {
    let folder = PathBuf::from(variable_of_make("_TLS"));
    folder.join(name).display().to_string()
}

/// Returns a port of this machine without a listener.
pub(crate) fn free_port() -> u16 {
    // Below the range of ports for outgoing connections.
    loop {
        let drawn = RandomState::new().build_hasher().finish() % 15_000;
        let port = 15_000 + u16::try_from(drawn).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Fails a test instead of letting it hang.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    soon_within(PATIENCE, what, future).await
}

async fn soon_within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(limit, future).await;
    done.unwrap_or_else(|_| panic!("it hangs: {what}"))
}

/// Waits for an event in another process by checking every few milliseconds.
pub(crate) async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, is_so).await;
}

/// As [`until`], for what may take longer.
pub(crate) async fn until_within(
    limit: Duration,
    what: &str,
    mut is_so: impl AsyncFnMut() -> bool,
) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    soon_within(limit, what, async {
        while !is_so().await {
            looks.tick().await;
        }
    })
    .await;
}

/// Waits until no connection is in use.
pub(crate) async fn quiet(db: &Db) {
    until("all connections are back", async || {
        let status = db.status();
        status.active == 0 && status.creating == 0 && status.idle == status.total
    })
    .await;
}

/// Checks the pool after a fault: no connection is in use, and `max` connections can be acquired at once and work.
/// One that died a moment ago while idle may fail its first call, and is then replaced.
pub(crate) async fn assert_whole(db: &Db) {
    quiet(db).await;
    let max = db.status().max;
    soon("every place can be filled", async {
        let (mut held, mut lost) = (Vec::new(), 0);
        while held.len() < max {
            let n = i64::try_from(held.len()).unwrap();
            let connection = db.connection().await.unwrap();
            let sql = "SELECT CAST(? AS INT) + 1";
            match connection.query_as_one::<i64>(sql, (n,)).await {
                Ok(answer) => {
                    assert_eq!(answer, n + 1);
                    held.push(connection);
                }
                Err(error) => {
                    lost += 1;
                    assert!(error.is_connection_lost() && lost <= max, "{error:?}");
                }
            }
        }
    })
    .await;
    quiet(db).await;
}

/// The error of the first call on a handle that cannot connect.
pub(crate) async fn refused(dsn: &str) -> Error {
    refused_by(Db::builder(dsn)).await
}

pub(crate) async fn refused_by(builder: Builder) -> Error {
    let db = builder.max(1).open().await.unwrap();
    let error = soon("it is refused", db.ping()).await.unwrap_err();
    quiet(&db).await;
    assert_eq!(db.status().total, 0, "nothing stays of a failed connect");
    error
}

/// The server's number for the connection that a call runs on now.
pub(crate) async fn session_id(db: &Db) -> i64 {
    db.query_as_one(SESSION_ID, ()).await.unwrap()
}

/// Opens a handle with tables of its own.
pub(crate) async fn own_tables(describe: impl FnOnce(Builder) -> Builder) -> Db {
    own_tables_at(&dsn(), describe).await
}

pub(crate) async fn own_tables_at(dsn: &str, describe: impl FnOnce(Builder) -> Builder) -> Db {
    let (space, option) = MAKE.space;
    let name = unique("own");
    let maker = Db::builder(dsn).max(1).open().await.unwrap();
    let create = format!("CREATE {space} {name}");
    maker.exec(&create, ()).await.unwrap();
    maker.close().await.unwrap();
    let builder = Db::builder(dsn).option(option, name);
    describe(builder).open().await.unwrap()
}
