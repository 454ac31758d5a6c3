//! `Db` works with the driver without knowing anything about notebooks.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use cenote::{Db, Error, Kind, Result, TransactionOptions};
use cenote_notebook::{Notebook, Server};
use tokio::task::JoinSet;

async fn open(server: &Server, max: usize) -> Db {
    let db = Db::builder_with(Notebook, &server.dsn()).max(max);
    db.open().await.unwrap()
}

async fn ids(db: &Db) -> Vec<i64> {
    let notes = db.query("LIST", ()).await.unwrap();
    notes.iter().map(|note| note.get("id").unwrap()).collect()
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing_and_nests() {
    let server = Server::start().await.unwrap();
    let db = open(&server, 2).await;
    let inner_fails: Result<()> = db
        .transaction(async || {
            db.exec("ADD ? ?", (1, "kept")).await?;
            let inner: Result<()> = db
                .transaction(async || {
                    db.exec("ADD ? ?", (2, "undone")).await?;
                    Err(Error::other("no"))
                })
                .await;
            assert_eq!(inner.unwrap_err().kind(), Kind::Other);
            Ok(())
        })
        .await;
    inner_fails.unwrap();
    assert_eq!(ids(&db).await, [1]);
}

#[tokio::test]
async fn a_conflict_is_retried_until_every_task_is_served() {
    let server = Server::start().await.unwrap();
    let db = open(&server, 4).await;
    let mut tasks = JoinSet::new();
    for id in 1..=20_i64 {
        let db = db.clone();
        tasks.spawn(async move {
            let options = TransactionOptions::new().retries(1000);
            let add = async || db.exec("ADD ? ?", (id, "mine")).await.map(drop);
            options.on(&db).retry(add).await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(ids(&db).await, (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn endless_statement_is_cancelled_and_its_connection_works_on() {
    let server = Server::start().await.unwrap();
    let db = Db::builder_with(Notebook, &server.dsn())
        .max(1)
        .statement_timeout(Duration::from_millis(20))
        .open()
        .await
        .unwrap();
    for _ in 0..3 {
        let error = db.exec("WAIT", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::StatementTimeout);
        db.exec("SEVEN", ()).await.unwrap();
    }
    let created = db.pool().expect("it has one").counters().created;
    assert_eq!(created, 1, "the connection was settled, not replaced");
}

#[tokio::test]
async fn nothing_of_one_session_is_seen_by_the_next() {
    let server = Server::start().await.unwrap();
    let db = open(&server, 1).await;
    cenote::scope(async {
        db.exec("REMEMBER milk", ()).await.unwrap();
        db.query("RECALL", ()).await.unwrap();
    })
    .await;
    let error = db.query("RECALL", ()).await.unwrap_err();
    assert_eq!(error.sql_state(), Some("42P01"));
}
