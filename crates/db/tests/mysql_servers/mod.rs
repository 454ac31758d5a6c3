//! The servers that the tests of the MySQL driver talk to, and what they have in common.
//!
//! `ci/mariadb.sh` starts the one that all share and says where it is; its first lines tell how. A
//! server that a test kills is its [own](own::OwnServer), and bad networks are a [proxy](proxy::Proxy).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "every test file uses another part of it")]

pub(crate) mod own;
pub(crate) mod proxy;

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote::{Builder, Db, Error};

/// How long anything may take before a test fails instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What `ci/mariadb.sh` says.
pub(crate) fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!(
            "{name} is not set; run ci/test.sh, or ci/mariadb.sh run -- cargo test -p cenote \
             --features mysql"
        )
    })
}

/// The server, by TCP, as a user who may do anything.
pub(crate) fn dsn() -> String {
    told("CENOTE_TEST_MARIADB")
}

/// The same server by its Unix socket.
pub(crate) fn unix_dsn() -> String {
    told("CENOTE_TEST_MARIADB_UNIX")
}

/// The server by TCP, with more options.
pub(crate) fn dsn_with(options: &str) -> String {
    format!("{};{options}", dsn())
}

pub(crate) fn port() -> u16 {
    told("CENOTE_TEST_MARIADB_PORT").parse().unwrap()
}

/// A file that has to do with TLS: `ca.crt`, `stranger.crt` …
pub(crate) fn tls_file(name: &str) -> String {
    let folder = PathBuf::from(told("CENOTE_TEST_MARIADB_TLS"));
    folder.join(name).display().to_string()
}

/// Who may do anything, as options of a DSN.
pub(crate) const WHO: &str = "dbname=cenote;user=cenote;password=cenote-secret";

/// A server of this machine on this port, without TLS.
pub(crate) fn dsn_at(port: u16) -> String {
    format!("mysql:host=127.0.0.1;port={port};{WHO};sslmode=disable")
}

/// A port of this machine where nobody listens.
pub(crate) fn free_port() -> u16 {
    // Below those that outgoing connections get.
    loop {
        let drawn = RandomState::new().build_hasher().finish() % 15_000;
        let port = 15_000 + u16::try_from(drawn).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A name that nothing else on the server has.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: it only has to be unique.
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}_{}_{n}", std::process::id())
}

/// Fails a test instead of letting it hang.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("it hangs: {what}"))
}

/// Waits for what happens in another process: looks every few milliseconds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    soon(what, async {
        while !is_so().await {
            looks.tick().await;
        }
    })
    .await;
}

/// All connections are back or gone.
pub(crate) async fn quiet(db: &Db) {
    until("all connections are back", async || {
        let status = db.status();
        status.active == 0 && status.creating == 0 && status.idle == status.total
    })
    .await;
}

/// After whatever has happened: nothing is in use, and as many connections as there may be at once
/// can all be had, and work. One that died while it was idle, a moment ago, may fail its first
/// call; it is gone then.
pub(crate) async fn assert_whole(db: &Db) {
    quiet(db).await;
    let max = db.status().max;
    soon("every place can be filled", async {
        let (mut held, mut lost) = (Vec::new(), 0);
        while held.len() < max {
            let n = i64::try_from(held.len()).unwrap();
            let connection = db.connection().await.unwrap();
            match connection.query_as_one::<i64>("SELECT ? + 1", (n,)).await {
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

/// A handle whose tables are nobody else's: they are in a database of its own.
pub(crate) async fn own_database(describe: impl FnOnce(Builder) -> Builder) -> Db {
    own_database_at(&dsn(), describe).await
}

pub(crate) async fn own_database_at(dsn: &str, describe: impl FnOnce(Builder) -> Builder) -> Db {
    let name = unique("db");
    let maker = Db::builder(dsn).max(1).open().await.unwrap();
    maker
        .exec(&format!("CREATE DATABASE {name}"), ())
        .await
        .unwrap();
    maker.close().await.unwrap();
    let builder = Db::builder(dsn).option("dbname", name);
    describe(builder).open().await.unwrap()
}

/// The server's number for the connection that a call runs on now.
pub(crate) async fn thread(db: &Db) -> i64 {
    db.query_as_one("SELECT CONNECTION_ID()", ()).await.unwrap()
}

/// How many of the server's connections fit this condition.
pub(crate) async fn threads_where(admin: &Db, condition: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE {condition}");
    admin.query_as_one(&sql, ()).await.unwrap()
}

/// Kills a connection, and waits until it is gone.
pub(crate) async fn kill(admin: &Db, thread: i64) {
    admin.exec(&format!("KILL {thread}"), ()).await.unwrap();
    is_gone(admin, thread).await;
}

pub(crate) async fn is_gone(admin: &Db, thread: i64) {
    until("the connection is gone", async || {
        threads_where(admin, &format!("ID = {thread}")).await == 0
    })
    .await;
}

/// Waits until a connection is busy with a statement that begins so.
pub(crate) async fn is_running(admin: &Db, thread: i64, statement: &str) {
    until("the statement runs", async || {
        let condition = format!("ID = {thread} AND INFO LIKE '{statement}%'");
        threads_where(admin, &condition).await == 1
    })
    .await;
}
