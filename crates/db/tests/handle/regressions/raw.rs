//! Transactions that are begun and ended by the text of a statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::{Kind, Result};

use super::support::{ONE, THREE, TWO, World, dropped, ended, kind, started};

/// The status after the text was that of an open transaction, and so the closure went on in
/// another one than it had begun.
#[test]
fn a_transaction_that_a_text_ends_and_reopens_is_lost() {
    let world = World::new(1);
    let db = &world.db;
    let done: Result<()> = world.run(db.transaction(async || {
        db.exec(ONE, ()).await?;
        db.exec("COMMIT; BEGIN", ()).await?;
        db.exec(TWO, ()).await?;
        Ok(())
    }));
    assert_eq!(kind(done), Kind::TransactionLost);
    assert_eq!(world.committed(), [1], "by the text");
    world.is_whole();
}

/// ROLLBACK was refused like any other text, so that the coroutine could do nothing more with
/// its database.
#[test]
fn a_doomed_raw_transaction_can_be_rolled_back() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        world.hold(ONE);
        dropped(db.exec(ONE, ())).await;
        assert_eq!(kind(db.exec(TWO, ()).await), Kind::Doomed);
        db.exec("ROLLBACK", ()).await.unwrap();
        db.exec(THREE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [3]);
    world.is_whole();
}

/// COMMIT is the other way to end it, and must say that nothing was committed.
#[test]
fn a_doomed_raw_transaction_cannot_be_committed() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        world.hold(ONE);
        dropped(db.exec(ONE, ())).await;
        assert_eq!(kind(db.exec("COMMIT", ()).await), Kind::Doomed);
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

fn counted(ran: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static + use<> {
    let ran = Arc::clone(ran);
    move || {
        ran.fetch_add(1, Ordering::SeqCst);
    }
}

/// The callbacks were dropped unheard, those of closures inside as well.
#[test]
fn after_commit_runs_when_a_text_commits_what_a_text_began() {
    let world = World::new(1);
    let db = &world.db;
    let ran = Arc::new(AtomicUsize::new(0));
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.after_commit(counted(&ran));
        let nested = db.transaction(async || {
            db.after_commit(counted(&ran));
            Ok(())
        });
        nested.await.unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        db.exec("COMMIT", ()).await.unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 2);
    });
}

/// What was rolled back has nothing to announce.
#[test]
fn after_commit_is_dropped_when_sql_rolls_back_what_sql_began() {
    let world = World::new(1);
    let db = &world.db;
    let ran = Arc::new(AtomicUsize::new(0));
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.after_commit(counted(&ran));
        db.exec("ROLLBACK", ()).await.unwrap();
    });
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// Only the coroutine's own transactions could be ended when they were lost: here every
/// text was refused for ever, though nothing was wrong with the connection.
#[test]
fn a_lost_raw_transaction_of_a_connection_can_be_ended() {
    let world = World::new(1);
    let db = &world.db;
    world.run(async {
        let mut connection = db.connection().await.unwrap();
        connection.exec("BEGIN", ()).await.unwrap();
        let savepoint = connection.begin().await.unwrap();
        savepoint.exec("COMMIT", ()).await.unwrap();
        assert_eq!(kind(savepoint.commit().await), Kind::TransactionLost);
        connection.exec("ROLLBACK", ()).await.unwrap();
        connection.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// The first BEGIN was bound when it had been answered: the second ran on a connection of its own,
/// and was said to be outside of any coroutine.
#[test]
fn two_raw_begins_at_once_are_one_transaction_of_the_coroutine() {
    let world = World::new(3);
    let db = &world.db;
    world.hold("connect");
    world.scope(async {
        let mut first = started(db.exec("BEGIN", ())).await;
        let mut second = started(db.exec("BEGIN", ())).await;
        world.release();
        ended(&mut first).await.unwrap();
        assert_eq!(kind(ended(&mut second).await), Kind::Database);
        db.exec(ONE, ()).await.unwrap();
        db.exec("COMMIT", ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// A raw transaction that was begun inside the closure of another database ended with that
/// closure, and later statements were committed one by one.
#[test]
fn a_raw_transaction_outlives_the_closure_of_another_database() {
    let world = World::new(2);
    let (db, other) = (&world.db, world.neighbour());
    world.scope(async {
        let begun = other.db.transaction(async || db.exec("BEGIN", ()).await);
        begun.await.unwrap();
        db.exec(ONE, ()).await.unwrap();
        assert_eq!(world.committed(), [0; 0]);
        db.exec("ROLLBACK", ()).await.unwrap();
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
    other.is_whole();
}
