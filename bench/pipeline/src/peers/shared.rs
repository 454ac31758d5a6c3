//! tokio-postgres: clients that all tasks share. Each pipelines what its tasks send at the same time.

use futures_util::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Statement};

use crate::{Outcome, Peer, ROWS, SQL, Server, TWENTY, key};

pub fn config(server: &Server) -> Config {
    let mut config = Config::new();
    config
        .host(&server.host)
        .port(server.port)
        .user("cenote")
        .password("cenote-secret")
        .dbname("cenote");
    config
}

async fn connect(server: &Server) -> Outcome<Client> {
    let (client, connection) = config(server).connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Creates the table that the peers read.
pub async fn set_up(server: &Server) -> Outcome<()> {
    let sql = format!(
        "DROP TABLE IF EXISTS cenote_bench_world; \
         CREATE TABLE cenote_bench_world (id int PRIMARY KEY, randomnumber int NOT NULL); \
         INSERT INTO cenote_bench_world SELECT n, n * 7 % {ROWS} FROM generate_series(1, {ROWS}) n; \
         GRANT SELECT ON cenote_bench_world TO PUBLIC"
    );
    connect(server).await?.batch_execute(&sql).await?;
    // VACUUM runs in no transaction, and so in no script.
    let client = connect(server).await?;
    Ok(client
        .batch_execute("VACUUM ANALYZE cenote_bench_world")
        .await?)
}

/// Reads the row of a key.
pub async fn read(client: &Client, statement: &Statement, id: i32) -> Outcome<()> {
    let parameters: [&(dyn ToSql + Sync); 1] = [&id];
    let row = client.query_one(statement, &parameters).await?;
    assert_eq!(row.try_get::<_, i32>(0)?, id);
    Ok(())
}

/// Reads twenty rows at once, pipelined by the client.
pub async fn read_twenty(
    client: &Client,
    statement: &Statement,
    task: usize,
    unit: u64,
) -> Outcome<()> {
    let ids = (0..TWENTY).map(|n| key(task, unit * TWENTY + n));
    try_join_all(ids.map(|id| read(client, statement, id))).await?;
    Ok(())
}

pub struct Shared {
    clients: Vec<(Client, Statement)>,
}

impl Shared {
    fn of(&self, task: usize) -> &(Client, Statement) {
        &self.clients[task % self.clients.len()]
    }
}

impl Peer for Shared {
    async fn open(server: &Server, connections: usize) -> Outcome<Self> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = connect(server).await?;
            let statement = client.prepare(SQL).await?;
            clients.push((client, statement));
        }
        Ok(Shared { clients })
    }

    async fn points(&self, task: usize, count: u64) -> Outcome<()> {
        let (client, statement) = self.of(task);
        for n in 0..count {
            read(client, statement, key(task, n)).await?;
        }
        Ok(())
    }

    async fn twenties(&self, task: usize, count: u64) -> Outcome<()> {
        let (client, statement) = self.of(task);
        for unit in 0..count {
            read_twenty(client, statement, task, unit).await?;
        }
        Ok(())
    }
}
