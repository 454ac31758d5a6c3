//! Connections that are lost: idle, in a statement, in a transaction, in a commit; and a server that goes
//! under load.

use cenote::{Db, Kind};

use crate::servers::bank::Bank;
use crate::servers::own::OwnServer;
use crate::servers::{MAKE, assert_whole, is_running, kill, quiet, session_id, soon};
use crate::sources::{own_schema, postgres_at, postgres_dsn};

async fn admin() -> Db {
    Db::open(&postgres_dsn()).await.unwrap()
}

async fn open(max: usize) -> Db {
    let dsn = own_schema(&postgres_dsn()).await;
    let db = Db::builder(&dsn).max(max).open().await.unwrap();
    db.exec("CREATE TABLE t (n INTEGER PRIMARY KEY)", ())
        .await
        .unwrap();
    db
}

#[tokio::test]
async fn idle_session_that_was_ended_costs_at_most_one_call() {
    let (admin, db) = (admin().await, open(1).await);
    for _ in 0..3 {
        let ended = session_id(&db).await;
        kill(&admin, ended).await;
        match db.exec("SELECT 1", ()).await {
            Ok(_) => {}
            Err(error) => assert!(error.is_connection_lost(), "{error:?}"),
        }
        assert_ne!(session_id(&db).await, ended);
    }
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_ended_in_a_statement_is_lost_and_replaced() {
    let (admin, db) = (admin().await, open(1).await);
    let ended = session_id(&db).await;
    let statement = db.exec("SELECT pg_catalog.pg_sleep(60)", ());
    let killing = async {
        is_running(&admin, ended, "SELECT pg_catalog.pg_sleep").await;
        kill(&admin, ended).await;
    };
    let (done, ()) = soon("it fails", async { tokio::join!(statement, killing) }).await;
    let error = done.unwrap_err();
    assert!(error.is_connection_lost(), "{error:?}");
    assert_ne!(session_id(&db).await, ended);
    assert_whole(&db).await;
}

#[tokio::test]
async fn connection_ended_in_a_transaction_runs_nothing_outside_it() {
    let (admin, db) = (admin().await, open(2).await);
    let lost = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (1)", ()).await?;
            let ended = session_id(&db).await;
            kill(&admin, ended).await;
            let first = db.exec("INSERT INTO t VALUES (2)", ()).await.unwrap_err();
            assert!(first.is_connection_lost(), "{first:?}");
            let next = db.exec("INSERT INTO t VALUES (3)", ()).await.unwrap_err();
            assert!(
                matches!(next.kind(), Kind::TransactionLost | Kind::ConnectionLost),
                "{next:?}"
            );
            Ok(())
        })
        .await;
    lost.unwrap_err();
    let rows: Vec<i64> = db.query_as("SELECT n FROM t", ()).await.unwrap();
    assert_eq!(rows, [0; 0]);
    assert_whole(&db).await;
}

#[tokio::test]
async fn session_ended_in_a_commit_leaves_its_outcome_unknown() {
    let (admin, db) = (admin().await, open(2).await);
    // What is checked at the end of the transaction takes its time.
    db.exec(
        "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_catalog.pg_sleep(60); RETURN NULL; END'",
        (),
    )
    .await
    .unwrap();
    db.exec(
        "CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON t \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()",
        (),
    )
    .await
    .unwrap();
    quiet(&db).await;
    let (told, mut ended) = tokio::sync::watch::channel(0);
    let committing = db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1)", ()).await?;
        told.send_replace(session_id(&db).await);
        Ok(())
    });
    let killing = async {
        let ended = *ended.wait_for(|ended| *ended != 0).await.unwrap();
        is_running(&admin, ended, "COMMIT").await;
        kill(&admin, ended).await;
    };
    let (done, ()) = soon("it fails", async { tokio::join!(committing, killing) }).await;
    assert_eq!(done.unwrap_err().kind(), Kind::OutcomeUnknown);
    assert_whole(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_goes_under_load_and_comes_back_loses_no_cent() {
    let mut server = OwnServer::start(MAKE.durable).await;
    let dsn = format!(
        "{};UID=cenote;PWD=cenote-secret",
        postgres_at(server.port())
    );
    let bank = Bank::open(Db::builder(&dsn).max(4), |_| true).await;
    bank.survives(&mut server, OwnServer::crash).await;
}
