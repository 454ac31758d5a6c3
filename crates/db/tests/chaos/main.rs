//! A connection that is reset at any byte, in either direction, from the first of its login to the
//! last of its commit: what was acknowledged is there, what failed is not, and what nobody can know
//! is called unknown.

#![cfg(any(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::time::Duration;

use cenote::{Db, Kind};
use cenote_testkit::proxy::{CutAfter, Direction, Proxy, Traffic, Weather};

/// How long anything may take before a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the script says that has started the servers.
fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run ci/test.sh"))
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("it hangs: {what}"))
}

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
    async fn new(driver: &str, port: &str, who: &str, direct: &str) -> Self {
        let port: u16 = told(port).parse().unwrap();
        let proxy = Proxy::in_front_of(SocketAddr::from(([127, 0, 0, 1], port)));
        let proxy = proxy.await.unwrap();
        let at = proxy.address().port().unwrap();
        let admin = Db::open(&told(direct)).await.unwrap();
        let table = format!("cut_at_byte_{}", std::process::id());
        let sql = format!("CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY)");
        admin.exec(&sql, ()).await.unwrap();
        Line {
            admin,
            dsn: format!("{driver}:host=127.0.0.1;port={at};dbname=cenote;{who}"),
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

async fn nothing_is_lost_in_silence(line: Line) {
    line.write(0).await.unwrap();
    let whole = line.proxy.traffic();
    let mut ended = vec![Some(true)];
    let mut unknown = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for bytes in 0..=carried(whole, direction) {
            line.proxy.set(Weather {
                cut_after: Some(CutAfter { direction, bytes }),
                ..Weather::fair()
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

#[cfg(feature = "postgres")]
#[tokio::test]
async fn on_postgres_a_reset_at_any_byte_loses_nothing_in_silence() {
    let port = "CENOTE_TEST_POSTGRES_PORT";
    let who = "user=cenote;password=cenote-secret;sslmode=disable";
    nothing_is_lost_in_silence(Line::new("pgsql", port, who, "CENOTE_TEST_POSTGRES").await).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn on_mariadb_a_reset_at_any_byte_loses_nothing_in_silence() {
    let port = "CENOTE_TEST_MARIADB_PORT";
    let who = "user=cenote;password=cenote-secret";
    nothing_is_lost_in_silence(Line::new("mysql", port, who, "CENOTE_TEST_MARIADB").await).await;
}
