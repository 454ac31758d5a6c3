//! Connections that the server or the network ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::pool::{Runtime, Task, TokioRuntime};
use cenote::{Db, Error, Kind, RowStream};
use cenote_testkit::proxy::Network;

use crate::servers::network::{dsn_through, proxy_with, silent};
use crate::servers::{
    SESSION_ID, assert_killed, assert_whole, dsn, dsn_with, is_running, kill, own_tables,
    own_tables_at, session_id, sleep, soon, unix_dsn, until,
};

/// Tokio's time, but for how long connections have been idle: that can be moved ahead.
#[derive(Clone)]
pub(crate) struct Ahead {
    tokio: Arc<TokioRuntime>,
    ahead: Arc<AtomicU64>,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        Ahead {
            tokio: Arc::new(TokioRuntime::new()),
            ahead: Arc::default(),
        }
    }

    pub(crate) fn advance(&self, time: Duration) {
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

pub(crate) async fn admin() -> Db {
    Db::open(&dsn()).await.unwrap()
}

/// A stream with more rows than anybody reads, whose connection was killed.
pub(crate) async fn is_cut_off(mut stream: RowStream) {
    let ended = soon("the stream ends", async {
        loop {
            match stream.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    });
    let error = ended.await.expect("it cannot come to its end");
    assert_eq!(error.kind(), Kind::ConnectionLost, "{error:?}");
}

#[tokio::test]
async fn idle_session_that_was_killed_costs_no_call() {
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
            let killed = session_id(&db).await;
            kill(&admin, killed).await;
            time.advance(Duration::from_secs(1));
            assert_ne!(session_id(&db).await, killed);
        }
        // One that lives is not replaced by being asked.
        let lives = session_id(&db).await;
        time.advance(Duration::from_secs(1));
        assert_eq!(session_id(&db).await, lives);
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn begin_on_a_connection_killed_while_idle_fails_unbegun() {
    let admin = admin().await;
    let time = Ahead::new();
    let db = Db::builder(&dsn())
        .max(1)
        .runtime(time.clone())
        .open()
        .await
        .unwrap();
    let killed = session_id(&db).await;
    kill(&admin, killed).await;
    time.advance(Duration::from_secs(1));
    let outcome = db.transaction(async || Ok(session_id(&db).await)).await;
    match outcome {
        Ok(other) => assert_ne!(other, killed),
        Err(error) => assert!(error.is_connection_lost(), "{error:?}"),
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_killed_a_moment_ago_fails_at_most_one_call() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    for _ in 0..5 {
        let killed = session_id(&db).await;
        kill(&admin, killed).await;
        if let Err(error) = soon("the call ends", db.ping()).await {
            assert_killed(&error);
        }
        assert_ne!(session_id(&db).await, killed);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_killed_in_a_query_is_a_lost_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let slow = sleep(600.0);
    for sql in [slow.clone(), format!("{slow} WHERE 1 = ?")] {
        let victim = session_id(&db).await;
        let caller = db.clone();
        let task = cenote::spawn(async move {
            match sql.contains('?') {
                true => caller.query(&sql, (1,)).await?,
                false => caller.query(&sql, ()).await?,
            };
            Ok::<(), Error>(())
        });
        is_running(&admin, victim, &slow).await;
        kill(&admin, victim).await;
        let error = soon("the query fails", task).await.unwrap().unwrap_err();
        assert_killed(&error);
        assert_whole(&db).await;
    }
}

#[tokio::test]
async fn connection_killed_in_a_transaction_fails_the_rest_of_it() {
    let admin = admin().await;
    let db = own_tables(|builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let inner = db.clone();
    let outcome = cenote::scope(async {
        let tx = inner.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        let victim = session_id(&inner).await;
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

#[tokio::test]
async fn network_cut_during_a_commit_leaves_an_unknown_outcome() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = own_tables_at(&dsn_through(&proxy), |builder| builder.max(1)).await;
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
    proxy.set(silent());
    let before = proxy.traffic().from_client;
    go_on.send(()).unwrap();
    until("the commit is on its way", async || {
        proxy.traffic().from_client > before
    })
    .await;
    proxy.reset();
    proxy.heal();
    let error = soon("the commit fails", task).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error:?}");
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
    let dead = session_id(&db).await;
    kill(&admin, dead).await;
    until("it is found", async || {
        db.status().total < 2 || {
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(db.connection().await.unwrap());
            }
            let mut ids = Vec::new();
            for connection in &seen {
                let asked = connection.query_as_one::<i64>(SESSION_ID, ()).await;
                ids.push(asked.unwrap_or(dead));
            }
            !ids.contains(&dead)
        }
    })
    .await;
    assert_whole(&db).await;
}
