//! A transaction of SQLite's that writes begins where it is called, in its turn, without a hop to the
//! connection's thread; and it is committed on the thread, for which a task stands by that knows it to
//! be brief.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod sqlite_support;

use cenote::Result;
use cenote::driver::{Begin, BoxFuture, Connection, Status};
use sqlite_support::*;

struct Place(TempDb);

impl Place {
    fn new() -> Self {
        Place(TempDb::new())
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
async fn a_transaction_that_writes_begins_at_the_first_poll_once_that_is_known_to_be_short() {
    let place = Place::new();
    let mut db = place.open().await;
    assert!(begins_at_once(&mut db));
    assert_eq!(db.status(), Status::InTransaction);
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn one_that_is_not_first_has_its_turn_when_the_other_has_ended() {
    let place = Place::new();
    let (mut first, mut second) = (place.open().await, place.open().await);
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
async fn one_that_is_dropped_while_it_waits_is_in_nobodys_way() {
    let place = Place::new();
    let (mut first, mut second) = (place.open().await, place.open().await);
    let mut third = place.open().await;
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
async fn one_that_is_dropped_when_it_has_its_turn_passes_it_on() {
    let place = Place::new();
    let (mut first, mut second) = (place.open().await, place.open().await);
    let mut third = place.open().await;
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
async fn one_whose_time_is_up_says_that_the_database_is_busy() {
    let place = Place::new();
    let mut first = place.open().await;
    let mut second = place.open_with("busy_timeout=1ms").await;
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
    let place = Place::new();
    let mut db = place.open().await;
    // It queues nowhere, as another program would not.
    let other = rusqlite::Connection::open(place.0.path()).unwrap();
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
async fn where_nothing_can_be_written_a_transaction_begins_all_the_same() {
    let place = Place::new();
    drop(place.open().await);
    let mut db = open(&format!("{}?in_place=on&mode=ro", place.0.dsn())).await;
    for _ in 0..5 {
        begin(&mut db).await;
        assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
        db.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_second_begin_is_refused_and_ends_nothing() {
    let place = Place::new();
    let mut db = place.open().await;
    assert!(begins_at_once(&mut db));
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    assert!(begins(&mut db).await.is_err());
    assert_eq!(db.status(), Status::InTransaction);
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
}

/// A connection that has committed often enough to know that it does not take long.
async fn open_to_commit(place: &Place, option: &str) -> Box<dyn Connection> {
    let mut db = place.open_with(option).await;
    for _ in 0..2 {
        begin(&mut db).await;
        exec(&mut db, "INSERT INTO t VALUES (0)").await;
        db.commit().await.unwrap();
    }
    db
}

#[tokio::test]
async fn a_commit_that_is_brief_is_done_at_the_first_poll() {
    let place = Place::new();
    let mut db = open_to_commit(&place, "synchronous=off").await;
    // Not each of them: a busy machine makes any of them take long.
    for n in 1..=1000 {
        begin(&mut db).await;
        exec(&mut db, "INSERT INTO t VALUES (1)").await;
        let at_once = poll_times(db.commit(), 1);
        db.settle().await.unwrap();
        if db.status() == Status::InTransaction {
            // It was cancelled before the thread came to it.
            db.rollback().await.unwrap();
        }
        if let Some(committed) = at_once {
            committed.unwrap();
            let sql = "SELECT sum(n) FROM t";
            assert!((1..=n).contains(&one::<i64>(&mut db, sql).await));
            return;
        }
    }
    panic!("none of them was");
}

#[tokio::test]
async fn after_a_brief_commit_the_next_has_its_turn_before_the_one_that_commits_goes_on() {
    let place = Place::new();
    let (mut first, mut second) = (
        open_to_commit(&place, "synchronous=off").await,
        place.open().await,
    );
    for _ in 0..100 {
        begin(&mut first).await;
        exec(&mut first, "INSERT INTO t VALUES (1)").await;
        let mut waiting = begins(&mut second);
        assert_pending(&mut waiting);
        let mut committing = first.commit();
        // It yields to the next, which has been woken, or sleeps until the thread is done.
        assert_pending(&mut committing);
        waiting.await.unwrap();
        committing.await.unwrap();
        second.rollback().await.unwrap();
    }
}

/// One that is about to commit, and is known to do so briefly; the next one to write; and one that reads
/// and is in its way: without a log of what is written, a commit waits for those who read.
async fn held_up(place: &Place) -> (Box<dyn Connection>, Box<dyn Connection>, Reader) {
    let option = "journal_mode=delete&busy_timeout=1d";
    let mut first = open_to_commit(place, option).await;
    let next = place.open_with(option).await;
    let reader = rusqlite::Connection::open(place.0.path()).unwrap();
    begin(&mut first).await;
    exec(&mut first, "INSERT INTO t VALUES (1)").await;
    let read = "BEGIN; SELECT * FROM t LIMIT 1";
    reader.execute_batch(read).unwrap();
    (first, next, Reader(reader))
}

struct Reader(rusqlite::Connection);

impl Reader {
    fn end(&self) {
        self.0.execute_batch("COMMIT").unwrap();
    }
}

#[tokio::test]
async fn a_commit_that_is_not_brief_after_all_lets_the_next_write_though_nobody_collects_it() {
    let place = Place::new();
    let (mut first, mut next, reader) = held_up(&place).await;
    let mut committing = first.commit();
    assert_pending(&mut committing);
    let mut waiting = begins(&mut next);
    assert_pending(&mut waiting);
    reader.end();
    waiting.await.unwrap();
    committing.await.unwrap();
    next.rollback().await.unwrap();
}

#[tokio::test]
async fn a_commit_that_is_dropped_while_its_task_sleeps_leaves_the_lane_to_others() {
    let place = Place::new();
    let (mut first, mut next, reader) = held_up(&place).await;
    assert!(poll_times(first.commit(), 1).is_none());
    first.settle().await.unwrap();
    // It was cancelled before it came to pass.
    first.rollback().await.unwrap();
    reader.end();
    begins(&mut next).await.unwrap();
    next.rollback().await.unwrap();
}

#[tokio::test]
async fn a_task_that_has_used_up_its_budget_sees_that_its_commit_is_done() {
    let place = Place::new();
    let mut db = open_to_commit(&place, "synchronous=off").await;
    for _ in 0..20 {
        begin(&mut db).await;
        exec(&mut db, "INSERT INTO t VALUES (1)").await;
        let mut committing = Box::pin(async {
            while tokio::task::coop::has_budget_remaining() {
                tokio::task::consume_budget().await;
            }
            db.commit().await
        });
        // Polled by a task, because only a task has a budget.
        (&mut committing).await.unwrap();
    }
    assert_eq!(one::<i64>(&mut db, "SELECT sum(n) FROM t").await, 20);
}
