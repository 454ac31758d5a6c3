//! Backends that the server ends.

use cenote::{Db, Error, Kind};

use super::shared::killed::{admin, is_cut_off};
use crate::servers::{
    assert_whole, dsn, is_gone, is_running, kill, own_tables, quiet, session_id, soon,
};

#[tokio::test]
async fn backend_ended_in_a_stream_fails_it_with_the_servers_message() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(2).open().await.unwrap();
    let sql = "SELECT pg_backend_pid()::int8 AS pid, repeat('x', 1000) \
               FROM generate_series(1, 1000000)";
    let mut stream = db.stream(sql, ()).await.unwrap();
    let first = soon("a row comes", stream.try_next())
        .await
        .unwrap()
        .unwrap();
    kill(&admin, first.get("pid").unwrap()).await;
    is_cut_off(stream).await;
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_ended_during_a_commit_leaves_an_unknown_outcome() {
    let admin = admin().await;
    let db = own_tables(|builder| builder.max(2)).await;
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
        tell.send(session_id(&caller).await).unwrap();
        tx.commit().await
    });
    let process = told.await.unwrap();
    is_running(&admin, process, "COMMIT").await;
    kill(&admin, process).await;
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
async fn query_cancelled_from_outside_fails_and_keeps_its_connection() {
    let admin = admin().await;
    let db = Db::builder(&dsn()).max(1).open().await.unwrap();
    let process = session_id(&db).await;
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
    assert_eq!(session_id(&db).await, process);
    assert_whole(&db).await;
}

#[tokio::test]
async fn transaction_past_the_idle_limit_is_lost_with_its_reason() {
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
        let process = session_id(&inner).await;
        is_gone(&admin, process).await;
        tx.exec("SELECT 1", ()).await?;
        tx.commit().await
    });
    let error = soon("it ends", outcome).await.unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert_eq!(error.sql_state(), Some("25P03"), "{error:?}");
    assert_whole(&db).await;
}
