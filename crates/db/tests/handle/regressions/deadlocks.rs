//! Self-deadlocks are reported at once, and nothing else is taken for one.

use cenote::{Db, Kind, Result};
use cenote_testkit::poll::Hand;

use super::support::{ONE, TWO, World, ended, kind, started, stuck};

/// A guard shares its frame with the code beside it, which was taken for code inside the
/// transaction: it failed though the transaction was about to end.
#[test]
fn a_waiter_beside_a_guard_is_no_deadlock() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        world.hold(ONE);
        let guarded = async {
            let tx = db.begin().await?;
            db.exec(ONE, ()).await?;
            tx.commit().await
        };
        let mut guarded = started(guarded).await;
        let outside = db.outside();
        let mut beside = Hand::new(outside.exec(TWO, ()));
        stuck(&mut beside).await;
        world.release();
        ended(&mut guarded).await.unwrap();
        ended(&mut beside).await.unwrap();
    });
    assert_eq!(world.committed(), [1, 2]);
    world.is_whole();
}

/// What waits inside a closure that has the last connection waits for itself.
#[test]
fn a_waiter_inside_a_closure_is_a_deadlock() {
    let world = World::new(1);
    let db = &world.db;
    let done = world.run(db.transaction(async || db.outside().exec(ONE, ()).await));
    assert_eq!(kind(done), Kind::SelfDeadlock);
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The call waited for SQLite's busy timeout and failed with "database is locked".
#[tokio::test]
async fn outside_write_while_sqlites_writer_is_a_self_deadlock() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let dsn = format!("sqlite:{}", folder.path().join("writer.db").display());
    let db = Db::builder(&dsn).max(3).open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    let writing = db.transaction(async || {
        db.exec(ONE, ()).await?;
        db.outside().exec(TWO, ()).await
    });
    let done = writing.await;
    assert_eq!(kind(done), Kind::SelfDeadlock);
    let n: i64 = db.query_as_one("SELECT count(*) FROM t", ()).await?;
    assert_eq!(n, 0);
    Ok(())
}
