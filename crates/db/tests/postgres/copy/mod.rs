//! COPY from and to the client.

mod cancel;
mod data;
mod faults;
mod refused;
mod rows;
mod transactions;
mod values;

use cenote::postgres::CopyOut;
use cenote::{Builder, Db, Result};

use crate::servers::own_tables;

/// A handle with a table `t (id int8 PRIMARY KEY, name text)` of its own.
async fn db_with(describe: impl FnOnce(Builder) -> Builder) -> Db {
    let db = own_tables(describe).await;
    let sql = "CREATE TABLE t (id int8 PRIMARY KEY, name text)";
    db.exec(sql, ()).await.unwrap();
    db
}

async fn db() -> Db {
    db_with(|builder| builder.max(2)).await
}

async fn count(db: &Db) -> i64 {
    let counted = db.query_scalar_one("SELECT count(*) FROM t", ()).await;
    counted.unwrap()
}

/// All data of a COPY, as text.
async fn read_all(mut copy: CopyOut) -> Result<String> {
    let mut data = Vec::new();
    while let Some(piece) = copy.try_next().await? {
        assert!(!piece.is_empty());
        data.extend_from_slice(&piece);
    }
    Ok(String::from_utf8(data).unwrap())
}

/// A megabyte of rows as CSV, from this id on.
fn megabyte(first: usize) -> (String, usize) {
    let mut data = String::new();
    let mut id = first;
    while data.len() < 1_000_000 {
        data.push_str(&format!("{id},{}\n", "x".repeat(90)));
        id += 1;
    }
    (data, id)
}

const CSV_IN: &str = "COPY t FROM STDIN (FORMAT csv)";
