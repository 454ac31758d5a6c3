//! sqlx, in its own pool.

use sqlx::Row;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlSslMode};

use crate::{Outcome, Peer, SQL, Server, is_name, key};

pub struct Sqlx {
    pool: MySqlPool,
}

impl Peer for Sqlx {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let options = MySqlConnectOptions::new()
            .username("cenote")
            .password("cenote-secret")
            .database("cenote")
            .ssl_mode(MySqlSslMode::Disabled);
        let options = match server {
            Server::Unix(path) => options.socket(path),
            Server::Tcp(port) => options.host("127.0.0.1").port(*port),
        };
        let pool = MySqlPoolOptions::new()
            .max_connections(u32::try_from(connections)?)
            .connect_with(options)
            .await?;
        Ok(Sqlx { pool })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        for n in 0..count {
            let row = sqlx::query(SQL)
                .bind(i64::try_from(key(n))?)
                .fetch_one(&self.pool)
                .await?;
            assert!(is_name(row.try_get::<&str, _>(0)?, key(n)));
        }
        Ok(())
    }
}
