//! Connections and queries that MariaDB ends.

use std::task::Poll;
use std::time::Duration;

use cenote::{Db, Error, Kind};

use super::shared::bytes::nothing_is_lost_in_silence;
use super::shared::killed::{Ahead, admin, is_cut_off};
use crate::servers::own::OwnServer;
use crate::servers::{
    assert_whole, dsn, dsn_with, is_gone, is_running, own_tables, own_tables_at, quiet, session_id,
    soon,
};

#[tokio::test]
async fn session_killed_in_a_stream_is_a_lost_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let sql = "SELECT CONNECTION_ID() AS id, REPEAT('x', 1000) \
               FROM seq_1_to_100000 a, seq_1_to_100000 b";
    let mut stream = db.stream(sql, ()).await.unwrap();
    let first = soon("a row comes", stream.try_next())
        .await
        .unwrap()
        .unwrap();
    let victim: i64 = first.get("id").unwrap();
    admin.exec(&format!("KILL {victim}"), ()).await.unwrap();
    is_cut_off(stream).await;
    is_gone(&admin, victim).await;
    assert_whole(&db).await;
}

/// Another session holds what a COMMIT has to wait for, so that it can be caught in the act.
#[tokio::test]
async fn a_server_that_goes_during_a_commit_leaves_an_unknown_outcome() {
    let mut server = OwnServer::start(&[]).await;
    let db = own_tables_at(&server.dsn(), |builder| builder.max(2)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let admin = Db::open(&server.dsn()).await.unwrap();
    let blocker = admin.connection().await.unwrap();
    let caller = db.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let task = cenote::spawn(async move {
        let tx = caller.begin().await?;
        tx.exec("INSERT INTO t VALUES (1)", ()).await?;
        tell.send(session_id(&caller).await).unwrap();
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
async fn a_reset_at_any_byte_of_tls_loses_nothing_in_silence() {
    nothing_is_lost_in_silence("require").await;
}

#[tokio::test]
async fn query_killed_by_someone_else_fails_and_keeps_its_connection() {
    let admin = admin().await;
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (n INT)", ()).await.unwrap();
    let victim = session_id(&db).await;
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
    assert_eq!(session_id(&db).await, victim);
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_past_the_servers_idle_limit_is_replaced_silently() {
    let time = Ahead::new();
    let db = Db::builder(&dsn_with("set.wait_timeout=1"))
        .max(1)
        .runtime(time.clone())
        .open()
        .await
        .unwrap();
    let admin = admin().await;
    let first = session_id(&db).await;
    is_gone(&admin, first).await;
    time.advance(Duration::from_secs(2));
    assert_ne!(session_id(&db).await, first);
    assert_whole(&db).await;
}

/// Polls a future at most so often, and drops it.
async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The call that cleans up after a dropped one has closed the connection when it is dropped as well.
#[tokio::test]
async fn two_dropped_calls_do_not_lose_a_session_in_silence() {
    const ASK: &str = "SELECT @x";
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(3).open().await.unwrap();
    for times in 1..100 {
        let was_ready = cenote::scope(async {
            db.exec("SET @x = 5", ()).await.unwrap();
            let id = session_id(&db).await;
            let mut call = Box::pin(db.exec("SELECT SLEEP(600)", ()));
            tokio::select! {
                _ = &mut call => panic!("it takes longer"),
                () = is_running(&admin, id, "SELECT SLEEP") => {}
            }
            drop(call);
            let next = poll_times(times, db.query_as_one::<Option<i64>>(ASK, ())).await;
            if let Some(told) = next {
                assert_eq!(told.unwrap_err().kind(), Kind::ConnectionLost);
                return true;
            }
            let told = db.query_as_one::<Option<i64>>(ASK, ()).await;
            assert!(told.is_err(), "dropped at poll {times}: {told:?}");
            false
        })
        .await;
        if was_ready {
            return assert_whole(&db).await;
        }
    }
    panic!("it was never ready");
}

/// The rollback of a closure finds the connection closed, and has nobody to tell.
#[tokio::test]
async fn rollback_after_a_dropped_call_leaves_the_loss_to_the_next() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(3).open().await.unwrap();
    for guarded in [false, true] {
        cenote::scope(async {
            db.exec("SET @x = 5", ()).await.unwrap();
            let id = session_id(&db).await;
            let drop_call = async || {
                let mut call = Box::pin(db.exec("SELECT SLEEP(600)", ()));
                tokio::select! {
                    _ = &mut call => panic!("it takes longer"),
                    () = is_running(&admin, id, "SELECT SLEEP") => {}
                }
            };
            if guarded {
                let tx = db.begin().await.unwrap();
                drop_call().await;
                tx.rollback().await.unwrap();
            } else {
                let done = db.transaction(async || {
                    drop_call().await;
                    Err::<(), _>(Error::new(Kind::Other, "a reason of its own"))
                });
                assert_eq!(done.await.unwrap_err().kind(), Kind::Other);
            }
            let told = db.query_as_one::<Option<i64>>("SELECT @x", ()).await;
            let lost = told.map_err(|error| error.kind());
            assert_eq!(lost, Err(Kind::ConnectionLost), "guarded: {guarded}");
        })
        .await;
    }
    assert_whole(&db).await;
}
