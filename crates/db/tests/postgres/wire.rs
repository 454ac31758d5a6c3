//! How PostgreSQL is spoken to: how many round trips a call takes, and what is too large, too
//! much or of another kind than a call can handle.

use cenote::Kind;
use cenote::driver::{Begin, Param, Request, Status};
use cenote::postgres::param;

use crate::servers::client::{Client, value};
use crate::servers::dsn;

const ADD: &str = "SELECT $1::int + 1";

#[tokio::test]
async fn first_and_later_executions_take_one_round_trip_each() {
    for cache in [16, 0] {
        let mut client = Client::with_cache(&dsn(), cache).await;
        for n in 1..=3 {
            let before = client.round_trips();
            let rows = client.rows(ADD, &[value(n)]).await;
            assert_eq!(rows[0].get::<i64>(0).unwrap(), n + 1);
            assert_eq!(client.round_trips() - before, 1, "cache {cache}, run {n}");
        }
    }
}

#[tokio::test]
async fn value_without_a_text_form_takes_one_more_first_round_trip() {
    let mut client = Client::new().await;
    let sql = "SELECT array_length($1::int[], 1)";
    for trips in [2, 1, 1] {
        let before = client.round_trips();
        let params = [Param::Native(param(vec![1_i32, 2, 3]))];
        assert_eq!(client.rows(sql, &params).await[0].get::<i32>(0).unwrap(), 3);
        assert_eq!(client.round_trips() - before, trips);
    }
}

#[tokio::test]
async fn a_transaction_of_one_statement_is_two_round_trips() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        let before = client.round_trips();
        let params = [value(1)];
        let first = Some(Request::new(ADD, &params));
        let begun = client.connection.begin_with(&Begin::default(), first).await;
        let rows = begun.unwrap().rows.unwrap();
        assert_eq!(rows.len(), 1, "the outcome is the statement's");
        assert_eq!(client.connection.status(), Status::InTransaction);
        client.connection.commit().await.unwrap();
        assert_eq!(client.round_trips() - before, 2);
    }
}

/// A plain INSERT is prepared with one row, with 64 and with 512, in a round trip each. Other statements are prepared in
/// the round trip of the batch.
#[tokio::test]
async fn a_prepared_batch_is_one_round_trip_however_long() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int, name text)").await;
    let sets: Vec<_> = (0..5000)
        .map(|n| vec![value(n), value("x".repeat(50))])
        .collect();
    for (sql, first) in [
        ("INSERT INTO t VALUES ($1, $2)", 4),
        ("INSERT INTO t SELECT $1, $2", 1),
    ] {
        for expected in [first, 1] {
            let before = client.round_trips();
            let done = client.connection.run_batch(sql, &sets).await;
            assert_eq!(done.unwrap().rows_affected, 5000);
            assert_eq!(client.round_trips() - before, expected, "{sql}");
        }
    }
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 20_000);
}

/// Both sides have more to say than the buffers between them hold: if each waited for the other
/// to read first, nothing would ever move.
#[tokio::test]
async fn a_large_batch_with_large_answers_does_not_stop_half_way() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (name text)").await;
    let sets: Vec<_> = (0..400).map(|_| vec![value("y".repeat(50_000))]).collect();
    let sql = "INSERT INTO t VALUES ($1) RETURNING name";
    let done = client.connection.run_batch(sql, &sets).await;
    assert_eq!(done.unwrap().rows_affected, 400);
    let length = client.get::<i64>("SELECT sum(length(name)) FROM t").await;
    assert_eq!(length, 20_000_000);
}

#[tokio::test]
async fn a_row_that_is_larger_than_every_buffer_comes_whole() {
    let mut client = Client::new().await;
    let sql = "SELECT repeat('z', 20000000), 7";
    for _ in 0..2 {
        let rows = client.rows(sql, &[]).await;
        assert_eq!(rows[0].get::<&str>(0).unwrap().len(), 20_000_000);
        assert_eq!(rows[0].get::<i32>(1).unwrap(), 7);
    }
    assert_eq!(client.get::<i32>("SELECT 1").await, 1);
}

