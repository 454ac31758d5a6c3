//! Behaviour of the handle over a real MariaDB, case by case.
//!
//! A test is named by what it promises; the IDs of the rows of the conformance list that it covers
//! stand in its doc comment, and `coverage` checks that none is forgotten. What is left out is in
//! `README.md`.

#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bindings;
mod cache;
mod chaos;
mod coverage;
mod errors;
mod handle;
mod lost;
mod queries;
#[path = "../mysql_servers/mod.rs"]
mod servers;
mod session;
mod transactions;
mod weather;

use cenote::{Builder, Db, Executed, Result};

/// A handle that has opened nothing yet, with the table `t (id, n)` in a database of its own.
async fn shop(max: usize) -> Db {
    shop_with(|builder| builder.max(max)).await
}

async fn shop_with(describe: impl FnOnce(Builder) -> Builder) -> Db {
    shop_at(&servers::dsn(), describe).await
}

async fn shop_at(dsn: &str, describe: impl FnOnce(Builder) -> Builder) -> Db {
    let name = servers::unique("shop");
    let maker = Db::builder(dsn).max(1).open().await.unwrap();
    let create = format!(
        "CREATE DATABASE {name}; \
         CREATE TABLE {name}.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, n BIGINT)"
    );
    maker.exec(&create, ()).await.unwrap();
    maker.close().await.unwrap();
    let builder = Db::builder(dsn).option("dbname", name);
    describe(builder).open().await.unwrap()
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
