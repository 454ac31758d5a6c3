//! Bulk loading on SQLite, and how far the input is ahead, on the fake driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote::Db;
use cenote_testkit::Fake;
use tempfile::TempDir;

use crate::bulk::{CREATE, bulk_tests};

struct Shop {
    db: Db,
    _folder: TempDir,
}

async fn shops() -> [Shop; 1] {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("bulk.db").display());
    let db = Db::builder(&dsn).max(2).open().await.unwrap();
    db.exec(CREATE, ()).await.unwrap();
    [Shop {
        db,
        _folder: folder,
    }]
}

bulk_tests!(shops);

/// Returns how many sets have been sent to the driver in batches.
fn sent(fake: &Fake) -> u64 {
    let sets = |line: &String| line.rsplit_once(" x")?.1.parse::<u64>().ok();
    fake.log().iter().filter_map(sets).sum()
}

#[tokio::test]
async fn input_is_at_most_two_chunks_ahead() {
    let fake = Arc::new(Fake::new());
    let db = fake.builder().max(1).open().await.unwrap();
    let most = Arc::new(AtomicU64::new(0));
    let (seen, furthest) = (Arc::clone(&fake), Arc::clone(&most));
    let sets = (1..=60_000_u64).map(move |n| {
        let ahead = n - sent(&seen);
        furthest.fetch_max(ahead, Ordering::Relaxed);
        (i64::try_from(n).unwrap(),)
    });
    // Looking at the log for each set takes a while, and there are few lines in it.
    let done = db
        .exec_many("INSERT INTO t VALUES (?)", sets)
        .await
        .unwrap();
    assert_eq!(done.rows_affected, 60_000);
    let most = most.load(Ordering::Relaxed);
    assert!((1..=2 * 8_192).contains(&most), "{most} sets ahead");
    let batches = fake
        .log()
        .iter()
        .filter(|line| line.contains(" x8192"))
        .count();
    assert_eq!(batches, 7, "{:?}", fake.log());
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn large_values_make_small_chunks() {
    let fake = Fake::new();
    let db = fake.builder().max(1).open().await.unwrap();
    let large = "x".repeat(300_000);
    let sets = (1..=20_i64).map(|n| (n, &*large));
    db.exec_many("INSERT INTO t VALUES (?, ?)", sets)
        .await
        .unwrap();
    let log = fake.log();
    let batches = log.iter().filter(|line| line.ends_with(" x4")).count();
    assert_eq!(batches, 5, "{log:?}");
}

#[tokio::test]
async fn one_chunk_is_one_call_and_more_are_a_transaction() {
    let fake = Fake::new();
    let db = fake.builder().max(1).open().await.unwrap();
    let sql = "INSERT INTO t VALUES (?)";
    db.exec_many(sql, 0..8_000_i64).await.unwrap();
    assert_eq!(
        fake.take_log(),
        ["connect 1", &format!("run_batch 1 {sql} x8000")]
    );
    db.exec_many(sql, 8_000..17_000_i64).await.unwrap();
    assert_eq!(
        fake.take_log(),
        [
            "begin 1",
            &format!("run_batch 1 {sql} x8192"),
            &format!("run_batch 1 {sql} x808"),
            "commit 1"
        ]
    );
    let in_transaction = db.transaction(async || db.exec_many(sql, 17_000..26_000_i64).await);
    in_transaction.await.unwrap();
    assert_eq!(fake.take_log().len(), 4, "no savepoint");
}
