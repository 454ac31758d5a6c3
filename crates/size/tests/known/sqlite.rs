//! SQLite has one writer at a time: one connection is enough for a program that only writes. And it is a library: with one
//! processor, one connection is enough for a program that calculates.

use std::time::Duration;

use cenote_size::limit::Limit;

use crate::{Known, Processors, alone, prepared};

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_sqlite_need_one_connection() {
    let _alone = alone().await;
    let folder = tempfile::tempdir().unwrap();
    // Neither the disk nor other programs decide about the speed.
    let dsn = format!(
        "sqlite:{}?synchronous=off",
        folder.path().join("writes.db").display()
    );
    let _own = Processors::of(&std::process::id().to_string(), "0");
    prepared(
        &dsn,
        &[
            "CREATE TABLE entry (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
            "INSERT INTO entry WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 100) SELECT n, 0 FROM i",
        ],
    )
    .await;
    let known = Known {
        dsn: &dsn,
        workload: "param id = 1 .. 100\ntransaction\n  UPDATE entry SET n = n + 1 WHERE id = :id;\n  \
                   UPDATE entry SET n = n - 1 WHERE id = 101 - :id",
        allow_writes: true,
        length: Duration::from_secs(16),
        size: 1,
        limits: &[Limit::OneWriter],
    };
    known.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_for_one_own_processor_needs_one_connection() {
    let _alone = alone().await;
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("reads.db").display());
    prepared(&dsn, &["CREATE TABLE entry (id INTEGER PRIMARY KEY)"]).await;
    let _own = Processors::of(&std::process::id().to_string(), "0");
    let known = Known {
        dsn: &dsn,
        workload: "param most = 19990 .. 20010\nstatement\n  WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i \
                   WHERE n < :most) SELECT sum(n) FROM i",
        allow_writes: false,
        length: Duration::from_secs(16),
        size: 1,
        limits: &[Limit::ClientCpu],
    };
    known.verify().await;
}
