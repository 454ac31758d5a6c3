//! Connections that the server ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task, TokioRuntime};
use cenote::{Db, Error, Kind};

use crate::servers::own::OwnServer;
use crate::servers::proxy::Proxy;
use crate::servers::{
    assert_whole, dsn, dsn_at, dsn_with, is_gone, is_running, kill, own_database, own_database_at,
    port, quiet, soon, thread, unix_dsn, until,
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
async fn one_that_was_killed_while_it_was_idle_costs_nobody_a_call() {
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
            let killed = thread(&db).await;
            kill(&admin, killed).await;
            time.advance(Duration::from_secs(1));
            assert_ne!(thread(&db).await, killed);
        }
        // One that lives is not replaced by being asked.
        let lives = thread(&db).await;
        time.advance(Duration::from_secs(1));
        assert_eq!(thread(&db).await, lives);
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn a_transaction_that_begins_on_one_that_was_killed_while_idle_fails_before_it_began() {
    let admin = admin().await;
    let time = Ahead::new();
    let db = Db::builder(&dsn())
        .max(1)
        .runtime(time.clone())
        .open()
        .await
        .unwrap();
    let killed = thread(&db).await;
    kill(&admin, killed).await;
    time.advance(Duration::from_secs(1));
    let outcome = db.transaction(async || Ok(thread(&db).await)).await;
    match outcome {
        Ok(other) => assert_ne!(other, killed),
        Err(error) => assert!(error.is_connection_lost(), "{error:?}"),
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_was_killed_a_moment_ago_fails_at_most_one_call() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    for _ in 0..5 {
        let killed = thread(&db).await;
        kill(&admin, killed).await;
        if let Err(error) = soon("the call ends", db.ping()).await {
            assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
        }
        assert_ne!(thread(&db).await, killed);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_is_killed_in_a_query_fails_it_as_a_lost_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    for sql in ["SELECT SLEEP(600)", "SELECT SLEEP(600) WHERE 1 = ?"] {
        let victim = thread(&db).await;
        let caller = db.clone();
        let task = cenote::spawn(async move {
            match sql.contains('?') {
                true => caller.query(sql, (1,)).await?,
                false => caller.query(sql, ()).await?,
            };
            Ok::<(), Error>(())
        });
        is_running(&admin, victim, "SELECT SLEEP(600)").await;
        kill(&admin, victim).await;
        let error = soon("the query fails", task).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn one_that_is_killed_in_a_stream_fails_it_as_a_lost_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let sql = "SELECT CONNECTION_ID() AS id, REPEAT('x', 1000) \
               FROM seq_1_to_100000 a, seq_1_to_100000 b";
    let mut stream = db.stream(sql, ()).await.unwrap();
    let first = soon("a row comes", stream.next()).await.unwrap().unwrap();
    let victim: i64 = first.get("id").unwrap();
    admin.exec(&format!("KILL {victim}"), ()).await.unwrap();
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
    is_gone(&admin, victim).await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn one_that_is_killed_in_a_transaction_fails_all_that_is_left_of_it() {
    let admin = admin().await;
    let db = own_database(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let inner = db.clone();
    let outcome = cenote::scope(async {
        let tx = inner.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        let victim = thread(&inner).await;
        kill(&admin, victim).await;
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
    let rows: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0, "nothing ran outside of the transaction");
}

/// Another session holds what a COMMIT has to wait for, so that it can be caught in the act.
#[tokio::test]
async fn a_server_that_goes_during_a_commit_leaves_an_unknown_outcome() {
    let mut server = OwnServer::start(&[]).await;
    let db = own_database_at(&server.dsn(), |builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let admin = Db::open(&server.dsn()).await.unwrap();
    let blocker = admin.connection().await.unwrap();
    let caller = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let task = cenote::spawn(async move {
        let tx = caller.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        tell.send(thread(&caller).await).unwrap();
        may_go_on.await.unwrap();
        tx.commit().await
    });
    let victim = told.await.unwrap();
    // Commits wait for it.
    blocker.exec("BACKUP STAGE START", ()).await.unwrap();
    blocker.exec("BACKUP STAGE BLOCK_COMMIT", ()).await.unwrap();
    go_on.send(()).unwrap();
    is_running(&admin, victim, "COMMIT").await;
    server.crash().await;
    let error = soon("the commit fails", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error:?}");
    assert!(
        !error.is_retryable(),
        "a commit of unknown outcome is never repeated"
    );
    server.start_again().await;
    quiet(&db).await;
    let rows: i64 = db.query_as_one("SELECT COUNT(*) FROM t", ()).await.unwrap();
    assert_eq!(rows, 0);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_network_that_is_cut_during_a_commit_leaves_an_unknown_outcome() {
    let proxy = Proxy::new(port()).await;
    let db = own_database_at(&dsn_at(proxy.port()), |builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let caller = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let task = cenote::spawn(async move {
        let tx = caller.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        tell.send(()).unwrap();
        may_go_on.await.unwrap();
        tx.commit().await
    });
    told.await.unwrap();
    proxy.freeze(true);
    go_on.send(()).unwrap();
    tokio::task::yield_now().await;
    until("the commit waits", async || db.status().active == 1).await;
    proxy.cut();
    proxy.freeze(false);
    let error = soon("the commit fails", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error:?}");
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_query_that_somebody_else_kills_fails_and_keeps_its_connection() {
    let admin = admin().await;
    let db = own_database(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let victim = thread(&db).await;
    let caller = db.clone();
    // SLEEP alone would only say that it was woken.
    let sql = "SELECT COUNT(*) FROM seq_1_to_1000000 a, seq_1_to_1000000 b WHERE a.seq > b.seq";
    let task = cenote::spawn(async move {
        caller.query(sql, ()).await?;
        Ok::<(), Error>(())
    });
    is_running(&admin, victim, "SELECT COUNT").await;
    admin
        .exec(&format!("KILL QUERY {victim}"), ())
        .await
        .unwrap();
    let error = soon("the query fails", task).await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.code(), error.sql_state()),
        (Kind::Database, Some(1317), Some("70100"))
    );
    assert_eq!(error.violation(), Some(cenote::Violation::Cancelled));
    assert_eq!(thread(&db).await, victim);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_session_that_idles_longer_than_the_server_allows_is_replaced_without_a_word() {
    let time = Ahead::new();
    let db = Db::builder(&dsn_with("set.wait_timeout=1"))
        .max(1)
        .runtime(time.clone())
        .open()
        .await
        .unwrap();
    let admin = admin().await;
    let first = thread(&db).await;
    is_gone(&admin, first).await;
    time.advance(Duration::from_secs(2));
    assert_ne!(thread(&db).await, first);
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_health_check_finds_the_dead_and_lets_the_living_be() {
    let admin = admin().await;
    let db = Db::builder(&dsn())
        .min(2)
        .max(2)
        .healthcheck_interval(Duration::from_millis(50))
        .open()
        .await
        .unwrap();
    let dead = thread(&db).await;
    kill(&admin, dead).await;
    until("it is found", async || {
        db.status().total < 2 || {
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(db.connection().await.unwrap());
            }
            let mut threads = Vec::new();
            for connection in &seen {
                let asked = connection
                    .query_as_one::<i64>("SELECT CONNECTION_ID()", ())
                    .await;
                threads.push(asked.unwrap_or(dead));
            }
            !threads.contains(&dead)
        }
    })
    .await;
    assert_whole(&db).await;
}
