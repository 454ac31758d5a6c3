//! Several domains of GTIDs, and writes that no binary log has.

use cenote::{Db, Kind};

use super::{Pair, is_replica, is_used, read, write};
use crate::servers::client::Client;
use crate::servers::own::OwnServer;
use crate::servers::until;

const ADD: &str = "UPDATE t SET n = n + 1 WHERE id = 1";

#[tokio::test]
async fn write_in_another_domain_leaves_reads_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        let elsewhere = format!("SET STATEMENT gtid_domain_id = 9 FOR {ADD}");
        db.exec(&elsewhere, ()).await.unwrap();
        assert!(db.position().unwrap().is_unknown());
        // Domain 0 says nothing about domain 9.
        write(&db, 2).await;
        assert!(db.position().unwrap().is_unknown());
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    // Others have positions as before.
    cenote::scope(async {
        write(&db, 1).await;
        assert!(!db.position().unwrap().is_unknown());
        until("the replica answers", async || {
            read(&db, 1).await == (2, true)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn write_outside_of_the_log_leaves_reads_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        let session = db.connection().await.unwrap();
        session.exec("SET sql_log_bin = 0", ()).await.unwrap();
        session.exec(ADD, ()).await.unwrap();
        drop(session);
        assert!(db.position().unwrap().is_unknown());
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn primary_without_a_log_answers_all_reads() {
    let pair = Pair::start(&[]).await;
    let plain = OwnServer::start(&[]).await;
    let db = Db::builder(&plain.dsn()).replica(pair.replica.dsn());
    let db = db.open().await.unwrap();
    db.exec("CREATE TABLE t (id BIGINT, n BIGINT)", ())
        .await
        .unwrap();
    db.exec("INSERT INTO t VALUES (1, 0)", ()).await.unwrap();
    cenote::scope(async {
        write(&db, 1).await;
        assert!(db.position().unwrap().is_unknown());
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    assert!(!is_replica(&db.reading()).await);
}

#[tokio::test]
async fn node_of_galera_has_no_position() {
    let node = OwnServer::start_node(&[]).await;
    let mut client = Client::open(&node.dsn()).await;
    let error = client.connection.ask_position().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.to_string().contains("Galera"), "{error}");
    client.close().await;
}

#[tokio::test]
async fn replica_of_another_cluster_gets_no_reads() {
    let (pair, other) = (Pair::start(&[]).await, Pair::start(&[]).await);
    // Its log is further.
    for _ in 0..50 {
        write(&other.at_primary, 1).await;
    }
    let db = Db::builder(&pair.primary.dsn()).replica(other.replica.dsn());
    let db = db.open().await.unwrap();
    cenote::scope(async {
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
        until("it was asked", async || db.replicas()[0].is_reachable).await;
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
    assert!(!db.replicas()[0].is_usable);
    is_used(&pair.open().await).await;
}
