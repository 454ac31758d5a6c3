//! Row streams of PostgreSQL: bounded, in and outside of transactions, and what their early end
//! does.

use std::future::poll_fn;

use cenote::Result;
use cenote::driver::{Batch, CommitOutcome, Request, Status};

use crate::servers::client::{Client, value};

const MANY: &str = "SELECT generate_series(1, 5000000) AS n, repeat('x', 100)";

async fn start(client: &mut Client, sql: &str) -> usize {
    let started = client.connection.start_stream(Request::new(sql, &[])).await;
    started.expect("a stream can be started").len()
}

async fn batch(client: &mut Client) -> Result<Option<Batch>> {
    poll_fn(|cx| client.connection.poll_batch(cx)).await
}

async fn first_row(client: &mut Client) -> i64 {
    let batch = batch(client).await.expect("there is no error");
    let row = batch.and_then(|batch| batch.into_rows().next());
    row.expect("there are rows").get(0).expect("it is a number")
}

#[tokio::test]
async fn break_after_few_of_many_rows_leaves_the_transaction_open() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    for batches in 0..4 {
        client.begin().await;
        client.must("INSERT INTO t VALUES (1)").await;
        assert_eq!(start(&mut client, MANY).await, 2);
        assert_eq!(client.connection.status(), Status::InTransaction);
        for _ in 0..batches {
            batch(&mut client).await.unwrap().unwrap();
        }
        client.connection.end_stream().await.unwrap();
        assert_eq!(client.connection.status(), Status::InTransaction);
        let cursors = client
            .get::<i64>("SELECT count(*) FROM pg_catalog.pg_cursors WHERE name = ''")
            .await;
        assert!(cursors <= 1, "its own, at most");
        let committed = client.connection.commit().await.unwrap();
        assert_eq!(committed, CommitOutcome::Committed);
    }
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 4);
}

/// A portal that stays open keeps its table from being dropped.
#[tokio::test]
async fn the_portal_of_a_stream_that_was_ended_is_closed() {
    let mut client = Client::in_own_schema().await;
    client
        .must("CREATE TABLE t AS SELECT generate_series(1, 100000) AS n")
        .await;
    client.begin().await;
    start(&mut client, "SELECT n FROM t").await;
    assert_eq!(first_row(&mut client).await, 1);
    client.connection.end_stream().await.unwrap();
    client.script("DROP TABLE t").await.unwrap();
    client.connection.commit().await.unwrap();
}

#[tokio::test]
async fn a_stream_in_a_transaction_gives_all_rows_in_portions() {
    let mut client = Client::new().await;
    let sql = "SELECT n FROM generate_series(1, 100000) AS n";
    for _ in 0..2 {
        client.begin().await;
        start(&mut client, sql).await;
        let mut next = 1_i64;
        while let Some(batch) = batch(&mut client).await.unwrap() {
            assert!(batch.len() <= 256);
            for row in batch {
                assert_eq!(row.get::<i64>(0).unwrap(), next);
                next += 1;
            }
        }
        assert_eq!(next, 100_001);
        client.connection.commit().await.unwrap();
    }
}

#[tokio::test]
async fn the_long_rest_of_a_stream_outside_a_transaction_is_cancelled() {
    let mut client = Client::new().await;
    for _ in 0..3 {
        start(&mut client, MANY).await;
        assert_eq!(first_row(&mut client).await, 1);
        client.connection.end_stream().await.unwrap();
        assert_eq!(client.connection.status(), Status::Idle);
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}

#[tokio::test]
async fn a_stream_that_writes_is_brought_to_its_end_and_not_undone() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int, name text)").await;
    let sql =
        "INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 50000) AS n RETURNING *";
    start(&mut client, sql).await;
    assert_eq!(first_row(&mut client).await, 1);
    client.connection.end_stream().await.unwrap();
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 50_000);
    // The end of the stream returns an error that comes after the rows read so far.
    let sql = "INSERT INTO t SELECT 100000 / (40000 - n), repeat('x', 100) FROM generate_series(1, 50000) AS n RETURNING *";
    start(&mut client, sql).await;
    let ended = match batch(&mut client).await {
        Ok(_) => client.connection.end_stream().await,
        Err(error) => Err(error),
    };
    assert_eq!(ended.unwrap_err().sql_state(), Some("22012"));
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 50_000);
}

