//! Savepoints that are dropped, forgotten or rolled back half-way.

use std::future::pending;
use std::time::Duration;

use cenote::{Db, Error, Kind, Result};
use cenote_testkit::DroppedCalls;
use cenote_testkit::poll::drop_after;

use super::support::{FOUR, ONE, THREE, TWO, World, dropped, kind, started};

/// The outer savepoint was undone first, and with it the inner one, whose undoing then
/// failed and cost the whole transaction.
#[test]
fn dropped_nested_savepoints_leave_the_outer_transaction_usable() {
    let world = World::new(2);
    let db = &world.db;
    let done = world.run(db.transaction(async || {
        db.exec(ONE, ()).await?;
        let nest = db.transaction(async || {
            db.exec(TWO, ()).await?;
            let inner = db.transaction(async || {
                db.exec(THREE, ()).await?;
                pending::<Result<()>>().await
            });
            inner.await
        });
        dropped(nest).await;
        db.exec(FOUR, ()).await
    }));
    done.unwrap();
    assert_eq!(world.committed(), [1, 4]);
    world.is_whole();
}

/// The same on a database that reports a missing savepoint.
#[tokio::test]
async fn on_sqlite_dropped_savepoints_leave_the_outer_one_usable() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let dsn = format!("sqlite:{}", folder.path().join("nest.db").display());
    let db = Db::builder(&dsn).max(3).open().await?;
    db.exec("CREATE TABLE t (n INTEGER)", ()).await?;
    db.transaction(async || {
        db.exec(ONE, ()).await?;
        let (come, came) = tokio::sync::oneshot::channel();
        let nest = db.transaction(async || {
            db.exec(TWO, ()).await?;
            let inner = db.transaction(async || {
                db.exec(THREE, ()).await?;
                come.send(()).expect("somebody waits for it");
                pending::<Result<()>>().await
            });
            inner.await
        });
        tokio::select! {
            done = nest => panic!("it never ends, and yet: {done:?}"),
            came = came => came.expect("it gets there"),
        }
        db.exec(FOUR, ()).await
    })
    .await?;
    let kept: Vec<i64> = db.query_as("SELECT n FROM t ORDER BY n", ()).await?;
    assert_eq!(kept, [1, 4]);
    Ok(())
}

/// Whether the savepoint was undone is unknown, and it cannot be undone twice.
#[test]
fn savepoint_rollback_sent_and_dropped_dooms_the_transaction() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let mut tx = db.begin().await.unwrap();
        let savepoint = tx.savepoint().await.unwrap();
        world.hold("rollback cenote_");
        dropped(savepoint.rollback()).await;
        assert_eq!(kind(tx.exec(ONE, ()).await), Kind::Doomed);
        assert_eq!(kind(tx.commit().await), Kind::Doomed);
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// Nothing has been sent yet, so the next call can undo it.
#[test]
fn savepoint_rollback_dropped_before_it_was_sent_dooms_nothing() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let mut tx = db.begin().await.unwrap();
        let savepoint = tx.savepoint().await.unwrap();
        savepoint.exec(ONE, ()).await.unwrap();
        assert!(drop_after(0, savepoint.rollback()).await.is_none());
        tx.exec(TWO, ()).await.unwrap();
        tx.commit().await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// The commit waited for the savepoint to end until it timed out, and rolled back.
#[test]
fn forgotten_savepoint_is_undone_and_does_not_delay_the_commit() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let mut tx = db.begin().await.unwrap();
        tx.exec(ONE, ()).await.unwrap();
        let savepoint = tx.savepoint().await.unwrap();
        savepoint.exec(TWO, ()).await.unwrap();
        std::mem::forget(savepoint);
        tx.commit().await.unwrap();
    });
    assert_eq!(world.runtime.elapsed(), Duration::ZERO);
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// Drops a nested closure, then a call that was about to undo its savepoint, and gives what the
/// transaction says to the next call.
fn drop_twice(world: &World) -> Error {
    let db = &world.db;
    let done = world.run(db.transaction(async || {
        db.exec(ONE, ()).await?;
        let nested = db.transaction(async || {
            db.exec(TWO, ()).await?;
            pending::<Result<()>>().await
        });
        let nested = started(nested).await;
        world.hold("rollback cenote_");
        drop(nested);
        dropped(db.exec(THREE, ())).await;
        db.exec(FOUR, ()).await
    }));
    done.expect_err("nobody knows what the undo did")
}

/// An undo that had been dropped was repeated, whether it had taken effect or not: where the savepoint
/// was not there any more, the connection was given up.
#[test]
fn undo_sent_and_dropped_dooms_only_the_transaction() {
    for dropped_calls in [DroppedCalls::Executed, DroppedCalls::NotExecuted] {
        let world = World::new(1);
        world.dropped_calls(dropped_calls);
        assert_eq!(drop_twice(&world).kind(), Kind::Doomed);
        assert_eq!(world.committed(), [0; 0]);
        assert_eq!(world.connections(), [1]);
        world.is_whole();
    }
}

/// It named a line of this crate's own source.
#[test]
fn transaction_doomed_by_a_dropped_undo_names_the_users_line() {
    let world = World::new(1);
    let error = drop_twice(&world);
    let files: Vec<_> = error.call_sites().iter().map(|site| site.file()).collect();
    assert!(!files.is_empty());
    assert!(
        files.iter().all(|of| of.ends_with("savepoints.rs")),
        "{files:?}"
    );
}

/// A guard's call inside a closure waited for the closure, which waited for it.
#[test]
fn guard_call_in_a_closure_of_its_coroutine_does_not_wait() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let nested = db.transaction(async || tx.exec(ONE, ()).await).await;
        nested.unwrap();
        tx.commit().await.unwrap();
    });
    assert_eq!(world.runtime.elapsed(), Duration::ZERO);
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}
