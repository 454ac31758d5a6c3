//! Who gets which answer, whatever becomes of the others.

use std::mem::ManuallyDrop;
use std::task::Poll;

use cenote::{Db, Kind};
use cenote_testkit::poll::Hand;

use super::{
    DIVIDE, ECHO, begin, begin_in_lane, begin_together, finish, finish_all, open, prove, read,
    take_all, together,
};
use crate::servers::{PATIENCE, dsn, quiet, soon, unix_dsn, until};

#[tokio::test]
async fn reads_that_wait_share_one_connection() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let results = together(&db, (0..20).map(|n| read(&db, ECHO, n)).collect()).await;
    for (n, result) in (0..).zip(results) {
        assert_eq!(result.unwrap(), n);
    }
    assert_eq!(db.shared_reads(), 20);
    quiet(&db).await;
    assert_eq!(db.status().total, 1);
}

#[tokio::test]
async fn read_with_an_idle_connection_is_alone() {
    let (db, _) = open(2).await;
    prove(&db, ECHO).await;
    for n in 0..40 {
        assert_eq!(read(&db, ECHO, n).await.unwrap(), n);
    }
    assert_eq!(db.shared_reads(), 0);
}

/// Twice as many lanes as processors keep the program busy. No task runs between the polls, so that nothing is answered yet.
#[tokio::test]
async fn busy_lanes_leave_further_connections_idle() {
    let enough = 2 * std::thread::available_parallelism().unwrap().get();
    let (db, _) = open(enough + 1).await;
    prove(&db, ECHO).await;
    let reads = |count: usize| (0..count).map(|_| read(&db, ECHO, 7)).collect();
    // From here on the handle knows that its connections can be shared.
    for result in together(&db, reads(3 * enough)).await {
        result.unwrap();
    }
    quiet(&db).await;

    let mut held = take_all(&db).await;
    let mut reads = begin(reads(3 * enough));
    let last = held.pop();
    drop(held);
    for read in &mut reads {
        assert!(read.poll().is_pending(), "no answer is there");
    }
    drop(last);
    let mut another = Hand::new(read(&db, ECHO, 8));
    assert!(another.poll().is_pending());
    assert_eq!(db.status().idle, 1);
    let shared: usize = db.holders().iter().map(|holder| holder.shared_by).sum();
    assert_eq!(shared, 3 * enough + 1);

    reads.push(another);
    for result in soon("all reads", finish_all(&mut reads)).await {
        assert!(matches!(result, Ok(7 | 8)));
    }
}

/// Nothing else runs, so the time of the slow text looks like that of a round trip at first.
#[tokio::test]
async fn slow_text_that_runs_alone_never_shares() {
    let db = Db::builder(&dsn()).max(1).share_connections(true);
    let db = db.open().await.unwrap();
    let sql = "SELECT count(*)::int4 FROM generate_series(1, 300000 + ?::int4)";
    prove(&db, sql).await;
    for result in together(&db, (0..8).map(|n| read(&db, sql, n)).collect()).await {
        result.unwrap();
    }
    assert_eq!(db.shared_reads(), 0);
}

#[tokio::test]
async fn handles_share_nothing_unless_they_are_asked_to() {
    let db = Db::builder(&unix_dsn()).max(1).open().await.unwrap();
    prove(&db, ECHO).await;
    for result in together(&db, (0..20).map(|n| read(&db, ECHO, n)).collect()).await {
        result.unwrap();
    }
    assert_eq!(db.shared_reads(), 0);
}

#[tokio::test]
async fn error_of_one_read_is_not_another_ones() {
    let (db, _) = open(1).await;
    prove(&db, DIVIDE).await;
    let divisors = [3, 0, 4, 0, 6];
    let reads = divisors.map(|n| read(&db, DIVIDE, n)).into();
    for (n, result) in divisors.into_iter().zip(together(&db, reads).await) {
        match (n, result) {
            (0, Err(error)) => {
                assert_eq!(error.sql_state(), Some("22012"), "{error:?}");
                assert_eq!(error.sql(), Some(DIVIDE), "{error:?}");
                let line = error
                    .call_site()
                    .map(|site| site.file().ends_with("lanes.rs"));
                assert_eq!(line, Some(true), "{error:?}");
            }
            (n, result) => assert_eq!(result.unwrap(), 12 / n),
        }
    }
    assert_eq!(db.shared_reads(), 5);
}

/// Drops each of five reads after each number of polls; the others get their answers.
#[tokio::test]
async fn dropped_read_takes_no_other_one_with_it() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    for rounds in 0..8 {
        for dropped in 0..5 {
            let reads = (0..5).map(|n| read(&db, ECHO, n)).collect();
            let mut reads = begin_together(&db, reads).await;
            let mut answers = [None; 5];
            for _ in 0..rounds {
                for (read, answer) in reads.iter_mut().zip(&mut answers) {
                    if answer.is_none()
                        && let Poll::Ready(done) = read.poll()
                    {
                        *answer = Some(done.unwrap());
                    }
                }
                tokio::task::yield_now().await;
            }
            let mut rest: Vec<_> = (0..).zip(reads).collect();
            drop(rest.remove(dropped));
            for (n, read) in &mut rest {
                let answer = match answers[usize::try_from(*n).unwrap()] {
                    Some(answer) => answer,
                    None => soon("a read", finish(read)).await.unwrap(),
                };
                assert_eq!(answer, *n);
            }
            drop(rest);
            quiet(&db).await;
        }
    }
    assert!(db.shared_reads() > 0);
    assert_eq!(db.status().total, 1);
}

