//! Handles whose calls run outside of the coroutine's transaction.

use std::time::Duration;

use cenote::{Kind, Result};

use super::support::{ONE, TWO, World, kind, no};

/// Such a handle never looked a transaction up, its own included: every statement was committed by
/// itself, and the transaction was empty.
#[test]
fn what_an_outside_handle_does_in_its_own_transaction_is_in_it() {
    let world = World::new(3);
    let audit = world.db.outside();
    let failed: Result<()> = world.run(audit.transaction(async || {
        audit.exec(ONE, ()).await?;
        no()
    }));
    failed.unwrap_err();
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The closure was a coroutine of its own: a call of the other database did not find its
/// transaction, and ran outside of it.
#[test]
fn outside_transaction_hides_no_transaction_of_another_database() {
    let world = World::new(3);
    let (db, other) = (&world.db, world.neighbour());
    let failed: Result<()> = world.run(db.transaction(async || {
        let outside = other.db.outside();
        outside.transaction(async || db.exec(ONE, ()).await).await?;
        no()
    }));
    failed.unwrap_err();
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
    other.is_whole();
}

/// A call of the outside handle waited for a connection that its own transaction had.
#[test]
fn outside_call_joins_its_own_transaction_inside_another() {
    let world = World::new(2);
    let db = &world.db;
    let done: Result<()> = world.run(db.transaction(async || {
        db.exec(ONE, ()).await?;
        let inner = db.outside();
        inner
            .transaction(async || db.outside().exec(TWO, ()).await)
            .await?;
        no()
    }));
    assert_eq!(kind(done), Kind::Other);
    assert_eq!(world.committed(), [2], "the outside transaction alone");
    world.is_whole();
}

/// The frame of the outside transaction was no part of the outer one: who waited inside both was not
/// seen to wait for itself.
#[test]
fn wait_in_nested_outside_transactions_is_a_self_deadlock() {
    let world = World::new(2);
    let db = &world.db;
    let done: Result<()> = world.run(db.transaction(async || {
        let inner = db.outside();
        inner
            .transaction(async || db.connection().await.map(drop))
            .await
    }));
    assert_eq!(kind(done), Kind::SelfDeadlock);
    assert_eq!(world.runtime.elapsed(), Duration::ZERO);
    world.is_whole();
}
