//! Cenote: calls on a `Db`, one by one, on shared connections and in batches.

use cenote::Db;

use crate::{Outcome, Peer, SQL, Server, TWENTY, key};

async fn open(server: &Server, connections: usize, share: bool) -> Outcome<Db> {
    let dsn = format!(
        "pgsql:host={};port={};dbname=cenote;sslmode=disable",
        server.host, server.port
    );
    let builder = Db::builder(&dsn).user("cenote").password("cenote-secret");
    Ok(builder.max(connections).share_connections(share).open().await?)
}

async fn points(db: &Db, task: usize, count: u64) -> Outcome<()> {
    for n in 0..count {
        let id = key(task, n);
        let row = db.query_one(SQL, (id,)).await?;
        assert_eq!(row.get::<i32>(0)?, id);
    }
    Ok(())
}

pub struct Single {
    db: Db,
}

impl Peer for Single {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let db = open(server, connections, false).await?;
        Ok(Single { db })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count).await
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count * TWENTY).await
    }
}

/// Calls that share connections.
pub struct Lanes {
    db: Db,
}

impl Peer for Lanes {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let db = open(server, connections, true).await?;
        Ok(Lanes { db })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count).await
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count * TWENTY).await
    }
}

pub struct Batched {
    db: Db,
}

impl Peer for Batched {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let db = open(server, connections, false).await?;
        Ok(Batched { db })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count).await
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        for unit in 0..count {
            let mut batch = self.db.batch();
            let ids = (0..TWENTY).map(|n| key(task, unit * TWENTY + n));
            let entries: Vec<_> = ids.map(|id| (id, batch.query_one(SQL, (id,)))).collect();
            let mut results = batch.run().await?;
            for (id, entry) in entries {
                assert_eq!(results.take(entry)?.get::<i32>(0)?, id);
            }
        }
        Ok(())
    }
}
