//! COPY from and to the client, in every place where it can stand.

use cenote::Kind;
use cenote::driver::{Begin, CommitOutcome, Request, Status};
use cenote_testkit::poll::drop_after;

use crate::servers::client::Client;
use crate::servers::soon;

const IN: &str = "COPY t FROM STDIN";
const OUT: &str = "COPY (SELECT generate_series(1, 200000)) TO STDOUT";

async fn client() -> Client {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    client
}

#[tokio::test]
async fn a_copy_in_a_batch_is_refused_and_what_follows_gets_its_own_answers() {
    for sql in [IN, "COPY t TO STDOUT"] {
        let mut client = client().await;
        for sets in [1, 2, 5] {
            let sets = vec![Vec::new(); sets];
            let done = soon("a batch", client.connection.run_batch(sql, &sets)).await;
            let error = done.expect_err("it cannot be done");
            if client.connection.is_broken() {
                client = self::client().await;
                continue;
            }
            let is_said = error.kind() == Kind::Unsupported || error.message().contains("COPY");
            assert!(is_said, "{error}");
            client.begin().await;
            assert_eq!(client.connection.status(), Status::InTransaction);
            client.must("INSERT INTO t VALUES (1)").await;
            let committed = client.connection.commit().await.unwrap();
            assert_eq!(committed, CommitOutcome::Committed);
            assert_eq!(client.get::<i32>("SELECT 7").await, 7);
        }
    }
}

#[tokio::test]
async fn a_dropped_copy_is_settled_and_the_connection_goes_on() {
    for sql in [IN, OUT] {
        for script in [false, true] {
            for begins in [false, true] {
                for polls in 0..6 {
                    let mut client = client().await;
                    let mut request = Request::new(sql, &[]);
                    request.script = script;
                    request.cache = !script;
                    let begin = Begin::default();
                    let call = match begins {
                        true => client.connection.begin_with(&begin, Some(request)),
                        false => client.connection.run(request),
                    };
                    let _ = drop_after(polls, call).await;
                    let what = format!("{sql}, script {script}, in tx {begins}, {polls} polls");
                    soon(&what, client.connection.settle()).await.unwrap();
                    client.connection.rollback().await.unwrap();
                    assert_eq!(client.get::<i32>("SELECT 7").await, 7, "{what}");
                    client.begin().await;
                    client.must("INSERT INTO t VALUES (1)").await;
                    let committed = client.connection.commit().await.unwrap();
                    assert_eq!(committed, CommitOutcome::Committed, "{what}");
                    assert_eq!(
                        client.get::<i64>("SELECT count(*) FROM t").await,
                        1,
                        "{what}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_copy_as_a_stream_is_refused_and_the_connection_goes_on() {
    for sql in [IN, OUT] {
        for begins in [false, true] {
            let mut client = client().await;
            if begins {
                client.begin().await;
            }
            let stream = soon("a stream", async {
                let connection = &mut client.connection;
                connection.start_stream(Request::new(sql, &[])).await?;
                std::future::poll_fn(|cx| connection.poll_batch(cx)).await
            });
            let error = stream.await.expect_err("it cannot be done");
            assert!(!client.connection.is_broken(), "{error}");
            soon("the end", client.connection.end_stream())
                .await
                .unwrap();
            client.connection.rollback().await.unwrap();
            assert_eq!(client.get::<i32>("SELECT 7").await, 7);
        }
    }
}

#[tokio::test]
async fn a_copy_as_a_stream_that_nobody_reads_is_ended() {
    for sql in [IN, OUT] {
        let mut client = client().await;
        let started = client.connection.start_stream(Request::new(sql, &[]));
        let _ = soon("the start", started).await;
        soon("the end", client.connection.settle()).await.unwrap();
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}
