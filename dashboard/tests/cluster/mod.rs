//! Handles of a PostgreSQL cluster, for the tests of the page.

use std::sync::Arc;
use std::time::Duration;

use cenote::{Builder, Connection, Db, Result};
use cenote_bank::cluster::Cluster;
use tokio::task::JoinSet;

const OPTIONS: &str = "dbname=postgres;sslmode=disable";

/// Describes a handle that follows the primary among these hosts.
pub(crate) fn handle(cluster: &Cluster, ports: &[u16]) -> Builder {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(",");
    let dsn = format!("pgsql:host={hosts};port={ports};{OPTIONS};target_session_attrs=read-write");
    let builder = Db::builder(&dsn).user("cenote");
    builder.password(cluster.password().expose())
}

/// Describes a handle of all hosts, each of which is a replica, too.
pub(crate) fn with_replicas(cluster: &Cluster) -> Builder {
    let ports = cluster.ports();
    let replica = |builder: Builder, port: &u16| {
        builder.replica(format!("pgsql:host=127.0.0.1;port={port};{OPTIONS}"))
    };
    // So long that a read waits for the first connection to a replica on a busy machine, too.
    let builder = handle(cluster, &ports).replica_wait(Duration::from_secs(20));
    ports.iter().fold(builder, replica)
}

/// Six reads that are in flight on one connection until this ends: they wait for a lock.
pub(crate) struct Sharing {
    lock: Connection,
    reads: JoinSet<Result<()>>,
}

impl Sharing {
    /// Begins the reads on a handle with one connection.
    pub(crate) async fn begin(db: &Db, admin: &Db) -> Self {
        let make = "CREATE TABLE IF NOT EXISTS shared (n int8)";
        admin.exec(make, ()).await.unwrap();
        // On a busy machine, runs are long by accident. Then the text does not share, and never after it was blocked.
        for attempt in 0..100 {
            let sql: Arc<str> = format!("SELECT n + {attempt} FROM shared WHERE n = ?").into();
            for _ in 0..40 {
                db.query(&sql, 1).await.unwrap();
            }
            let held = db.connection().await.unwrap();
            let mut reads = JoinSet::new();
            for _ in 0..6 {
                let (db, sql) = (db.clone(), Arc::clone(&sql));
                reads.spawn(async move { db.query(&sql, 1).await.map(drop) });
            }
            while db.status().waiting < 6 {
                tokio::task::yield_now().await;
            }
            let lock = admin.connection().await.unwrap();
            lock.exec("BEGIN", ()).await.unwrap();
            let sql = "LOCK TABLE shared IN ACCESS EXCLUSIVE MODE";
            lock.exec(sql, ()).await.unwrap();
            drop(held);
            let sharing = Sharing { lock, reads };
            let is_shared = async {
                while db.holders().iter().all(|holder| holder.shared_by < 6) {
                    tokio::task::yield_now().await;
                }
            };
            let patience = Duration::from_millis(500);
            if tokio::time::timeout(patience, is_shared).await.is_ok() {
                return sharing;
            }
            sharing.end().await;
        }
        panic!("the reads never shared a connection");
    }

    pub(crate) async fn end(self) {
        self.lock.exec("ROLLBACK", ()).await.unwrap();
        for read in self.reads.join_all().await {
            read.unwrap();
        }
    }
}
