//! Whatever is left to be settled or undone is, before anybody else has the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Kind, Result};
use cenote_testkit::DroppedCalls;
use cenote_testkit::poll::yield_now;

use super::support::{ONE, TWO, World, dropped, kind};

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
fn changed_session_with_a_lost_transaction_reconnects() {
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
fn session_changed_in_a_lost_transaction_reconnects() {
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
fn refused_commit_that_cannot_roll_back_leaves_nothing_open() {
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
fn transaction_rolls_back_at_coroutine_end_despite_a_slow_call() {
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
            // The holder of the dead guard must not occupy a place in the pool.
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
fn forgotten_transaction_of_a_connection_frees_its_place() {
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
fn transaction_dropped_during_another_rollback_leaves_nothing() {
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
fn stream_carried_out_of_a_failed_closure_is_outside_of_it() {
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
