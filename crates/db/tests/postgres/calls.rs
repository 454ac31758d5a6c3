//! Call options, results and transaction options on a PostgreSQL server.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks of users are spawned like this"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::driver::Request;
use cenote::postgres::PostgresConnection;
use cenote::{CallOptions, Db, Error, Executor, Kind, Result};

use crate::servers::client::Client;
use crate::servers::{own_tables, until};

const TAGGED: CallOptions = CallOptions::new().tag("checkout");

async fn one_connection() -> Db {
    own_tables(|builder| builder.max(1)).await
}

/// Asks the only connection of a handle.
async fn ask<T>(db: &Db, question: impl Fn(&PostgresConnection) -> T) -> T {
    let mut lease = db.pool().unwrap().acquire().await.unwrap();
    let connection = lease.driver().as_any();
    question(connection.downcast_mut::<PostgresConnection>().unwrap())
}

async fn round_trips(db: &Db) -> u64 {
    ask(db, PostgresConnection::round_trips).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_function_serves_all_styles() -> Result<()> {
    async fn backend(db: impl Into<Executor<'_>>) -> Result<i32> {
        db.into().query_as_one("SELECT pg_backend_pid()", ()).await
    }
    let db = own_tables(|builder| builder.max(2)).await;
    tokio::spawn(async move {
        let mut connection = db.connection().await?;
        let own = backend(&connection).await?;
        assert_ne!(backend(&db).await?, own);
        assert_eq!(backend(connection.with(TAGGED)).await?, own);
        let tx = connection.begin().await?;
        assert_eq!(backend(&tx).await?, own);
        tx.commit().await
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn tag_is_in_the_statement_that_the_server_shows() -> Result<()> {
    let db = one_connection().await;
    let shown = "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid() AND ? = 1";
    for _ in 0..3 {
        let query: String = db.with(TAGGED).query_as_one(shown, (1,)).await?;
        assert!(query.starts_with("/* checkout */ SELECT query"), "{query}");
    }
    let sly = CallOptions::new().tag("*/ SELECT 1; /*");
    let query: String = db.with(sly).query_as_one(shown, (1,)).await?;
    assert!(
        query.starts_with("/* %2A/ SELECT 1%3B /%2A */ SELECT query"),
        "{query}"
    );
    let query: String = db.query_as_one(shown, (1,)).await?;
    assert!(query.starts_with("SELECT query"), "{query}");
    Ok(())
}

#[tokio::test]
async fn tag_moves_no_position_of_an_error() -> Result<()> {
    let db = one_connection().await;
    for sql in ["SELECT 'ö', ?::int, wrong", "SELECT wrong", "wrong"] {
        let params = &[7][..sql.matches('?').count()];
        let character = sql[..sql.find("wrong").unwrap()].chars().count() + 1;
        for executor in [
            Executor::from(&db),
            db.with(TAGGED),
            db.with(TAGGED.no_cache()),
        ] {
            let error = executor.query(sql, params).await.unwrap_err();
            assert_eq!(error.position(), Some(character), "{executor:?} {sql}");
        }
        let error = db.with(TAGGED).prepare(sql).await.unwrap_err();
        assert_eq!(error.position(), Some(character), "{sql}");
    }
    Ok(())
}

#[tokio::test]
async fn tag_is_part_of_the_cache_key_and_no_cache_keeps_nothing() -> Result<()> {
    let db = one_connection().await;
    let kept = || ask(&db, PostgresConnection::kept_statements);
    let sql = "SELECT ?::int + 1";
    db.with(CallOptions::new().no_cache())
        .query(sql, (1,))
        .await?;
    assert_eq!(kept().await, 0);
    for (n, executor) in [Executor::from(&db), db.with(TAGGED)]
        .into_iter()
        .enumerate()
    {
        for _ in 0..3 {
            assert_eq!(executor.query_as_one::<i32>(sql, (7,)).await?, 8);
        }
        assert_eq!(kept().await, n + 1);
    }
    db.with(TAGGED.no_cache()).query(sql, (1,)).await?;
    db.with(CallOptions::new().no_cache())
        .stream(sql, (1,))
        .await?
        .try_next()
        .await?;
    assert_eq!(kept().await, 2);
    Ok(())
}

#[tokio::test]
async fn timeout_of_a_call_cancels_it_on_the_server() -> Result<()> {
    let db = own_tables(|builder| builder.max(2)).await;
    let soon = CallOptions::new()
        .timeout(Duration::from_millis(50))
        .tag("too-slow");
    let late = db.with(soon).query("SELECT pg_sleep(600)", ()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout);
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE state = 'active' AND query LIKE '/* too-slow */%'";
    until("the server has cancelled it", async || {
        db.query_as_one::<i64>(sql, ()).await.unwrap() == 0
    })
    .await;
    let doomed = db
        .transaction(async || {
            let late = db.with(soon).exec("SELECT pg_sleep(600)", ()).await;
            assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout);
            db.exec("SELECT 1", ()).await
        })
        .await;
    assert_eq!(doomed.unwrap_err().kind(), Kind::Doomed);
    Ok(())
}

#[tokio::test]
async fn run_is_one_round_trip_and_knows_the_columns_of_no_rows() -> Result<()> {
    let db = one_connection().await;
    db.exec("CREATE TABLE note (id int8 PRIMARY KEY, text text)", ())
        .await?;
    let insert = "INSERT INTO note VALUES (?, ?) RETURNING id";
    let select = "SELECT id, text FROM note WHERE id = ?";
    for n in 1..=3_i64 {
        let before = round_trips(&db).await;
        let added = db.run(insert, (n, "a")).await?;
        assert_eq!((added.rows_affected, added.last_insert_id), (1, None));
        assert_eq!(added.into_rows()[0].get::<i64>("id")?, n);
        let none = db.run(select, (-n,)).await?;
        assert_eq!(none.columns()[1].type_name.as_deref(), Some("text"));
        assert!(none.into_rows().is_empty());
        assert_eq!(round_trips(&db).await, before + 2, "attempt {n}");
    }
    Ok(())
}

#[tokio::test]
async fn run_all_returns_each_result_of_a_script() -> Result<()> {
    let db = one_connection().await;
    db.exec("CREATE TYPE mood AS ENUM ('sad', 'happy')", ())
        .await?;
    db.exec("CREATE TABLE t (n int8, m mood)", ()).await?;
    let script = "INSERT INTO t VALUES (1, 'sad'), (2, 'happy');
                  SELECT n, m FROM t ORDER BY n;
                  SELECT n FROM t WHERE n > 2;
                  UPDATE t SET n = 3 WHERE n = 2";
    let all = db.run_all(script, ()).await?;
    let affected: Vec<_> = all.iter().map(|outcome| outcome.rows_affected).collect();
    assert_eq!(affected, [2, 0, 0, 1]);
    let columns: Vec<_> = all.iter().map(|outcome| outcome.columns().len()).collect();
    assert_eq!(columns, [0, 2, 1, 0]);
    let rows = all.into_iter().nth(1).unwrap().into_rows();
    assert_eq!(rows[1].get::<i64>("n")?, 2);
    assert_eq!(rows[1].get::<&str>("m")?, "happy");

    let failed = db
        .run_all("DELETE FROM t; SELECT 1 / 0; SELECT 2", ())
        .await;
    assert_eq!(failed.unwrap_err().sql_state(), Some("22012"));
    let left: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
    assert_eq!(left, 2, "PostgreSQL runs a script as one transaction");
    Ok(())
}

#[tokio::test]
async fn script_is_one_round_trip_for_all_of_its_results() {
    let mut client = Client::new().await;
    let before = client.round_trips();
    let mut request = Request::new("SELECT 1; SELECT 2, 3; SELECT 4 WHERE false", &[]);
    request.script = true;
    let all = client.connection.run_all(request).await.unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(client.round_trips(), before + 1);
}

#[tokio::test]
async fn run_all_reads_types_before_their_first_look_up() -> Result<()> {
    let db = one_connection().await;
    db.exec("CREATE TYPE mood AS ENUM ('sad', 'happy')", ())
        .await?;
    let script = "SELECT 'sad'::mood AS m; SELECT 1; SELECT 'happy'::mood AS m";
    let first = db.run_all(script, ()).await?;
    let again = db.run_all(script, ()).await?;
    assert_eq!(format!("{first:?}"), format!("{again:?}"));
    let last = again.into_iter().next_back().unwrap().into_rows();
    assert_eq!(last[0].get::<&str>("m")?, "happy");
    Ok(())
}

#[tokio::test]
async fn deferrable_transaction_is_serializable_and_read_only() -> Result<()> {
    let db = one_connection().await;
    let settings = "SELECT current_setting('transaction_isolation'),
                           current_setting('transaction_read_only'),
                           current_setting('transaction_deferrable')";
    let on = |of: &str| of.to_owned();
    let seen: (String, String, String) = db
        .transaction_options()
        .deferrable()
        .run(async || db.query_as_one(settings, ()).await)
        .await?;
    assert_eq!(seen, (on("serializable"), on("on"), on("on")));
    let mut connection = db.connection().await?;
    let tx = connection
        .transaction_options()
        .deferrable()
        .begin()
        .await?;
    let guarded: (String, String, String) = tx.query_as_one(settings, ()).await?;
    assert_eq!(guarded, seen);
    tx.commit().await
}

/// An error type that does not show what it was made from.
#[derive(Debug)]
struct Failure;

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Failure
    }
}

#[tokio::test]
async fn retry_repeats_with_an_error_type_of_the_caller() -> Result<()> {
    let db = one_connection().await;
    db.exec("CREATE TABLE t (n int8)", ()).await?;
    let fail = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$";
    let runs = AtomicUsize::new(0);
    let (runs, db) = (&runs, &db);
    for lazily in [false, true] {
        let mut options = db.transaction_options();
        if lazily {
            options = options.begin_lazily();
        }
        let done = options
            .retry(async move || {
                db.exec("INSERT INTO t VALUES (1)", ()).await?;
                if runs.fetch_add(1, Ordering::SeqCst) < 2 {
                    let _ = db.exec(fail, ()).await;
                    // The server refuses this one, and that is not what failed.
                    db.exec("INSERT INTO t VALUES (2)", ()).await?;
                }
                Ok::<_, Failure>(())
            })
            .await;
        done.unwrap();
        assert_eq!(runs.swap(0, Ordering::SeqCst), 3);
    }
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await?;
    assert_eq!(rows, [1, 1]);

    // What the closure has dealt with is no reason to repeat it.
    let done: Result<(), Failure> = db
        .transaction_options()
        .retry(async move || {
            runs.fetch_add(1, Ordering::SeqCst);
            let inner = db.transaction(async || db.exec(fail, ()).await).await;
            assert!(inner.unwrap_err().is_retryable());
            db.exec("SELECT 1", ()).await?;
            Err(Failure)
        })
        .await;
    done.unwrap_err();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    Ok(())
}

#[tokio::test]
async fn stream_as_reads_rows_in_portions() -> Result<()> {
    let db = one_connection().await;
    let sql = "SELECT n, n::text FROM generate_series(1, 3000) AS n";
    let mut rows = db.stream_as::<(i32, String)>(sql, ()).await?;
    let mut read = 0;
    while let Some((n, text)) = rows.try_next().await? {
        read += 1;
        assert_eq!((n, n.to_string()), (read, text));
    }
    assert_eq!(read, 3000);
    Ok(())
}

#[tokio::test]
async fn prepared_call_refuses_a_script_and_runs_nothing_of_it() -> Result<()> {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n int)", ()).await?;
    let prepared = db.with(CallOptions::new().prepared());
    let script = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)";
    let error = prepared.exec(script, ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    prepared.exec("INSERT INTO t VALUES (3)", ()).await?;
    let stored: Vec<i32> = prepared.query_scalar("SELECT n FROM t", ()).await?;
    assert_eq!(stored, [3]);
    Ok(())
}

#[tokio::test]
async fn text_values_are_what_the_server_writes() -> Result<()> {
    let dsn = format!("{};text_values=on", crate::servers::dsn());
    let db = Db::builder(&dsn).max(1).open().await?;
    let sql = "SELECT 1.5::float8, true, '{1,NULL}'::int[], '1 day 02:03'::interval, '\\x00ff'::bytea, \
               '2024-02-29 09:05+00'::timestamptz AT TIME ZONE 'UTC', 7::int8, NULL::int, ?::int";
    let wanted = [
        "1.5",
        "t",
        "{1,NULL}",
        "1 day 02:03:00",
        "\\x00ff",
        "2024-02-29 09:05:00",
        "7",
    ];
    // As a new statement and as a kept one.
    for _ in 0..3 {
        let row = db.query_one(sql, (9,)).await?;
        for (at, wanted) in wanted.iter().enumerate() {
            assert_eq!(row.raw(at)?.unwrap().bytes, wanted.as_bytes());
            assert_eq!(row.get::<&str>(at)?, *wanted);
        }
        assert!(row.raw(7)?.is_none());
        assert_eq!(row.get::<&str>(8)?, "9");
    }
    Ok(())
}
