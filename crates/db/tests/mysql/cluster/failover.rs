//! A primary and a replica that follows it by GTIDs: the primary is killed, hangs, or is replaced in order, while tasks move money.

use std::time::Duration;

use cenote::{Db, Error, Kind};
use tokio::time::Instant;

use super::{of, to_write};
use crate::servers::ledger::{self, Conflicts, Ledger, Record};
use crate::servers::own::OwnServer;
use crate::servers::{soon, until};

/// Either server may be the primary. Commits wait for the replica, however long that takes. `SET GLOBAL read_only` waits for running
/// statements and holds up new ones, so a statement that waits for a lock of another transaction has to give up (error 1205).
const SETTINGS: [&str; 7] = [
    "innodb-lock-wait-timeout=1",
    "log-bin=binlog",
    "log-slave-updates",
    "gtid-strict-mode=1",
    "rpl-semi-sync-slave-enabled=1",
    "rpl-semi-sync-master-timeout=60000",
    "slave-net-timeout=2",
];

struct Cluster {
    primary: OwnServer,
    replica: OwnServer,
}

impl Cluster {
    async fn start() -> Self {
        let primary = OwnServer::start(&SETTINGS).await;
        let admin = Db::open(&primary.dsn()).await.unwrap();
        ledger::create(&admin).await;
        // The administrator may write to a read-only server.
        let user = "CREATE USER teller@'%' IDENTIFIED BY 'teller-secret'; GRANT ALL ON cenote.* TO teller@'%'";
        admin.exec(user, ()).await.unwrap();
        let replica = primary.start_standby(&SETTINGS).await;
        let cluster = Cluster { primary, replica };
        cluster.wait_for_replica().await;
        cluster
    }

    fn dsn(&self) -> String {
        let ports = [self.primary.port(), self.replica.port()];
        to_write(&ports).replace(
            "user=cenote;password=cenote-secret",
            "user=teller;password=teller-secret",
        )
    }

    /// Has the commits of the primary wait for the replica, and returns when that one has all earlier commits.
    async fn wait_for_replica(&self) {
        let admin = Db::open(&self.primary.dsn()).await.unwrap();
        let enable = "SET GLOBAL rpl_semi_sync_master_enabled = 1";
        admin.exec(enable, ()).await.unwrap();
        until("commits wait for the replica", async || {
            let sql = "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS \
                       WHERE (VARIABLE_NAME, VARIABLE_VALUE) IN \
                       (('RPL_SEMI_SYNC_MASTER_STATUS', 'ON'), ('RPL_SEMI_SYNC_MASTER_CLIENTS', '1'))";
            admin.query_as_one::<i64>(sql, ()).await.unwrap() == 2
        })
        .await;
        let written = "SELECT @@GLOBAL.gtid_binlog_pos";
        let written: String = admin.query_as_one(written, ()).await.unwrap();
        has_applied(&Db::open(&self.replica.dsn()).await.unwrap(), &written).await;
    }

    /// Promotes the replica when it has applied what it has received, and returns when it accepts writes.
    async fn promote(&self) -> Instant {
        let admin = Db::open(&self.replica.dsn()).await.unwrap();
        admin.exec("STOP SLAVE IO_THREAD", ()).await.unwrap();
        let status = admin.query_one("SHOW SLAVE STATUS", ()).await.unwrap();
        let received: String = status.get("Gtid_IO_Pos").unwrap();
        has_applied(&admin, &received).await;
        let promote = "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0";
        admin.exec(promote, ()).await.unwrap();
        Instant::now()
    }

    /// Replaces the primary in order: it follows the replica from then on.
    async fn switch_over(&mut self) -> Instant {
        let admin = Db::open(&self.primary.dsn()).await.unwrap();
        let demote = "SET GLOBAL read_only = 1; SET GLOBAL rpl_semi_sync_master_enabled = 0";
        admin.exec(demote, ()).await.unwrap();
        let written = "SELECT @@GLOBAL.gtid_binlog_pos";
        let written: String = admin.query_as_one(written, ()).await.unwrap();
        has_applied(&Db::open(&self.replica.dsn()).await.unwrap(), &written).await;
        let promoted = self.promote().await;
        let follow = format!(
            "SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', \
             MASTER_PORT = {}, MASTER_USER = 'cenote', MASTER_PASSWORD = 'cenote-secret', \
             MASTER_USE_GTID = slave_pos; START SLAVE",
            self.replica.port()
        );
        admin.exec(&follow, ()).await.unwrap();
        std::mem::swap(&mut self.primary, &mut self.replica);
        promoted
    }

