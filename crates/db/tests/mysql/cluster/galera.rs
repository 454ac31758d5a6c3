//! A cluster of three nodes of Galera, each of which takes writes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cenote::{Db, Error};

use super::of;
use crate::servers::ledger::{self, Conflicts, Ledger};
use crate::servers::own::OwnServer;
use crate::servers::{dsn_at, soon, until, until_within};

/// Reads on these connections wait until their node has applied all that the cluster has committed.
const CAUSAL: &str = ";set.wsrep_sync_wait=1";

struct Cluster {
    nodes: Vec<OwnServer>,
}

impl Cluster {
    async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(OwnServer::start_node(&nodes).await);
        }
        let cluster = Cluster { nodes };
        for node in &cluster.nodes {
            cluster.wait_for(node, 3).await;
        }
        cluster
    }

    /// Waits until a node is synced, in a cluster of so many.
    async fn wait_for(&self, node: &OwnServer, size: usize) {
        let admin = Db::open(&node.dsn()).await.unwrap();
        let sql = "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS \
                   WHERE (VARIABLE_NAME, VARIABLE_VALUE) IN (('WSREP_LOCAL_STATE', '4'), ('WSREP_CLUSTER_SIZE', ?))";
        let size = size.to_string();
        let limit = Duration::from_secs(60);
        until_within(limit, "the node is synced", async || {
            let found = admin.query_as_one::<i64>(sql, (&size,)).await;
            found.is_ok_and(|found| found == 2)
        })
        .await;
    }

    /// A handle that writes to all nodes.
    async fn open(&self) -> Db {
        let ports: Vec<_> = self.nodes.iter().map(OwnServer::port).collect();
        let db = Db::builder(&of(&ports, "load_balance_hosts=random"))
            .max(6)
            .cleanup_timeout(Duration::from_secs(1));
        db.open().await.unwrap()
    }
}

async fn causal(node: &OwnServer) -> Db {
    Db::open(&(dsn_at(node.port()) + CAUSAL)).await.unwrap()
}

#[tokio::test]
async fn killed_node_and_conflicts_leave_the_bank_exact() {
    let mut cluster = Cluster::start().await;
    ledger::create(&causal(&cluster.nodes[0]).await).await;
    conflict_at_commit_is_repeated(&cluster).await;
    for node in &cluster.nodes {
        // Other nodes may not have the accounts yet.
        let sql = "SELECT COUNT(*) FROM account";
        let accounts = causal(node).await.query_as_one::<i64>(sql, ()).await;
        assert_eq!(accounts.unwrap(), 10);
    }
    let db = cluster.open().await;
    let load = Ledger::start(&db, Conflicts::Repeated);
    load.stores_more().await;
    cluster.nodes[0].crash().await;
    load.stores_more().await;
    until("its connections are gone", async || {
        db.hosts()[0].connections == 0
    })
    .await;
    for node in &cluster.nodes[1..] {
        cluster.wait_for(node, 2).await;
    }
    load.stores_more().await;
    // It comes back with the data of another one.
    let mut killed = cluster.nodes.remove(0);
    killed.join(&cluster.nodes).await;
    cluster.nodes.insert(0, killed);
    for node in &cluster.nodes {
        cluster.wait_for(node, 3).await;
    }
    load.stores_more().await;
    let record = load.end().await;
    assert!(record.repeats() > 0, "no two transfers have met");
    for node in &cluster.nodes {
        let is_expected =
            |error: &Error| error.is_connection_lost() || matches!(error.code(), Some(1047));
        record.check(&causal(node).await, is_expected).await;
    }
}

/// Both nodes change the same row. The one that commits first wins; the other transaction ends with error 1213 and runs again.
async fn conflict_at_commit_is_repeated(cluster: &Cluster) {
    let (one, two) = (&cluster.nodes[0], &cluster.nodes[1]);
    let (db, other, reader) = (causal(one).await, causal(two).await, causal(one).await);
    let create = "CREATE TABLE met (id BIGINT PRIMARY KEY, n BIGINT)";
    db.exec(create, ()).await.unwrap();
    db.exec("INSERT INTO met VALUES (1, 0)", ()).await.unwrap();
    let attempts = AtomicU32::new(0);
    let run = db.transaction_options().retry(async || {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        let add = "UPDATE met SET n = n + ? WHERE id = 1";
        db.exec(add, (1_i64,)).await?;
        if attempt == 0 {
            other.exec(add, (10_i64,)).await?;
            until("this node has it", async || {
                let n = reader.query_as_one::<i64>("SELECT n FROM met", ()).await;
                n.unwrap() == 10
            })
            .await;
        }
        Ok::<_, Error>(())
    });
    soon("it is repeated", run).await.unwrap();
    assert_eq!(attempts.into_inner(), 2);
    let n: i64 = other.query_as_one("SELECT n FROM met", ()).await.unwrap();
    assert_eq!(n, 11);
}