/// The text of a query does not tell that a function of the application's own writes.
#[tokio::test]
async fn h21_what_a_streamed_function_writes_is_not_undone() {
    let dsn = crate::servers::client::own_schema(&crate::servers::dsn()).await;
    let db = cenote::Db::builder(&dsn).max(1).open().await.unwrap();
    db.exec("CREATE TABLE t (n int8)", ()).await.unwrap();
    db.exec(
        "CREATE FUNCTION pay(n int8) RETURNS int8 LANGUAGE sql AS \
         'INSERT INTO t VALUES (n) RETURNING n'",
        (),
    )
    .await
    .unwrap();
    let sql = "SELECT pay(n), repeat('x', 1000) FROM generate_series(1, 20000) AS n";
    for round in 1..=2 {
        let mut rows = db.stream(sql, ()).await.unwrap();
        let first = rows.try_next().await.unwrap().unwrap();
        assert_eq!(first.get::<i64>(0).unwrap(), 1);
        drop(rows);
        let paid: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
        assert_eq!(paid, 20_000 * round);
    }
    let mut client = Client::open(&dsn).await;
    start(&mut client, sql).await;
    assert_eq!(first_row(&mut client).await, 1);
    client.connection.end_stream().await.unwrap();
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 60_000);
}

#[tokio::test]
async fn h21_a_rest_that_takes_too_long_costs_the_connection() {
    let dsn = crate::servers::client::own_schema(&crate::servers::dsn()).await;
    let limit = std::time::Duration::from_millis(50);
    let builder = cenote::Db::builder(&dsn).max(1).cleanup_timeout(limit);
    let db = builder.open().await.unwrap();
    db.exec(
        "CREATE FUNCTION slow(n int) RETURNS int LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(n / 1000); RETURN n; END'",
        (),
    )
    .await
    .unwrap();
    let pid = async || db.query_as_one::<i32>(crate::servers::SESSION_ID, ()).await;
    let before = pid().await.unwrap();
    let sql = "SELECT slow(n), repeat('x', 1000) FROM generate_series(1, 20000) AS n";
    let mut rows = db.stream(sql, ()).await.unwrap();
    rows.try_next().await.unwrap().unwrap();
    drop(rows);
    assert_ne!(pid().await.unwrap(), before);
}

/// What the grammar knows and the catalogue does not.
const SPECIAL_FORMS: [&str; 13] = [
    "coalesce",
    "greatest",
    "grouping",
    "least",
    "nullif",
    "trim",
    "xmlconcat",
    "xmlelement",
    "xmlforest",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
];

/// Volatile, and yet they change nothing.
const VOLATILE: [&str; 21] = [
    "clock_timestamp",
    "currval",
    "gen_random_uuid",
    "lastval",
    "pg_blocking_pids",
    "pg_current_wal_lsn",
    "pg_database_size",
    "pg_indexes_size",
    "pg_is_in_recovery",
    "pg_last_wal_receive_lsn",
    "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp",
    "pg_relation_size",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
    "random",
    "timeofday",
];

#[tokio::test]
async fn h21_known_functions_are_the_servers_own_and_change_nothing() {
    let db = cenote::Db::open(&crate::servers::dsn()).await.unwrap();
    let volatile: Vec<(String, bool)> = db
        .query_as(
            "SELECT proname::text, bool_or(provolatile = 'v') FROM pg_proc \
             WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 1",
            (),
        )
        .await
        .unwrap();
    let volatile: std::collections::HashMap<_, _> = volatile.into_iter().collect();
    let known = cenote::sql::Dialect::POSTGRES.known_functions[0];
    assert!(known.len() > 300);
    for name in known {
        match volatile.get(*name) {
            None => assert!(SPECIAL_FORMS.contains(name), "{name} is not the server's"),
            Some(true) => assert!(VOLATILE.contains(name), "{name} may change something"),
            Some(false) => {}
        }
    }
}

