//! Through PgBouncer. In transaction mode every transaction may be on another connection to the server, and nothing of a
//! session can be relied on.

use std::time::Duration;

use cenote::{Builder, Connection, Db, Error, Kind};
use tokio::task::JoinSet;

use crate::servers::{
    assert_whole, dsn, quiet, refused, refused_by, required_variable, soon, unique,
};

fn pgbouncer() -> String {
    required_variable("CENOTE_TEST_POSTGRES_PGBOUNCER")
}

/// As one has to: without a cache of statements.
fn builder() -> Builder {
    Db::builder(&pgbouncer()).statement_cache(0)
}

/// The databases, by the mode that each has.
const MODES: [&str; 3] = ["cenote", "session", "statement"];

fn in_mode(mode: &str) -> Builder {
    Db::builder(&pgbouncer()).option("dbname", mode)
}

/// A table that is nobody else's, and goes with the server.
async fn table(db: &Db) -> String {
    let table = unique("through_pgbouncer");
    let sql = format!("CREATE TABLE {table} (id int8 PRIMARY KEY, n int8)");
    db.exec(&sql, ()).await.unwrap();
    table
}

/// C-014
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cache_many_tasks_share_few_server_connections() {
    // PgBouncer has four connections to the server: most of these wait for one there.
    let db = builder().max(16).open().await.unwrap();
    let table = table(&db).await;
    let mut tasks = JoinSet::new();
    for id in 0..64_i64 {
        let (db, table) = (db.clone(), table.clone());
        tasks.spawn(cenote::scope(async move {
            let insert = format!("INSERT INTO {table} VALUES (?, ?)");
            let select = format!("SELECT n FROM {table} WHERE id = ?");
            db.exec(&insert, (id, id * 2)).await?;
            for _ in 0..5 {
                let n: i64 = db.query_as_one(&select, (id,)).await?;
                assert_eq!(n, id * 2);
            }
            db.transaction(async || {
                let update = format!("UPDATE {table} SET n = n + 1 WHERE id = ?");
                db.exec(&update, (id,)).await?;
                let n: i64 = db.query_as_one(&select, (id,)).await?;
                assert_eq!(n, id * 2 + 1);
                Ok(())
            })
            .await
        }));
    }
    soon("all tasks end", async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    })
    .await;
    let sql = format!("SELECT sum(n)::int8 FROM {table}");
    let sum: i64 = db.query_as_one(&sql, ()).await.unwrap();
    assert_eq!(sum, 64 * 63 + 64);
    assert_whole(&db).await;
}

#[tokio::test]
async fn statements_streams_and_batches_work_without_a_cache() {
    let db = builder().max(2).open().await.unwrap();
    let table = table(&db).await;
    let insert = format!("INSERT INTO {table} VALUES (?, ?)");
    let rows = (1..=500_i64).map(|id| (id, id));
    let inserted = db.exec_many(&insert, rows).await.unwrap();
    assert_eq!(inserted.rows_affected, 500);

    let select = format!("SELECT n FROM {table} WHERE id > ? ORDER BY id");
    let mut stream = db.stream(&select, (0_i64,)).await.unwrap();
    let mut seen = 0;
    while let Some(row) = soon("a row comes", stream.try_next()).await.unwrap() {
        seen += 1;
        assert_eq!(row.get::<i64>(0).unwrap(), seen);
    }
    assert_eq!(seen, 500);
    drop(stream);

    let inner = db.clone();
    cenote::scope(async {
        let tx = inner.begin().await?;
        let statement = inner.prepare(&select).await?;
        for from in [0_i64, 490] {
            let rows = statement.query((from,)).await?;
            assert_eq!(rows.len(), usize::try_from(500 - from).unwrap());
        }
        // The rest of a stream is left where it is; the transaction goes on.
        let mut stream = tx.stream(&select, (0_i64,)).await?;
        assert!(stream.try_next().await?.is_some());
        drop(stream);
        tx.exec(&format!("DELETE FROM {table} WHERE id > ?"), (10_i64,))
            .await?;
        drop(statement);
        tx.commit().await
    })
    .await
    .unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    let left: i64 = db.query_as_one(&sql, ()).await.unwrap();
    assert_eq!(left, 10);
    assert_whole(&db).await;
}

/// A transaction of another's sends this one to a connection of the server that does not have the
/// statement, sooner or later: in a transaction that cannot be put right behind the caller's back.
async fn crossed(one: &mut Connection, two: &mut Connection, sql: &str) -> Result<(), Error> {
    let busy = two.begin().await?;
    busy.exec("SELECT 1", ()).await?;
    let tx = one.begin().await?;
    tx.exec("SELECT 2", ()).await?;
    tx.query_as_one::<i64>(sql, (1_i64,)).await?;
    tx.rollback().await?;
    busy.rollback().await
}

