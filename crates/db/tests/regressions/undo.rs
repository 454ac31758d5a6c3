//! Whatever is left to be settled or undone is, before anybody else has the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Kind, Result};
use cenote_testkit::DroppedCalls;
use cenote_testkit::poll::yield_now;

use crate::support::{ONE, TWO, World, dropped, kind};

/// The undoing was not noted as being under way: the next statement was sent into the unanswered
/// ROLLBACK.
#[test]
fn after_a_dropped_undo_the_driver_is_settled_first() {
    for dropped_calls in [DroppedCalls::Executed, DroppedCalls::NotExecuted] {
        let world = World::new(1);
        world.dropped_calls(dropped_calls);
        let db = &world.db;
        world.scope(async {
            let _pin = db.pin().await.unwrap();
            let tx = db.begin().await.unwrap();
            db.exec(ONE, ()).await.unwrap();
            world.hold("rollback");
            drop(tx);
            dropped(db.exec(TWO, ())).await;
            db.exec(TWO, ()).await.unwrap();
        });
        assert_eq!(world.committed(), [2]);
        assert_eq!(world.violations(), [] as [&str; 0]);
        world.is_whole();
    }
}

/// The coroutine stayed bound to the connection that was gone: each of its calls failed until
/// it ended.
#[test]
fn after_a_lost_transaction_a_coroutine_with_a_touched_session_gets_a_fresh_connection() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        db.exec("SET a = 1", ()).await.unwrap();
        world.break_on("SELECT 1");
        let lost = db.transaction(async || db.query("SELECT 1", ()).await);
        lost.await.unwrap_err();
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// The dead binding went on to the frame around the closure.
#[test]
fn after_a_lost_transaction_that_touched_the_session_the_next_call_gets_a_fresh_connection() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let lost = db.transaction(async || {
            db.exec("SET a = 1", ()).await?;
            world.break_on("SELECT 1");
            db.query("SELECT 1", ()).await
        });
        lost.await.unwrap_err();
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// The result of the ROLLBACK after a refused COMMIT was ignored: the next statement ran in a
/// transaction that nobody knew of.
#[test]
fn a_refused_commit_that_cannot_be_rolled_back_leaves_no_transaction_open() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let _pin = db.pin().await.unwrap();
        world.fail_on("commit", "23000");
        world.fail_on("rollback", "XX000");
        let refused = db.transaction(async || db.exec(ONE, ()).await).await;
        assert_eq!(kind(refused), Kind::Database);
        db.exec(TWO, ()).await.unwrap();
        assert!(!db.in_transaction());
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// What cleans up waited no longer than the acquire timeout; then the answer of the slow
/// call was taken for a transaction of the dead coroutine, and held its place.
#[test]
fn a_transaction_is_rolled_back_when_its_coroutine_ends_though_a_call_of_it_is_slow() {
    let world = World::new(1);
    let db = &world.db;
    let answered = Arc::new(AtomicBool::new(false));
    world.hold(ONE);
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let told = Arc::clone(&answered);
        world.spawn(async move {
            let done = tx.exec(ONE, ()).await;
            told.store(done.is_ok(), Ordering::SeqCst);
            // Whoever holds the dead guard must not hold the place with it.
            std::future::pending::<()>().await;
            drop(tx);
        });
        yield_now().await; // It is under way when the coroutine ends.
    });
    world.runtime.advance(Duration::from_secs(3600));
    assert_eq!(world.open_transactions(), [1]);
    world.release();
    world.runtime.run();
    assert!(answered.load(Ordering::SeqCst));
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// A guard that was forgotten kept the place after its connection had been dropped.
#[test]
fn a_forgotten_transaction_of_a_connection_does_not_keep_its_place() {
    let world = World::new(1);
    let db = &world.db;
    world.run(async {
        let mut connection = db.connection().await.unwrap();
        std::mem::forget(connection.begin().await.unwrap());
        drop(connection);
    });
    world.is_whole();
    world.run(db.exec(ONE, ())).unwrap();
    assert_eq!(world.committed(), [1]);
}

/// A second drop, while the first was being undone, met calls that had not been settled.
#[test]
fn a_transaction_dropped_while_another_is_being_undone_leaves_nothing_behind() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let _pin = db.pin().await.unwrap();
        for _ in 0..3 {
            let tx = db.begin().await.unwrap();
            db.exec(ONE, ()).await.unwrap();
            world.hold("rollback");
            drop(tx);
            dropped(db.transaction(async || Ok(()))).await;
        }
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// The end of a transaction whose stream was still open was taken for a new transaction of the
/// coroutine when the stream ended.
#[test]
fn a_stream_carried_out_of_a_failed_closure_leaves_the_coroutine_out_of_its_transaction() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        db.exec("SET a = 1", ()).await.unwrap();
        let kept = std::cell::RefCell::new(None);
        let failed: Result<()> = db
            .transaction(async || {
                db.exec(ONE, ()).await?;
                *kept.borrow_mut() = Some(db.stream("SELECT * FROM t", ()).await?);
                Ok(())
            })
            .await;
        assert_eq!(kind(failed), Kind::Busy);
        let mut stream = kept.take().expect("it was carried out");
        while let Ok(Some(_)) = stream.try_next().await {}
        assert!(!db.in_transaction());
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}
