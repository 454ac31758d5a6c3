//! deadpool-postgres: a pool of tokio-postgres' clients, with its cache of statements.

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;

use super::shared::{config, read, read_twenty};
use crate::{Outcome, Peer, SQL, Server, key};

pub struct Pooled {
    pool: Pool,
}

impl Peer for Pooled {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        // The fastest way to recycle, which is the default.
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(config(server), NoTls, recycling);
        let pool = Pool::builder(manager).max_size(connections).build()?;
        Ok(Pooled { pool })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        for n in 0..count {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(SQL).await?;
            read(&client, &statement, key(task, n)).await?;
        }
        Ok(())
    }

    /// Pipelined, which is the best that its user can do.
    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        for unit in 0..count {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(SQL).await?;
            read_twenty(&client, &statement, task, unit).await?;
        }
        Ok(())
    }
}
