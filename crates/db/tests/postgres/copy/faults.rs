//! Copies on bad networks, on killed backends, and through PgBouncer.

use std::time::Duration;

use cenote::{Db, Kind, Result};
use cenote_testkit::proxy::{CutAfter, Direction, Network};

use super::{CSV_IN, count, db_with, megabyte, read_all};
use crate::servers::network::{choppy, dsn_through, narrow, proxy_with};
use crate::servers::{
    assert_killed, assert_whole, dsn, kill, own_tables_at, required_variable, soon, unique,
};

const MANY: &str = "COPY (SELECT n, repeat('x', 100) FROM generate_series(1, 1000000) n) TO STDOUT";

async fn space(db: &Db) -> String {
    let space = db.query_scalar_one("SELECT current_schema()::text", ());
    space.await.unwrap()
}

/// The backend that copies into the table `t` of this schema.
async fn pid_of_copy(admin: &Db, space: &str) -> i64 {
    let sql = format!(
        "SELECT a.pid::int8 FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE l.relation = '{space}.t'::regclass AND a.query LIKE 'COPY%' AND a.state = 'active'"
    );
    admin.query_scalar_one(&sql, ()).await.unwrap()
}

#[tokio::test]
async fn killed_backend_fails_a_copy_with_the_servers_reason() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = db_with(|builder| builder.max(2)).await;
    let space = space(&db).await;
    let mut copy = db.copy_in(CSV_IN).await.unwrap();
    copy.send(megabyte(0).0).await.unwrap();
    kill(&admin, pid_of_copy(&admin, &space).await).await;
    let error = soon("the loss is noticed", async {
        loop {
            if let Err(error) = copy.send(megabyte(100_000).0).await {
                break error;
            }
        }
    })
    .await;
    assert_killed(&error);
    assert_killed(&copy.finish().await.unwrap_err());
    assert_eq!(count(&db).await, 0);

    let mut out = db.copy_out(MANY).await.unwrap();
    out.try_next().await.unwrap();
    let sql = "SELECT pid::int8 FROM pg_stat_activity WHERE query = ? AND state = 'active'";
    let pid: i64 = admin.query_scalar_one(sql, (MANY,)).await.unwrap();
    kill(&admin, pid).await;
    let error = soon("the loss is noticed", async {
        loop {
            match out.try_next().await {
                Ok(piece) => assert!(piece.is_some(), "it ends as if it were complete"),
                Err(error) => break error,
            }
        }
    })
    .await;
    assert!(error.is_connection_lost(), "{error}");
    assert_whole(&db).await;
}

