//! sqlx, in its own pool.

use futures_util::TryStreamExt;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};

use crate::{Outcome, Peer, ROWS, SQL, Server};

pub struct Sqlx {
    pool: PgPool,
}

impl Peer for Sqlx {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let options = PgConnectOptions::new()
            .host(&server.host)
            .port(server.port)
            .username("cenote")
            .password("cenote-secret")
            .database("cenote")
            .ssl_mode(PgSslMode::Disable);
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(connections)?)
            .connect_with(options)
            .await?;
        Ok(Sqlx { pool })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let row = sqlx::query(SQL).bind(n).fetch_one(&self.pool).await?;
            assert_eq!(row.try_get::<i32, _>(0)?, n + 1);
        }
        Ok(())
    }

    async fn transactions(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let mut transaction = self.pool.begin().await?;
            let row = sqlx::query(SQL)
                .bind(n)
                .fetch_one(&mut *transaction)
                .await?;
            assert_eq!(row.try_get::<i32, _>(0)?, n + 1);
            transaction.commit().await?;
        }
        Ok(())
    }

    async fn rows(&self, count: u64) -> Outcome<()> {
        let mut rows = sqlx::query(ROWS)
            .bind(i32::try_from(count)?)
            .fetch(&self.pool);
        let mut seen = 0;
        while let Some(row) = rows.try_next().await? {
            seen += 1;
            assert_eq!(row.try_get::<i64, _>(0)?, seen);
            assert!(row.try_get::<&str, _>(1)?.len() > 4);
        }
        assert_eq!(u64::try_from(seen)?, count);
        Ok(())
    }
}
