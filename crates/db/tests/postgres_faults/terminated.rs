//! Backends that the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task, TokioRuntime};
use cenote::{Db, Error, Kind};

use crate::servers::{
    assert_whole, backend, dsn, dsn_with, is_running, quiet, schema, soon, terminate, unix_dsn,
};

/// Tokio's time, but for how long connections have been idle: that can be moved ahead.
#[derive(Clone)]
struct Ahead {
    tokio: Arc<TokioRuntime>,
    ahead: Arc<AtomicU64>,
}

impl Ahead {
    fn new() -> Self {
        Ahead {
            tokio: Arc::new(TokioRuntime::new()),
            ahead: Arc::default(),
        }
    }

    fn advance(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.ahead.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Runtime for Ahead {
    fn now(&self) -> Instant {
        self.tokio.now()
    }

    fn coarse_now(&self) -> u64 {
        self.tokio.coarse_now() + self.ahead.load(Ordering::Relaxed)
    }

    fn sleep(&self, until: Instant) -> Task {
        self.tokio.sleep(until)
    }

    fn spawn(&self, task: Task) {
        self.tokio.spawn(task);
    }
}

async fn admin() -> Db {
    Db::open(&dsn()).await.unwrap()
}

#[tokio::test]
async fn one_that_was_ended_while_it_was_idle_is_seen_before_it_is_handed_out() {
    let admin = admin().await;
    for way in [
        dsn_with("sslmode=disable"),
        dsn_with("sslmode=require"),
        unix_dsn(),
    ] {
        let time = Ahead::new();
        let db = Db::builder(&way)
            .max(1)
            .runtime(time.clone())
            .open()
            .await
            .unwrap();
        for _ in 0..5 {
            let ended = backend(&db).await;
            terminate(&admin, ended).await;
            time.advance(Duration::from_secs(1));
            assert_ne!(backend(&db).await, ended);
        }
        // One that lives is not replaced by being looked at.
        let lives = backend(&db).await;
        time.advance(Duration::from_secs(1));
        assert_eq!(backend(&db).await, lives);
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn one_that_was_ended_a_moment_ago_fails_at_most_one_call_and_says_why() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    for _ in 0..5 {
        let ended = backend(&db).await;
        terminate(&admin, ended).await;
        if let Err(error) = soon("the call ends", db.ping()).await {
            assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
            assert_eq!(error.sql_state(), Some("57P01"), "{error:?}");
        }
        assert_ne!(backend(&db).await, ended);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_is_ended_in_a_query_fails_it_with_the_servers_words() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let process = backend(&db).await;
    let caller = db.clone();
    let task = cenote::spawn(async move {
        caller.query("SELECT pg_sleep(600)", ()).await?;
        Ok::<(), Error>(())
    });
    is_running(&admin, process, "SELECT pg_sleep(600)").await;
    terminate(&admin, process).await;
    let error = soon("the query fails", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost);
    assert_eq!(error.sql_state(), Some("57P01"), "{error:?}");
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_is_ended_in_a_stream_fails_it_with_the_servers_words() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let sql = "SELECT pg_backend_pid()::int8 AS pid, repeat('x', 1000) \
               FROM generate_series(1, 1000000)";
    let mut stream = db.stream(sql, ()).await.unwrap();
    let first = soon("a row comes", stream.next()).await.unwrap().unwrap();
    terminate(&admin, first.get("pid").unwrap()).await;
    let ended = soon("the stream ends", async {
        loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    });
    let error = ended.await.expect("it cannot come to its end");
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
    drop(stream);
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_is_ended_in_a_transaction_fails_all_that_is_left_of_it() {
    let admin = admin().await;
    let db = schema(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    let inner = db.clone();
    let outcome = cenote::scope(async {
        let tx = inner.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        let process = backend(&inner).await;
        terminate(&admin, process).await;
        for _ in 0..3 {
            let error = tx.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
            assert!(error.is_connection_lost(), "{error:?}");
            let error = inner
                .exec("INSERT INTO t VALUES (3)", ())
                .await
                .unwrap_err();
            assert!(error.is_connection_lost(), "{error:?}");
        }
        tx.commit().await
    });
    let error = soon("it ends", outcome).await.unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert_whole(&db).await;
    let rows: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0, "nothing ran outside the transaction");
}

#[tokio::test]
async fn one_that_is_ended_during_a_commit_leaves_an_unknown_outcome() {
    let admin = admin().await;
    let db = schema(|builder| builder.max(2)).await;
    // A trigger that is put off to the commit, and takes long there.
    let set_up = "CREATE TABLE t (n int);
         CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER lingers AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION linger()";
    db.exec(set_up, ()).await.unwrap();
    let caller = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let task = cenote::spawn(async move {
        let tx = caller.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        tell.send(backend(&caller).await).unwrap();
        tx.commit().await
    });
    let process = told.await.unwrap();
    is_running(&admin, process, "COMMIT").await;
    terminate(&admin, process).await;
    let error = soon("the commit fails", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error:?}");
    assert_eq!(error.sql_state(), Some("57P01"), "{error:?}");
    assert!(
        !error.is_retryable(),
        "a commit of unknown outcome is never repeated"
    );
    quiet(&db).await;
    let rows: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_query_that_somebody_else_cancels_fails_and_keeps_its_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let process = backend(&db).await;
    let caller = db.clone();
    let task = cenote::spawn(async move {
        caller.query("SELECT pg_sleep(600)", ()).await?;
        Ok::<(), Error>(())
    });
    is_running(&admin, process, "SELECT pg_sleep(600)").await;
    let sql = "SELECT pg_cancel_backend(?::int4)";
    let told: bool = admin.query_as_one(sql, (process,)).await.unwrap();
    assert!(told);
    let error = soon("the query fails", task).await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.sql_state()),
        (Kind::Database, Some("57014"))
    );
    assert_eq!(backend(&db).await, process);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_transaction_that_idles_longer_than_the_server_allows_is_lost_with_its_reason() {
    let db = Db::builder(&dsn())
        .max(1)
        .option("set.idle_in_transaction_session_timeout", "50ms")
        .open()
        .await
        .unwrap();
    let admin = admin().await;
    let inner = db.clone();
    let outcome = cenote::scope(async {
        let tx = inner.begin().await?;
        let process = backend(&inner).await;
        crate::servers::until("the server ends it", async || {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = ?::int4";
            let left: i64 = admin.query_as_one(sql, (process,)).await.unwrap();
            left == 0
        })
        .await;
        tx.exec("SELECT 1", ()).await?;
        tx.commit().await
    });
    let error = soon("it ends", outcome).await.unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert_eq!(error.sql_state(), Some("25P03"), "{error:?}");
    assert_whole(&db).await;
}