#[tokio::test]
async fn of_a_script_the_last_statement_counts() {
    let mut client = Client::in_own_schema().await;
    let script =
        "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2); SELECT n FROM t ORDER BY n";
    let done = client.script(script).await.unwrap();
    let rows = done.rows.unwrap().into_rows();
    let rows: Vec<i32> = rows.map(|row| row.get(0).unwrap()).collect();
    assert_eq!((rows, done.rows_affected), (vec![1, 2], 0));
    let done = client
        .script("SELECT n FROM t; UPDATE t SET n = n + 1")
        .await;
    let done = done.unwrap();
    assert_eq!((done.rows.unwrap().len(), done.rows_affected), (0, 2));
    let error = client.script("SELECT 1; SELECT 1 / 0; DROP TABLE t").await;
    assert_eq!(error.unwrap_err().sql_state(), Some("22012"));
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 2);
}

#[tokio::test]
async fn a_script_with_parameters_is_refused() {
    let mut client = Client::new().await;
    let params = [value(1)];
    let mut request = Request::new("SELECT 1; SELECT 2", &params);
    request.script = true;
    let error = client.connection.run(request).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Parameters);
    let one = client.run("SELECT 1; SELECT 2", &[]).await.unwrap_err();
    assert_eq!(
        one.sql_state(),
        Some("42601"),
        "one statement is one: {one}"
    );
    assert_eq!(client.get::<i32>("SELECT 1").await, 1);
}

#[tokio::test]
async fn client_copy_is_refused_and_the_connection_works_on() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    for _ in 0..2 {
        for sql in ["COPY t FROM STDIN", "COPY (SELECT 1) TO STDOUT"] {
            let error = client.must_not(sql).await;
            assert!(
                error.kind() == Kind::Unsupported || sql.contains("FROM"),
                "{error}"
            );
            let error = client
                .script(&format!("SELECT 1; {sql}"))
                .await
                .unwrap_err();
            assert!(
                error.kind() == Kind::Unsupported || sql.contains("FROM"),
                "{error}"
            );
            assert_eq!(client.connection.status(), Status::Idle);
            assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 0);
        }
    }
}

#[tokio::test]
async fn wrong_parameter_count_is_our_error_even_the_first_time() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        for params in [&[][..], &[value(1), value(2)]] {
            let error = client.run(ADD, params).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Parameters, "{error}");
            let given = format!(
                "the SQL takes 1 parameters, and {} were given",
                params.len()
            );
            assert_eq!(error.message(), given);
        }
        client.run(ADD, &[value(1)]).await.unwrap();
    }
}

#[tokio::test]
async fn a_nul_in_the_sql_is_an_error_before_anything_is_sent() {
    let mut client = Client::new().await;
    let before = client.round_trips();
    for sql in ["SELECT '\0'", "\0"] {
        assert_eq!(client.must_not(sql).await.kind(), Kind::Database);
        assert!(client.script(sql).await.is_err());
    }
    assert_eq!(client.round_trips(), before);
    let error = client.run("SELECT $1::text", &[value("a\0b")]).await;
    assert_eq!(error.unwrap_err().sql_state(), Some("22021"));
    assert_eq!(client.get::<i32>("SELECT 1").await, 1);
}

#[tokio::test]
async fn an_empty_text_has_no_rows_and_no_columns() {
    let mut client = Client::new().await;
    for sql in ["", " -- nothing\n", ";"] {
        let rows = client.must(sql).await.rows.unwrap();
        assert_eq!((rows.len(), rows.columns().len()), (0, 0), "{sql:?}");
    }
}

#[tokio::test]
async fn an_error_has_its_site_and_its_cause() {
    let mut client = Client::in_own_schema().await;
    client
        .must("CREATE TABLE t (n int CONSTRAINT is_small CHECK (n < 10) UNIQUE)")
        .await;
    client.must("INSERT INTO t VALUES (1)").await;
    let error = client.must_not("INSERT INTO t VALUES (1)").await;
    assert!(error.is_unique_violation());
    assert_eq!(error.constraint(), Some("t_n_key"));
    assert_eq!(error.detail(), Some("Key (n)=(1) already exists."));
    let error = client.must_not("INSERT INTO t VALUES (11)").await;
    assert_eq!(
        (error.is_check_violation(), error.constraint()),
        (true, Some("is_small"))
    );
    let error = client.must_not("SELECT m FROM t").await;
    assert_eq!(error.position(), Some(8));
    assert!(error.to_string().contains("at character 8"), "{error}");
}

#[tokio::test]
async fn a_warning_is_counted_and_a_notice_is_not() {
    let mut client = Client::new().await;
    client
        .script("DO $$ BEGIN RAISE WARNING 'careful'; RAISE NOTICE 'by the way'; END $$")
        .await
        .unwrap();
    assert_eq!(client.connection.warnings(), 1);
    assert_eq!(
        client.must("COMMIT").await.warnings,
        1,
        "there is no transaction"
    );
    assert_eq!(client.must("SELECT 1").await.warnings, 0);
}

