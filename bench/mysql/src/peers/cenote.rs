//! Cenote: every call goes through `Db`, with the builder's defaults.

use cenote::Db;

use crate::{Outcome, Peer, SQL, Server, is_name, key};

pub struct Cenote {
    db: Db,
}

async fn open(server: &Server, connections: usize) -> Outcome<Db> {
    let dsn = match server {
        Server::Unix(path) => format!("mysql:unix_socket={path};dbname=cenote"),
        Server::Tcp(port) => {
            format!("mysql:host=127.0.0.1;port={port};dbname=cenote;sslmode=disable")
        }
    };
    let db = Db::builder(&dsn)
        .user("cenote")
        .password("cenote-secret")
        .max(connections)
        .open()
        .await?;
    Ok(db)
}

/// Creates the table with this number of rows.
pub async fn set_up(server: &Server, rows: u64) -> Outcome<()> {
    let db = open(server, 1).await?;
    let sql = format!(
        "CREATE OR REPLACE TABLE bench_item (id BIGINT PRIMARY KEY, name VARCHAR(40)); \
         INSERT INTO bench_item SELECT seq, CONCAT('item ', seq) FROM seq_1_to_{rows}"
    );
    db.exec(&sql, ()).await?;
    Ok(())
}

impl Peer for Cenote {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let db = open(server, connections).await?;
        Ok(Cenote { db })
    }

    async fn queries(&self, count: u64) -> Outcome<()> {
        for n in 0..count {
            let row = self.db.query_one(SQL, (key(n),)).await?;
            assert!(is_name(row.get(0)?, key(n)));
        }
        Ok(())
    }
}
