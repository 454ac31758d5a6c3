//! Behaviour of the handle over a real PostgreSQL, case by case.
//!
//! A test is named by what it promises; the IDs of the rows of the conformance list that it covers
//! stand in its doc comment, and `coverage` checks that none is forgotten. What is left out is in
//! `README.md`.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cache;
mod chaos;
mod coverage;
mod handle;
mod lost;
mod queries;
#[path = "../postgres_servers/mod.rs"]
mod servers;
mod statements;
mod transactions;
mod weather;

use cenote::{Builder, Db, Executed, Result};

/// A handle that has opened nothing yet, with the table `t (id, n)` in a schema of its own.
async fn shop(max: usize) -> Db {
    shop_with(|builder| builder.max(max)).await
}

async fn shop_with(describe: impl FnOnce(Builder) -> Builder) -> Db {
    shop_at(&servers::dsn(), describe).await
}

async fn shop_at(dsn: &str, describe: impl FnOnce(Builder) -> Builder) -> Db {
    let db = servers::schema_at(dsn, describe).await;
    let maker = db.config().clone();
    let maker = Builder::from_config(maker).min(0).open().await.unwrap();
    let create = "CREATE TABLE t (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int8)";
    maker.exec(create, ()).await.unwrap();
    maker.close().await.unwrap();
    db
}

async fn insert(db: &Db, n: i64) -> Result<Executed> {
    db.exec("INSERT INTO t (n) VALUES (?)", (n,)).await
}

/// The numbers that are in the table, in order.
async fn numbers(db: &Db) -> Vec<i64> {
    db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap()
}

/// Total, idle, active.
fn counts(db: &Db) -> (usize, usize, usize) {
    let status = db.status();
    (status.total, status.idle, status.active)
}
