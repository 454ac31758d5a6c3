//! Drivers whose BEGIN travels with the first statement.

use cenote::{Kind, Result};
use cenote_testkit::DroppedCalls;

use super::support::{ONE, TWO, World, dropped, kind};

/// The BEGIN was noted when it had been answered: dropped before, it stayed open on the server,
/// and what came later was rolled back with it though it had been answered.
#[test]
fn a_dropped_first_statement_leaves_no_transaction_open() {
    for dropped_calls in [DroppedCalls::Executed, DroppedCalls::NotExecuted] {
        let world = World::lazy(1);
        world.dropped_calls(dropped_calls);
        let db = &world.db;
        world.scope(async {
            let _pin = db.pin().await.unwrap();
            let tx = db.begin().await.unwrap();
            world.hold(ONE);
            dropped(db.exec(ONE, ())).await;
            tx.rollback().await.unwrap();
            db.exec(TWO, ()).await.unwrap();
            assert!(!db.in_transaction());
        });
        assert_eq!(world.committed(), [2]);
        world.is_whole();
    }
}

/// A BEGIN that has to travel alone, because the first call is none that it can travel with, had
/// the same hole.
#[test]
fn dropped_begin_before_any_other_call_leaves_nothing_open() {
    for what in ["savepoint", "prepare", "stream", "exec_many"] {
        let world = World::lazy(1);
        world.dropped_calls(DroppedCalls::Executed);
        let db = &world.db;
        world.scope(async {
            let _pin = db.pin().await.unwrap();
            let mut tx = db.begin().await.unwrap();
            world.hold("begin");
            match what {
                "savepoint" => dropped(tx.savepoint()).await,
                "prepare" => dropped(db.prepare(ONE)).await,
                "stream" => dropped(db.stream("SELECT 1", ())).await,
                _ => dropped(db.exec_many("INSERT INTO t VALUES (?)", [(1,), (1,)])).await,
            }
            tx.rollback().await.unwrap();
            db.exec(TWO, ()).await.unwrap();
            assert!(!db.in_transaction());
        });
        assert_eq!(world.committed(), [2], "{what}");
        world.is_whole();
    }
}

/// It was taken for one that had not begun yet, so that the next statement began another.
#[test]
fn a_transaction_that_its_first_text_ends_is_lost() {
    let world = World::lazy(1);
    let db = &world.db;
    let done: Result<()> = world.run(db.transaction(async || {
        db.exec("INSERT INTO t VALUES (1); COMMIT", ()).await?;
        db.exec(TWO, ()).await?;
        Ok(())
    }));
    assert_eq!(kind(done), Kind::TransactionLost);
    assert_eq!(world.committed(), [1], "by the text");
    world.is_whole();
}

/// A transaction that nothing was done in must not be begun for its end.
#[test]
fn a_transaction_without_statements_sends_nothing() {
    let world = World::lazy(1);
    let db = &world.db;
    world.run(db.transaction(async || Ok(()))).unwrap();
    assert_eq!(world.log(), ["connect 1"]);
    world.is_whole();
}
