//! COPY from and to the client, in every place where it can stand.

use cenote::Kind;
use cenote::driver::{Begin, CommitOutcome, Request, Status, Value};
use cenote_testkit::poll::drop_after;

use crate::servers::client::{Client, value};
use crate::servers::soon;

const IN: &str = "COPY t FROM STDIN";
const OUT: &str = "COPY (SELECT generate_series(1, 200000)) TO STDOUT";

async fn client() -> Client {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    client
}

#[tokio::test]
async fn copy_in_a_batch_is_refused_and_later_answers_stay_in_step() {
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
async fn an_unread_copy_stream_is_ended() {
    for sql in [IN, OUT] {
        let mut client = client().await;
        let started = client.connection.start_stream(Request::new(sql, &[]));
        let _ = soon("the start", started).await;
        soon("the end", client.connection.settle()).await.unwrap();
        assert_eq!(client.get::<i32>("SELECT 7").await, 7);
    }
}

/// The server sends CopyInResponse for these, and then an error before it reads the data.
const REFUSED_LATE: [&str; 2] = ["COPY v FROM STDIN", "COPY raising FROM STDIN"];

async fn refusing_client() -> Client {
    let mut client = client().await;
    let script = "CREATE VIEW v AS SELECT 1 AS n; CREATE TABLE raising (n int); \
                  CREATE FUNCTION raise_it() RETURNS trigger LANGUAGE plpgsql \
                  AS $$ BEGIN RAISE 'no'; END $$; \
                  CREATE TRIGGER raising BEFORE INSERT ON raising EXECUTE FUNCTION raise_it()";
    client.script(script).await.unwrap();
    client
}

/// Each call gets its own answer.
async fn assert_in_step(client: &mut Client, what: &str) {
    for n in 0..3 {
        let answer = client.value("SELECT $1::int", &[value(n)]).await;
        assert_eq!(answer, Value::Int(n), "{what}");
    }
}

#[tokio::test]
async fn h0a_copy_error_keeps_answers_in_step() {
    for sql in REFUSED_LATE {
        let mut client = refusing_client().await;
        let before = client.round_trips();
        let refused = client.must_not(sql).await;
        assert_eq!(refused.kind(), Kind::Unsupported, "{refused}");
        assert!(client.connection.prepare(sql).await.is_err());
        assert!(
            client
                .connection
                .start_stream(Request::new(sql, &[]))
                .await
                .is_err()
        );
        assert!(
            client
                .connection
                .run_batch(sql, &[vec![], vec![]])
                .await
                .is_err()
        );
        let begin = Begin::default();
        let first = Some(Request::new(sql, &[]));
        assert!(client.connection.begin_with(&begin, first).await.is_err());
        assert_eq!(client.round_trips(), before, "nothing is sent");
        assert_eq!(client.connection.status(), Status::Idle);
        assert_in_step(&mut client, sql).await;
    }
}

/// In a simple query the server answers once, however far its COPY came.
#[tokio::test]
async fn h0a_copy_error_in_a_script_keeps_answers_in_step() {
    for sql in REFUSED_LATE {
        for begins in [false, true] {
            let mut client = refusing_client().await;
            if begins {
                client.begin().await;
            }
            for script in [sql.to_owned(), format!("SELECT 1; {sql}; SELECT 2")] {
                client.script(&script).await.unwrap_err();
                client.connection.rollback().await.unwrap();
                assert_in_step(&mut client, &script).await;
            }
        }
    }
}