/// C-014
#[tokio::test]
async fn with_a_cache_the_error_says_what_to_set() {
    let db = Db::builder(&pgbouncer()).max(2).open().await.unwrap();
    let sql = format!("SELECT ?::int8 + 1 AS {}", unique("column"));
    let mut one = db.connection().await.unwrap();
    let mut two = db.connection().await.unwrap();
    // It is kept on one of the server's connections.
    let n: i64 = one.query_as_one(&sql, (1_i64,)).await.unwrap();
    assert_eq!(n, 2);
    let error = soon("the error comes", async {
        loop {
            if let Err(error) = crossed(&mut one, &mut two, &sql).await {
                return error;
            }
        }
    })
    .await;
    let state = error.sql_state().unwrap_or_default();
    assert!(["26000", "42P05"].contains(&state), "{error:?}");
    assert!(error.to_string().contains("statement_cache"), "{error}");
    assert!(error.to_string().contains("PgBouncer"), "{error}");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_through_it() {
    for mode in MODES {
        is_cancelled(mode).await;
    }
}

async fn is_cancelled(mode: &str) {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = in_mode(mode)
        .statement_cache(0)
        .max(1)
        .cleanup_timeout(Duration::from_secs(5))
        .open()
        .await
        .unwrap();
    let mark = unique("dropped");
    let sql = format!("SELECT pg_sleep(600) AS {mark}");
    let count = "SELECT count(*) FROM pg_stat_activity \
                 WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%' || ? || '%'";
    let caller = db.clone();
    let task = cenote::spawn(async move {
        caller.query(&sql, ()).await?;
        Ok::<(), Error>(())
    });
    crate::servers::until("it runs", async || {
        let running: i64 = admin.query_as_one(count, (&*mark,)).await.unwrap();
        running == 1
    })
    .await;
    task.abort();
    quiet(&db).await;
    crate::servers::until("it runs no more", async || {
        let running: i64 = admin.query_as_one(count, (&*mark,)).await.unwrap();
        running == 0
    })
    .await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn what_pgbouncer_refuses_fails_the_connect() {
    for mode in MODES {
        let error = refused_by(in_mode(mode).option("search_path", "public")).await;
        assert_eq!(error.kind(), Kind::Connect, "{mode}");
        assert_eq!(error.sql_state(), Some("08P01"), "{mode}: {error:?}");
        assert!(error.message().contains("search_path"), "{error}");
    }
    // It has no other SQLSTATE for whatever is wrong.
    let error = refused(&pgbouncer().replace("cenote-secret", "wrong")).await;
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Connect, Some("08P01"))
    );
    assert!(!error.to_string().contains("wrong"), "{error}");
}

#[tokio::test]
async fn batches_work_without_a_cache() {
    let db = builder().max(2).open().await.unwrap();
    let table = table(&db).await;
    let insert = format!("INSERT INTO {table} VALUES (?, ?)");
    let select = format!("SELECT n FROM {table} WHERE id = ?");
    for round in 0..10_i64 {
        let mut batch = db.batch();
        batch.exec(&insert, (round, round));
        let twice = batch.exec(&insert, (round, round));
        let read = batch.query_scalar_one::<i64>(&select, (round,));
        let mut results = batch.run().await.unwrap();
        assert!(results.take(twice).unwrap_err().is_unique_violation());
        assert_eq!(results.take(read).unwrap(), round);
        results.check().unwrap();
    }
}

#[tokio::test]
async fn session_mode_needs_no_setting() {
    let db = in_mode("session").max(2).open().await.unwrap();
    let table = table(&db).await;
    let insert = format!("INSERT INTO {table} VALUES (?, ?)");
    let rows = (1..=100_i64).map(|id| (id, id));
    db.exec_many(&insert, rows).await.unwrap();
    let select = format!("SELECT sum(n)::int8 FROM {table} WHERE id <= ?");
    // Both connections keep the statement, and each use of it finds its own.
    for id in 0..20_i64 {
        let (one, two) = tokio::join!(
            db.query_as_one::<Option<i64>>(&select, (id,)),
            db.query_as_one::<Option<i64>>(&select, (id,))
        );
        let sum = (id > 0).then_some(id * (id + 1) / 2);
        assert_eq!((one.unwrap(), two.unwrap()), (sum, sum));
    }
    cenote::scope(async {
        db.exec("SET application_name = 'a session of its own'", ())
            .await?;
        db.exec("CREATE TEMPORARY TABLE kept (n int8)", ()).await?;
        db.exec("INSERT INTO kept VALUES (1)", ()).await?;
        let name = "SELECT current_setting('application_name')";
        let name: String = db.query_as_one(name, ()).await?;
        assert_eq!(name, "a session of its own");
        let lock = "SELECT pg_try_advisory_lock(1), pg_advisory_unlock(1)";
        let (taken, freed): (bool, bool) = db.query_as_one(lock, ()).await?;
        assert!(taken && freed);
        db.query_as_one::<i64>("SELECT n FROM kept", ()).await
    })
    .await
    .unwrap();
    assert_whole(&db).await;
    // The next task sees nothing of it.
    let left = db.query_as_one::<i64>("SELECT n FROM kept", ()).await;
    assert_eq!(left.unwrap_err().sql_state(), Some("42P01"));
}

#[tokio::test]
async fn statement_mode_runs_single_statements_only() {
    let db = in_mode("statement")
        .statement_cache(0)
        .max(2)
        .open()
        .await
        .unwrap();
    let table = table(&db).await;
    let insert = format!("INSERT INTO {table} VALUES (?, ?)");
    for id in 1..=10_i64 {
        db.exec(&insert, (id, id)).await.unwrap();
    }
    let select = format!("SELECT n FROM {table} WHERE id > ? ORDER BY id");
    let mut stream = db.stream(&select, (0_i64,)).await.unwrap();
    let mut seen = 0;
    while let Some(row) = soon("a row comes", stream.try_next()).await.unwrap() {
        seen += row.get::<i64>(0).unwrap();
    }
    assert_eq!(seen, 55);
    drop(stream);
    // PgBouncer refuses to begin one.
    let run = async || db.exec(&insert, (11_i64, 11_i64)).await.map(drop);
    let refused = db.transaction(run).await.unwrap_err();
    assert!(
        refused.to_string().contains("statement pooling"),
        "{refused}"
    );
    let many = db.exec_many(&insert, [(12_i64, 12_i64), (13, 13)]).await;
    assert_eq!(many.unwrap().rows_affected, 2, "in one round trip");
    let count = format!("SELECT count(*) FROM {table}");
    let count: i64 = db.query_as_one(&count, ()).await.unwrap();
    assert_eq!(count, 12);
    assert_whole(&db).await;
}
