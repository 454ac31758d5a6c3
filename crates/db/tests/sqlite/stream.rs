//! Row streams of the SQLite driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{Connection, Request, Status, Value};
use cenote::sqlite::Sqlite;
use cenote::{Kind, Violation};

use crate::support::*;

const NUMBERS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 10000)
                       SELECT i FROM n";

async fn start(db: &mut Box<dyn Connection>, sql: &str) {
    db.start_stream(Request::new(sql, &[])).await.unwrap();
}

async fn rest(db: &mut Box<dyn Connection>) -> Vec<i64> {
    let mut all = Vec::new();
    while let Some(batch) = next_batch(db).await.unwrap() {
        assert!(!batch.is_empty());
        all.extend(column::<i64>(batch));
    }
    all
}

#[tokio::test]
async fn a_stream_gives_every_row_in_order() {
    let mut db = memory().await;
    let columns = db.start_stream(Request::new(NUMBERS, &[])).await.unwrap();
    assert_eq!(columns.as_slice()[0].name, "i");
    assert!(rest(&mut db).await.into_iter().eq(1..=10_000));
    assert!(
        next_batch(&mut db).await.unwrap().is_none(),
        "and none after the last"
    );
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
}

#[tokio::test]
async fn a_stream_takes_parameters() {
    let mut db = memory().await;
    let set = params([Value::Int(2), Value::Int(3)]);
    let request = Request::new("SELECT ? UNION ALL SELECT ?", &set);
    db.start_stream(request).await.unwrap();
    assert_eq!(rest(&mut db).await, [2, 3]);
    let wrong = db.start_stream(Request::new("SELECT ?", &set)).await;
    assert_eq!(wrong.unwrap_err().kind(), Kind::Parameters);
}

#[tokio::test]
async fn a_stream_without_rows_has_columns_and_an_end() {
    let mut db = memory().await;
    let request = Request::new("SELECT 1 AS a WHERE 0", &[]);
    let columns = db.start_stream(request).await.unwrap();
    assert_eq!(columns.len(), 1);
    assert!(next_batch(&mut db).await.unwrap().is_none());
    assert_eq!(db.status(), Status::Idle);
}

/// Counts the rows that SQLite has been asked for.
fn counting() -> (Sqlite, Arc<AtomicUsize>) {
    let produced = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&produced);
    let driver = Sqlite::new().function("counted", 1, false, move |args| {
        counter.fetch_add(1, Ordering::SeqCst);
        args.get::<i64>(0)
    });
    (driver, produced)
}

#[tokio::test]
async fn no_more_than_a_bounded_number_of_rows_is_kept_ready() {
    let (driver, produced) = counting();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    let sql = NUMBERS.replace("SELECT i FROM n", "SELECT counted(i) FROM n");
    // Two that wait, one that is held ready, one in the hands of the reader: of 256 rows each.
    const AHEAD: usize = 4 * 256;
    start(&mut db, &sql).await;
    let mut taken = 0;
    while let Some(batch) = next_batch(&mut db).await.unwrap() {
        taken += batch.len();
        let ahead = produced.load(Ordering::SeqCst) - taken;
        assert!(ahead <= AHEAD, "{ahead}");
    }
    assert_eq!((taken, produced.load(Ordering::SeqCst)), (10_000, 10_000));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_stops_the_statement() {
    let (driver, produced) = counting();
    let mut db = open_with(&driver, "sqlite::memory:").await;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT counted(i) FROM n";
    start(&mut db, endless).await;
    next_batch(&mut db).await.unwrap().unwrap();
    db.end_stream().await.unwrap();
    assert!(produced.load(Ordering::SeqCst) <= 4 * 256 + 1);
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
}

#[tokio::test]
async fn large_rows_make_small_batches() {
    let mut db = memory().await;
    let sql = NUMBERS.replace("SELECT i FROM n", "SELECT zeroblob(40000) FROM n LIMIT 20");
    start(&mut db, &sql).await;
    let mut batches = Vec::new();
    while let Some(batch) = next_batch(&mut db).await.unwrap() {
        batches.push(batch.len());
    }
    assert_eq!(batches, [2; 10]);
}

#[tokio::test]
async fn an_error_before_the_first_row_is_that_of_the_start() {
    let mut db = memory().await;
    let request = Request::new("SELECT * FROM nowhere", &[]);
    let error = db.start_stream(request).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Undefined));
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
    let error = db.start_stream(script("SELECT 1; SELECT 2")).await;
    assert_eq!(error.unwrap_err().kind(), Kind::Unsupported);
}

