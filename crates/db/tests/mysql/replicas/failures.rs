//! The replica dies, hangs, or is promoted: reads go on, on the primary.

use std::time::Duration;

use cenote::{Db, Kind};

use super::{FOREVER, Pair, is_replica, is_used, read, write};
use crate::cluster::to_write;
use crate::servers::{dsn_at, free_port, soon, until};

const PROMOTE: &str = "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0";

#[tokio::test]
async fn reads_go_on_when_the_replica_is_killed() {
    let mut pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        write(&db, 1).await;
        until("the replica answers", async || {
            read(&db, 1).await == (1, true)
        })
        .await;
        pair.replica.crash().await;
        for _ in 0..10 {
            assert_eq!(read(&db, 1).await, (1, false));
        }
        let reading = db.reading();
        let options = reading.transaction_options().read_only();
        let run = options.run(async || Ok(is_replica(&db).await));
        assert!(!run.await.unwrap());
        until("it is known", async || !db.replicas()[0].is_reachable).await;
        pair.replica.start_again().await;
    })
    .await;
    is_used(&db).await;
}

#[tokio::test]
async fn read_leaves_a_replica_that_hangs() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    pair.replica.signal("STOP");
    let began = tokio::time::Instant::now();
    assert!(!soon("the primary answers", is_replica(&db.reading())).await);
    // The watcher asks every half second, and waits for a second.
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert!(!is_replica(&db.reading()).await);
    pair.replica.signal("CONT");
    is_used(&db).await;
}

#[tokio::test]
async fn promoted_replica_gets_no_reads() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        write(&db, 1).await;
        until("the replica answers", async || read(&db, 1).await.1).await;
        pair.at_replica.exec(PROMOTE, ()).await.unwrap();
        // It has a history of its own, where the numbers grow, too.
        for _ in 0..50 {
            write(&pair.at_replica, 2).await;
        }
        // The first read finds out by itself: it is no news of a watcher.
        assert_eq!(read(&db, 1).await, (1, false));
        assert_eq!(read(&db, 2).await, (0, false));
        write(&db, 1).await;
        assert_eq!(read(&db, 1).await, (2, false));
    })
    .await;
    until("it is known", async || !db.replicas()[0].is_standby).await;
    // Nor do its positions count for the old primary.
    let other = Db::builder(&pair.replica.dsn()).replica(pair.primary.dsn());
    let other = other.open().await.unwrap();
    let position = cenote::scope(async {
        write(&other, 1).await;
        other.position().unwrap()
    })
    .await;
    cenote::scope(async {
        db.read_after(position);
        assert_eq!(read(&db, 1).await, (2, false));
    })
    .await;
}

#[tokio::test]
async fn reads_follow_the_replica_of_a_promoted_primary() {
    let mut pair = Pair::start(&[]).await;
    let settings = crate::servers::MAKE.replicates;
    let other = pair.primary.start_standby(settings).await;
    let at_other = Db::open(&other.dsn()).await.unwrap();
    let dsn = to_write(&[pair.primary.port(), pair.replica.port()]);
    let db = Db::builder(&dsn)
        .replica(pair.replica.dsn())
        .replica(other.dsn());
    let db = db.open().await.unwrap();
    is_used(&db).await;
    cenote::scope(async {
        write(&db, 1).await;
        // Both have it, and the primary goes.
        crate::servers::catch_up(&pair.at_primary, &pair.at_replica).await;
        crate::servers::catch_up(&pair.at_primary, &at_other).await;
        pair.primary.crash().await;
        pair.at_replica.exec(PROMOTE, ()).await.unwrap();
        let follow = format!(
            "STOP SLAVE; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'cenote', \
             MASTER_PASSWORD = 'cenote-secret', MASTER_USE_GTID = slave_pos; START SLAVE",
            pair.replica.port()
        );
        at_other.exec(&follow, ()).await.unwrap();
        let sql = "UPDATE t SET n = 5 WHERE id = 1";
        until("writes are back", async || db.exec(sql, ()).await.is_ok()).await;
        let mut n = 5;
        until("the other one answers", async || {
            write(&db, 1).await;
            n += 1;
            let seen = read(&db, 1).await;
            assert_eq!(seen.0, n);
            seen.1
        })
        .await;
    })
    .await;
    // A watcher asks twice a second.
    until("it is known", async || {
        let status = db.replicas();
        !status[0].is_standby && !status[0].is_usable && status[1].is_usable
    })
    .await;
}

#[tokio::test]
async fn replica_that_was_never_there_costs_no_error() {
    let pair = Pair::start(&[]).await;
    let db = Db::builder(&pair.primary.dsn()).replica(dsn_at(free_port()));
    let db = db.open().await.unwrap();
    for _ in 0..20 {
        assert!(!is_replica(&db.reading()).await);
    }
}

#[tokio::test]
async fn user_without_privileges_reads_on_the_replica() {
    let pair = Pair::start(&[]).await;
    let make = "CREATE USER trusted@'%' IDENTIFIED BY 'trusted-secret'; GRANT SELECT, UPDATE ON cenote.t TO trusted@'%'";
    pair.at_primary.exec(make, ()).await.unwrap();
    pair.catch_up().await;
    let of = |dsn: String| {
        dsn.replace(
            "user=cenote;password=cenote-secret",
            "user=trusted;password=trusted-secret",
        )
    };
    let db = Db::builder(&of(pair.primary.dsn())).replica(of(pair.replica.dsn()));
    let db = db.open().await.unwrap();
    is_used(&db).await;
    cenote::scope(async {
        write(&db, 1).await;
        until("the replica answers", async || {
            read(&db, 1).await == (1, true)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn read_killed_on_the_replica_runs_on_the_primary() {
    let pair = Pair::start(&[]).await;
    let db = pair
        .open_with(|builder| builder.replica_wait(FOREVER))
        .await;
    let reading = db.reading();
    let sql =
        "SELECT COUNT(*), @@read_only FROM t a, t b, t c, t d WHERE a.n + b.n + c.n + d.n >= 0";
    let killing = async {
        let mut id = 0;
        until("the read runs on the replica", async || {
            let found = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT COUNT(*), @@read%'";
            let found: Vec<i64> = pair.at_replica.query_as(found, ()).await.unwrap();
            id = found.first().copied().unwrap_or_default();
            id > 0
        })
        .await;
        pair.at_replica
            .exec(&format!("KILL QUERY {id}"), ())
            .await
            .unwrap();
    };
    let long = reading.query_as_one::<(i64, bool)>(sql, ());
    let (seen, ()) = tokio::join!(long, killing);
    assert_eq!(seen.unwrap(), (100_000_000, false));
}

#[tokio::test]
async fn closed_handle_closes_its_replicas() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    assert!(db.replicas()[0].connections > 0);
    db.close().await.unwrap();
    assert_eq!(db.replicas()[0].connections, 0);
    let error = db.reading().query("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    until("all sessions have ended", async || {
        let others = "USER = 'cenote' AND ID <> CONNECTION_ID()";
        crate::servers::threads_where(&pair.at_replica, others).await == 0
    })
    .await;
}