#[tokio::test]
async fn leaked_and_unpolled_reads_hold_nobody_up() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let mut reads = begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await;
    let leaked = ManuallyDrop::new(reads.remove(4));
    let unpolled = reads.remove(0);
    for (n, read) in [1, 2, 3, 5].into_iter().zip(&mut reads) {
        assert_eq!(soon("a read", finish(read)).await.unwrap(), n);
    }
    drop((leaked, unpolled));
    soon("the connection is back", quiet(&db)).await;
    assert_eq!(read(&db, ECHO, 7).await.unwrap(), 7);
}

#[tokio::test]
async fn all_reads_dropped_give_the_connection_back() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let reads = begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await;
    drop(reads);
    soon("the connection is back", quiet(&db)).await;
    assert_eq!(db.status().total, 1);
    assert_eq!(read(&db, ECHO, 7).await.unwrap(), 7);
}

#[tokio::test]
async fn new_texts_are_prepared_in_a_lane() {
    let (db, _) = open(2).await;
    // On one of the connections only.
    prove(&db, ECHO).await;
    prove(&db, DIVIDE).await;
    for _ in 0..4 {
        let reads = [1, 2, 3, 4].map(|n| [read(&db, ECHO, n), read(&db, DIVIDE, n)]);
        let results = together(&db, reads.into_iter().flatten().collect()).await;
        for (n, pair) in (1..).zip(results.chunks(2)) {
            assert_eq!(*pair[0].as_ref().unwrap(), n);
            assert_eq!(*pair[1].as_ref().unwrap(), 12 / n);
        }
    }
    assert!(db.shared_reads() > 8);
}

#[tokio::test]
async fn stale_statement_is_prepared_again_elsewhere() {
    let db = crate::servers::client::own_schema(&crate::servers::dsn()).await;
    let (db, _) = super::open_with(1, &db, |builder| builder).await;
    db.exec("CREATE TABLE t (n int4)", ()).await.unwrap();
    db.exec("INSERT INTO t VALUES (1)", ()).await.unwrap();
    let sql = "SELECT n FROM t WHERE n = ?";
    prove(&db, sql).await;
    let other = Db::open(&crate::servers::dsn()).await.unwrap();
    let schema: String = db
        .query_scalar_one("SELECT current_schema()", ())
        .await
        .unwrap();
    let alter = format!("ALTER TABLE {schema}.t ALTER n TYPE int8");
    other.exec(&alter, ()).await.unwrap();
    for result in together(&db, (0..3).map(|_| read(&db, sql, 1)).collect()).await {
        assert_eq!(result.unwrap(), 1);
    }
}

#[tokio::test]
async fn holders_show_how_many_share_a_connection() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let mut reads = begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await;
    let holders = db.holders();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].shared_by, 6);
    for read in &mut reads {
        finish(read).await.unwrap();
    }
}

#[tokio::test]
async fn shared_connections_and_their_reads_are_counted() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let shared = |db: &Db| db.shared_connections().unwrap();
    assert_eq!(shared(&db).connections, 0);
    let mut reads = begin_in_lane(&db, (0..6).map(|n| read(&db, ECHO, n)).collect()).await;
    let now = shared(&db);
    assert_eq!((now.connections, now.reads_in_flight), (1, 6));
    assert_eq!(db.status().active, 1);
    for read in &mut reads {
        finish(read).await.unwrap();
    }
    until("the connection is not shared any more", async || {
        shared(&db).connections == 0
    })
    .await;
    let then = shared(&db);
    assert_eq!((then.reads_in_flight, then.reads), (0, 6));
    let alone = Db::open(&crate::servers::dsn()).await.unwrap();
    assert_eq!(alone.shared_connections(), None);
}

#[tokio::test]
async fn histograms_count_shared_reads() {
    let (db, _) = open(1).await;
    prove(&db, DIVIDE).await;
    let before = db.timings();
    let reads = [1, 2, 0, 3].map(|n| read(&db, DIVIDE, n)).into();
    let _ = together(&db, reads).await;
    let after = db.timings();
    assert_eq!(after.statements.count() - before.statements.count(), 3);
    assert_eq!(
        after.failed_statements.count() - before.failed_statements.count(),
        1
    );
}

/// A read that the driver refuses in a lane still runs.
#[tokio::test]
async fn long_read_runs_alone() {
    let (db, _) = open(1).await;
    let sql = "SELECT length(?::text) - ?::int4";
    for _ in 0..16 {
        db.query(sql, ("a", 1)).await.unwrap();
    }
    let long = "x".repeat(20_000);
    let long: super::Reading<'_> = Box::pin(db.query_scalar_one(sql, (long, 0)));
    let short: super::Reading<'_> = Box::pin(db.query_scalar_one(sql, ("abc", 0)));
    let shorter: super::Reading<'_> = Box::pin(db.query_scalar_one(sql, ("ab", 0)));
    let results = together(&db, vec![short, long, shorter]).await;
    let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [3, 20_000, 2]);
}

#[tokio::test]
async fn closed_handle_refuses_reads_while_others_are_in_flight() {
    let (db, _) = open(1).await;
    prove(&db, ECHO).await;
    let mut reads = begin_in_lane(&db, (0..4).map(|n| read(&db, ECHO, n)).collect()).await;
    let mut closing = Hand::new(Box::pin(db.close()));
    let _ = closing.poll();
    assert_eq!(read(&db, ECHO, 1).await.unwrap_err().kind(), Kind::Closed);
    for (n, read) in (0..).zip(&mut reads) {
        assert_eq!(soon("a read", finish(read)).await.unwrap(), n);
    }
    drop(reads);
    drop(closing);
    soon("the connection is gone", db.close_and_drain(PATIENCE))
        .await
        .unwrap();
}
