//! Streams that are left at every moment, through a network that carries little at a time.

use std::future::poll_fn;
use std::time::Duration;

use cenote::driver::{CommitOutcome, Request, Status, Value};
use cenote_testkit::poll::drop_after;

use crate::servers::client::{Client, own_schema, value};
use crate::servers::network::{choppy, dsn_through, proxy_with};
use crate::servers::soon;

const ROWS: &str = "SELECT n, repeat('x', 20) FROM generate_series(1, 3000) AS s (n)";

#[tokio::test]
async fn stream_in_a_transaction_can_be_left_at_any_poll() {
    let proxy = proxy_with(choppy(900)).await;
    let mut client = Client::open(&own_schema(&dsn_through(&proxy)).await).await;
    client.must("CREATE TABLE t (n int)").await;
    for polls in 0..14 {
        client.begin().await;
        client
            .run("INSERT INTO t VALUES ($1)", &[value(1)])
            .await
            .unwrap();
        let connection = &mut client.connection;
        connection
            .start_stream(Request::new(ROWS, &[]))
            .await
            .unwrap();
        for _ in 0..polls % 4 {
            soon("a batch", poll_fn(|cx| connection.poll_batch(cx)))
                .await
                .unwrap();
        }
        let _ = drop_after(polls, poll_fn(|cx| connection.poll_batch(cx))).await;
        let _ = drop_after(polls, connection.end_stream()).await;
        soon("to settle", connection.settle()).await.unwrap();
        assert_eq!(connection.status(), Status::InTransaction, "{polls} polls");
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
        assert_eq!(
            client.connection.commit().await.unwrap(),
            CommitOutcome::Committed
        );
        let gone = client.must("DELETE FROM t").await.rows_affected;
        assert_eq!(gone, 1, "{polls} polls");
    }
}

#[tokio::test]
async fn a_stream_that_is_read_in_pieces_has_every_row_once() {
    let proxy = proxy_with(choppy(333)).await;
    let mut client = Client::open(&dsn_through(&proxy)).await;
    for in_transaction in [false, true] {
        if in_transaction {
            client.begin().await;
        }
        let connection = &mut client.connection;
        connection
            .start_stream(Request::new(ROWS, &[]))
            .await
            .unwrap();
        let mut next = 1;
        loop {
            // Polls that are dropped in between take nothing away.
            let Some(polled) = drop_after(1, poll_fn(|cx| connection.poll_batch(cx))).await else {
                tokio::task::yield_now().await;
                continue;
            };
            let Some(batch) = polled.unwrap() else {
                break;
            };
            for row in batch {
                assert_eq!(row.value(0).unwrap(), Value::Int(next));
                next += 1;
            }
        }
        assert_eq!(next, 3001);
        client.connection.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_flood_of_notices_can_be_dropped_and_settled() {
    let mut client = Client::new().await;
    let flood = "DO $$ BEGIN FOR n IN 1..50000 LOOP RAISE NOTICE 'n %', n; END LOOP; END $$";
    for polls in [1, 3, usize::MAX] {
        let run = client.connection.run(Request::new(flood, &[]));
        let _ = drop_after(polls, run).await;
        soon("to settle", client.connection.settle()).await.unwrap();
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
    client.must("LISTEN flood").await;
    for _ in 0..20 {
        let notify = "SELECT count(pg_notify('flood', repeat('x', 1000) || n)) FROM generate_series(1, 100) AS s (n)";
        assert_eq!(client.get::<i64>(notify).await, 100);
        client.connection.probe(Duration::from_secs(1));
        assert!(!client.connection.is_broken());
    }
    assert_eq!(client.get::<i32>("SELECT 7").await, 7);
}
