//! Pins and guards last as long as their holder keeps them.

use std::time::Duration;

use cenote::Result;
use cenote_testkit::DroppedCalls;

use super::support::{ONE, TWO, World, dropped};

/// The pin ended with the closure although other code held it.
#[test]
fn a_pin_taken_in_a_closure_lasts_until_it_is_dropped() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let pin = db.transaction(async || db.pin().await).await.unwrap();
        assert!(db.peek().is_some());
        drop(pin);
        assert!(db.peek().is_none());
    });
    world.is_whole();
}

/// The end of the other database's closure took it down: what came after ran in
/// autocommit while somebody held the guard.
#[test]
fn a_guard_of_one_database_outlives_the_closure_of_another() {
    let world = World::new(3);
    let (db, other) = (&world.db, world.neighbour());
    world.scope(async {
        let tx = other.db.transaction(async || db.begin().await).await;
        let tx = tx.unwrap();
        assert!(db.in_transaction());
        db.exec(ONE, ()).await.unwrap();
        tx.rollback().await.unwrap();
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
    other.is_whole();
}

/// A savepoint that was forgotten there left a level whose frame had ended: everybody outside
/// waited for nobody.
#[test]
fn a_forgotten_guard_blocks_no_other_database() {
    let world = World::new(3);
    let (db, other) = (&world.db, world.neighbour());
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let closure = other.db.transaction(async || {
            std::mem::forget(db.begin().await?);
            Ok(())
        });
        closure.await.unwrap();
        db.exec(ONE, ()).await.unwrap();
        // Its own end is another matter: somebody might still hold the guard.
        drop(tx);
    });
    assert_eq!(world.runtime.elapsed(), Duration::ZERO);
    assert_eq!(world.committed(), [0; 0], "it was in what was forgotten");
    world.is_whole();
}

/// What may have begun is rolled back on a connection that something else pins.
#[test]
fn a_dropped_begin_is_rolled_back_on_a_pinned_connection() {
    for dropped_calls in [DroppedCalls::Executed, DroppedCalls::NotExecuted] {
        let world = World::new(1);
        world.dropped_calls(dropped_calls);
        let db = &world.db;
        world.scope(async {
            let _pin = db.pin().await.unwrap();
            world.hold("begin");
            dropped(db.begin()).await;
            db.exec(ONE, ()).await.unwrap();
            assert!(!db.in_transaction());
        });
        assert_eq!(world.committed(), [1]);
        world.is_whole();
    }
}

/// What was not committed is rolled back on a connection that something else pins.
#[test]
fn a_dropped_commit_leaves_a_pinned_connection_usable() {
    for (dropped_calls, expected) in [
        (DroppedCalls::Executed, vec![1, 2]),
        (DroppedCalls::NotExecuted, vec![2]),
    ] {
        let world = World::new(1);
        world.dropped_calls(dropped_calls);
        let db = &world.db;
        let done: Result<()> = world.scope(async {
            db.exec("SET a = 1", ()).await?;
            let tx = db.begin().await?;
            db.exec(ONE, ()).await?;
            world.hold("commit");
            dropped(tx.commit()).await;
            db.exec(TWO, ()).await?;
            assert!(!db.in_transaction());
            Ok(())
        });
        done.unwrap();
        assert_eq!(world.committed(), expected);
        world.is_whole();
    }
}