/// `$1` in a definition belongs to what is defined.
#[tokio::test]
async fn h0c_definitions_with_parameters_of_their_own_run() {
    let db = crate::servers::own_tables(|builder| builder.max(1)).await;
    let definitions = [
        "PREPARE add(int) AS SELECT $1 + 1",
        "CREATE FUNCTION returns(int) RETURNS int LANGUAGE sql RETURN $1 + 1",
        "CREATE FUNCTION atomic(int) RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT $1 + 1; END",
        "CREATE OR REPLACE PROCEDURE inserts(int) LANGUAGE sql \
         BEGIN ATOMIC INSERT INTO t VALUES ($1); INSERT INTO t VALUES ($1 + 1); END",
    ];
    let connection = db.connection().await.unwrap();
    connection.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    for sql in definitions {
        connection.exec(sql, ()).await.unwrap();
    }
    for sql in ["EXECUTE add(1)", "SELECT returns(1)", "SELECT atomic(1)"] {
        let two: i32 = connection.query_as_one(sql, ()).await.unwrap();
        assert_eq!(two, 2, "{sql}");
    }
    connection.exec("CALL inserts(1)", ()).await.unwrap();
    let sum: i64 = connection
        .query_as_one("SELECT sum(n) FROM t", ())
        .await
        .unwrap();
    assert_eq!(sum, 3);
    let script = "PREPARE more(int) AS SELECT $1 + 2; EXECUTE more(1)";
    let three: i32 = connection.query_as_one(script, ()).await.unwrap();
    assert_eq!(three, 3);
    connection.exec(definitions[1], (1,)).await.unwrap_err();
}

#[tokio::test]
async fn h0c_messages_do_not_speak_of_another_placeholder() {
    let db = crate::servers::own_tables(|builder| builder.max(1)).await;
    for (sql, given) in [
        ("SELECT $1::int", 0),
        ("SELECT $1::int", 2),
        ("SELECT 1; SELECT $1", 1),
    ] {
        let params = vec![1_i32; given];
        let error = db.query(sql, &params[..]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Parameters, "{error}");
        assert!(!error.message().contains('?'), "{error}");
    }
    let error = db.query("SELECT 1; SELECT $1", ()).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("42P02"), "{error}");
}

#[tokio::test]
async fn h0d_positions_count_in_the_text_as_it_was_written() {
    let db = crate::servers::own_tables(|builder| builder.max(1)).await;
    for sql in [
        "SELECT ?::int, ?::int, wrong",
        "SELECT 'ö→', '{}'::jsonb ?? 'x', wrong, ?::int + ?::int",
        "SELECT wrong + ?::int + ?::int",
    ] {
        let at = sql.find("wrong").unwrap();
        let expected = sql[..at].chars().count() + 1;
        let check = |error: cenote::Error, what: &str| {
            assert_eq!(error.position(), Some(expected), "{what} of {sql}: {error}");
            assert!(error.to_string().contains("→wrong"), "{error}");
        };
        for _ in 0..2 {
            check(db.query(sql, (1, 2)).await.unwrap_err(), "query");
            check(db.exec(sql, (1, 2)).await.unwrap_err(), "exec");
            let many = db.exec_many(sql, [(1, 2), (3, 4)]).await;
            check(many.unwrap_err(), "exec_many");
            check(db.stream(sql, (1, 2)).await.unwrap_err(), "stream");
            check(db.prepare(sql).await.unwrap_err(), "prepare");
            let inside = db.transaction(async || db.query(sql, (1, 2)).await);
            check(inside.await.unwrap_err(), "a transaction");
            let inside = db.transaction(async || {
                db.query("SELECT 1", ()).await?;
                db.query(sql, (1, 2)).await
            });
            check(inside.await.unwrap_err(), "a transaction");
        }
    }
    let named = "SELECT :a_long_name::int, :b::int, wrong";
    let params = cenote::named! { a_long_name: 1, b: 2 };
    let error = db.query(named, params).await.unwrap_err();
    assert_eq!(error.position(), Some(named.find("wrong").unwrap() + 1));
    let script = db.exec("SELECT 1; SELECT wrong", ()).await.unwrap_err();
    assert_eq!(script.position(), Some(18));
}