    /// The primary has crashed and the replica was promoted: the crashed one comes back as its replica.
    async fn close_ranks(&mut self) {
        self.primary.follow(&self.replica).await;
        std::mem::swap(&mut self.primary, &mut self.replica);
    }
}

async fn has_applied(replica: &Db, position: &str) {
    let wait = "SELECT MASTER_GTID_WAIT(?, 15)";
    let waited = replica.query_as_one::<i64>(wait, (position,)).await;
    assert_eq!(waited.unwrap(), 0, "it has not applied {position}");
}

async fn open(dsn: &str) -> Db {
    let db = Db::builder(dsn)
        .max(4)
        .cleanup_timeout(Duration::from_secs(1));
    db.open().await.unwrap()
}

async fn check(record: &Record, server: &OwnServer) {
    let admin = Db::open(&server.dsn()).await.unwrap();
    let is_expected =
        |error: &Error| error.is_connection_lost() || matches!(error.code(), Some(1205 | 1290));
    record.check(&admin, is_expected).await;
}

#[tokio::test]
async fn writes_are_back_two_seconds_after_a_promotion() {
    let mut cluster = Cluster::start().await;
    let db = open(&cluster.dsn()).await;
    let load = Ledger::start(&db, Conflicts::None);
    load.stores_more().await;
    // Each host is the primary and crashes, and is replaced in order.
    for round in 0..4 {
        let promoted = match round % 2 {
            0 => {
                cluster.primary.crash().await;
                cluster.promote().await
            }
            _ => cluster.switch_over().await,
        };
        load.stores_more().await;
        let took = promoted.elapsed();
        assert!(took < Duration::from_secs(2), "round {round}: {took:?}");
        println!("round {round}: writes are back after {took:?}");
        if round % 2 == 0 {
            cluster.close_ranks().await;
        }
        let former = format!("127.0.0.1:{}", cluster.replica.port());
        until("nothing is connected to the former primary", async || {
            let hosts = db.hosts();
            let former = hosts.iter().find(|host| host.name == former);
            former.unwrap().connections == 0
        })
        .await;
        cluster.wait_for_replica().await;
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
    let reader = open(&cluster.dsn()).await;
    let sql = "SELECT REPEAT('x', 1000) FROM seq_1_to_100000000";
    let mut stream = reader.stream(sql, ()).await.unwrap();
    let first = soon("a row comes", stream.try_next()).await;
    assert!(first.unwrap().is_some());
    until("both are known", async || {
        reader.hosts().iter().all(|host| host.role.is_some())
    })
    .await;
    cluster.primary.signal("STOP");
    let promoted = cluster.promote().await;
    load.stores_more().await;
    let took = promoted.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("writes are back after {took:?}");
    let cut = soon("the stream is cut", async {
        loop {
            match stream.try_next().await {
                Ok(row) => assert!(row.is_some(), "it has ended"),
                Err(error) => break error,
            }
        }
    });
    assert_eq!(cut.await.kind(), Kind::ConnectionLost);
    drop(stream);
    for db in [&db, &reader] {
        let is_left = async || db.hosts()[0].connections == 0;
        until("nothing is connected to the old one", is_left).await;
    }
    // It wakes up, and believes that it is the primary.
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
    check(&record, &cluster.replica).await;
}

#[tokio::test]
async fn replica_is_read_and_keeps_its_connections() {
    let cluster = Cluster::start().await;
    let ports = [cluster.primary.port(), cluster.replica.port()];
    let options = "target_session_attrs=prefer-standby;load_balance_hosts=random";
    let db = open(&of(&ports, options)).await;
    let read = "SELECT COUNT(*) FROM account";
    let count = db.query_as_one::<i64>(read, ()).await;
    assert_eq!(count.unwrap(), 10);
    assert_eq!(db.hosts()[1].connections, 1);
    // It is promoted, and still serves.
    cluster.promote().await;
    until("it is seen", async || {
        db.hosts()[1].role.is_some_and(|role| !role.standby)
    })
    .await;
    db.query_as_one::<i64>(read, ()).await.unwrap();
    assert_eq!((db.counters().created, db.hosts()[1].retired), (1, 0));
}
