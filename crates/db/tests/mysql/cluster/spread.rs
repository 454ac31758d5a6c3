//! How connections are distributed over hosts.

use cenote::Db;
use tokio::task::JoinSet;

use super::host::{Host, Is, WRITE};
use super::of;
use crate::servers::{soon, until};

async fn three() -> (Vec<Host>, Db) {
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(Host::start(Is::Primary).await);
    }
    let ports: Vec<_> = hosts.iter().map(Host::port).collect();
    let dsn = of(&ports, "load_balance_hosts=random");
    let db = Db::builder(&dsn).max(10).open().await.unwrap();
    (hosts, db)
}

fn connections(db: &Db) -> Vec<usize> {
    db.hosts().iter().map(|host| host.connections).collect()
}

#[tokio::test]
async fn least_used_host_gets_the_next_connection() {
    let (hosts, db) = three().await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(db.connection().await.unwrap());
        held.last().unwrap().exec(WRITE, ()).await.unwrap();
    }
    let mut used: Vec<_> = hosts.iter().map(Host::writes).collect();
    used.sort_unstable();
    assert_eq!(used, [3, 3, 4]);
    // The least used one is the next, whatever its place in the DSN.
    hosts[1].becomes(Is::JOINING);
    until("it is retired", async || db.hosts()[1].retired == 1).await;
    drop(held);
    until("its connections are closed", async || {
        connections(&db)[1] == 0
    })
    .await;
    hosts[1].becomes(Is::SYNCED);
    until("it fits again", async || {
        db.hosts()[1].role.is_some_and(|role| role.ready)
    })
    .await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(db.connection().await.unwrap());
    }
    assert!(connections(&db)[1] >= 3, "{:?}", connections(&db));
}

#[tokio::test]
async fn connections_that_are_opened_at_once_are_spread_evenly() {
    for _ in 0..5 {
        let (_hosts, db) = three().await;
        let mut acquires = JoinSet::new();
        for _ in 0..10 {
            let db = db.clone();
            acquires.spawn(async move { db.connection().await.unwrap() });
        }
        let held = soon("all are open", acquires.join_all()).await;
        let mut used = connections(&db);
        used.sort_unstable();
        assert_eq!(used, [3, 3, 4]);
        drop(held);
    }
}
