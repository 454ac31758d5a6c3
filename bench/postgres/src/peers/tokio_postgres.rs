//! tokio-postgres: bare, with a statement that was prepared by hand; and in deadpool's pool, with
//! its cache of statements.

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use futures_util::TryStreamExt;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls};

use crate::{Outcome, Peer, ROWS, SQL, Server};

fn config(server: &Server) -> Config {
    let mut config = Config::new();
    config
        .host(&server.host)
        .port(server.port)
        .user("cenote")
        .password("cenote-secret")
        .dbname("cenote");
    config
}

pub struct Bare {
    client: Client,
}

impl Peer for Bare {
    async fn open(server: &Server, _connections: usize) -> Outcome<Self> {
        let (client, connection) = config(server).connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(Bare { client })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        let statement = self.client.prepare(SQL).await?;
        for n in 0..i32::try_from(count)? {
            let row = self.client.query_one(&statement, &[&n]).await?;
            assert_eq!(row.try_get::<_, i32>(0)?, n + 1);
        }
        Ok(())
    }

    async fn transactions(&self, _count: u64) -> Outcome<()> {
        Err("a bare client lends itself to a transaction: the pooled one is measured".into())
    }

    async fn rows(&self, count: u64) -> Outcome<()> {
        let statement = self.client.prepare(ROWS).await?;
        let limit = i32::try_from(count)?;
        let parameters: [&(dyn ToSql + Sync); 1] = [&limit];
        let rows = self.client.query_raw(&statement, parameters).await?;
        let mut rows = std::pin::pin!(rows);
        let mut seen = 0;
        while let Some(row) = rows.try_next().await? {
            seen += 1;
            assert_eq!(row.try_get::<_, i64>(0)?, seen);
            assert!(row.try_get::<_, &str>(1)?.len() > 4);
        }
        assert_eq!(u64::try_from(seen)?, count);
        Ok(())
    }
}

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

    async fn queries(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let client = self.pool.get().await?;
            let statement = client.prepare_cached(SQL).await?;
            let row = client.query_one(&statement, &[&n]).await?;
            assert_eq!(row.try_get::<_, i32>(0)?, n + 1);
        }
        Ok(())
    }

    async fn transactions(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let mut client = self.pool.get().await?;
            let transaction = client.transaction().await?;
            let statement = transaction.prepare_cached(SQL).await?;
            let row = transaction.query_one(&statement, &[&n]).await?;
            assert_eq!(row.try_get::<_, i32>(0)?, n + 1);
            transaction.commit().await?;
        }
        Ok(())
    }

    async fn rows(&self, _count: u64) -> Outcome<()> {
        Err("the bare client is measured".into())
    }
}