#[tokio::test]
async fn error_inside_a_stream_is_reported_and_the_status_is_known() {
    let mut client = Client::new().await;
    let sql = "SELECT 1 / (2000 - n) FROM generate_series(1, 5000) AS n";
    for in_transaction in [false, true] {
        if in_transaction {
            client.begin().await;
        }
        start(&mut client, sql).await;
        let mut rows = 0;
        let error = loop {
            match batch(&mut client).await {
                Ok(Some(batch)) => rows += batch.len(),
                Ok(None) => panic!("it cannot end well"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.sql_state(), Some("22012"));
        assert!(rows < 2000);
        let status = if in_transaction {
            Status::Failed
        } else {
            Status::Idle
        };
        assert_eq!(client.connection.status(), status);
        client.connection.end_stream().await.unwrap();
        client.connection.rollback().await.unwrap();
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}

/// While the rows are not taken, the server waits: nothing piles up here.
#[tokio::test]
async fn a_stream_that_is_not_read_keeps_the_server_waiting() {
    let mut client = Client::new().await;
    let mut observer = Client::new().await;
    let process = client.own().process_id();
    start(&mut client, MANY).await;
    first_row(&mut client).await;
    let sql = format!(
        "SELECT wait_event FROM pg_catalog.pg_stat_activity WHERE pid = {process} AND wait_event = 'ClientWrite'"
    );
    while observer.rows(&sql, &[]).await.is_empty() {
        tokio::task::yield_now().await;
    }
    client.connection.end_stream().await.unwrap();
}

#[tokio::test]
async fn a_call_during_a_stream_fails_and_names_the_stream() {
    let mut client = Client::new().await;
    start(&mut client, MANY).await;
    let error = client.run("SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.kind(), cenote::Kind::Busy);
    assert_eq!(first_row(&mut client).await, 1, "the stream goes on");
    client.connection.settle().await.unwrap();
    assert_eq!(client.get::<i32>("SELECT 7").await, 7);
}

#[tokio::test]
async fn stream_with_parameters_gives_the_same_rows_every_time() {
    let mut client = Client::new().await;
    let sql = "SELECT n, n::text, now() IS NOT NULL FROM generate_series(1, $1::int) AS n";
    for _ in 0..3 {
        let params = [value(1000)];
        let started = client
            .connection
            .start_stream(Request::new(sql, &params))
            .await;
        assert_eq!(started.unwrap().len(), 3);
        let mut sum = 0;
        while let Some(batch) = batch(&mut client).await.unwrap() {
            for row in batch {
                assert_eq!(
                    row.get::<i64>(0).unwrap().to_string(),
                    row.get::<&str>(1).unwrap()
                );
                sum += row.get::<i64>(0).unwrap();
            }
        }
        assert_eq!(sum, 500_500);
    }
}

#[tokio::test]
async fn stream_of_application_types_knows_them_before_the_first_row() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TYPE mood AS ENUM ('sad', 'ok')").await;
    for in_transaction in [false, true, false] {
        if in_transaction {
            client.begin().await;
        }
        start(&mut client, "SELECT ARRAY['ok']::mood[]").await;
        let rows = batch(&mut client).await.unwrap().unwrap().into_rows();
        let rows: Vec<Vec<String>> = rows.map(|row| row.get(0).unwrap()).collect();
        assert_eq!(rows, [["ok"]]);
        assert!(batch(&mut client).await.unwrap().is_none());
        client.connection.rollback().await.unwrap();
    }
}
