//! What is to hold on every server: `mysql` and `postgres` both run it.
//!
//! A row of the conformance list that both have under IDs of their own is tested here once, with the
//! IDs of both.

mod bulk;
mod chains;
mod chaos;
mod handle;
mod hooks;
mod lazy;
mod lost;
mod network;
mod replacing;
mod statements;
mod transactions;

use cenote::{Builder, Db, Outcome, Result};

use crate::servers::{MAKE, dsn, own_tables_at};

/// A handle that has opened nothing yet, with the table `t (id, n)` to itself.
pub(crate) async fn shop(max: usize) -> Db {
    shop_with(|builder| builder.max(max)).await
}

pub(crate) async fn shop_with(describe: impl FnOnce(Builder) -> Builder) -> Db {
    shop_at(&dsn(), describe).await
}

async fn shop_at(dsn: &str, describe: impl FnOnce(Builder) -> Builder) -> Db {
    let db = own_tables_at(dsn, describe).await;
    let maker = Builder::from_config(db.config().clone()).min(0);
    let maker = maker.open().await.unwrap();
    let counter = MAKE.counter;
    let create = format!("CREATE TABLE t (id {counter} PRIMARY KEY, n BIGINT)");
    maker.exec(&create, ()).await.unwrap();
    maker.close().await.unwrap();
    db
}

pub(crate) async fn insert(db: &Db, n: i64) -> Result<Outcome> {
    db.exec("INSERT INTO t (n) VALUES (?)", (n,)).await
}

/// The numbers that are in the table, in order.
pub(crate) async fn numbers(db: &Db) -> Vec<i64> {
    db.query_as("SELECT n FROM t ORDER BY n", ()).await.unwrap()
}

/// Total, idle, active.
pub(crate) fn counts(db: &Db) -> (usize, usize, usize) {
    let status = db.status();
    (status.total, status.idle, status.active)
}
