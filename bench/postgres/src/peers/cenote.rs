//! Cenote: every call goes through `Db`, with the builder's defaults.

use cenote::Db;

use crate::{Outcome, Peer, ROWS, SQL, Server};

pub struct Cenote {
    db: Db,
}

impl Peer for Cenote {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let dsn = format!(
            "pgsql:host={};port={};dbname=cenote;sslmode=disable",
            server.host, server.port
        );
        let db = Db::builder(&dsn)
            .user("cenote")
            .password("cenote-secret")
            .max(connections)
            .open()
            .await?;
        Ok(Cenote { db })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let row = self.db.query_one(SQL, (n,)).await?;
            assert_eq!(row.get::<i32>(0)?, n + 1);
        }
        Ok(())
    }

    async fn transactions(&self, count: u64) -> Outcome<()> {
        for n in 0..i32::try_from(count)? {
            let db = &self.db;
            let answer = db.transaction(async || {
                let row = db.query_one(SQL, (n,)).await?;
                row.get::<i32>(0)
            });
            assert_eq!(answer.await?, n + 1);
        }
        Ok(())
    }

    async fn rows(&self, count: u64) -> Outcome<()> {
        let mut rows = self.db.stream(ROWS, (i32::try_from(count)?,)).await?;
        let mut seen = 0;
        while let Some(row) = rows.try_next().await? {
            seen += 1;
            assert_eq!(row.get::<i64>(0)?, seen);
            assert!(row.get::<&str>(1)?.len() > 4);
        }
        assert_eq!(u64::try_from(seen)?, count);
        Ok(())
    }
}
