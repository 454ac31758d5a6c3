//! What a batch never does: write after it was given up, run outside of its transaction, or send what would be misread.

use std::time::Duration;

use cenote::driver::{Begin, Request, Status};
use cenote::postgres::PostgresConnection;
use cenote::{CallOptions, Db, Kind};
use cenote_testkit::poll::{Hand, drop_after};

use crate::servers::own::OwnServer;
use crate::servers::{dsn, is_running, own_tables, session_id, soon};

/// A handle of one connection, with a table `t (id int PRIMARY KEY)` of its own.
async fn handle() -> Db {
    let db = own_tables(|builder| builder.max(1)).await;
    let sql = "CREATE TABLE t (id int PRIMARY KEY)";
    db.exec(sql, ()).await.unwrap();
    db
}

const ADD: &str = "INSERT INTO t VALUES (?)";

async fn ids(db: &Db) -> Vec<i32> {
    let ids = db.query_scalar("SELECT id FROM t ORDER BY id", ());
    ids.await.unwrap()
}

/// The number of round trips of the only connection.
async fn round_trips(db: &Db) -> u64 {
    let mut lease = db.pool().unwrap().acquire().await.unwrap();
    let connection = lease.driver().as_any();
    let connection: &mut PostgresConnection = connection.downcast_mut().unwrap();
    connection.round_trips()
}

#[tokio::test]
async fn dropped_batch_writes_nothing_behind_what_runs() {
    let db = handle().await;
    let admin = Db::open(&dsn()).await.unwrap();
    let pid = session_id(&db).await;
    // Slow statements that only read, or may write, and a write at the end.
    for slow in [
        "SELECT count(*) FROM generate_series(1, 100000000000)",
        "SELECT pg_sleep(3600)",
    ] {
        let mut batch = db.batch();
        for _ in 0..12 {
            batch.query(slow, ());
        }
        batch.exec(ADD, (1,));
        let mut run = Hand::new(batch.run());
        assert!(run.poll().is_pending());
        is_running(&admin, pid, slow).await;
        drop(run);
        // Each statement that was sent is cancelled in turn, and the connection is used again.
        let count = db.query_scalar_one::<i64>("SELECT count(*) FROM t", ());
        assert_eq!(soon("the next call", count).await.unwrap(), 0);
        assert_eq!(session_id(&db).await, pid, "{slow}");
    }
}

#[tokio::test]
async fn no_write_runs_behind_a_statement_that_was_late() {
    let db = handle().await;
    for slow in [
        "SELECT count(*) FROM generate_series(1, 100000000000)",
        "SELECT pg_sleep(3600)",
    ] {
        let limited = db.with(CallOptions::new().timeout(Duration::from_millis(50)));
        let mut batch = limited.batch();
        batch.query(slow, ());
        for id in 0..50 {
            batch.exec(ADD, (id,));
        }
        let error = soon("a limited batch", batch.run()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::StatementTimeout, "{error}");
        assert_eq!(ids(&db).await, [0; 0]);
    }
}

#[tokio::test]
async fn batch_dropped_at_any_poll_leaves_a_prefix() {
    let db = handle().await;
    let mut finished = false;
    let mut polls = 0;
    while !finished {
        db.exec("TRUNCATE t", ()).await.unwrap();
        let mut batch = db.batch();
        for id in 0..6 {
            batch.exec(ADD, (id,));
            batch.query("SELECT 1", ());
        }
        finished = drop_after(polls, batch.run()).await.is_some();
        polls += 1;
        let ids = ids(&db).await;
        let prefix: Vec<_> = (0..6).take(ids.len()).collect();
        assert_eq!(ids, prefix, "after {polls} polls");
    }
    assert_eq!(ids(&db).await.len(), 6);
}

#[tokio::test]
async fn each_write_outside_of_a_transaction_is_a_round_trip() {
    let db = handle().await;
    for first in [0, 2] {
        let before = round_trips(&db).await;
        let mut batch = db.batch();
        batch.query("SELECT 1", ());
        batch.query("SELECT 2", ());
        batch.exec(ADD, (first,));
        batch.exec(ADD, (first + 1,));
        batch.query("SELECT 1", ());
        batch.query("SELECT count(*) FROM t", ());
        batch.run().await.unwrap().check().unwrap();
        // The reads, each write, the reads.
        assert_eq!(round_trips(&db).await, before + 4);
    }
}

