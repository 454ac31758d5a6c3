//! A primary and two standbys: the primary is killed, or hangs, and a standby is promoted, while tasks move money.

use std::time::Duration;

use cenote::Db;
use tokio::time::Instant;

use super::to_write;
use crate::servers::ledger::{self, Conflicts, Ledger, Record};
use crate::servers::own::{OwnServer, send};
use crate::servers::until;

/// Segments stay for a standby that is being copied beside another one.
const SETTINGS: [&str; 2] = ["synchronous_commit=on", "wal_keep_size=256MB"];

/// A primary whose commits wait for the first of its two standbys.
struct Cluster {
    primary: OwnServer,
    next: OwnServer,
    other: OwnServer,
}

impl Cluster {
    async fn start() -> Self {
        let primary = OwnServer::start(&SETTINGS).await;
        let (next, other) = tokio::join!(
            primary.start_standby(&SETTINGS),
            primary.start_standby(&SETTINGS)
        );
        let admin = Db::open(&primary.dsn()).await.unwrap();
        ledger::create(&admin).await;
        let cluster = Cluster {
            primary,
            next,
            other,
        };
        cluster.wait_for_next().await;
        cluster
    }

    fn dsn(&self) -> String {
        to_write(&[self.primary.port(), self.next.port(), self.other.port()])
    }

    /// Has the commits of the primary wait for the next one. The setting is made after that one was copied, which would
    /// otherwise wait for itself when it is promoted.
    async fn wait_for_next(&self) {
        let admin = Db::open(&self.primary.dsn()).await.unwrap();
        let name = self.next.name();
        let names = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        admin.exec(&names, ()).await.unwrap();
        admin.query("SELECT pg_reload_conf()", ()).await.unwrap();
        until(
            "commits wait for it, and the other one follows",
            async || {
                let sql = "SELECT count(*) FILTER (WHERE sync_state = 'sync'), count(*) \
                       FROM pg_stat_replication WHERE state = 'streaming'";
                let seen: (i64, i64) = admin.query_as_one(sql, ()).await.unwrap();
                seen == (1, 2)
            },
        )
        .await;
    }

    /// Promotes the next one, and returns when it accepts writes.
    async fn promote(&self) -> Instant {
        let admin = Db::open(&self.next.dsn()).await.unwrap();
        let sql = "SELECT pg_promote(true)";
        assert!(admin.query_as_one::<bool>(sql, ()).await.unwrap());
        Instant::now()
    }

    /// The primary has crashed and the next one was promoted: the crashed one comes back as its standby, and the other one
    /// follows it, too.
    async fn close_ranks(&mut self) {
        let conninfo = format!(
            "host={} port={} user=cenote application_name={}",
            crate::servers::required_variable("CENOTE_TEST_POSTGRES_SOCKETS"),
            self.next.port(),
            self.other.name()
        );
        let admin = Db::open(&self.other.dsn()).await.unwrap();
        let follow = format!("ALTER SYSTEM SET primary_conninfo = '{conninfo}'");
        admin.exec(&follow, ()).await.unwrap();
        admin.query("SELECT pg_reload_conf()", ()).await.unwrap();
        self.primary.follow(&self.next).await;
        std::mem::swap(&mut self.primary, &mut self.next);
        // The one that has followed all the time is promoted next.
        std::mem::swap(&mut self.next, &mut self.other);
        self.wait_for_next().await;
    }
}

async fn check(record: &Record, server: &OwnServer) {
    let admin = Db::open(&server.dsn()).await.unwrap();
    let check = record.check(&admin, |error| {
        error.is_connection_lost() || error.sql_state() == Some("25006")
    });
    check.await;
}

async fn open(dsn: &str) -> Db {
    let db = Db::builder(dsn)
        .max(4)
        .cleanup_timeout(Duration::from_secs(1));
    db.open().await.unwrap()
}

#[tokio::test]
async fn writes_are_back_two_seconds_after_a_promotion() {
    let mut cluster = Cluster::start().await;
    let db = open(&cluster.dsn()).await;
    let load = Ledger::start(&db, Conflicts::None);
    load.stores_more().await;
    // Every host is the primary once, and crashes.
    for round in 0..3 {
        cluster.primary.crash().await;
        let promoted = cluster.promote().await;
        load.stores_more().await;
        let took = promoted.elapsed();
        assert!(took < Duration::from_secs(2), "round {round}: {took:?}");
        println!("round {round}: writes are back after {took:?}");
        cluster.close_ranks().await;
    }
    let record = load.end().await;
    check(&record, &cluster.primary).await;
}

#[tokio::test]
async fn primary_that_hangs_is_left_and_never_written_to() {
    let cluster = Cluster::start().await;
    let db = open(&cluster.dsn()).await;
    let load = Ledger::start(&db, Conflicts::None);
    load.stores_more().await;
    let admin = Db::open(&cluster.primary.dsn()).await.unwrap();
    let sql = "SELECT pid::int8 FROM pg_stat_activity \
               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let backends: Vec<i64> = admin.query_as(sql, ()).await.unwrap();
    cluster.primary.signal("STOP");
    for backend in &backends {
        send("STOP", &backend.to_string());
    }
    let promoted = cluster.promote().await;
    load.stores_more().await;
    let took = promoted.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("writes are back after {took:?}");
    let is_left = async || db.hosts()[0].connections == 0;
    until("nothing is connected to the old one", is_left).await;
    // It wakes up, and believes that it is the primary.
    for backend in &backends {
        send("CONT", &backend.to_string());
    }
    cluster.primary.signal("CONT");
    let timeline = |host: usize| {
        let role = db.hosts()[host].role.filter(|role| !role.standby)?;
        role.history.map(|history| history.timeline)
    };
    until("it is asked again", async || timeline(0).is_some()).await;
    load.stores_more().await;
    assert_eq!(db.hosts()[0].connections, 0);
    assert!(timeline(0) < timeline(1));
    let record = load.end().await;
    check(&record, &cluster.next).await;
}
