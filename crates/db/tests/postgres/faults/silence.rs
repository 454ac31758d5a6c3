//! Servers and networks that stop saying anything.

use std::time::Duration;

use cenote::{Db, Error, Kind};
use cenote_testkit::proxy::Network;

use crate::servers::network::{dsn_through, proxy_with, silent};
use crate::servers::own::send;
use crate::servers::scripted::{Client, Scripted, message};
use crate::servers::{
    assert_whole, dsn, is_gone, is_running, own_tables_at, quiet, session_id, soon,
};

const CLEANUP: Duration = Duration::from_millis(300);

#[tokio::test]
async fn server_that_stops_inside_a_message_is_given_up_in_time() {
    // Half a row: what it says it still has to send never comes.
    for part in [
        &b"D"[..],
        b"D\0\0",
        b"D\0\0\0\x20\0\x01\0\0\0\x10abc",
        // As much as the protocol allows: nobody may make room for it before it has come.
        b"D\x3f\xff\xff\xff\0\x01\x3f\xff\xff\xf0abc",
    ] {
        let part = part.to_vec();
        let server = Scripted::new(move |mut client: Client| {
            let part = part.clone();
            async move {
                client.let_in().await;
                client.read_request().await;
                client.send(&message(b'1', &[])).await;
                client.send(&part).await;
                client.fall_silent().await;
            }
        })
        .await;
        let db = Db::builder(&server.dsn())
            .statement_timeout(Duration::from_millis(100))
            .cleanup_timeout(CLEANUP)
            .max(1)
            .open()
            .await
            .unwrap();
        let query = db.query("SELECT ?::text", ("x",));
        let error = soon("the statement's limit ends it", query)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::StatementTimeout, "{error:?}");
        quiet(&db).await;
        assert_eq!(db.status().total, 0, "its place is free");
    }
}

#[tokio::test]
async fn call_dropped_in_a_silent_network_is_given_up_in_time() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = Db::builder(&dsn_through(&proxy))
        .max(2)
        .cleanup_timeout(CLEANUP)
        .open()
        .await
        .unwrap();
    let before = session_id(&db).await;
    proxy.set(silent());
    let call = db.query_as_one::<i64>("SELECT 1::int8", ());
    let waited = tokio::time::timeout(Duration::from_millis(50), call).await;
    assert!(waited.is_err(), "nothing comes through");
    quiet(&db).await;
    assert_eq!(db.status().total, 0, "it could not be settled in time");
    proxy.heal();
    assert_whole(&db).await;
    assert_ne!(session_id(&db).await, before);
}

#[tokio::test]
async fn commit_into_a_silent_network_can_be_given_up() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = own_tables_at(&dsn_through(&proxy), |builder| {
        builder.max(1).cleanup_timeout(CLEANUP)
    })
    .await;
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    let commit = db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        proxy.set(silent());
        Ok(())
    });
    let waited = tokio::time::timeout(Duration::from_millis(400), commit).await;
    assert!(waited.is_err(), "nothing comes through");
    quiet(&db).await;
    assert_eq!(db.status().total, 0, "it could not be settled in time");
    proxy.heal();
    assert_whole(&db).await;
    let rows: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert!(rows <= 1, "committed or not, but once");
}

#[tokio::test]
async fn backend_that_ignores_a_cancel_is_given_up_in_time() {
    let admin = Db::open(&dsn()).await.unwrap();
    let db = Db::builder(&dsn())
        .max(1)
        .cleanup_timeout(CLEANUP)
        .open()
        .await
        .unwrap();
    let process = session_id(&db).await;
    let caller = db.clone();
    let task = cenote::spawn(async move {
        caller.query("SELECT pg_sleep(600)", ()).await?;
        Ok::<(), Error>(())
    });
    is_running(&admin, process, "SELECT pg_sleep(600)").await;
    send("STOP", &process.to_string());
    task.abort();
    quiet(&db).await;
    assert_eq!(db.status().total, 0, "the connection was given up");
    assert_whole(&db).await;
    send("CONT", &process.to_string());
    is_gone(&admin, process).await;
}

#[tokio::test]
async fn statement_past_its_limit_is_cancelled_on_a_kept_connection() {
    let db = Db::builder(&dsn())
        .max(1)
        .statement_timeout(Duration::from_millis(100))
        .open()
        .await
        .unwrap();
    let before = session_id(&db).await;
    let slow = db.query("SELECT pg_sleep(600)", ());
    let error = soon("the limit ends it", slow).await.unwrap_err();
    assert_eq!(error.kind(), Kind::StatementTimeout, "{error:?}");
    quiet(&db).await;
    assert_eq!(
        session_id(&db).await,
        before,
        "cancelled, drained, and fit for use"
    );
    assert_whole(&db).await;
}

#[tokio::test]
async fn a_commit_past_the_statement_limit_is_given_up_as_unknown() {
    let proxy = proxy_with(Network::ideal()).await;
    let db = own_tables_at(&dsn_through(&proxy), |builder| {
        builder
            .max(1)
            .cleanup_timeout(CLEANUP)
            .statement_timeout(Duration::from_millis(400))
    })
    .await;
    db.exec("CREATE TABLE t (n int)", ()).await.unwrap();
    let commit = db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        proxy.set(silent());
        Ok(())
    });
    let error = soon("the commit ends", commit).await.unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown, "{error:?}");
}
