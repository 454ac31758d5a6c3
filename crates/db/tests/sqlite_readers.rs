//! Who only reads does not wait for those who write, nor for those who wait to.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use cenote::{Db, Executed, Result};
use tokio::task::JoinHandle;

const CONNECTIONS: usize = 4;

/// Long for a read, and short for one who waits for the writer lane.
const PATIENCE: Duration = Duration::from_secs(5);

async fn open(folder: &tempfile::TempDir) -> Db {
    let dsn = format!("sqlite:{}", folder.path().join("readers.db").display());
    let db = Db::builder(&dsn).max(CONNECTIONS).open().await.unwrap();
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    db
}

/// Many more than there are connections; returns when as many of them as can be have got one.
async fn crowd_of_writers(db: &Db) -> Vec<JoinHandle<Result<Executed>>> {
    let insert = |n: usize| {
        let db = db.clone();
        cenote::spawn(async move { db.exec("INSERT INTO t VALUES (?)", (n,)).await })
    };
    let writers: Vec<_> = (0..4 * CONNECTIONS).map(insert).collect();
    // Every task has been polled by then, whatever they wait for.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    writers
}

#[tokio::test]
async fn a_read_does_not_wait_for_those_who_wait_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    let writers = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (-1)", ()).await?;
            let writers = crowd_of_writers(&db).await;
            let reader = db.clone();
            let reading = cenote::spawn(async move {
                let count: i64 = reader.query_as_one("SELECT count(*) FROM t", ()).await?;
                Ok::<_, cenote::Error>(count)
            });
            let read = tokio::time::timeout(PATIENCE, reading).await;
            let count = read.expect("the read waits for a writer").unwrap()?;
            assert_eq!(count, 0);
            Ok(writers)
        })
        .await
        .unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_read_outside_of_a_transaction_is_served_though_all_others_wait_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    let writers = db
        .transaction(async || {
            db.exec("INSERT INTO t VALUES (-1)", ()).await?;
            let writers = crowd_of_writers(&db).await;
            let outside = db.outside();
            let reading = outside.query("SELECT count(*) FROM t", ());
            let read = tokio::time::timeout(PATIENCE, reading).await;
            read.expect("the transaction waits for those who wait for it")?;
            Ok(writers)
        })
        .await
        .unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}
