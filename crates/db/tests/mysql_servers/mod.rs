//! The server that the tests of the MySQL driver talk to.
//!
//! `ci/mariadb.sh` starts it and says where it is; its first lines tell how. A server that a test kills
//! is its [own](own::OwnServer), and bad [networks](network) are in front of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "every test file uses another part of it")]

#[cfg(feature = "mysql")]
pub(crate) mod client;
#[allow(
    clippy::disallowed_methods,
    reason = "a server of a test is no work of a pool"
)]
pub(crate) mod scripted;
#[path = "../server_support/mod.rs"]
mod support;

use cenote::{Db, Error, Kind, Result};

pub(crate) use self::support::*;

pub(crate) const MAKE: Make = Make {
    driver: "mysql",
    variables: "CENOTE_TEST_MARIADB",
    space: ("DATABASE", "dbname"),
    counter: "BIGINT AUTO_INCREMENT",
    settles: false,
    durable: &[],
    replicates: &["log-bin=binlog", "log-slave-updates", "gtid-strict-mode=1"],
    is_replica: "@@read_only",
    is_ready: "ready for connections",
    crash: "KILL",
    stop: "TERM",
};

pub(crate) const SESSION_ID: &str = "SELECT CONNECTION_ID()";

/// How many of the server's connections fit this condition.
pub(crate) async fn threads_where(admin: &Db, condition: &str) -> i64 {
    let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE {condition}");
    admin.query_as_one(&sql, ()).await.unwrap()
}

/// Kills a connection, and waits until it is gone.
pub(crate) async fn kill(admin: &Db, id: i64) {
    admin.exec(&format!("KILL {id}"), ()).await.unwrap();
    is_gone(admin, id).await;
}

/// The error of a call whose connection was killed.
pub(crate) fn assert_killed(error: &Error) {
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
}

/// If the server gave a reason, it is one of these: it ends, it kills its connections, it kills a query,
/// or it cannot be asked yet.
pub(crate) fn gives_no_other_reason(error: &Error) -> bool {
    let code = error.code();
    code.is_none_or(|code| [1053, 1152, 1317, 1927].contains(&code))
}

pub(crate) async fn is_gone(admin: &Db, id: i64) {
    until("the connection is gone", async || {
        threads_where(admin, &format!("ID = {id}")).await == 0
    })
    .await;
}

/// Waits until a connection is busy with a statement that begins so.
pub(crate) async fn is_running(admin: &Db, id: i64, statement: &str) {
    until("the statement runs", async || {
        let condition = format!("ID = {id} AND INFO LIKE '{statement}%'");
        threads_where(admin, &condition).await == 1
    })
    .await;
}

/// A query that takes so long.
pub(crate) fn sleep(seconds: f64) -> String {
    format!("SELECT SLEEP({seconds})")
}

/// Takes all locks on the rows of table `t`, if nobody has any.
pub(crate) async fn lock_all(db: &Db) -> Result<()> {
    let take = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE t SET n = n";
    db.exec(take, ()).await.map(drop)
}

/// Has a replica apply nothing more.
pub(crate) async fn pause_replay(replica: &Db) {
    replica.exec("STOP SLAVE SQL_THREAD", ()).await.unwrap();
}

pub(crate) async fn resume_replay(replica: &Db) {
    replica.exec("START SLAVE SQL_THREAD", ()).await.unwrap();
}

/// Waits until a replica has applied all that is committed now.
pub(crate) async fn catch_up(primary: &Db, replica: &Db) {
    let written = "SELECT @@GLOBAL.gtid_binlog_pos";
    let written: String = primary.query_as_one(written, ()).await.unwrap();
    let wait = "SELECT MASTER_GTID_WAIT(?, 15)";
    let waited = replica.query_as_one::<i64>(wait, (&*written,)).await;
    assert_eq!(waited.unwrap(), 0, "it has not applied {written}");
}
