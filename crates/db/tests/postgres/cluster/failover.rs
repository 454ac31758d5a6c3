//! A primary and its standby: the primary is killed, or hangs, and the standby is promoted under load.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote::{Db, Error, Kind};
use tokio::task::JoinSet;

use super::to_write;
use crate::servers::own::OwnServer;
use crate::servers::{dsn_at, soon, until};

const TASKS: usize = 8;

/// A primary whose commits wait for its standby.
async fn pair() -> (OwnServer, OwnServer) {
    let primary = OwnServer::start(&["synchronous_commit=on"]).await;
    let standby = primary.start_standby(&["synchronous_commit=on"]).await;
    let admin = Db::open(&primary.dsn()).await.unwrap();
    admin
        .exec("CREATE TABLE paid (id int8 PRIMARY KEY)", ())
        .await
        .unwrap();
    until("the standby follows", async || {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        admin.query_as_one::<i64>(sql, ()).await.unwrap() == 1
    })
    .await;
    wait_for_standby(&primary, &standby).await;
    (primary, standby)
}

/// Has the commits of a primary wait for this standby. The setting is made after the standby was copied, which would
/// otherwise wait for itself when it is promoted.
async fn wait_for_standby(primary: &OwnServer, standby: &OwnServer) {
    let admin = Db::open(&primary.dsn()).await.unwrap();
    let names = format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{}'",
        standby.name()
    );
    admin.exec(&names, ()).await.unwrap();
    admin.query("SELECT pg_reload_conf()", ()).await.unwrap();
    until("commits wait for it", async || {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        admin.query_as_one::<i64>(sql, ()).await.unwrap() == 1
    })
    .await;
}

/// Tasks that store numbers all the time.
struct Load {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    next: AtomicI64,
    stored: Mutex<BTreeSet<i64>>,
    unknown: Mutex<BTreeSet<i64>>,
    errors: Mutex<Vec<Error>>,
    is_over: AtomicBool,
}

impl Load {
    fn start(db: &Db) -> Self {
        let (shared, mut tasks) = (Arc::new(Shared::default()), JoinSet::new());
        for task in 0..TASKS {
            let (db, shared) = (db.clone(), Arc::clone(&shared));
            tasks.spawn(cenote::scope(async move {
                while !shared.is_over.load(Ordering::Relaxed) {
                    let id = shared.next.fetch_add(1, Ordering::Relaxed);
                    shared.store(&db, id, task % 2 == 0).await;
                }
            }));
        }
        Load { shared, tasks }
    }

    fn stored(&self) -> usize {
        self.shared.stored.lock().unwrap().len()
    }

    async fn stores_more(&self) {
        let before = self.stored();
        until("more is stored", async || self.stored() > before + 20).await;
    }

    async fn end(mut self) -> Arc<Shared> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        soon("the tasks end", async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        })
        .await;
        self.shared
    }
}

impl Shared {
    async fn store(&self, db: &Db, id: i64, in_transaction: bool) {
        let add = async || {
            db.exec("INSERT INTO paid VALUES (?)", (id,))
                .await
                .map(drop)
        };
        let done = match in_transaction {
            true => db.transaction(add).await,
            false => add().await,
        };
        match done {
            Ok(()) => drop(self.stored.lock().unwrap().insert(id)),
            Err(error) => {
                // Outside of a transaction, a lost call may have run.
                let is_unknown =
                    matches!(error.kind(), Kind::OutcomeUnknown | Kind::ConnectionLost);
                if is_unknown {
                    self.unknown.lock().unwrap().insert(id);
                }
                self.errors.lock().unwrap().push(error);
            }
        }
    }

    /// Everything that was acknowledged is there, and nothing else but what is said to be unknown.
    async fn check(&self, server: &OwnServer) {
        let admin = Db::open(&server.dsn()).await.unwrap();
        let ids: Vec<i64> = admin.query_as("SELECT id FROM paid", ()).await.unwrap();
        let there: BTreeSet<i64> = ids.into_iter().collect();
        let (stored, unknown) = (self.stored.lock().unwrap(), self.unknown.lock().unwrap());
        let lost: Vec<_> = stored.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let known: BTreeSet<_> = stored.union(&unknown).copied().collect();
        let invented: Vec<_> = there.difference(&known).collect();
        assert!(invented.is_empty(), "failed and there: {invented:?}");
        for error in self.errors.lock().unwrap().iter() {
            let is_expected = error.is_connection_lost() || error.sql_state() == Some("25006");
            assert!(is_expected, "{error:?}");
        }
    }
}

async fn open(hosts: &[&OwnServer]) -> Db {
    let ports: Vec<_> = hosts.iter().map(|host| host.port()).collect();
    let db = Db::builder(&to_write(&ports))
        .max(4)
        .cleanup_timeout(Duration::from_secs(1));
    db.open().await.unwrap()
}

/// Promotes a standby, and returns when it accepts writes.
async fn promote(standby: &OwnServer) -> Instant {
    let admin = Db::open(&dsn_at(standby.port())).await.unwrap();
    let promoted: bool = admin
        .query_as_one("SELECT pg_promote(true)", ())
        .await
        .unwrap();
    assert!(promoted);
    Instant::now()
}

#[tokio::test]
async fn writes_are_back_two_seconds_after_a_promotion() {
    let (mut primary, mut standby) = pair().await;
    let db = open(&[&primary, &standby]).await;
    let load = Load::start(&db);
    load.stores_more().await;
    for round in 0..3 {
        primary.crash().await;
        let promoted = promote(&standby).await;
        load.stores_more().await;
        let took = promoted.elapsed();
        assert!(took < Duration::from_secs(2), "round {round}: {took:?}");
        println!("round {round}: writes are back after {took:?}");
        // The crashed one comes back as the standby of the new primary.
        primary.follow(&standby).await;
        std::mem::swap(&mut primary, &mut standby);
        wait_for_standby(&primary, &standby).await;
    }
    load.end().await.check(&primary).await;
}

#[tokio::test]
async fn primary_that_hangs_is_left_and_never_written_to() {
    let (primary, standby) = pair().await;
    let db = open(&[&primary, &standby]).await;
    let load = Load::start(&db);
    load.stores_more().await;
    let admin = Db::open(&primary.dsn()).await.unwrap();
    let sql = "SELECT pid::int8 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let backends: Vec<i64> = admin.query_as(sql, ()).await.unwrap();
    primary.signal("STOP");
    for backend in &backends {
        crate::servers::own::send("STOP", &backend.to_string());
    }
    let promoted = promote(&standby).await;
    load.stores_more().await;
    let took = promoted.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("writes are back after {took:?}");
    until("nothing is connected to the old one", async || {
        db.hosts()[0].connections == 0
    })
    .await;
    // It wakes up, and believes that it is the primary.
    for backend in &backends {
        let _ = std::process::Command::new("kill")
            .args(["-CONT", &backend.to_string()])
            .status();
    }
    primary.signal("CONT");
    until("it is asked again", async || {
        db.hosts()[0]
            .role
            .is_some_and(|role| !role.standby && role.history.is_some())
    })
    .await;
    load.stores_more().await;
    let hosts = db.hosts();
    assert_eq!(hosts[0].connections, 0);
    assert!(
        hosts[0].role.unwrap().history.unwrap().timeline
            < hosts[1].role.unwrap().history.unwrap().timeline
    );
    load.end().await.check(&standby).await;
}