#[tokio::test]
async fn an_error_in_the_middle_comes_after_the_rows_before_it() {
    let mut db = memory().await;
    let sql = NUMBERS.replace(
        "SELECT i FROM n",
        "SELECT CASE WHEN i < 1000 THEN i ELSE abs(-9223372036854775808) END FROM n",
    );
    start(&mut db, &sql).await;
    let mut taken = 0;
    let error = loop {
        match next_batch(&mut db).await {
            Ok(Some(batch)) => taken += batch.len(),
            Ok(None) => panic!("it must fail"),
            Err(error) => break error,
        }
    };
    assert!(error.message().contains("overflow"), "{error}");
    assert_eq!(taken, 999 / 256 * 256);
    assert_eq!(db.status(), Status::Idle);
    assert!(next_batch(&mut db).await.unwrap().is_none());
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
}

#[tokio::test]
async fn other_calls_are_refused_while_a_stream_is_open() {
    let mut db = memory().await;
    start(&mut db, NUMBERS).await;
    let error = try_exec(&mut db, "SELECT 1").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    let second = db.start_stream(Request::new(NUMBERS, &[])).await;
    assert_eq!(second.unwrap_err().kind(), Kind::Busy);
    assert!(rest(&mut db).await.into_iter().eq(1..=10_000), "it goes on");
}

#[tokio::test]
async fn ending_a_stream_early_leaves_the_transaction_alone() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    for batches in 0..4 {
        start(&mut db, NUMBERS).await;
        assert_eq!(db.status(), Status::InTransaction);
        for _ in 0..batches {
            next_batch(&mut db).await.unwrap().unwrap();
        }
        db.end_stream().await.unwrap();
        assert_eq!(db.status(), Status::InTransaction);
    }
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn ending_a_stream_that_writes_undoes_nothing() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (0)").await;
    for n in 1..=3 {
        let sql = format!("INSERT INTO t {NUMBERS} RETURNING a");
        start(&mut db, &sql).await;
        if n > 1 {
            next_batch(&mut db).await.unwrap().unwrap();
        }
        db.end_stream().await.unwrap();
        assert_eq!(db.status(), Status::InTransaction);
        let rows = one::<i64>(&mut db, "SELECT count(*) FROM t").await;
        assert_eq!(rows, 1 + n * 10_000);
    }
    db.commit().await.unwrap();
    // Outside of a transaction what was inserted stays as well.
    start(&mut db, &format!("INSERT INTO t {NUMBERS} RETURNING a")).await;
    db.end_stream().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 40_001);
}

#[tokio::test]
async fn write_whose_stream_is_ended_early_still_reports_its_failure() {
    let file = TempDb::new();
    let dsn = format!("{}?journal_mode=delete&busy_timeout=0", file.dsn());
    let mut db = open(&dsn).await;
    let mut reader = open(&dsn).await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    exec(&mut reader, "BEGIN").await;
    exec(&mut reader, "SELECT * FROM t").await;
    // It writes and gives its rows, but cannot be committed while the other one reads.
    start(&mut db, &format!("INSERT INTO t {NUMBERS} RETURNING a")).await;
    let error = db.end_stream().await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked), "{error}");
    assert_eq!(db.status(), Status::Idle);
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
}

#[tokio::test]
async fn a_stream_that_finds_no_more_rows_for_long_can_be_ended() {
    let mut db = memory().await;
    // One row, and then a search without end.
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
               SELECT i FROM n WHERE i <= 256";
    start(&mut db, sql).await;
    assert_eq!(next_batch(&mut db).await.unwrap().unwrap().len(), 256);
    db.end_stream().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT 7").await, 7);
}

#[tokio::test]
async fn ending_a_stream_that_is_not_there_is_fine() {
    let mut db = memory().await;
    db.end_stream().await.unwrap();
    start(&mut db, "SELECT 1").await;
    rest(&mut db).await;
    db.end_stream().await.unwrap();
}

#[tokio::test]
async fn a_stream_can_be_dropped_at_any_poll() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    for polls in 0..200 {
        let request = Request::new(NUMBERS, &[]);
        poll_times(db.start_stream(request), polls);
        db.settle().await.unwrap();
        assert_eq!(db.status(), Status::InTransaction);
        assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);

        start(&mut db, NUMBERS).await;
        for _ in 0..polls % 5 {
            poll_times(next_batch(&mut db), polls);
        }
        if polls % 2 == 0 {
            poll_times(db.end_stream(), polls % 3);
        }
        db.settle().await.unwrap();
        assert_eq!(db.status(), Status::InTransaction);
        assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
    }
}

#[tokio::test]
async fn a_connection_dropped_or_closed_with_a_stream_ends_its_thread() {
    for closes in [false, true] {
        let mut db = memory().await;
        let thread = sqlite(&mut db).take_thread().unwrap();
        start(&mut db, NUMBERS).await;
        if closes {
            db.close().await.unwrap();
        } else {
            drop(db);
        }
        thread.join().unwrap();
    }
}

#[test]
fn a_stream_needs_no_executor() {
    let rows = block_on(async {
        let mut db = memory().await;
        start(&mut db, NUMBERS).await;
        rest(&mut db).await.len()
    });
    assert_eq!(rows, 10_000);
}
