//! Calls that are dropped at every poll, through a network that carries little at a time.

use cenote::driver::{Begin, CommitOutcome, Param, Request, Status, Value};
use cenote_testkit::poll::drop_after;

use crate::servers::client::{Client, own_schema, value};
use crate::servers::network::{choppy, dsn_through, narrow, proxy_with};
use crate::servers::soon;

#[tokio::test]
async fn transaction_whose_first_statement_is_dropped_leaves_nothing() {
    let proxy = proxy_with(choppy(7)).await;
    let mut client = Client::open(&own_schema(&dsn_through(&proxy)).await).await;
    client.must("CREATE TABLE t (n int, name text)").await;
    let sql = "INSERT INTO t VALUES ($1, $2) RETURNING n";
    for polls in 0..60 {
        let params = [value(polls), value("x".repeat(300))];
        let begin = Begin::default();
        let first = Some(Request::new(sql, &params));
        let call = client.connection.begin_with(&begin, first);
        let done = drop_after(usize::try_from(polls).unwrap(), call).await;
        soon("to settle", client.connection.settle()).await.unwrap();
        assert_ne!(client.connection.status(), Status::Unknown);
        client.connection.rollback().await.unwrap();
        assert_eq!(client.connection.status(), Status::Idle);
        let count = client.value("SELECT count(*) FROM t", &[]).await;
        assert_eq!(count, Value::Int(0), "{polls} polls");
        if done.is_some() {
            return;
        }
    }
}

#[tokio::test]
async fn rows_of_a_dropped_call_reach_no_other_call() {
    let proxy = proxy_with(choppy(50)).await;
    let mut client = Client::open(&dsn_through(&proxy)).await;
    let wrong = [
        "SELECT 1 / ($1::int - $1::int)",
        "SELECT 666 + $1::int",
        "SELECT no_such_thing + $1::int",
    ];
    for polls in 0..12 {
        for sql in wrong {
            let sql = format!("{sql} /* {polls} */");
            for _ in 0..2 {
                let params = [value(1)];
                let run = client.connection.run(Request::new(&sql, &params));
                let _ = drop_after(polls, run).await;
                soon("to settle", client.connection.settle()).await.unwrap();
                let n = i64::try_from(polls).unwrap();
                assert_eq!(
                    client.value("SELECT $1::bigint", &[value(n)]).await,
                    Value::Int(n)
                );
            }
        }
    }
}

#[tokio::test]
async fn dropped_commit_is_done_or_not_and_the_status_is_known() {
    let proxy = proxy_with(choppy(3)).await;
    let mut client = Client::open(&own_schema(&dsn_through(&proxy)).await).await;
    client.must("CREATE TABLE t (n int)").await;
    for polls in 0..12 {
        client.begin().await;
        client
            .run("INSERT INTO t VALUES ($1)", &[value(1)])
            .await
            .unwrap();
        let done = drop_after(polls, client.connection.commit()).await;
        soon("to settle", client.connection.settle()).await.unwrap();
        // Not answered, it was sent and is done, or was never sent and can be rolled back.
        let committed = client.connection.status() == Status::Idle;
        client.connection.rollback().await.unwrap();
        let gone = client.must("DELETE FROM t").await.rows_affected;
        assert_eq!(gone, u64::from(committed), "{polls} polls");
        if let Some(done) = done {
            assert_eq!((done.unwrap(), committed), (CommitOutcome::Committed, true));
        }
    }
}

/// The server waits for the network nearly all the time, and takes no cancel meanwhile: it would
/// commit what it has at the Sync that ends the batch.
#[tokio::test]
async fn large_batch_dropped_while_sending_is_done_or_not() {
    let proxy = proxy_with(narrow(8_000_000)).await;
    let mut client = Client::open(&own_schema(&dsn_through(&proxy)).await).await;
    client.must("CREATE TABLE t (n int)").await;
    let sets: Vec<Vec<Param<'_>>> = (0..200)
        .map(|n| vec![value(n), value("y".repeat(50_000))])
        .collect();
    let sql = "INSERT INTO t SELECT $1::int WHERE length($2::text) > 0";
    let mut dropped = 0;
    for polls in [1, 2, 3] {
        let done = drop_after(polls, client.connection.run_batch(sql, &sets)).await;
        dropped += usize::from(done.is_none());
        soon("to settle", client.connection.settle()).await.unwrap();
        assert_eq!(client.connection.status(), Status::Idle);
        let count = client.get::<i64>("SELECT count(*) FROM t").await;
        assert_eq!(
            count % 200,
            0,
            "a batch of 200, dropped after {polls} polls"
        );
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
    assert!(dropped >= 3, "only {dropped} were dropped");
}
