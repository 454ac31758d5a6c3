//! The servers that the tests of the PostgreSQL driver talk to.
//!
//! `ci/postgres.sh` starts them and says where they are; its first lines tell what each is. A
//! server that a test kills is its [own](own::OwnServer), bad [networks](network)
//! are in front of one, and a server that breaks the rules is [scripted](scripted).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "every test file uses another part of it")]

#[cfg(feature = "postgres")]
pub(crate) mod client;
pub(crate) mod scripted;
#[path = "../server_support/mod.rs"]
mod support;

use cenote::{Db, Error, Kind, Result};

pub(crate) use self::support::*;

pub(crate) const MAKE: Make = Make {
    driver: "pgsql",
    variables: "CENOTE_TEST_POSTGRES",
    space: ("SCHEMA", "search_path"),
    counter: "int8 GENERATED ALWAYS AS IDENTITY",
    settles: true,
    durable: &["synchronous_commit=on"],
    replicates: &["synchronous_commit=on"],
    is_replica: "pg_is_in_recovery()",
    is_ready: "ready to accept connections",
    crash: "QUIT",
    stop: "INT",
};

pub(crate) const SESSION_ID: &str = "SELECT pg_backend_pid()::int8";

/// The server that writes nothing by default.
pub(crate) fn second_port() -> u16 {
    required_variable("CENOTE_TEST_POSTGRES_SECOND_PORT")
        .parse()
        .unwrap()
}

/// The server that is in recovery.
pub(crate) fn standby_port() -> u16 {
    required_variable("CENOTE_TEST_POSTGRES_STANDBY_PORT")
        .parse()
        .unwrap()
}

/// The folder of the servers' Unix sockets.
pub(crate) fn sockets() -> String {
    required_variable("CENOTE_TEST_POSTGRES_SOCKETS")
}

/// Ends a backend, and waits until it is gone.
pub(crate) async fn kill(admin: &Db, pid: i64) {
    let sql = "SELECT pg_terminate_backend(?::int4)";
    let ended: bool = admin.query_as_one(sql, (pid,)).await.unwrap();
    assert!(ended);
    is_gone(admin, pid).await;
}

/// The error of a call whose backend was ended, in the server's words.
pub(crate) fn assert_killed(error: &Error) {
    let (kind, state) = (error.kind(), error.sql_state());
    assert_eq!(
        (kind, state),
        (Kind::ConnectionLost, Some("57P01")),
        "{error:?}"
    );
}

/// If the server gave a reason, it is one of these: it is ended, it starts, it ends.
pub(crate) fn gives_no_other_reason(error: &Error) -> bool {
    let state = error.sql_state();
    state.is_none_or(|state| ["57P01", "57P02", "57P03"].contains(&state))
}

pub(crate) async fn is_gone(admin: &Db, pid: i64) {
    until("the backend is gone", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?::int4";
        let left: i64 = admin.query_as_one(sql, (pid,)).await.unwrap();
        left == 0
    })
    .await;
}

/// Waits until a backend is busy with a statement that begins so.
pub(crate) async fn is_running(admin: &Db, pid: i64, statement: &str) {
    until("the statement runs", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE pid = ?::int4 AND state = 'active' AND query LIKE ? || '%'";
        let found: i64 = admin.query_as_one(sql, (pid, statement)).await.unwrap();
        found == 1
    })
    .await;
}

/// A query that takes so long.
pub(crate) fn sleep(seconds: f64) -> String {
    format!("SELECT pg_sleep({seconds})")
}

/// Takes all locks on the table `t`, if nobody has any.
pub(crate) async fn lock_all(db: &Db) -> Result<()> {
    let take = "LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT";
    db.transaction(async || db.exec(take, ()).await.map(drop))
        .await
}

/// Has a replica replay nothing more.
pub(crate) async fn pause_replay(replica: &Db) {
    let sql = "SELECT pg_wal_replay_pause()";
    replica.query(sql, ()).await.unwrap();
    let sql = "SELECT pg_get_wal_replay_pause_state() = 'paused'";
    until("the replay is paused", async || {
        replica.query_scalar_one(sql, ()).await.unwrap()
    })
    .await;
}

pub(crate) async fn resume_replay(replica: &Db) {
    let sql = "SELECT pg_wal_replay_resume()";
    replica.query(sql, ()).await.unwrap();
}

/// Waits until a replica has replayed all that is committed now.
pub(crate) async fn catch_up(primary: &Db, replica: &Db) {
    let lsn = "SELECT pg_current_wal_lsn()::text";
    let lsn: String = primary.query_scalar_one(lsn, ()).await.unwrap();
    let has = "SELECT pg_last_wal_replay_lsn() >= ?::text::pg_lsn";
    until("the replica has caught up", async || {
        let has = replica.query_scalar_one(has, (&*lsn,));
        has.await.unwrap()
    })
    .await;
}
