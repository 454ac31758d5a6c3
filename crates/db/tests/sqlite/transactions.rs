//! Transactions, savepoints and locks of the SQLite driver.

use cenote::driver::{Begin, CommitOutcome, Isolation, Request, Savepoint, Status};
use cenote::{Kind, Violation};

use crate::support::*;

#[tokio::test]
async fn a_transaction_is_there_from_begin_to_commit() {
    let file = TempDb::new();
    let mut db = file.open().await;
    let mut other = file.open().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    assert_eq!(db.status(), Status::Idle);
    begin(&mut db).await;
    assert_eq!(db.status(), Status::InTransaction);
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    assert_eq!(one::<i64>(&mut other, "SELECT count(*) FROM t").await, 0);
    assert_eq!(db.commit().await.unwrap(), CommitOutcome::Committed);
    assert_eq!(db.status(), Status::Idle);
    assert_eq!(one::<i64>(&mut other, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_transaction_can_begin_with_its_first_statement() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    let first = Request::new("INSERT INTO t VALUES (1)", &[]);
    let outcome = db.begin_with(&Begin::default(), Some(first)).await.unwrap();
    assert_eq!(outcome.rows_affected, 1);
    assert_eq!(db.status(), Status::InTransaction);
    db.rollback().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);

    let wrong = Request::new("SELECT * FROM nowhere", &[]);
    assert!(db.begin_with(&Begin::default(), Some(wrong)).await.is_err());
    assert_eq!(
        db.status(),
        Status::InTransaction,
        "only the statement failed"
    );
}

#[tokio::test]
async fn a_begin_that_failed_leaves_no_transaction() {
    let file = TempDb::new();
    let mut writer = file.open().await;
    let mut other = open(&format!("{}?busy_timeout=0", file.dsn())).await;
    begin(&mut writer).await;
    let error = other.begin_with(&Begin::default(), None).await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked));
    assert!(error.is_retryable());
    assert_eq!(other.status(), Status::Idle);
}

#[tokio::test]
async fn a_raw_begin_and_a_raw_commit_are_seen() {
    let mut db = memory().await;
    exec(&mut db, "BEGIN").await;
    assert_eq!(db.status(), Status::InTransaction);
    exec(&mut db, "COMMIT").await;
    assert_eq!(db.status(), Status::Idle);
    let twice = try_exec(&mut db, "COMMIT").await.unwrap_err();
    assert!(twice.message().contains("no transaction"), "{twice}");
    assert!(db.commit().await.is_err());
    db.rollback().await.unwrap();
}

#[tokio::test]
async fn a_second_begin_is_refused_and_the_first_stands() {
    let mut db = memory().await;
    begin(&mut db).await;
    for read_only in [false, true] {
        let mut second = Begin::default();
        second.read_only = read_only;
        assert!(db.begin_with(&second, None).await.is_err());
        assert_eq!(db.status(), Status::InTransaction);
    }
    exec(&mut db, "CREATE TABLE t (a)").await;
    db.commit().await.unwrap();
}

#[tokio::test]
async fn a_statement_that_rolls_back_is_seen() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a UNIQUE ON CONFLICT ROLLBACK)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    assert!(try_exec(&mut db, "INSERT INTO t VALUES (1)").await.is_err());
    assert_eq!(db.status(), Status::Idle);
}

#[tokio::test]
async fn every_isolation_can_be_asked_for() {
    let mut db = memory().await;
    for isolation in [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let mut asked = Begin::default();
        asked.isolation = Some(isolation);
        db.begin_with(&asked, None).await.unwrap();
        assert_eq!(db.status(), Status::InTransaction);
        db.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_read_only_transaction_waits_for_no_writer_and_cannot_write() {
    let file = TempDb::new();
    let mut db = open(&format!("{}?busy_timeout=0", file.dsn())).await;
    let mut writer = file.open().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut writer).await;
    exec(&mut writer, "INSERT INTO t VALUES (1)").await;

    let mut read_only = Begin::default();
    read_only.read_only = true;
    db.begin_with(&read_only, None).await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 0);
    writer.commit().await.unwrap();
    assert_eq!(
        one::<i64>(&mut db, "SELECT count(*) FROM t").await,
        0,
        "its snapshot"
    );
    let error = try_exec(&mut db, "INSERT INTO t VALUES (2)")
        .await
        .unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Permission), "{error}");
    assert_eq!(db.status(), Status::InTransaction);
    db.commit().await.unwrap();

    exec(&mut db, "INSERT INTO t VALUES (3)").await;
    assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 2);
}

#[tokio::test]
async fn read_only_transaction_restores_the_setting_however_it_ends() {
    let mut read_only = Begin::default();
    read_only.read_only = true;
    for configured in [0, 1] {
        let dsn = format!("sqlite::memory:?pragma.query_only={configured}");
        let mut db = open(&dsn).await;
        for end in ["COMMIT", "ROLLBACK"] {
            db.begin_with(&read_only, None).await.unwrap();
            assert_eq!(one::<i64>(&mut db, "PRAGMA query_only").await, 1);
            exec(&mut db, end).await;
            assert_eq!(one::<i64>(&mut db, "PRAGMA query_only").await, configured);
        }
    }
}

