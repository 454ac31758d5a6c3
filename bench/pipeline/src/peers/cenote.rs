//! Cenote: calls on a `Db`, one by one, on shared connections and in batches.

use std::time::{Duration, Instant};

use cenote::Db;
use tokio::time::MissedTickBehavior;

use crate::{Outcome, Peer, SQL, Server, Slow, TWENTY, key};

/// One in so many reads is slow.
const SLOW_SHARE: u64 = 100;

/// How often a task reads in the tasks `beside`. At a fixed rate, so that a faster peer has no more slow reads in flight.
const TICK: Duration = Duration::from_millis(10);

const SLOW_TEXT: &str = "SELECT id, pg_sleep(0.05)::text FROM cenote_bench_world WHERE id = $1";

const SLOW_PARAMETER: &str = "SELECT id, CASE WHEN $2 THEN pg_sleep(0.05)::text END \
     FROM cenote_bench_world WHERE id = $1";

async fn open(server: &Server, connections: usize, share: bool) -> Outcome<Db> {
    let dsn = format!(
        "pgsql:host={};port={};dbname=cenote;sslmode=disable",
        server.host, server.port
    );
    let builder = Db::builder(&dsn).user("cenote").password("cenote-secret");
    Ok(builder
        .max(connections)
        .share_connections(share)
        .open()
        .await?)
}

async fn points(db: &Db, task: usize, count: u64) -> Outcome<()> {
    for n in 0..count {
        let id = key(task, n);
        let row = db.query_one(SQL, (id,)).await?;
        assert_eq!(row.get::<i32>(0)?, id);
    }
    Ok(())
}

/// Calls one by one, which share connections or do not.
pub struct Calls<const SHARE: bool> {
    db: Db,
}

impl<const SHARE: bool> Peer for Calls<SHARE> {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let db = open(server, connections, SHARE).await?;
        Ok(Calls { db })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count).await
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        points(&self.db, task, count * TWENTY).await
    }

    async fn beside(&self, slow: Slow, task: usize, count: u64) -> Outcome<Vec<Duration>> {
        let mut waits = Vec::new();
        let start = tokio::time::Instant::now() + TICK * task as u32 / 64;
        let mut ticks = tokio::time::interval_at(start, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for n in 0..count {
            ticks.tick().await;
            let id = key(task, n);
            let is_slow = (n + task as u64).is_multiple_of(SLOW_SHARE);
            let began = Instant::now();
            let row = match (slow, is_slow) {
                (Slow::OtherText, false) => self.db.query_one(SQL, (id,)).await?,
                (Slow::OtherText, true) => self.db.query_one(SLOW_TEXT, (id,)).await?,
                (Slow::Parameter, _) => self.db.query_one(SLOW_PARAMETER, (id, is_slow)).await?,
            };
            if !is_slow {
                waits.push(began.elapsed());
            }
            assert_eq!(row.get::<i32>(0)?, id);
        }
        Ok(waits)
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
