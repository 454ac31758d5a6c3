//! What a program can see of its replicas: why one gets no reads, and which reads the primary has served.

use std::time::Duration;

use cenote::{Position, ReplicaProblem};
use tracing::Level;

use super::{IS_REPLICA, Pair, is_replica, is_used, read, write};
use crate::log::Log;
use crate::servers::until;

#[tokio::test]
async fn status_and_log_tell_why_a_replica_gets_no_reads() {
    let pair = Pair::start(&[]).await;
    let log = Log::new();
    let builder = pair.builder().max_replica_lag(Duration::from_millis(300));
    let db = builder.open().await.unwrap();
    let problem = async || db.replicas()[0].problem;
    assert_eq!(problem().await, Some(ReplicaProblem::NotAsked));
    assert_eq!(db.replicas()[0].unchanged_for, None);
    is_used(&db).await;
    let status = &db.replicas()[0];
    assert!(status.problem.is_none() && status.unchanged_for.is_some());

    pair.pause().await;
    until("it is too far behind", async || {
        cenote::scope(write(&db, 1)).await;
        problem().await == Some(ReplicaProblem::Lagging)
    })
    .await;
    let status = &db.replicas()[0];
    assert!(status.lag.unwrap() > Duration::from_millis(300) && !status.is_usable);
    pair.resume().await;
    is_used(&db).await;

    let promote = "SELECT pg_promote(true)";
    let promoted = pair.at_replica.query_scalar_one::<bool>(promote, ());
    assert!(promoted.await.unwrap());
    until("it is known", async || {
        problem().await == Some(ReplicaProblem::Primary)
    })
    .await;
    assert_eq!(db.replicas()[0].lag, None);
    let lines = log.take(Level::INFO, "cenote::replicas");
    let said = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert!(said("the replica gets reads") >= 2, "{lines:#?}");
    assert!(said("gets no reads for now") >= 2, "{lines:#?}");
    assert!(said("why=too far behind") >= 1, "{lines:#?}");
    assert!(said("why=a primary") == 1, "{lines:#?}");
}

#[tokio::test]
async fn reads_of_the_primary_are_counted_by_reason() {
    let mut pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let counts = || db.primary_reads();
    let before = counts();
    assert!(is_replica(&db.reading()).await);
    assert_eq!(counts(), before, "a replica has answered");
    assert!(!is_replica(&db).await);
    let in_transaction = db.transaction(async || Ok(is_replica(&db.reading()).await));
    assert!(!in_transaction.await.unwrap());
    assert_eq!(counts(), before, "these belong to the primary");

    pair.pause().await;
    cenote::scope(async {
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    assert_eq!(counts().behind, before.behind + 1);
    pair.resume().await;
    pair.catch_up().await;

    cenote::scope(async {
        db.read_after(Position::unknown());
        assert!(!is_replica(&db.reading()).await);
    })
    .await;
    assert_eq!(counts().unknown_position, before.unknown_position + 1);

    let reading = db.reading();
    let mut streams = Vec::new();
    // The pool of a replica is as large as that of the primary. A stream that gets no connection of it in time is on the primary.
    until("all connections of the replica are busy", async || {
        reading.query(IS_REPLICA, ()).await.unwrap();
        let are_busy = counts().busy > before.busy;
        if !are_busy {
            streams.push(reading.stream(IS_REPLICA, ()).await.unwrap());
        }
        are_busy
    })
    .await;
    assert!(!is_replica(&reading).await);
    drop(streams);

    pair.replica.crash().await;
    until("a read fails", async || {
        db.reading().query(IS_REPLICA, ()).await.unwrap();
        counts().failed > before.failed
    })
    .await;
    until("no replica is left", async || {
        db.reading().query(IS_REPLICA, ()).await.unwrap();
        counts().no_replica > before.no_replica
    })
    .await;
}
