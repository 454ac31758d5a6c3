//! A connection that is reset at any byte, in either direction, from the first of its login to the
//! last of its commit: what was acknowledged is there, what failed is not, and what nobody can know
//! is called unknown.

use std::time::Duration;

use cenote::{Db, Kind};
use cenote_testkit::proxy::{CutAfter, Direction, Network, Proxy, Traffic};

use crate::servers::network::{dsn_through, proxy_with};
use crate::servers::{dsn, soon, unique};

/// A server behind a proxy.
struct Line {
    /// Straight to the server.
    admin: Db,
    proxy: Proxy,
    /// By way of the proxy.
    dsn: String,
    table: String,
}

impl Line {
    async fn new(sslmode: &str) -> Self {
        let proxy = proxy_with(Network::ideal()).await;
        let admin = Db::open(&dsn()).await.unwrap();
        let table = unique("cut_at_byte");
        let sql = format!("CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY)");
        admin.exec(&sql, ()).await.unwrap();
        Line {
            admin,
            dsn: dsn_through(&proxy).replace("sslmode=disable", &format!("sslmode={sslmode}")),
            proxy,
            table,
        }
    }

    /// Connects, and writes a row in a transaction.
    async fn write(&self, id: i64) -> cenote::Result<()> {
        let db = Db::builder(&self.dsn)
            .max(1)
            .cleanup_timeout(Duration::from_secs(1))
            .open()
            .await?;
        let sql = format!("INSERT INTO {} (id) VALUES (?)", self.table);
        let written = db.transaction(async || db.exec(&sql, (id,)).await.map(drop));
        soon("a transaction on a line that is cut", written).await
    }

    /// All rows, when no transaction is under way any more.
    async fn rows(&self) -> Vec<i64> {
        // It waits for all that have touched the table, and nothing comes after it.
        let alter = format!("ALTER TABLE {} ADD COLUMN over_now INT", self.table);
        soon("the last transaction ends", self.admin.exec(&alter, ()))
            .await
            .unwrap();
        let sql = format!("SELECT id FROM {}", self.table);
        self.admin.query_as(&sql, ()).await.unwrap()
    }
}

/// How many bytes go each way.
fn carried(traffic: Traffic, direction: Direction) -> u64 {
    match direction {
        Direction::ToServer => traffic.to_server,
        Direction::ToClient => traffic.to_client,
    }
}

#[tokio::test]
async fn a_reset_at_any_byte_loses_nothing_in_silence() {
    nothing_is_lost_in_silence("disable").await;
}

pub(crate) async fn nothing_is_lost_in_silence(sslmode: &str) {
    let line = Line::new(sslmode).await;
    line.write(0).await.unwrap();
    let whole = line.proxy.traffic();
    let mut ended = vec![Some(true)];
    let mut unknown = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in 0..=carried(whole, direction) {
            line.proxy.set(Network {
                cut_after: Some(CutAfter { direction, bytes }),
                ..Network::ideal()
            });
            let id = i64::try_from(ended.len()).unwrap();
            ended.push(match line.write(id).await {
                Ok(()) => Some(true),
                Err(error) if error.kind() == Kind::OutcomeUnknown => {
                    unknown += 1;
                    None
                }
                Err(error) => {
                    let of_the_line = error.is_connection_lost() || error.kind() == Kind::Connect;
                    assert!(of_the_line, "{direction:?} {bytes}: {error:?}");
                    Some(false)
                }
            });
        }
    }
    line.proxy.heal();
    let rows = line.rows().await;
    for (id, acknowledged) in (0_i64..).zip(&ended) {
        if let Some(acknowledged) = acknowledged {
            assert_eq!(
                rows.contains(&id),
                *acknowledged,
                "number {id} of {ended:?}"
            );
        }
    }
    let acknowledged = ended.iter().filter(|ended| **ended == Some(true)).count();
    println!(
        "{} transactions, each cut at another byte: {acknowledged} acknowledged, {unknown} unknown",
        ended.len()
    );
    assert!(unknown > 0, "there is a byte at which nobody knows");
    assert!(
        acknowledged > 1,
        "what comes after the last answer changes nothing"
    );
    let drop = format!("DROP TABLE {}", line.table);
    line.admin.exec(&drop, ()).await.unwrap();
}
