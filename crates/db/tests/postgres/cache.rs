//! The prepared statements that a connection to PostgreSQL keeps.

use cenote::driver::{Begin, Request, Status};

use crate::servers::client::{Client, own_schema, value};
use crate::servers::dsn;

const PREPARED: &str = "SELECT count(*) FROM pg_catalog.pg_prepared_statements";

async fn on_server(client: &mut Client) -> i64 {
    let rows = client.script_rows(PREPARED).await;
    rows[0].get(0).expect("it is a number")
}

#[tokio::test]
async fn what_is_evicted_here_is_evicted_on_the_server() {
    let mut client = Client::with_cache(&dsn(), 3).await;
    for round in 0..3 {
        for n in 0..7 {
            let sql = format!("SELECT {n} + $1::int");
            let before = client.round_trips();
            let rows = client.rows(&sql, &[value(1)]).await;
            assert_eq!(rows[0].get::<i32>(0).unwrap(), n + 1);
            assert_eq!(
                client.round_trips() - before,
                1,
                "round {round}, statement {n}"
            );
        }
        assert_eq!(client.own().kept_statements(), 3);
        assert_eq!(on_server(&mut client).await, 3);
    }
}

#[tokio::test]
async fn a_one_shot_statement_leaves_nothing_on_the_server() {
    let mut client = Client::new().await;
    let params = [value(1)];
    let mut request = Request::new("SELECT $1::int", &params);
    request.cache = false;
    client.connection.run(request).await.unwrap();
    assert_eq!(on_server(&mut client).await, 0);
    let mut client = Client::with_cache(&dsn(), 0).await;
    client.run("SELECT $1::int", &params).await.unwrap();
    client.connection.prepare("SELECT 1").await.unwrap();
    assert_eq!(on_server(&mut client).await, 0);
}

#[tokio::test]
async fn failed_statement_is_kept_only_if_it_was_prepared() {
    let mut client = Client::new().await;
    for _ in 0..3 {
        let error = client.run("SELECT 1 / $1::int", &[value(0)]).await;
        assert_eq!(error.unwrap_err().sql_state(), Some("22012"));
        assert_eq!(
            client.must_not("SELECT nonsense").await.sql_state(),
            Some("42703")
        );
    }
    assert_eq!(client.own().kept_statements(), 1);
    assert_eq!(on_server(&mut client).await, 1);
}

#[tokio::test]
async fn a_stale_plan_is_prepared_again_once_without_an_error() {
    let dsn = own_schema(&dsn()).await;
    let mut client = Client::open(&dsn).await;
    let mut other = Client::open(&dsn).await;
    client.must("CREATE TABLE t (n int)").await;
    client.must("INSERT INTO t VALUES (1)").await;
    let all = "SELECT * FROM t";
    for columns in 2..5 {
        for _ in 0..2 {
            client.must(all).await;
        }
        let sql = format!("ALTER TABLE t ADD COLUMN c{columns} int");
        other.must(&sql).await;
        let rows = client.must(all).await.rows.unwrap();
        assert_eq!(rows.columns().len(), columns);
        let before = client.round_trips();
        client.must(all).await;
        assert_eq!(client.round_trips() - before, 1);
    }
}

#[tokio::test]
async fn stale_plan_in_the_first_statement_is_prepared_again() {
    let dsn = own_schema(&dsn()).await;
    let mut client = Client::open(&dsn).await;
    let mut other = Client::open(&dsn).await;
    client.must("CREATE TABLE t (n int)").await;
    let all = "SELECT * FROM t";
    client.must(all).await;
    other.must("ALTER TABLE t ADD COLUMN m int").await;
    let begin = Begin::default();
    let begun = client
        .connection
        .begin_with(&begin, Some(Request::new(all, &[])))
        .await;
    assert_eq!(begun.unwrap().rows.unwrap().columns().len(), 2);
    assert_eq!(client.connection.status(), Status::InTransaction);
    client.must("INSERT INTO t VALUES (1)").await;
    client.connection.commit().await.unwrap();
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 1);
}

/// The error itself has failed the transaction: what was done in it before would be lost.
#[tokio::test]
async fn stale_plan_later_in_a_transaction_fails_once() {
    let dsn = own_schema(&dsn()).await;
    let mut client = Client::open(&dsn).await;
    let mut other = Client::open(&dsn).await;
    client.must("CREATE TABLE t (n int)").await;
    let all = "SELECT * FROM t";
    client.must(all).await;
    client
        .connection
        .begin_with(&Begin::default(), None)
        .await
        .unwrap();
    client.must("SELECT 1").await;
    other.must("ALTER TABLE t ADD COLUMN m int").await;
    let error = client.must_not(all).await;
    assert_eq!(error.sql_state(), Some("0A000"), "{error}");
    assert_eq!(client.connection.status(), Status::Failed);
    client.connection.rollback().await.unwrap();
    let rows = client.must(all).await.rows.unwrap();
    assert_eq!(rows.columns().len(), 2);
}

#[tokio::test]
async fn a_statement_that_the_server_has_forgotten_is_prepared_again() {
    let mut client = Client::new().await;
    for _ in 0..2 {
        client.run("SELECT $1::int", &[value(1)]).await.unwrap();
        // Not by its tag, so that it is found out only by the error.
        let forget = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$";
        client.script(forget).await.unwrap();
        let rows = client.rows("SELECT $1::int", &[value(1)]).await;
        assert_eq!(rows.len(), 1);
    }
    client
        .script("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")
        .await
        .unwrap();
    let sets = vec![vec![value(1)], vec![value(2)]];
    let done = client.connection.run_batch("SELECT $1::int", &sets).await;
    done.unwrap();
}

#[tokio::test]
async fn prepare_asks_the_server_once() {
    let mut client = Client::new().await;
    let before = client.round_trips();
    for _ in 0..3 {
        let prepared = client
            .connection
            .prepare("SELECT $1::int AS n, $2::text AS t")
            .await;
        let prepared = prepared.unwrap();
        assert_eq!((prepared.params, prepared.columns.len()), (2, 2));
    }
    assert_eq!(client.round_trips() - before, 1);
    let rows = client
        .rows(
            "SELECT $1::int AS n, $2::text AS t",
            &[value(1), value("x")],
        )
        .await;
    assert_eq!(rows[0].get::<&str>("t").unwrap(), "x");
    assert_eq!(client.round_trips() - before, 2);
}
