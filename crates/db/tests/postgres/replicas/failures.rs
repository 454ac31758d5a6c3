//! The replica refuses, hangs, dies or is promoted: reads go on, on the primary.

use std::time::Duration;

use cenote::{CallOptions, Db, Kind};

use super::{FOREVER, IS_REPLICA, Pair, is_replica, is_used, read, write};
use crate::servers::own::send;
use crate::servers::scripted::Scripted;
use crate::servers::{WHO, free_port, soon, until};

/// Takes long, and holds a lock on `t` meanwhile.
const LONG: &str =
    "SELECT count(*), pg_is_in_recovery() FROM t, generate_series(1, 200000) s GROUP BY 2";

/// Waits until the replica runs that.
async fn is_running(pair: &Pair) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count(*), pg_is%'";
    until("the read runs on the replica", async || {
        pair.at_replica
            .query_scalar_one::<i64>(sql, ())
            .await
            .unwrap()
            == 1
    })
    .await;
}

#[tokio::test]
async fn recovery_conflict_repeats_the_read_on_the_primary() {
    let pair = Pair::start(&["max_standby_streaming_delay=0", "hot_standby_feedback=off"]).await;
    let db = pair.open().await;
    let reading = db.reading();
    let conflict = async {
        is_running(&pair).await;
        // The replica has to take the same lock.
        let lock = "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; COMMIT";
        pair.at_primary.exec(lock, ()).await.unwrap();
    };
    let long = reading.query_as_one::<(i64, bool)>(LONG, ());
    let (seen, ()) = soon("both end", async { tokio::join!(long, conflict) }).await;
    assert_eq!(seen.unwrap(), (20_000_000, false));
    is_used(&db).await;
}

#[tokio::test]
async fn retried_transaction_moves_to_the_primary() {
    let pair = Pair::start(&["max_standby_streaming_delay=0", "hot_standby_feedback=off"]).await;
    let db = pair.open().await;
    let reading = db.reading();
    let conflict = async {
        is_running(&pair).await;
        let lock = "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; COMMIT";
        pair.at_primary.exec(lock, ()).await.unwrap();
    };
    let long = reading
        .transaction_options()
        .read_only()
        .retry(async || db.query_as_one::<(i64, bool)>(LONG, ()).await);
    let (seen, ()) = soon("both end", async { tokio::join!(long, conflict) }).await;
    assert_eq!(seen.unwrap(), (20_000_000, false));
}

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
    let sql = "SELECT pid::int8 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let backends: Vec<i64> = pair.at_replica.query_scalar(sql, ()).await.unwrap();
    pair.replica.signal("STOP");
    for backend in &backends {
        send("STOP", &backend.to_string());
    }
    // A time limit ends it earlier, and the primary has the same limit again.
    let (reading, limit) = (db.reading(), Duration::from_millis(300));
    let limited = reading.with(CallOptions::new().timeout(limit));
    let is_replica_in_time = limited.query_scalar_one::<bool>(IS_REPLICA, ());
    assert!(
        !soon("the primary answers in time", is_replica_in_time)
            .await
            .unwrap()
    );
    let began = tokio::time::Instant::now();
    assert!(!soon("the primary answers", is_replica(&db.reading())).await);
    // The watcher asks every half second, and waits for a second.
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert!(!is_replica(&db.reading()).await);
    for backend in &backends {
        send("CONT", &backend.to_string());
    }
    pair.replica.signal("CONT");
    is_used(&db).await;
}

