//! Calls to PostgreSQL that are dropped half-way: what still runs is cancelled, what is soon over
//! is waited for, and nothing of it reaches the next call.

use cenote::driver::{Begin, Request, Savepoint, Status};
use cenote_testkit::poll::{Hand, drop_after, yield_now};

use crate::servers::client::{Client, value};
use crate::servers::{dsn, unix_dsn};

const ENDLESS: &str = "SELECT pg_catalog.pg_sleep(3600)";

/// Polls a call until the server is at work on it, as another connection sees it.
async fn begin(client: &mut Client, sql: &str) {
    let mut observer = Client::new().await;
    let process = client.own().process_id();
    let is_at_work = format!(
        "SELECT count(*) FROM pg_catalog.pg_stat_activity \
         WHERE pid = {process} AND state = 'active' AND wait_event = 'PgSleep'"
    );
    let mut run = Hand::new(client.connection.run(Request::new(sql, &[])));
    assert!(run.poll().is_pending(), "it has no end");
    while observer.get::<i64>(&is_at_work).await == 0 {
        yield_now().await;
    }
}

#[tokio::test]
async fn dropped_endless_statement_is_cancelled_on_the_server() {
    for dsn in [dsn(), format!("{};sslmode=disable", dsn()), unix_dsn()] {
        let mut client = Client::open(&dsn).await;
        begin(&mut client, ENDLESS).await;
        client.connection.settle().await.unwrap();
        assert_eq!(client.connection.status(), Status::Idle);
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}

#[tokio::test]
async fn statement_cancelled_in_a_transaction_leaves_it_known_failed() {
    let mut client = Client::new().await;
    client
        .connection
        .begin_with(&Begin::default(), None)
        .await
        .unwrap();
    begin(&mut client, ENDLESS).await;
    client.connection.settle().await.unwrap();
    assert_eq!(client.connection.status(), Status::Failed);
    client.connection.rollback().await.unwrap();
    assert_eq!(client.get::<i32>("SELECT 7").await, 7);
}

/// A cancel that comes late hits nobody else: many short statements follow many dropped ones.
#[tokio::test]
async fn a_cancel_never_hits_the_next_statement() {
    let mut client = Client::open(&unix_dsn()).await;
    for n in 0..200 {
        // Over at about the time at which the cancel is sent.
        let sql = format!("SELECT pg_catalog.pg_sleep(0.00{})", n % 5);
        let run = client.connection.run(Request::new(&sql, &[]));
        drop_after(1, run).await;
        client.connection.settle().await.unwrap();
        assert_eq!(client.get::<i32>("SELECT 7").await, 7, "after {n}");
    }
}

#[tokio::test]
async fn what_is_soon_over_is_not_cancelled() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    let mut observer = Client::new().await;
    let process = client.own().process_id();
    let state = format!("SELECT state FROM pg_catalog.pg_stat_activity WHERE pid = {process}");
    let sql = "INSERT INTO t VALUES ($1)";
    for n in 0..50 {
        let params = [value(n)];
        let run = client.connection.run(Request::new(sql, &params));
        // An answer may be there at once.
        drop_after(1, run).await;
        // The server has answered, and we have only to read it.
        while observer.get::<String>(&state).await != "idle" {
            yield_now().await;
        }
        client.connection.settle().await.unwrap();
    }
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 50);
}

#[tokio::test]
async fn commit_savepoint_and_prepare_are_awaited_and_never_cancelled() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    client
        .script(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_catalog.pg_sleep(0.05); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON t \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slowly()",
        )
        .await
        .unwrap();
    client
        .connection
        .begin_with(&Begin::default(), None)
        .await
        .unwrap();
    let set = client.connection.savepoint(Savepoint::Set("a"));
    drop_after(1, set).await;
    client.connection.settle().await.unwrap();
    assert_eq!(client.connection.status(), Status::InTransaction);
    drop_after(1, client.connection.prepare("SELECT n FROM t")).await;
    client.connection.settle().await.unwrap();
    client.must("INSERT INTO t VALUES (1)").await;
    assert!(drop_after(1, client.connection.commit()).await.is_none());
    assert_eq!(client.connection.status(), Status::Unknown);
    client.connection.settle().await.unwrap();
    assert_eq!(client.connection.status(), Status::Idle);
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 1);
}

/// Whether the server has the statement of a dropped call is unknown; the client verifies it.
#[tokio::test]
async fn statement_whose_first_run_was_dropped_can_be_kept_afterwards() {
    let mut client = Client::new().await;
    for polls in 0..4 {
        let sql = format!("SELECT {polls} + $1::int");
        let params = [value(1)];
        let run = client.connection.run(Request::new(&sql, &params));
        if drop_after(polls, run).await.is_none() {
            client.connection.settle().await.unwrap();
        }
        for _ in 0..3 {
            let rows = client.rows(&sql, &[value(1)]).await;
            assert_eq!(rows[0].get::<usize>(0).unwrap(), polls + 1);
        }
    }
    let kept = i64::try_from(client.own().kept_statements()).unwrap() + 1;
    let sql = "SELECT count(*) FROM pg_catalog.pg_prepared_statements";
    assert_eq!(
        client.get::<i64>(sql).await,
        kept,
        "the server has no more than we know of"
    );
}

#[tokio::test]
async fn large_batch_dropped_while_sending_leaves_nothing_half_sent() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (name text)").await;
    let sets: Vec<_> = (0..200).map(|_| vec![value("x".repeat(100_000))]).collect();
    let mut dropped = 0;
    for polls in 1..6 {
        let batch = client
            .connection
            .run_batch("INSERT INTO t VALUES ($1)", &sets);
        // On a busy machine the server may empty the socket as fast as one poll fills it.
        if drop_after(polls, batch).await.is_none() {
            client.connection.settle().await.unwrap();
            dropped += 1;
        }
        assert_eq!(client.connection.status(), Status::Idle);
        let count = client.get::<i64>("SELECT count(*) FROM t").await;
        assert!((0..=200).contains(&count));
        client.must("DELETE FROM t").await;
    }
    assert!(dropped > 0, "no batch was dropped while it was sent");
}

#[tokio::test]
async fn a_connection_that_is_closed_in_a_query_leaves_none_running() {
    let mut observer = Client::new().await;
    let mut client = Client::new().await;
    let process = client.own().process_id();
    begin(&mut client, ENDLESS).await;
    client.close().await;
    let sql = format!("SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid = {process}");
    while observer.get::<i64>(&sql).await > 0 {
        yield_now().await;
    }
}
