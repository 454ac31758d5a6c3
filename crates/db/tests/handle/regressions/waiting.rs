//! Calls that wait for their turn in a transaction never run outside of it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use cenote::{Db, Kind, Result};
use cenote_testkit::poll::Hand;
use tokio::sync::Notify;

use super::support::{ONE, TWO, World, comes_to_an_end, ended, kind, no, started};

/// It looked for its transaction only before it waited; after the rollback it found none, and
/// was committed by itself.
#[test]
fn waiting_call_carried_out_of_a_closure_never_runs_outside() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let carried = RefCell::new(None);
        let failed: Result<()> = db
            .transaction(async || {
                world.hold(ONE);
                let mut first = started(db.exec(ONE, ())).await;
                *carried.borrow_mut() = Some(started(db.exec(TWO, ())).await);
                world.release();
                ended(&mut first).await?;
                no()
            })
            .await;
        assert_eq!(kind(failed), Kind::Other);
        let mut second = carried.take().expect("it was carried out");
        assert_eq!(kind(ended(&mut second).await), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The rollback took its turn before it, and then it ran in autocommit.
#[test]
fn call_waiting_in_a_guard_never_runs_after_its_rollback() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        world.hold(ONE);
        let mut first = started(db.exec(ONE, ())).await;
        let mut back = started(tx.rollback()).await;
        let mut second = started(db.exec(TWO, ())).await;
        world.release();
        ended(&mut first).await.unwrap();
        ended(&mut back).await.unwrap();
        assert_eq!(kind(ended(&mut second).await), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// After the savepoint had been undone, the call ran in the transaction around it.
#[test]
fn a_call_that_waits_in_a_savepoint_never_survives_its_rollback() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let mut tx = db.begin().await.unwrap();
        let savepoint = tx.savepoint().await.unwrap();
        world.hold(ONE);
        let mut first = started(db.exec(ONE, ())).await;
        let mut second = started(db.exec(TWO, ())).await;
        drop(savepoint);
        world.release();
        ended(&mut first).await.unwrap();
        assert_eq!(kind(ended(&mut second).await), Kind::TransactionEnded);
        tx.commit().await.unwrap();
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// It found no transaction any more when its turn came, began one of its own, and
/// committed that.
#[test]
fn closure_that_waited_to_nest_is_never_its_own_transaction() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        world.hold(ONE);
        let mut first = started(db.exec(ONE, ())).await;
        let mut back = started(tx.rollback()).await;
        let mut nested = started(db.transaction(async || db.exec(TWO, ()).await)).await;
        world.release();
        ended(&mut first).await.unwrap();
        ended(&mut back).await.unwrap();
        assert_eq!(kind(ended(&mut nested).await), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    assert_eq!(world.count("begin"), 1);
    world.is_whole();
}

/// It waited like a call, and then read what the transaction had not seen.
#[test]
fn stream_that_waited_in_a_transaction_never_reads_outside_it() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let _pin = db.pin().await.unwrap();
        let tx = db.begin().await.unwrap();
        world.hold(ONE);
        let mut first = started(db.exec(ONE, ())).await;
        let mut back = started(tx.rollback()).await;
        let mut stream = started(db.stream("SELECT * FROM t", ())).await;
        world.release();
        ended(&mut first).await.unwrap();
        ended(&mut back).await.unwrap();
        assert_eq!(kind(ended(&mut stream).await), Kind::TransactionEnded);
    });
    assert_eq!(world.count("stream"), 0);
    world.is_whole();
}

/// Only the guard's own level was known to have ended: the closure went on in autocommit.
#[test]
fn closure_of_a_dropped_outer_transaction_never_runs_outside() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let go_on = Notify::new();
        let mut closure = started(db.transaction(async || {
            db.exec(ONE, ()).await?;
            go_on.notified().await;
            db.exec(TWO, ()).await
        }))
        .await;
        drop(tx);
        go_on.notify_one();
        assert_eq!(kind(ended(&mut closure).await), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The commit gave up and rolled back, and the closure's next statement was committed by itself.
#[test]
fn closure_whose_outer_commit_gave_up_never_runs_outside() {
    let world = World::with(|builder| builder.max(2).acquire_timeout(Duration::from_secs(30)));
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let go_on = Notify::new();
        let mut closure = started(db.transaction(async || {
            db.exec(ONE, ()).await?;
            go_on.notified().await;
            db.exec(TWO, ()).await
        }))
        .await;
        let mut commit = started(tx.commit()).await;
        world.pass(Duration::from_secs(31)).await;
        assert_eq!(kind(ended(&mut commit).await), Kind::Timeout);
        go_on.notify_one();
        assert_eq!(kind(ended(&mut closure).await), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Its waker was kept for the end of the turn, which had become a stream's: it slept until the
/// stream ended, or for ever.
#[test]
fn waiter_is_woken_when_the_turn_becomes_a_streams() {
    let world = World::lazy(1);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        world.hold("begin");
        let mut stream = started(db.stream("SELECT 1", ())).await;
        let mut call = started(db.exec(ONE, ())).await;
        world.release();
        let stream = ended(&mut stream).await.unwrap();
        assert!(call.is_woken());
        assert_eq!(kind(ended(&mut call).await), Kind::Busy);
        drop(stream);
        tx.rollback().await.unwrap();
    });
    world.is_whole();
}

type Start = fn(&Db) -> Starting<'_>;
type Starting<'w> = Pin<Box<dyn Future<Output = Result<()>> + 'w>>;

/// Calls that pin a connection to their coroutine when they get one.
const PINNING: [(&str, Start); 4] = [
    ("prepare", |db| {
        Box::pin(async { db.prepare(ONE).await.map(drop) })
    }),
    ("begin", |db| Box::pin(async { db.begin().await.map(drop) })),
    ("pin", |db| Box::pin(async { db.pin().await.map(drop) })),
    ("BEGIN", |db| {
        Box::pin(async { db.exec("BEGIN", ()).await.map(drop) })
    }),
];

/// A frame that had ended was taken for one that had a connection already: the call looked for
/// that one for ever, without an await.
#[test]
fn waiting_call_ends_when_its_coroutine_ends() {
    comes_to_an_end(|| {
        for (what, start) in PINNING {
            let world = World::new(2);
            world.hold("connect");
            let coroutine = cenote::Coroutine::new();
            let mut call = Hand::new(start(&world.db));
            coroutine.enter(|| call.waits());
            world.runtime.run();
            coroutine.end();
            world.release();
            let done = world.run(async { ended(&mut call).await });
            assert!(
                done.is_err(),
                "{what} belongs to a coroutine that has ended"
            );
            world.is_whole();
        }
    });
}