#[tokio::test]
async fn promoted_replica_gets_no_reads() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let promote = "SELECT pg_promote(true)";
    cenote::scope(async {
        write(&db, 1).await;
        until("the replica answers", async || read(&db, 1).await.1).await;
        assert!(
            pair.at_replica
                .query_scalar_one::<bool>(promote, ())
                .await
                .unwrap()
        );
        // It has a history of its own, where the positions grow, too.
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
    let other = Db::builder(&pair.replica.dsn())
        .replica(pair.primary.dsn())
        .open()
        .await
        .unwrap();
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
    let other = pair.primary.start_standby(&[]).await;
    let at_other = Db::open(&other.dsn()).await.unwrap();
    let hosts = [pair.primary.port(), pair.replica.port()].map(|port| port.to_string());
    let dsn = format!(
        "pgsql:host=127.0.0.1,127.0.0.1;port={};{WHO};sslmode=disable;target_session_attrs=read-write",
        hosts.join(",")
    );
    let db = Db::builder(&dsn)
        .replica(pair.replica.dsn())
        .replica(other.dsn());
    let db = db.open().await.unwrap();
    is_used(&db).await;
    cenote::scope(async {
        write(&db, 1).await;
        // Both have it, and the primary goes.
        let has = "SELECT n = 1 FROM t WHERE id = 1";
        until("both have it", async || {
            let at = async |db: &Db| db.query_scalar_one::<bool>(has, ()).await.unwrap();
            at(&pair.at_replica).await && at(&at_other).await
        })
        .await;
        pair.primary.crash().await;
        let promote = "SELECT pg_promote(true)";
        assert!(
            pair.at_replica
                .query_scalar_one::<bool>(promote, ())
                .await
                .unwrap()
        );
        let (sockets, port) = (crate::servers::sockets(), pair.replica.port());
        let follow =
            format!("ALTER SYSTEM SET primary_conninfo = 'host={sockets} port={port} user=cenote'");
        at_other.exec(&follow, ()).await.unwrap();
        at_other.query("SELECT pg_reload_conf()", ()).await.unwrap();
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
    let dsn = crate::servers::dsn_at(free_port());
    let db = Db::builder(&pair.primary.dsn())
        .replica(dsn)
        .open()
        .await
        .unwrap();
    for _ in 0..20 {
        assert!(!is_replica(&db.reading()).await);
    }
}

/// A handle of a user who may do nothing but use the table.
async fn open_unprivileged(pair: &Pair) -> Db {
    let grant = "GRANT ALL ON t TO trusted";
    pair.at_primary.exec(grant, ()).await.unwrap();
    let of = |port: u16| {
        format!("pgsql:host=127.0.0.1;port={port};dbname=cenote;user=trusted;sslmode=disable")
    };
    let db = Db::builder(&of(pair.primary.port())).replica(of(pair.replica.port()));
    db.open().await.unwrap()
}

#[tokio::test]
async fn user_without_privileges_reads_on_the_replica() {
    let pair = Pair::start(&[]).await;
    let db = open_unprivileged(&pair).await;
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
async fn position_that_is_refused_concerns_no_commit() {
    let pair = Pair::start(&[]).await;
    let db = open_unprivileged(&pair).await;
    is_used(&db).await;
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_current_wal_insert_lsn() FROM PUBLIC";
    pair.at_primary.exec(revoke, ()).await.unwrap();
    cenote::scope(async {
        write(&db, 1).await;
        assert!(db.position().unwrap().is_unknown());
        assert_eq!(read(&db, 1).await, (1, false));
        let twice = async || {
            write(&db, 1).await;
            Ok(())
        };
        db.transaction(twice).await.unwrap();
        assert_eq!(read(&db, 1).await, (2, false));
    })
    .await;
    assert!(is_replica(&db.reading()).await);
}

#[tokio::test]
async fn closed_handle_closes_its_replicas() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    assert!(db.replicas()[0].connections > 0);
    db.close().await.unwrap();
    assert_eq!(db.replicas()[0].connections, 0);
    let error = db.reading().query(IS_REPLICA, ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    until("all sessions have ended", async || {
        pair.at_replica
            .query_scalar_one::<i64>(sql, ())
            .await
            .unwrap()
            == 1
    })
    .await;
}

#[tokio::test]
async fn position_that_is_late_fails_no_write() {
    let server = Scripted::new(|mut client| async move {
        client.let_in().await;
        // It answers the call, and not the query for the position behind it.
        let is_position = |sql: &str| sql.contains("pg_current_wal_insert_lsn");
        client.converse_until(is_position).await;
    })
    .await;
    // Shorter than the wait for the position.
    let limit = Duration::from_millis(400);
    let builder = Db::builder(&server.dsn()).replica(server.dsn());
    let db = builder.statement_timeout(limit).open().await.unwrap();
    let sql = "UPDATE t SET n = 1";
    cenote::scope(async {
        db.exec(sql, ()).await.unwrap();
        assert!(db.position().unwrap().is_unknown());
        let in_transaction = async || db.exec(sql, ()).await.map(drop);
        db.transaction(in_transaction).await.unwrap();
        assert!(db.position().unwrap().is_unknown());
        let tx = db.begin().await.unwrap();
        db.exec(sql, ()).await.unwrap();
        tx.commit().await.unwrap();
        assert!(db.peek().is_none());
    })
    .await;
}

#[tokio::test]
async fn read_of_a_replica_that_is_late_does_not_wait_for_its_rows() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    cenote::scope(async {
        // The replay has taken a lock on the table, and stands still before the end of its transaction.
        let tx = pair.at_primary.begin().await.unwrap();
        let lock = "LOCK TABLE t IN ACCESS EXCLUSIVE MODE; SELECT pg_switch_wal()";
        tx.exec(lock, ()).await.unwrap();
        pair.catch_up().await;
        pair.pause().await;
        tx.commit().await.unwrap();
        write(&db, 1).await;
        let seen = soon("the primary answers", read(&db, 1)).await;
        assert_eq!(seen, (1, false));
    })
    .await;
}

#[tokio::test]
async fn dropped_close_closes_the_connections_to_the_replica() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    assert!(db.replicas()[0].connections > 0);
    let held = db.connection().await.unwrap();
    {
        let mut closing = std::pin::pin!(db.close_and_drain(FOREVER));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(closing.as_mut().poll(cx)));
        assert!(polled.await.is_pending());
    }
    until("they are closed", async || {
        db.replicas()[0].connections == 0
    })
    .await;
    drop(held);
}

#[tokio::test]
async fn close_and_drain_waits_for_what_runs_on_the_replica() {
    let pair = Pair::start(&[]).await;
    let db = pair.open().await;
    let reading = db.reading();
    cenote::scope(async {
        let tx = reading.transaction_options().read_only();
        let tx = tx.begin().await.unwrap();
        assert!(is_replica(&db).await);
        let left = db
            .close_and_drain(Duration::from_millis(1))
            .await
            .unwrap_err();
        assert!(
            left.to_string().contains("1 connection was still in use"),
            "{left}"
        );
        let draining = db.close_and_drain(FOREVER);
        let (drained, ended) =
            soon("both end", async { tokio::join!(draining, tx.commit()) }).await;
        drained.unwrap();
        ended.unwrap();
    })
    .await;
}
