//! The histograms of [`Db::timings`](cenote::Db::timings).

use std::time::Duration;

use cenote::{Db, Result, pool::Histogram};
use cenote_testkit::poll::Hand;
use cenote_testkit::{Fake, ManualRuntime};

fn whole(histogram: &Histogram) -> (u64, Duration) {
    (histogram.count(), histogram.sum())
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn open(
    fake: &Fake,
    runtime: &ManualRuntime,
    set: impl FnOnce(cenote::Builder) -> cenote::Builder,
) -> Db {
    let builder = set(fake.builder()).runtime(runtime.clone());
    runtime.finish(builder.open()).unwrap()
}

#[test]
fn every_statement_is_measured_until_its_answer() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, |builder| builder.max(1));
    runtime.finish(db.ping()).unwrap();
    assert_eq!(db.timings().statements.count(), 0, "a ping is no statement");
    let mut expected = (0, Duration::ZERO);
    for took in [1, 2, 300] {
        fake.hold("SELECT");
        let mut query = Hand::new(db.query("SELECT 1", ()));
        query.waits();
        runtime.advance(millis(took));
        fake.release();
        query.finish().unwrap();
        expected = (expected.0 + 1, expected.1 + millis(took));
    }
    let timings = db.timings();
    assert_eq!(whole(&timings.statements), expected);
    assert_eq!(timings.failed_statements.count(), 0);
    assert_eq!(timings.pool.create.count(), 1);
}

#[test]
fn failed_late_and_dropped_statements_count_as_failed() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, |builder| {
        builder.max(1).statement_timeout(Some(millis(50)))
    });
    let failed = || whole(&db.timings().failed_statements);

    fake.fail_on("SELECT 1", "42P01");
    runtime.finish(db.query("SELECT 1", ())).unwrap_err();
    assert_eq!(failed(), (1, Duration::ZERO));

    fake.hold("SELECT 2");
    let mut late = Hand::new(db.query("SELECT 2", ()));
    late.waits();
    runtime.advance(millis(50));
    late.done().unwrap_err();
    assert_eq!(failed(), (2, millis(50)));
    fake.release();
    runtime.run();

    fake.hold("SELECT 3");
    let mut dropped = Hand::new(db.query("SELECT 3", ()));
    dropped.waits();
    runtime.advance(millis(7));
    drop(dropped);
    assert_eq!(failed(), (3, millis(57)));
    assert_eq!(db.timings().statements.count(), 0);
}

#[test]
fn the_wait_for_a_connection_is_no_part_of_a_statement() {
    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, |builder| builder.max(1));
    let held = runtime.finish(db.connection()).unwrap();
    let mut query = Hand::new(db.query("SELECT 1", ()));
    query.waits();
    runtime.advance(millis(20));
    drop(held);
    query.finish().unwrap();
    let timings = db.timings();
    assert_eq!(whole(&timings.statements), (1, Duration::ZERO));
    assert_eq!(whole(&timings.pool.wait_queue), (1, millis(20)));
}

#[tokio::test]
async fn all_that_the_statement_log_shows_is_measured() -> Result<()> {
    let db = Db::open("sqlite:file:timings?mode=memory&cache=shared").await?;
    db.transaction(async || {
        db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
        db.exec_many("INSERT INTO t VALUES (?)", [(1,), (2,)])
            .await?;
        Ok(())
    })
    .await?;
    // BEGIN, CREATE, INSERT, COMMIT.
    assert_eq!(db.timings().statements.count(), 4);
    let mut rows = db.stream("SELECT n FROM t", ()).await?;
    assert_eq!(
        db.timings().statements.count(),
        5,
        "its first answer is there"
    );
    while rows.try_next().await?.is_some() {}
    assert_eq!(db.timings().statements.count(), 5);
    Ok(())
}

#[tokio::test]
async fn connections_of_all_shards_are_added_up() -> Result<()> {
    let fake = Fake::new();
    let db = fake.builder().max(20).open().await?;
    let mut held = Vec::new();
    for _ in 0..20 {
        let connection = db.connection().await?;
        connection.query("SELECT 1", ()).await?;
        held.push(connection);
    }
    assert_eq!(db.timings().statements.count(), 20);
    Ok(())
}

#[test]
fn listeners_hear_every_statement_until_they_are_dropped() {
    use std::sync::{Arc, Mutex};

    let (runtime, fake) = (ManualRuntime::new(), Fake::new());
    let db = open(&fake, &runtime, |builder| builder.max(1));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&heard);
    let panics = db.on_statement(|_| panic!("a listener"));
    let listener = db.on_statement(move |event| {
        let error = event.error.map(cenote::Error::kind);
        let line = (
            event.operation(),
            event.rows,
            error,
            event.dropped,
            event.took,
        );
        into.lock().unwrap().push(line);
    });
    runtime
        .finish(db.exec("INSERT INTO t VALUES (1), (2)", ()))
        .unwrap();
    fake.fail_on("SELECT 1", "42P01");
    runtime.finish(db.query("SELECT 1", ())).unwrap_err();
    fake.hold("DELETE");
    let mut dropped = Hand::new(db.exec("DELETE FROM t", ()));
    dropped.waits();
    runtime.advance(millis(3));
    drop(dropped);
    let zero = Duration::ZERO;
    assert_eq!(
        std::mem::take(&mut *heard.lock().unwrap()),
        [
            (Some("INSERT"), Some(2), None, false, zero),
            (
                Some("SELECT"),
                None,
                Some(cenote::Kind::Database),
                false,
                zero
            ),
            (Some("DELETE"), None, None, true, millis(3)),
        ]
    );
    drop((listener, panics));
    fake.release();
    runtime.run();
    runtime.finish(db.query("SELECT 2", ())).unwrap();
    assert!(heard.lock().unwrap().is_empty());
}
