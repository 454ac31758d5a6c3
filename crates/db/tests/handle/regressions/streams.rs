//! Rows that come one by one.

use std::time::Duration;

use cenote::Kind;

use super::support::{ONE, World, kind};

/// A stream had a connection of its own: the transaction that it began there was rolled back
/// without a word, and what followed was in none.
#[test]
fn a_stream_that_begins_a_transaction_begins_the_coroutines() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let mut stream = db.stream("BEGIN", ()).await.unwrap();
        assert!(stream.try_next().await.unwrap().is_none());
        drop(stream);
        assert!(db.in_transaction());
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Without a coroutine nobody could ever end it.
#[test]
fn outside_of_coroutines_a_stream_cannot_begin_a_transaction() {
    let world = World::new(1);
    let begun = world.run(world.db.stream("BEGIN", ()));
    assert_eq!(kind(begun), Kind::LeftTransaction);
    world.is_whole();
}

/// An open stream was taken for a call with a limit of its own: the transaction lasted for as long
/// as nobody read it, and longer.
#[test]
fn a_stream_read_after_the_time_limit_names_the_limit() {
    let hour = Duration::from_secs(3600);
    let world = World::with(|builder| builder.max(1).max_transaction_age(Duration::from_secs(1)));
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let mut stream = db.stream("SELECT 1", ()).await.unwrap();
        world.pass(hour).await;
        assert_eq!(kind(stream.try_next().await), Kind::TransactionTimeout);
        assert_eq!(kind(db.exec(ONE, ()).await), Kind::TransactionTimeout);
        assert_eq!(kind(tx.commit().await), Kind::TransactionTimeout);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The same for who uses the transaction while the stream is still open.
#[test]
fn expired_transaction_with_a_stream_names_the_limit() {
    let hour = Duration::from_secs(3600);
    let world = World::with(|builder| builder.max(1).max_transaction_age(Duration::from_secs(1)));
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let stream = db.stream("SELECT 1", ()).await.unwrap();
        world.pass(hour).await;
        assert_eq!(kind(tx.exec(ONE, ()).await), Kind::TransactionTimeout);
        drop(stream);
        tx.rollback().await.unwrap();
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}
