//! Reads on a replica: what they see, where they run, and what happens when the replica fails.

mod failures;
mod observed;
mod places;
mod stale;
mod tokens;

use std::time::Duration;

use cenote::{Builder, Db};

use crate::servers::own::OwnServer;
use crate::servers::until;

/// Says whether a replica has answered.
const IS_REPLICA: &str = "SELECT pg_is_in_recovery()";

/// A primary and a replica that streams from it.
struct Pair {
    primary: OwnServer,
    replica: OwnServer,
    /// The administrators of both.
    at_primary: Db,
    at_replica: Db,
}

impl Pair {
    /// Starts both, with settings of the replica, and a table `t` of one counter per row.
    async fn start(settings: &[&str]) -> Self {
        let primary = OwnServer::start(&["synchronous_commit=on"]).await;
        let at_primary = Db::open(&primary.dsn()).await.unwrap();
        let make = "CREATE TABLE t (id int8 PRIMARY KEY, n int8 NOT NULL); \
                    INSERT INTO t SELECT id, 0 FROM generate_series(0, 99) id";
        at_primary.exec(make, ()).await.unwrap();
        let replica = primary.start_standby(settings).await;
        let at_replica = Db::open(&replica.dsn()).await.unwrap();
        Pair {
            primary,
            replica,
            at_primary,
            at_replica,
        }
    }

    fn builder(&self) -> Builder {
        Db::builder(&self.primary.dsn())
            .replica(self.replica.dsn())
            .max(4)
    }

    /// Opens a handle whose replica gets reads.
    async fn open(&self) -> Db {
        self.open_with(|builder| builder).await
    }

    async fn open_with(&self, describe: impl FnOnce(Builder) -> Builder) -> Db {
        let db = describe(self.builder()).open().await.unwrap();
        is_used(&db).await;
        db
    }

    async fn pause(&self) {
        let sql = "SELECT pg_wal_replay_pause()";
        self.at_replica.query(sql, ()).await.unwrap();
        let sql = "SELECT pg_get_wal_replay_pause_state() = 'paused'";
        until("the replay is paused", async || {
            self.at_replica.query_scalar_one(sql, ()).await.unwrap()
        })
        .await;
    }

    async fn resume(&self) {
        let sql = "SELECT pg_wal_replay_resume()";
        self.at_replica.query(sql, ()).await.unwrap();
    }

    /// Waits until the replica has replayed all that is committed now.
    async fn catch_up(&self) {
        let lsn = "SELECT pg_current_wal_lsn()::text";
        let lsn: String = self.at_primary.query_scalar_one(lsn, ()).await.unwrap();
        let has = "SELECT pg_last_wal_replay_lsn() >= ?::text::pg_lsn";
        until("the replica has caught up", async || {
            let has = self.at_replica.query_scalar_one(has, (&*lsn,));
            has.await.unwrap()
        })
        .await;
    }
}

/// Waits until the replica gets reads.
async fn is_used(db: &Db) {
    until("the replica gets reads", async || {
        let is_replica: bool = db.reading().query_scalar_one(IS_REPLICA, ()).await.unwrap();
        is_replica && db.replicas().iter().all(|replica| replica.is_usable)
    })
    .await;
}

async fn is_replica(db: &Db) -> bool {
    db.query_scalar_one(IS_REPLICA, ()).await.unwrap()
}

/// Adds one to a counter.
async fn write(db: &Db, id: i64) {
    let sql = "UPDATE t SET n = n + 1 WHERE id = ?";
    db.exec(sql, (id,)).await.unwrap();
}

/// Reads a counter, and whether a replica has.
async fn read(db: &Db, id: i64) -> (i64, bool) {
    let sql = "SELECT n, pg_is_in_recovery() FROM t WHERE id = ?";
    db.reading().query_as_one(sql, (id,)).await.unwrap()
}

/// So long that a test fails when a read waits for it.
const FOREVER: Duration = Duration::from_secs(3600);
