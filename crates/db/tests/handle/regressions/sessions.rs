//! What one user does to a session never reaches another, and is never lost in silence.

use cenote::{Db, Result};
use cenote_testkit::DroppedCalls;

use super::support::{ONE, World, dropped, ended, started};

/// It was noted with the answer only: the state of a dropped call went to the next user.
#[test]
fn the_session_change_of_a_dropped_call_is_reset() {
    let world = World::new(1);
    world.dropped_calls(DroppedCalls::Executed);
    let db = &world.db;
    world.scope(async {
        world.hold("SET a = 1");
        dropped(db.exec("SET a = 1", ())).await;
    });
    world.run(db.exec(ONE, ())).unwrap();
    let reset = world.place_of("reset 1");
    assert!(world.place_of("run 1 SET a = 1") < reset);
    assert!(reset < world.place_of(&format!("run 1 {ONE}")));
}

/// The same for a text inside a transaction, which does not reset anything by its rollback.
#[test]
fn session_change_of_a_call_dropped_in_a_transaction_is_reset() {
    let world = World::new(1);
    world.dropped_calls(DroppedCalls::Executed);
    let db = &world.db;
    world.scope(async {
        let _tx = db.begin().await.unwrap();
        world.hold("SET a = 1");
        dropped(db.exec("SET a = 1", ())).await;
    });
    world.run(db.exec(ONE, ())).unwrap();
    let reset = world.place_of("reset 1");
    assert!(world.place_of("rollback 1") < reset);
    assert!(reset < world.place_of(&format!("run 1 {ONE}")));
}

/// The server's word was asked for after calls, and not after streams.
#[test]
fn session_change_reported_with_a_stream_is_reset() {
    let world = World::new(1);
    let db = &world.db;
    world.touch_session_on("batch");
    world.run(async {
        let mut stream = db.stream("SELECT * FROM t", ()).await.unwrap();
        assert!(stream.try_next().await.unwrap().is_none());
    });
    world.run(db.exec(ONE, ())).unwrap();
    assert!(world.place_of("reset 1") < world.place_of(&format!("run 1 {ONE}")));
}

/// The same for a stream that is dropped before its last row.
#[test]
fn session_change_reported_with_a_dropped_stream_is_reset() {
    let world = World::new(1);
    let db = &world.db;
    world.touch_session_on("end_stream");
    world.run(async {
        let stream = db.stream("SELECT 1", ()).await.unwrap();
        drop(stream);
    });
    world.run(db.exec(ONE, ())).unwrap();
    assert!(world.place_of("reset 1") < world.place_of(&format!("run 1 {ONE}")));
}

/// The second of two that changed a session at once lost its connection, and with it what
/// it had set, with an answer as if all were well.
#[test]
fn two_branches_that_change_a_session_at_once_change_the_same() {
    let world = World::new(3);
    let db = &world.db;
    world.hold("connect");
    world.scope(async {
        let mut first = started(db.exec("SET a = 1", ())).await;
        let mut second = started(db.exec("SET b = 1", ())).await;
        world.release();
        ended(&mut first).await.unwrap();
        ended(&mut second).await.unwrap();
        db.exec(ONE, ()).await.unwrap();
    });
    let log = world.log();
    let runs: Vec<_> = log.iter().filter(|line| line.starts_with("run")).collect();
    let numbers: Vec<_> = runs
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(numbers.len(), 3, "{log:#?}");
    assert!(
        numbers.iter().all(|number| *number == numbers[0]),
        "{log:#?}"
    );
    world.is_whole();
}

/// A stream had a connection of its own, on which the setting was lost.
#[test]
fn session_change_by_a_streams_sql_stays_with_the_coroutine() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let mut stream = db.stream("SET a = 1", ()).await.unwrap();
        while stream.try_next().await.unwrap().is_some() {}
        drop(stream);
        db.exec(ONE, ()).await.unwrap();
        assert_eq!(world.count("reset"), 0);
    });
    assert!(world.place_of("stream 1 SET a = 1") < world.place_of(&format!("run 1 {ONE}")));
    world.is_whole();
    assert_eq!(world.count("reset 1"), 1);
}

/// SQLite runs this when it prepares it: the next user could not write.
#[tokio::test]
async fn pragma_that_is_only_prepared_reaches_no_other_task() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let dsn = format!("sqlite:{}", folder.path().join("pragma.db").display());
    let db = Db::builder(&dsn).max(1).open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    drop(db.prepare("PRAGMA query_only = 1").await?);
    db.exec(ONE, ()).await?;
    let prepared = async { db.prepare("PRAGMA query_only = 1").await.map(drop) };
    cenote::scope(prepared).await?;
    db.exec(ONE, ()).await?;
    let n: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
    assert_eq!(n, 2);
    Ok(())
}
