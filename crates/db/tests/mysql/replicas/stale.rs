//! Reads after writes, with a replica that stands still at times, and positions that are passed on.

use super::{FOREVER, Pair, is_replica, read, write};
use crate::servers::{replicas, threads_where, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_the_writes_of_their_coroutine() {
    replicas::reads_see_the_writes(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn read_waits_for_the_replica_that_is_late() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    // The applier has to wait for this lock.
    let holder = pair.at_replica.connection().await.unwrap();
    holder.exec("LOCK TABLES t READ", ()).await.unwrap();
    cenote::scope(async {
        write(&db, 1).await;
        let unlock = async {
            until("the applier waits", async || {
                let waits =
                    "USER = 'system user' AND STATE LIKE 'Waiting for table metadata lock%'";
                threads_where(&pair.at_replica, waits).await == 1
            })
            .await;
            holder.exec("UNLOCK TABLES", ()).await.unwrap();
        };
        let (seen, ()) = tokio::join!(read(&db, 1), unlock);
        assert_eq!(seen, (1, true));
    })
    .await;
}

#[tokio::test]
async fn read_behind_a_paused_replica_goes_to_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        // Nothing was written in this coroutine.
        assert!(read(&db, 1).await.1);
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (1, false));
        let child = db.clone();
        let child = cenote::spawn(async move { read(&child, 1).await });
        assert_eq!(child.await.unwrap(), (1, false));
    })
    .await;
    // Another coroutine needs nothing of this one.
    assert_eq!(cenote::scope(read(&db, 1)).await, (0, true));
}

#[tokio::test]
async fn replica_that_lags_too_far_gets_no_reads() {
    replicas::lagging_replica_gets_no_reads(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn position_is_passed_on_as_text() {
    replicas::text_of_a_position_is_enough(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn forged_positions_read_the_primary_at_once() {
    replicas::forged_positions_do_not_wait(&Pair::start(&[]).await).await;
}

#[tokio::test]
async fn write_of_nothing_covers_what_was_lost_before() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let insert = "INSERT INTO t SELECT 1000, 5 RETURNING id";
    let sql = "SELECT COUNT(*), @@read_only FROM t";
    cenote::scope(async {
        // This session's last transaction is from before the replay stands still.
        let earlier = db.connection().await.unwrap();
        let add = "UPDATE t SET n = n + 1 WHERE id = 1";
        earlier.exec(add, ()).await.unwrap();
        pair.catch_up().await;
        pair.pause().await;
        // Its position is unknown.
        let mut rows = db.stream(insert, ()).await.unwrap();
        while rows.try_next().await.unwrap().is_some() {}
        drop(rows);
        assert!(db.position().unwrap().is_unknown());
        let nothing = "UPDATE t SET n = 7 WHERE id = -1";
        earlier.exec(nothing, ()).await.unwrap();
        assert!(!db.position().unwrap().is_unknown());
        drop(earlier);
        let seen: (i64, bool) = db.reading().query_as_one(sql, ()).await.unwrap();
        assert_eq!(seen, (101, false));
    })
    .await;
    pair.resume().await;
    pair.catch_up().await;
    assert!(is_replica(&db.reading()).await);
}

#[tokio::test]
async fn definition_that_commits_a_transaction_is_seen() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        // The text of the program begins it, and a definition commits it.
        db.exec("BEGIN", ()).await.unwrap();
        write(&db, 1).await;
        db.exec("CREATE TABLE u (id BIGINT)", ()).await.unwrap();
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}

#[tokio::test]
async fn what_a_rollback_leaves_is_seen() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let make = "CREATE TABLE kept (id BIGINT) ENGINE = Aria";
    pair.at_primary.exec(make, ()).await.unwrap();
    let make =
        "CREATE PROCEDURE half() BEGIN INSERT INTO kept VALUES (2); COMMIT; START TRANSACTION; END";
    pair.at_primary.exec(make, ()).await.unwrap();
    pair.catch_up().await;
    pair.pause().await;
    let insert = "INSERT INTO kept VALUES (1)";
    let seen = async || {
        let sql = "SELECT COUNT(*), @@read_only FROM kept";
        let seen = db.reading().query_as_one::<(i64, bool)>(sql, ()).await;
        seen.unwrap()
    };
    cenote::scope(async {
        let tx = db.begin().await.unwrap();
        db.exec(insert, ()).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(seen().await, (1, false));
    })
    .await;
    cenote::scope(async {
        assert_eq!(seen().await, (0, true));
        db.exec("BEGIN", ()).await.unwrap();
        db.exec("CALL half()", ()).await.unwrap();
        db.exec("ROLLBACK", ()).await.unwrap();
        assert_eq!(seen().await, (2, false));
    })
    .await;
    cenote::scope(async {
        // It leaves a transaction open.
        db.exec("CALL half()", ()).await.unwrap();
        db.exec("ROLLBACK", ()).await.unwrap();
        assert_eq!(seen().await, (3, false));
    })
    .await;
    cenote::scope(async {
        // The end of the inner coroutine rolls back what the procedure has left open.
        cenote::scope(async { db.exec("CALL half()", ()).await.unwrap() }).await;
        assert_eq!(seen().await, (4, false));
    })
    .await;
}

#[tokio::test]
async fn commit_that_begins_the_next_transaction_has_a_position() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        let chain = "SET completion_type = 'CHAIN'";
        db.exec(chain, ()).await.unwrap();
        let tx = db.begin().await.unwrap();
        write(&db, 1).await;
        // Whether it counts as an error does not matter here.
        let _ = tx.commit().await;
        assert!(db.position().is_some());
    })
    .await;
}

#[tokio::test]
async fn distributed_transaction_is_seen() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.pause().await;
    cenote::scope(async {
        let session = db.connection().await.unwrap();
        session.exec("XA START 'x'", ()).await.unwrap();
        let add = "UPDATE t SET n = n + 1 WHERE id = 1";
        session.exec(add, ()).await.unwrap();
        session
            .exec("XA END 'x'; XA PREPARE 'x'", ())
            .await
            .unwrap();
        session.exec("XA COMMIT 'x'", ()).await.unwrap();
        drop(session);
        assert_eq!(read(&db, 1).await, (1, false));
    })
    .await;
}