#[tokio::test]
async fn batch_runs_nothing_behind_the_end_of_its_transaction() {
    let server = OwnServer::start(&["max_prepared_transactions=2"]).await;
    let db = Db::builder(&server.dsn()).max(1).open().await.unwrap();
    let sql = "CREATE TABLE t (id int PRIMARY KEY)";
    db.exec(sql, ()).await.unwrap();
    // The layer refuses it before anything is sent.
    let done = db.transaction(async || {
        let mut batch = db.batch();
        batch.exec(ADD, (1,));
        batch.exec("PREPARE TRANSACTION 'x'", ());
        batch.exec(ADD, (2,));
        batch.run().await?.check()
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::Unsupported);
    assert_eq!(ids(&db).await, [0; 0]);
    // The driver stops, also in the batch that begins the transaction.
    let requests = [
        Request::new("INSERT INTO t VALUES (1)", &[]),
        Request::new("PREPARE TRANSACTION 'x'", &[]),
        Request::new("INSERT INTO t VALUES (2)", &[]),
    ];
    let mut lease = db.pool().unwrap().acquire().await.unwrap();
    let connection = lease.driver();
    for begins in [false, true] {
        let begin = Begin::default();
        let results = match begins {
            true => connection.begin_pipeline(&begin, &requests).await,
            false => {
                connection.begin_with(&begin, None).await.unwrap();
                connection.run_pipeline(&requests, true).await
            }
        };
        let results = results.unwrap();
        assert_eq!(results.len(), 2, "{results:?}");
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(connection.status(), Status::Idle);
        let undo = Request::new("ROLLBACK PREPARED 'x'", &[]);
        connection.run(undo).await.unwrap();
    }
    drop(lease);
    assert_eq!(ids(&db).await, [0; 0]);
}

#[tokio::test]
async fn statement_evicted_by_its_batch_keeps_its_types() {
    let db = own_tables(|builder| builder.max(1).statement_cache(1)).await;
    let native = "SELECT ?::int8 + 1";
    let array = "SELECT count(*) FROM pg_catalog.pg_type WHERE oid = ANY(?)";
    for round in 0..2 {
        for in_transaction in [false, true] {
            let run = async || {
                let param = || (cenote::postgres::param(41_i64),);
                let text = format!("SELECT {round} + 100");
                let known: i64 = db.query_scalar_one(native, param()).await?;
                assert_eq!(known, 42);
                let mut batch = db.batch();
                let new = batch.query_scalar_one::<i32>(&text, ());
                let known = batch.query_scalar_one::<i64>(native, param());
                let ids = batch.query_scalar_one::<i64>(array, (vec![16, 17],));
                let again = batch.query_scalar_one::<i64>(native, param());
                let mut results = batch.run().await?;
                assert_eq!(results.take(new)?, round + 100);
                assert_eq!(results.take(known)?, 42);
                assert_eq!(results.take(ids)?, 2);
                assert_eq!(results.take(again)?, 42);
                Ok(())
            };
            match in_transaction {
                true => db.transaction(run).await.unwrap(),
                false => run().await.unwrap(),
            }
        }
    }
}

#[tokio::test]
async fn batch_sends_nothing_once_texts_are_misread() {
    let db = own_tables(|builder| builder.max(1)).await;
    db.exec("CREATE TABLE t (a text)", ()).await.unwrap();
    let sets =
        "DO $$ BEGIN PERFORM set_config('standard_conforming_strings', 'off', false); END $$";
    for in_transaction in [false, true] {
        let run = async || {
            let mut batch = db.batch();
            let sets = batch.exec(sets, ());
            let next = batch.exec("INSERT INTO t VALUES ('x')", ());
            let last = batch.exec(r"INSERT INTO t VALUES ('\'), (', 1 --')", ());
            let mut results = batch.run().await?;
            let done = results.take(sets);
            assert!(done.is_ok(), "it was carried out: {done:?}");
            // As a single call.
            assert_eq!(results.take(next).unwrap_err().kind(), Kind::Config);
            assert_eq!(results.take(last).unwrap_err().kind(), Kind::NotRun);
            Ok(())
        };
        match in_transaction {
            true => assert!(db.transaction(run).await.is_err()),
            false => run().await.unwrap(),
        }
        let rows: Vec<String> = db.query_scalar("SELECT a FROM t", ()).await.unwrap();
        assert!(rows.is_empty(), "{rows:?}");
    }
}
