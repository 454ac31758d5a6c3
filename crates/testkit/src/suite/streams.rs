//! Promises about streams.

use cenote::driver::{Request, Status};

use super::Subject;
use super::client::{Client, record, records};
use super::status::failing;

/// More rows of the suite's table than any driver should buffer.
const MANY: i64 = 2000;

async fn start(client: &mut Client<'_>) -> usize {
    let request = Request::new(&client.subject.sql.select, &[]);
    let columns = client.connection.start_stream(request).await;
    columns.expect("a stream can be started").len()
}

/// A stream returns all rows in order, in several batches, and nothing after the last.
pub async fn a_stream_gives_all_rows_in_order_and_in_batches(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=MANY).await;
    for _ in 0..2 {
        assert_eq!(start(&mut client).await, 2);
        let (mut batches, mut next) = (0, 1);
        while let Some(batch) = client.batch().await.expect("there are rows") {
            assert!(!batch.is_empty(), "a batch has rows");
            batches += 1;
            for got in records(batch) {
                assert_eq!(got, record(next));
                next += 1;
            }
        }
        assert_eq!(next, MANY + 1, "all rows came");
        assert!(batches > 1, "{MANY} rows came at once");
        let after = client.batch().await.expect("the stream is over");
        assert!(after.is_none(), "after the last row there are none");
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
}

/// An empty stream has its columns and ends at once.
pub async fn a_stream_without_rows_has_its_columns(subject: &Subject) {
    let mut client = Client::first(subject).await;
    assert_eq!(start(&mut client).await, 2);
    assert!(client.batch().await.expect("there are no rows").is_none());
    client.is_usable().await;
}

/// A stream can be ended before its first row, and in the middle.
pub async fn a_stream_that_is_ended_early_leaves_no_rows(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.fill(1..=MANY).await;
    for batches in 0..3 {
        start(&mut client).await;
        for _ in 0..batches {
            client.batch().await.expect("there are rows");
        }
        let ended = client.connection.end_stream().await;
        ended.expect("a stream can be ended");
        assert_eq!(client.status(), Status::Idle);
        client.is_usable().await;
    }
}

/// A stream sees the changes of its transaction, and ending it early keeps the transaction open.
pub async fn a_stream_that_is_ended_early_does_not_hurt_its_transaction(subject: &Subject) {
    let mut client = Client::first(subject).await;
    client.begin().await;
    client.insert_all(1..=MANY).await;
    start(&mut client).await;
    let batch = client.batch().await.expect("there are rows");
    let first = batch.map(records).unwrap_or_default();
    assert_eq!(
        first.first(),
        Some(&record(1)),
        "what is not committed is there"
    );
    let ended = client.connection.end_stream().await;
    ended.expect("a stream can be ended");
    assert_eq!(client.status(), Status::InTransaction);
    client.add(MANY + 1).await;
    client.commit().await;
    let ids = client.ids().await;
    assert_eq!(ids, (1..=MANY + 1).collect::<Vec<_>>());
}

/// An invalid statement fails when its stream starts or with its first rows.
pub async fn a_stream_that_cannot_start_says_why(subject: &Subject) {
    let Some(wrong) = failing(subject) else {
        return;
    };
    let mut client = Client::another(subject).await;
    let started = client
        .connection
        .start_stream(Request::new(wrong, &[]))
        .await;
    match started {
        Err(error) => assert!(!error.message().is_empty()),
        Ok(_) => drop(client.batch().await.expect_err("it cannot have rows")),
    }
    assert_eq!(client.status(), Status::Idle);
    client.is_usable().await;
}