#[tokio::test]
async fn a_commit_that_finds_the_file_busy_keeps_the_transaction_open() {
    let file = TempDb::new();
    let dsn = format!("{}?journal_mode=delete&busy_timeout=0", file.dsn());
    let mut writer = open(&dsn).await;
    let mut reader = open(&dsn).await;
    exec(&mut writer, "CREATE TABLE t (a)").await;
    exec(&mut reader, "BEGIN").await;
    exec(&mut reader, "SELECT * FROM t").await;
    begin(&mut writer).await;
    exec(&mut writer, "INSERT INTO t VALUES (1)").await;
    let error = writer.commit().await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked), "{error}");
    assert_eq!(writer.status(), Status::InTransaction);
    reader.rollback().await.unwrap();
    assert_eq!(writer.commit().await.unwrap(), CommitOutcome::Committed);
    assert_eq!(one::<i64>(&mut reader, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_commit_against_a_deferred_key_keeps_the_transaction_open() {
    let mut db = memory().await;
    exec_script(
        &mut db,
        "CREATE TABLE p (id INTEGER PRIMARY KEY);
         CREATE TABLE c (p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO c VALUES (1)").await;
    assert!(db.commit().await.unwrap_err().is_foreign_key_violation());
    assert_eq!(db.status(), Status::InTransaction);
    exec(&mut db, "INSERT INTO p VALUES (1)").await;
    db.commit().await.unwrap();
}

#[tokio::test]
async fn stale_snapshot_is_a_serialization_failure() {
    let file = TempDb::new();
    let mut slow = file.open().await;
    let mut fast = file.open().await;
    exec(&mut slow, "CREATE TABLE t (a)").await;
    exec(&mut slow, "BEGIN DEFERRED").await;
    exec(&mut slow, "SELECT * FROM t").await;
    exec(&mut fast, "INSERT INTO t VALUES (1)").await;
    let error = try_exec(&mut slow, "INSERT INTO t VALUES (2)")
        .await
        .unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Serialization), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn savepoints_are_set_released_and_gone_back_to() {
    let mut db = memory().await;
    exec(&mut db, "CREATE TABLE t (a)").await;
    begin(&mut db).await;
    exec(&mut db, "INSERT INTO t VALUES (1)").await;
    for odd in ["inner", "it's \"odd\"; DROP TABLE t"] {
        set_savepoint(&mut db, odd).await;
        exec(&mut db, "INSERT INTO t VALUES (2)").await;
        db.savepoint(Savepoint::RollBack(odd)).await.unwrap();
        assert_eq!(one::<i64>(&mut db, "SELECT count(*) FROM t").await, 1);
        assert!(
            db.savepoint(Savepoint::Release(odd)).await.is_err(),
            "it is forgotten"
        );
    }
    set_savepoint(&mut db, "kept").await;
    exec(&mut db, "INSERT INTO t VALUES (3)").await;
    db.savepoint(Savepoint::Release("kept")).await.unwrap();
    assert_eq!(db.status(), Status::InTransaction);
    db.commit().await.unwrap();
    assert_eq!(one::<i64>(&mut db, "SELECT sum(a) FROM t").await, 4);
}

#[tokio::test]
async fn a_savepoint_needs_a_transaction() {
    let mut db = memory().await;
    let error = db.savepoint(Savepoint::Set("alone")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NoTransaction);
    assert_eq!(db.status(), Status::Idle);
}

#[tokio::test]
async fn one_waits_for_the_others_lock() {
    let file = TempDb::new();
    let mut first = file.open().await;
    let mut second = file.open().await;
    exec(&mut first, "CREATE TABLE t (a)").await;
    begin(&mut first).await;
    exec(&mut first, "INSERT INTO t VALUES (1)").await;
    {
        let mut waiting = second.run(Request::new("INSERT INTO t VALUES (2)", &[]));
        assert_pending(&mut waiting);
        first.commit().await.unwrap();
        waiting.await.unwrap();
    }
    assert_eq!(one::<i64>(&mut first, "SELECT count(*) FROM t").await, 2);
}

#[tokio::test]
async fn one_waits_for_the_others_lock_in_a_shared_cache_too() {
    let template = template(&shared_memory());
    let mut first = connect(&template).await;
    let mut second = connect(&template).await;
    exec(&mut first, "CREATE TABLE t (a)").await;
    begin(&mut first).await;
    exec(&mut first, "INSERT INTO t VALUES (1)").await;
    {
        let mut waiting = second.run(Request::new("SELECT count(*) FROM t", &[]));
        assert_pending(&mut waiting);
        first.commit().await.unwrap();
        let outcome = waiting.await.unwrap();
        assert_eq!(crate::support::first::<i64>(outcome.rows.unwrap()), 1);
    }
}

#[tokio::test]
async fn a_lock_that_is_not_released_in_time_is_an_error() {
    let template = template(&format!("{}&busy_timeout=20", shared_memory()));
    let mut first = connect(&template).await;
    let mut second = connect(&template).await;
    exec(&mut first, "CREATE TABLE t (a)").await;
    begin(&mut first).await;
    exec(&mut first, "INSERT INTO t VALUES (1)").await;
    let error = try_exec(&mut second, "SELECT * FROM t").await.unwrap_err();
    assert_eq!(error.violation(), Some(Violation::Locked), "{error}");
}
