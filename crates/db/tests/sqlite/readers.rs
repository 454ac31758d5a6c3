//! Who only reads does not wait for those who write, nor for those who wait to.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use cenote::{Db, Kind, Outcome, Result};
use tokio::task::JoinHandle;

const CONNECTIONS: usize = 4;

/// Long for a read, and short for one who waits for the write queue.
const PATIENCE: Duration = Duration::from_secs(5);

async fn open(folder: &tempfile::TempDir) -> Db {
    let dsn = format!("sqlite:{}", folder.path().join("readers.db").display());
    let builder = Db::builder(&dsn).min(CONNECTIONS).max(CONNECTIONS);
    let db = builder.open().await.unwrap();
    db.exec("CREATE TABLE t (n INTEGER)", ()).await.unwrap();
    db
}

/// Many more than there are connections; returns when as many of them as can be have got one.
async fn crowd_of_writers(db: &Db) -> Vec<JoinHandle<Result<Outcome>>> {
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
async fn a_read_does_not_wait_for_waiting_writers() {
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
async fn read_is_served_although_all_others_wait_to_write() {
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

/// Polls a call once, which must not be ready.
fn begin<F: Future>(call: F) -> Pin<Box<F>> {
    let mut call = Box::pin(call);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    call
}

const INSERT: &str = "INSERT INTO t VALUES (1)";

#[tokio::test]
async fn waiting_writers_are_counted_and_fail_when_the_handle_closes() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    // Beside a guard a detached write waits; in a closure it would be a self-deadlock.
    cenote::scope(async {
        let writing = db.begin().await.unwrap();
        writing.exec(INSERT, ()).await.unwrap();
        let other = cenote::detached(async {
            // The transaction has one of the three places, two more wait in the write queue, the last here.
            let calls: Vec<_> = (0..3).map(|_| begin(db.exec(INSERT, ()))).collect();
            assert_eq!(db.status().waiting, 1);
            let mut calls = calls.into_iter();
            let (_first, _second) = (calls.next(), calls.next());
            let third = calls.next().unwrap();
            // It does not wait for those in use, and the idle one is soon closed.
            let mut closing = Box::pin(db.close());
            let _ = closing
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            let error = third.await.unwrap_err();
            assert_eq!(error.kind(), Kind::Closed, "{error}");
            assert_eq!(db.status().waiting, 0);
            drop(closing);
        });
        other.await;
        writing.commit().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_waits_too_long_gets_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("late.db").display());
    // Also a slow machine opens a connection in that time.
    let limit = Duration::from_secs(1);
    let builder = Db::builder(&dsn).max(2).acquire_timeout(limit);
    let db = builder.open().await.unwrap();
    db.exec("CREATE TABLE t (n)", ()).await.unwrap();
    // Beside a guard a detached write waits; in a closure it would be a self-deadlock.
    cenote::scope(async {
        let writing = db.begin().await.unwrap();
        writing.exec(INSERT, ()).await.unwrap();
        let late = cenote::detached(async { db.exec(INSERT, ()).await });
        let error = late.await.unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(error.message().contains("to write with"), "{error}");
        writing.commit().await.unwrap();
    })
    .await;
    db.exec(INSERT, ()).await.unwrap();
}

#[tokio::test]
async fn a_writer_that_gives_up_waiting_passes_its_place_on() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("sqlite:{}", folder.path().join("gone.db").display());
    let db = Db::builder(&dsn).max(2).open().await.unwrap();
    db.exec("CREATE TABLE t (n)", ()).await.unwrap();
    let mut waiting = Vec::new();
    // Beside a guard a detached write waits; in a closure it would be a self-deadlock.
    cenote::scope(async {
        let writing = db.begin().await.unwrap();
        writing.exec(INSERT, ()).await.unwrap();
        let outside = || cenote::detached(async { db.exec(INSERT, ()).await });
        waiting.extend((0..3).map(|_| begin(outside())));
        writing.commit().await.unwrap();
    })
    .await;
    drop(waiting.remove(0));
    for writer in waiting {
        writer.await.unwrap();
    }
    assert_eq!(db.status().waiting, 0);
    let count: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(count, 3);
}

/// A handle that waits for a lock for longer than a test runs.
async fn patient(folder: &tempfile::TempDir) -> Db {
    let dsn = format!("sqlite:{}", folder.path().join("own.db").display());
    let builder = Db::builder(&dsn).max(4).option("busy_timeout", "1d");
    let db = builder.open().await.unwrap();
    db.exec("CREATE TABLE t (n)", ()).await.unwrap();
    db
}

#[tokio::test]
async fn h25_statement_from_outside_does_not_wait_for_its_own_writer() {
    let folder = tempfile::tempdir().unwrap();
    let db = patient(&folder).await;
    db.transaction(async || {
        db.exec(INSERT, ()).await?;
        let insert = db.outside().prepare(INSERT).await?;
        let error = insert.exec(()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        let sets = [(), ()];
        let error = insert.exec_many(sets).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        // Reading waits for nobody.
        let count = db.outside().prepare("SELECT count(*) FROM t").await?;
        assert_eq!(count.query_one(()).await?.get::<i64>(0)?, 0);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn h25_explicit_connection_does_not_wait_for_its_own_writer() {
    let folder = tempfile::tempdir().unwrap();
    let db = patient(&folder).await;
    let mut earlier = db.connection().await.unwrap();
    db.transaction(async || {
        db.exec(INSERT, ()).await?;
        let mut own = db.connection().await?;
        for connection in [&mut own, &mut earlier] {
            let error = connection.exec(INSERT, ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
            let error = connection.begin().await.unwrap_err();
            assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
            let count: i64 = connection
                .query_as_one("SELECT count(*) FROM t", ())
                .await?;
            assert_eq!(count, 0);
        }
        // A temporary table is nobody else's.
        own.exec("CREATE TEMP TABLE own (n)", ()).await?;
        own.exec("INSERT INTO own VALUES (1)", ()).await?;
        // The transaction itself goes on.
        db.exec(INSERT, ()).await?;
        Ok(())
    })
    .await
    .unwrap();
    earlier.exec(INSERT, ()).await.unwrap();
    let count: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(count, 3);
}

#[tokio::test]
async fn h25_a_connection_that_another_task_has_waits_for_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let db = patient(&folder).await;
    let connection = db.connection().await.unwrap();
    let mut writing = None;
    db.transaction(async || {
        db.exec(INSERT, ()).await?;
        let insert = cenote::spawn(async move { connection.exec(INSERT, ()).await });
        writing = Some(insert);
        tokio::task::yield_now().await;
        Ok(())
    })
    .await
    .unwrap();
    writing.unwrap().await.unwrap().unwrap();
    let count: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await.unwrap();
    assert_eq!(count, 2);
}
