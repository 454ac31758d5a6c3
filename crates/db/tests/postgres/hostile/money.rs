//! Statements run once, and acknowledged statements have run.

use cenote::Kind;
use cenote::driver::{Param, Status};
use cenote::postgres::param;

use crate::servers::client::{Client, value};
use crate::servers::scripted::{self, Scripted, message};
use crate::servers::soon;

/// Its error looks like that of a statement which the server has forgotten; but the server knew it
/// and had begun, and a part of it is committed.
#[tokio::test]
async fn begun_call_is_not_repeated_whatever_its_error_looks_like() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int)").await;
    client
        .must(
            "CREATE PROCEDURE pay() LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO t VALUES (1); COMMIT; \
             RAISE EXCEPTION 'no such statement' USING ERRCODE = '26000'; END $$",
        )
        .await;
    for calls in 1..=3 {
        client.must_not("CALL pay()").await;
        assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, calls);
    }
}

/// The same of a batch, whose first sets are carried out when a later one fails.
#[tokio::test]
async fn a_batch_that_had_begun_is_not_run_again() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE SEQUENCE s").await;
    client
        .must(
            "CREATE FUNCTION pay(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM nextval('s'); \
             IF n = 2 THEN RAISE EXCEPTION 'gone' USING ERRCODE = '26000'; END IF; \
             RETURN n; END $$",
        )
        .await;
    let sets = [vec![value(1)], vec![value(2)]];
    for calls in 1..=3_i64 {
        let done = client.connection.run_batch("SELECT pay($1)", &sets).await;
        assert_eq!(done.unwrap_err().sql_state(), Some("26000"));
        let last = client.get::<i64>("SELECT last_value FROM s").await;
        assert_eq!(last, 2 * calls);
    }
}

/// A server that answers every request with these messages.
async fn answering(messages: Vec<u8>) -> Scripted {
    Scripted::new(move |mut client: scripted::Client| {
        let messages = messages.clone();
        async move {
            client.let_in().await;
            while client.read_request().await.is_some() {
                client.send(&messages).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn commit_counts_only_when_the_server_answers_commit() {
    let ready = message(b'Z', b"I");
    for tag in [&b""[..], b"SELECT 1\0", b"BEGIN\0", b"SET\0"] {
        let mut answer = match tag {
            b"" => Vec::new(),
            tag => message(b'C', tag),
        };
        answer.extend_from_slice(&ready);
        let server = answering(answer).await;
        let mut client = Client::open(&server.dsn()).await;
        let committed = soon("a commit", client.connection.commit()).await;
        let error = committed.expect_err("nothing was committed");
        assert!(error.is_connection_lost(), "{error}");
        assert!(client.connection.is_broken());
    }
}

/// Outside a transaction a batch is done as a whole or not at all, wherever its error lies; in one
/// it fails that.
#[tokio::test]
async fn batch_with_an_unsendable_set_does_nothing_however_late() {
    let mut client = Client::in_own_schema().await;
    client.must("CREATE TABLE t (n int, name text)").await;
    let sql = "INSERT INTO t VALUES ($1, $2)";
    let too_few = || vec![value(1)];
    let no_number = || vec![Param::Native(param(true)), value("x")];
    for (last, kind) in [(no_number(), Kind::Type), (too_few(), Kind::Parameters)] {
        for many in [10_i64, 20_000] {
            let first = (0..many).map(|n| vec![value(n), value("x".repeat(50))]);
            let sets: Vec<Vec<Param<'_>>> = first.chain([last.clone()]).collect();
            for _ in 0..2 {
                let done = client.connection.run_batch(sql, &sets).await;
                let error = done.expect_err("the last set cannot be sent");
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(error.set_index(), Some(many.unsigned_abs()), "{error}");
                assert_eq!(client.connection.status(), Status::Idle);
                assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 0);
            }
            client.begin().await;
            client.must("SELECT 1").await;
            let done = client.connection.run_batch(sql, &sets).await;
            assert_eq!(done.unwrap_err().kind(), kind);
            client.connection.commit().await.unwrap();
            assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 0);
        }
    }
}

/// What the server refuses comes before what we would have refused later.
#[tokio::test]
async fn a_batch_returns_its_first_error() {
    let mut client = Client::in_own_schema().await;
    client
        .must("CREATE TABLE t (n int PRIMARY KEY, name text)")
        .await;
    let first = (0..20_000).map(|n| vec![value(n / 2), value("x".repeat(50))]);
    let last = vec![Param::Native(param(true)), value("x")];
    let sets: Vec<Vec<Param<'_>>> = first.chain([last]).collect();
    let sql = "INSERT INTO t VALUES ($1, $2)";
    let error = client.connection.run_batch(sql, &sets).await.unwrap_err();
    assert!(error.is_unique_violation(), "{error}");
    assert_eq!(client.get::<i64>("SELECT count(*) FROM t").await, 0);
}
