//! Statements that are kept, when what they mean changes.

use cenote::driver::{Param, Status, Value};
use cenote::postgres::param;

use crate::servers::client::{Client, own_schema, value};
use crate::servers::{dsn, unique};

/// The rows of a FETCH are those of whichever cursor has the name now.
#[tokio::test]
async fn a_fetch_gives_the_rows_of_the_cursor_that_there_is() {
    let mut client = Client::new().await;
    let texts = [
        "SELECT 1::int",
        "SELECT 'abcd'::text",
        "SELECT 2::int",
        "SELECT 1, 'b'::text",
    ];
    let expected = [
        vec![Value::Int(1)],
        vec![Value::Text("abcd".into())],
        vec![Value::Int(2)],
        vec![Value::Int(1), Value::Text("b".into())],
    ];
    for (sql, expected) in texts.iter().zip(&expected) {
        for _ in 0..2 {
            client.begin().await;
            client
                .must(&format!("DECLARE c SCROLL CURSOR FOR {sql}"))
                .await;
            for _ in 0..3 {
                let rows = client.rows("FETCH FIRST FROM c", &[]).await;
                let row: Vec<_> = rows[0].values().map(Result::unwrap).collect();
                assert_eq!(&row, expected, "{sql}");
            }
            client.connection.rollback().await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_execute_gives_the_rows_of_the_statement_that_there_is() {
    let mut client = Client::new().await;
    for (sql, expected) in [
        ("SELECT 1::int", Value::Int(1)),
        ("SELECT 'abcd'::text", Value::Text("abcd".into())),
        ("SELECT true", Value::Bool(true)),
    ] {
        client.must(&format!("PREPARE own AS {sql}")).await;
        for _ in 0..3 {
            assert_eq!(client.value("EXECUTE own", &[]).await, expected, "{sql}");
        }
        client.must("DEALLOCATE own").await;
    }
}

#[tokio::test]
async fn a_recreated_procedure_returns_its_new_result() {
    let mut client = Client::in_own_schema().await;
    for (kind, given, expected) in [
        ("int", "7", Value::Int(7)),
        ("text", "'abcd'", Value::Text("abcd".into())),
    ] {
        client
            .must(&format!(
                "CREATE PROCEDURE p(INOUT a {kind}) LANGUAGE plpgsql AS $$ BEGIN a := {given}; END $$"
            ))
            .await;
        for _ in 0..3 {
            assert_eq!(client.value("CALL p(NULL)", &[]).await, expected);
        }
        client.must("DROP PROCEDURE p").await;
    }
}

/// The statement itself is among those that it forgets.
#[tokio::test]
async fn a_deallocate_all_can_be_run_again_in_a_transaction() {
    let mut client = Client::new().await;
    client.begin().await;
    for _ in 0..3 {
        client.must("SELECT 1").await;
        client.must("DEALLOCATE ALL").await;
        assert_eq!(client.connection.status(), Status::InTransaction);
    }
}

#[tokio::test]
async fn a_discard_of_all_can_be_run_again_and_again() {
    let mut client = Client::new().await;
    for n in 0..3 {
        client.must("DISCARD ALL").await;
        assert_eq!(
            client.value("SELECT $1::int", &[value(n)]).await,
            Value::Int(n)
        );
    }
}

#[tokio::test]
async fn a_cache_of_any_size_gives_the_same() {
    let dsn = own_schema(&dsn()).await;
    let mut maker = Client::open(&dsn).await;
    maker
        .must("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        .await;
    for size in [0, 1, 2, 3] {
        let mut client = Client::with_cache(&dsn, size).await;
        for round in 0..3 {
            for n in 0..5_i64 {
                let sql = format!("SELECT $1::bigint + {n}");
                let sum = client.value(&sql, &[value(round)]).await;
                assert_eq!(sum, Value::Int(round + n));
                let mood = client.value("SELECT '{sad,NULL}'::mood[]", &[]).await;
                let expected = Value::Array(vec!["sad".into(), Value::Null]);
                assert_eq!(mood, expected, "cache of {size}");
                let native = [Param::Native(param(vec![1_i32, 2]))];
                let sql = format!("SELECT cardinality($1::int[]) + {n}");
                assert_eq!(client.value(&sql, &native).await, Value::Int(2 + n));
            }
            let kept = client.own().kept_statements();
            assert!(kept <= size, "{kept} of {size}");
            let there = "SELECT count(*) FROM pg_catalog.pg_prepared_statements";
            let there = client.script_rows(there).await[0].get::<usize>(0).unwrap();
            assert!(
                there <= size + 1,
                "{there} on the server, {size} may be kept"
            );
        }
    }
}

#[tokio::test]
async fn a_recreated_table_is_read_with_its_new_columns() {
    let mut client = Client::in_own_schema().await;
    let by_value = "SELECT a FROM t WHERE a = $1";
    for (kind, given, expected) in [
        ("int", "1", Value::Int(1)),
        ("text", "'abcd'", Value::Text("abcd".into())),
        ("bigint", "5", Value::Int(5)),
        ("bool", "true", Value::Bool(true)),
    ] {
        let again = format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (a {kind}); INSERT INTO t VALUES ({given})"
        );
        client.script(&again).await.unwrap();
        let params = [Param::Value(expected.clone())];
        // What it was prepared for does not fit any more: that may be told once.
        let _ = client.run(by_value, &params).await;
        for _ in 0..3 {
            assert_eq!(client.value("SELECT * FROM t", &[]).await, expected);
            assert_eq!(client.value(by_value, &params).await, expected);
        }
    }
}

/// Otherwise every transaction that uses it would fail from now on.
#[tokio::test]
async fn stale_plan_in_a_transaction_fails_only_that_transaction() {
    let dsn = own_schema(&dsn()).await;
    let mut client = Client::open(&dsn).await;
    let mut other = Client::open(&dsn).await;
    client.must("CREATE TABLE t (n int)").await;
    let all = "SELECT * FROM t";
    for _ in 0..2 {
        client.must(all).await;
    }
    other.must("ALTER TABLE t ADD COLUMN m int").await;
    client.begin().await;
    client.must("SELECT 1").await;
    assert_eq!(client.must_not(all).await.sql_state(), Some("0A000"));
    client.connection.rollback().await.unwrap();
    for _ in 0..3 {
        client.begin().await;
        client.must("SELECT 1").await;
        assert_eq!(client.must(all).await.rows.unwrap().columns().len(), 2);
        client.connection.commit().await.unwrap();
    }
}

/// A statement that was refused in a failed transaction is none the worse for it.
#[tokio::test]
async fn a_failed_transaction_costs_no_kept_statement() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        client.must("SELECT 1").await;
    }
    client.begin().await;
    client.must_not("SELECT 1 / 0").await;
    let kept = client.own().kept_statements();
    assert_eq!(client.must_not("SELECT 1").await.sql_state(), Some("25P02"));
    client.connection.rollback().await.unwrap();
    assert_eq!(client.own().kept_statements(), kept);
}

#[tokio::test]
async fn a_recreated_function_returns_its_new_result() {
    let mut client = Client::in_own_schema().await;
    for (kind, given, expected) in [
        ("int", "7", Value::Int(7)),
        ("text", "'abcd'", Value::Text("abcd".into())),
    ] {
        let make =
            format!("CREATE FUNCTION f() RETURNS {kind} LANGUAGE sql AS $$ SELECT {given} $$");
        client.must(&make).await;
        for _ in 0..3 {
            assert_eq!(client.value("SELECT f()", &[]).await, expected);
            assert_eq!(client.value("SELECT * FROM f()", &[]).await, expected);
        }
        client.must("DROP FUNCTION f").await;
    }
}

/// The plan of a kept statement is for the tables that the path leads to now.
#[tokio::test]
async fn kept_statement_reads_tables_of_the_current_search_path() {
    let mut client = Client::new().await;
    let (one, other) = (unique("one"), unique("other"));
    for (schema, n) in [(&one, 1), (&other, 2)] {
        client
            .script(&format!(
                "CREATE SCHEMA {schema}; CREATE TABLE {schema}.t (n int); \
                 INSERT INTO {schema}.t VALUES ({n})"
            ))
            .await
            .unwrap();
    }
    for _ in 0..3 {
        for (schema, n) in [(&one, 1), (&other, 2)] {
            client.must(&format!("SET search_path = {schema}")).await;
            for _ in 0..2 {
                assert_eq!(client.value("SELECT n FROM t", &[]).await, Value::Int(n));
            }
        }
        client.connection.reset().await.unwrap();
        assert_eq!(
            client.must_not("SELECT n FROM t").await.sql_state(),
            Some("42P01")
        );
    }
}
