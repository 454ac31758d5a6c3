//! A SQLite transaction that writes waits for its turn as a task and begins inline, without a hop to the
//! connection's thread.

use cenote::Result;
use cenote::driver::{Begin, BoxFuture, Connection, Status};

use crate::support::*;

struct TestDatabase(TempDb);

impl TestDatabase {
    fn new() -> Self {
        TestDatabase(TempDb::new())
    }

    /// A connection that has begun often enough to do so in place, however busy the machine is.
    async fn open(&self) -> Box<dyn Connection> {
        self.open_with("busy_timeout=1d").await
    }

    async fn open_with(&self, option: &str) -> Box<dyn Connection> {
        let mut db = open(&format!("{}?in_place=on&{option}", self.0.dsn())).await;
        sqlite(&mut db).time_nothing();
        exec(&mut db, "CREATE TABLE IF NOT EXISTS t (n INTEGER)").await;
        for _ in 0..2 {
            begin(&mut db).await;
            db.rollback().await.unwrap();
        }
        db
    }
}

fn begins(db: &mut Box<dyn Connection>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async {
        let begun = db.begin_with(&Begin::default(), None).await;
        begun.map(drop)
    })
}

fn begins_at_once(db: &mut Box<dyn Connection>) -> bool {
    poll_times(begins(db), 1).is_some_and(|begun| begun.is_ok())
}

#[tokio::test]
async fn writing_transaction_begins_at_the_first_poll_once_short() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    assert!(begins_at_once(&mut db));
    assert_eq!(db.status(), Status::InTransaction);
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_second_begin_runs_when_the_first_has_ended() {
    let database = TestDatabase::new();
    let (mut first, mut second) = (database.open().await, database.open().await);
    assert!(begins_at_once(&mut first));
    let mut waiting = begins(&mut second);
    assert_pending(&mut waiting);
    assert_pending(&mut waiting);
    exec(&mut first, "INSERT INTO t VALUES (1)").await;
    first.commit().await.unwrap();
    waiting.await.unwrap();
    assert_eq!(second.status(), Status::InTransaction);
    assert_eq!(one::<i64>(&mut second, "SELECT count(*) FROM t").await, 1);
    second.rollback().await.unwrap();
}

#[tokio::test]
async fn a_begin_dropped_while_it_waits_blocks_no_other() {
    let database = TestDatabase::new();
    let (mut first, mut second) = (database.open().await, database.open().await);
    let mut third = database.open().await;
    assert!(begins_at_once(&mut first));
    assert!(!begins_at_once(&mut second));
    let mut waiting = begins(&mut third);
    assert_pending(&mut waiting);
    first.rollback().await.unwrap();
    waiting.await.unwrap();
    second.settle().await.unwrap();
    assert_eq!(second.status(), Status::Idle);
    third.rollback().await.unwrap();
    assert!(begins_at_once(&mut second));
    second.rollback().await.unwrap();
}

#[tokio::test]
async fn a_begin_dropped_at_its_turn_passes_the_turn_on() {
    let database = TestDatabase::new();
    let (mut first, mut second) = (database.open().await, database.open().await);
    let mut third = database.open().await;
    assert!(begins_at_once(&mut first));
    let mut not_collected = begins(&mut second);
    assert_pending(&mut not_collected);
    let mut waiting = begins(&mut third);
    assert_pending(&mut waiting);
    first.rollback().await.unwrap();
    // It is its turn, and it does not know yet.
    drop(not_collected);
    waiting.await.unwrap();
    third.rollback().await.unwrap();
    second.settle().await.unwrap();
    assert_eq!(second.status(), Status::Idle);
}

#[tokio::test]
async fn a_begin_that_times_out_reports_a_busy_database() {
    let database = TestDatabase::new();
    let mut first = database.open().await;
    let mut second = database.open_with("busy_timeout=1ms").await;
    assert!(begins_at_once(&mut first));
    let refused = second
        .begin_with(&Begin::default(), None)
        .await
        .unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    assert_eq!(second.status(), Status::Idle);
    first.rollback().await.unwrap();
    assert!(begins_at_once(&mut second));
    second.rollback().await.unwrap();
}

#[tokio::test]
async fn a_lock_of_another_program_is_waited_for_on_the_thread() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    // It queues nowhere, as another program would not.
    let other = rusqlite::Connection::open(database.0.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = begins(&mut db);
    assert_pending(&mut waiting);
    other
        .execute_batch("INSERT INTO t VALUES (7); COMMIT")
        .unwrap();
    waiting.await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT n FROM t").await, 7);
    db.rollback().await.unwrap();
}

#[tokio::test]
async fn transaction_begins_even_where_nothing_can_be_written() {
    let database = TestDatabase::new();
    drop(database.open().await);
    let mut db = open(&format!("{}?in_place=on&mode=ro", database.0.dsn())).await;
    for _ in 0..5 {
        begin(&mut db).await;
        assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
        db.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_second_begin_is_refused_and_ends_nothing() {
    let database = TestDatabase::new();
    let mut db = database.open().await;
    assert!(begins_at_once(&mut db));
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    assert!(begins(&mut db).await.is_err());
    assert_eq!(db.status(), Status::InTransaction);
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}