#[tokio::test]
async fn killed_backend_loses_the_transaction_of_a_copy() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = db_with(|builder| builder.max(2)).await;
    let space = space(&db).await;
    let done: Result<()> = db
        .transaction(async || {
            let mut copy = db.copy_in(CSV_IN).await?;
            copy.send("1,a\n").await?;
            kill(&admin, pid_of_copy(&admin, &space).await).await;
            let error = copy.finish().await.unwrap_err();
            assert_killed(&error);
            let later = db.query("SELECT 1", ()).await.unwrap_err();
            assert_eq!(later.kind(), Kind::TransactionLost, "{later}");
            Ok(())
        })
        .await;
    assert!(done.unwrap_err().is_connection_lost());
    assert_eq!(count(&db).await, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn copies_work_on_a_choppy_and_a_narrow_network() {
    for network in [choppy(7), narrow(4_000_000)] {
        let proxy = proxy_with(Network::ideal()).await;
        let db = own_tables_at(&dsn_through(&proxy), |builder| builder.max(1)).await;
        db.exec("CREATE TABLE t (id int8 PRIMARY KEY, name text)", ())
            .await
            .unwrap();
        proxy.set(network);
        let rows = (0..500_i64).map(|id| (id, "some text"));
        let copied = db.copy_in_rows("t", &["id", "name"], rows);
        assert_eq!(soon("the rows", copied).await.unwrap(), 500);
        let out = db.copy_out("COPY t TO STDOUT").await.unwrap();
        let read = soon("the data", read_all(out)).await.unwrap();
        assert_eq!(read.lines().count(), 500);
        // An error of the server in the middle, while much is on its way.
        let rows = (0..30_000_i64).map(|id| (id, "some text"));
        let failed = soon("the error", db.copy_in_rows("t", &["id", "name"], rows)).await;
        let failed = failed.unwrap_err();
        assert!(failed.is_unique_violation(), "{failed}");
        assert_eq!(failed.row(), Some(0));
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn connection_that_is_cut_anywhere_fails_the_copy() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = own_tables_at(&dsn_through(&proxy), |builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (id int8 PRIMARY KEY, name text)", ())
        .await
        .unwrap();
    let mut stored = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for n in 0..12_u64 {
            let bytes = match direction {
                Direction::ToServer => 300 + n * n * 9_000,
                Direction::ToClient => 300 + n * 15,
            };
            proxy.set(Network {
                cut_after: Some(CutAfter { direction, bytes }),
                ..Network::ideal()
            });
            db.replace_all();
            let rows = (0..8_000_i64).map(|id| (id, "a text that takes some room in the buffers"));
            let copied = soon("the copy", db.copy_in_rows("t", &["id", "name"], rows)).await;
            proxy.heal();
            db.replace_all();
            let found = soon("the next call", count(&db)).await;
            match copied {
                Ok(rows) => assert_eq!((rows, found), (8_000, 8_000)),
                Err(error) => {
                    let is_lost = error.is_connection_lost() || error.kind() == Kind::Connect;
                    assert!(is_lost, "{error}");
                    assert!(found == 0 || found == 8_000, "{found}");
                }
            }
            stored += found;
            db.exec("TRUNCATE t", ()).await.unwrap();
        }
    }
    assert!(stored > 0, "some got through");
    assert_whole(&db).await;
}

#[tokio::test]
async fn silent_network_ends_a_copy_by_its_limit() {
    let proxy = proxy_with(Network::ideal()).await;
    let limit = Duration::from_millis(200);
    let db = own_tables_at(&dsn_through(&proxy), |builder| {
        builder
            .max(1)
            .statement_timeout(limit)
            .cleanup_timeout(limit)
    })
    .await;
    db.exec("CREATE TABLE t (id int8 PRIMARY KEY, name text)", ())
        .await
        .unwrap();
    let mut copy = db.copy_in(CSV_IN).await.unwrap();
    proxy.set(crate::servers::network::silent());
    let error = soon("the limit", async {
        loop {
            if let Err(error) = copy.send(megabyte(0).0).await {
                break error;
            }
        }
    })
    .await;
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
    drop(copy);
    crate::servers::quiet(&db).await;
    assert_eq!(db.status().total, 0, "it could not be settled");
    proxy.heal();
    assert_whole(&db).await;
}

#[tokio::test]
async fn copies_work_through_pgbouncer() {
    let dsn = required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER");
    let db = Db::builder(&dsn)
        .statement_cache(0)
        .max(4)
        .open()
        .await
        .unwrap();
    let table = unique("copied_through_pgbouncer");
    let sql = format!("CREATE TABLE {table} (id int8 PRIMARY KEY, name text)");
    db.exec(&sql, ()).await.unwrap();
    let copy_in = format!("COPY {table} FROM STDIN (FORMAT csv)");
    let copy_out = format!("COPY {table} TO STDOUT");
    let count = format!("SELECT count(*) FROM {table}");
    let stored = async || db.query_scalar_one::<i64>(&count, ()).await.unwrap();
    let rows = (0..20_000_i64).map(|id| (id, "some text"));
    let copied = db.copy_in_rows(&table, &["id", "name"], rows);
    assert_eq!(soon("the rows", copied).await.unwrap(), 20_000);
    let out = db.copy_out(&copy_out).await.unwrap();
    assert_eq!(read_all(out).await.unwrap().lines().count(), 20_000);
    for round in 0..30_i64 {
        // The data is complete before the server fails: PgBouncer 1.18 loses its place, or crashes, if the server fails
        // while data is on its way.
        let mut copy = db.copy_in(&copy_in).await.unwrap();
        let failed = soon("the error", async {
            copy.send("1,a\n").await?;
            copy.finish().await
        })
        .await;
        assert!(failed.unwrap_err().is_unique_violation());
        let answer: i64 = soon(
            "the next call",
            db.query_scalar_one("SELECT ?::int8", (round,)),
        )
        .await
        .unwrap();
        assert_eq!(answer, round);
        // Copies that are dropped.
        let mut copy = db.copy_in(&copy_in).await.unwrap();
        copy.send("-3,c\n").await.unwrap();
        drop(copy);
        let mut out = db.copy_out(&copy_out).await.unwrap();
        out.try_next().await.unwrap();
        drop(out);
        assert_eq!(soon("the next call", stored()).await, 20_000);
    }
    db.transaction(async || {
        assert_eq!(db.copy_in_rows(&table, &["id"], [-1]).await?, 1);
        let mut copy = db.copy_in(&copy_in).await?;
        copy.send("-2,x\n").await?;
        copy.finish().await
    })
    .await
    .unwrap();
    assert_eq!(stored().await, 20_002);
    assert_whole(&db).await;
}
