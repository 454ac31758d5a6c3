//! How long transactions may last.

use std::time::Duration;

use cenote::Kind;
use cenote_testkit::poll::yield_now;

use super::support::{ONE, TWO, World, ended, kind, started};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Only those that `begin` and `transaction` had begun were watched.
#[test]
fn a_raw_transaction_that_idles_too_long_is_rolled_back() {
    let world = World::with(|builder| builder.max(1).idle_in_transaction(SECOND));
    let db = &world.db;
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.exec(ONE, ()).await.unwrap();
        world.pass(MINUTE).await;
        assert_eq!(world.open_transactions(), [0; 0]);
        assert_eq!(db.status().active, 0);
        assert_eq!(kind(db.exec(TWO, ()).await), Kind::TransactionTimeout);
        db.exec("ROLLBACK", ()).await.unwrap();
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// The same for those that are too old.
#[test]
fn a_raw_transaction_that_is_too_old_is_rolled_back() {
    let world = World::with(|builder| builder.max(1).max_transaction_age(SECOND));
    let db = &world.db;
    world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        world.pass(MINUTE).await;
        assert_eq!(world.open_transactions(), [0; 0]);
        assert_eq!(kind(db.exec("COMMIT", ()).await), Kind::TransactionTimeout);
    });
    world.is_whole();
}

/// It is rolled back, which is all that was asked for.
#[test]
fn rolling_back_after_a_limit_rolled_back_is_no_error() {
    let world = World::with(|builder| builder.max(1).idle_in_transaction(SECOND));
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        world.pass(MINUTE).await;
        assert_eq!(db.status().active, 0);
        tx.rollback().await.unwrap();
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// A live statement kept the coroutine bound to the connection that had been taken away.
#[test]
fn statement_does_not_bind_to_a_connection_that_a_limit_took() {
    let world = World::with(|builder| builder.max(2).idle_in_transaction(SECOND));
    let db = &world.db;
    world.scope(async {
        let _statement = db.prepare("SELECT 1").await.unwrap();
        let tx = db.begin().await.unwrap();
        world.pass(MINUTE).await;
        drop(tx);
        db.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// A check during a running call was repeated only after the time limit for cleaning up.
#[test]
fn call_under_way_does_not_extend_the_transaction_age() {
    let world = World::with(|builder| {
        let builder = builder.max(1).max_transaction_age(2 * SECOND);
        builder.cleanup_timeout(MINUTE)
    });
    let db = &world.db;
    world.scope(async {
        let _tx = db.begin().await.unwrap();
        world.hold(ONE);
        let mut call = started(db.exec(ONE, ())).await;
        world.pass(SECOND).await;
        world.release();
        ended(&mut call).await.unwrap();
        world.pass(2 * SECOND).await;
        assert_eq!(world.open_transactions(), [0; 0]);
        assert_eq!(kind(db.exec(TWO, ()).await), Kind::TransactionTimeout);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Each left a task and a timer behind that slept until the limit had passed.
#[test]
fn transactions_that_are_over_leave_no_watch_behind() {
    let world = World::with(|builder| {
        let builder = builder.max(1).max_transaction_age(3600 * SECOND);
        builder.idle_in_transaction(3600 * SECOND)
    });
    let db = &world.db;
    let one = || {
        world.run(db.transaction(async || {
            yield_now().await;
            db.exec(ONE, ()).await
        }))
    };
    one().unwrap();
    world.runtime.run();
    let tasks = world.runtime.tasks();
    for _ in 0..100 {
        one().unwrap();
    }
    world.runtime.run();
    assert!(world.runtime.tasks() <= tasks + 1, "{:?}", world.runtime);
    world.is_whole();
}

/// BEGIN, SAVEPOINT and RELEASE were waited for without an end where the network had gone silent: only
/// statements and COMMIT had the limit.
#[test]
fn begin_and_end_calls_are_limited_like_a_statement() {
    for held in ["begin", "set cenote_", "release cenote_"] {
        for lazily in [false, true] {
            let world = World::with(|builder| builder.max(1).statement_timeout(SECOND));
            world.lazy_begin(lazily);
            let db = &world.db;
            world.scope(async {
                world.hold(held);
                let work = db.transaction(async || {
                    db.transaction(async || db.exec(ONE, ()).await.map(drop))
                        .await
                });
                let mut work = started(work).await;
                world.pass(2 * SECOND).await;
                let late = ended(&mut work).await;
                assert_eq!(late.unwrap_err().kind(), Kind::StatementTimeout, "{held}");
                drop(work);
                world.release();
                world.pass(MINUTE).await;
                db.exec(TWO, ()).await.unwrap();
            });
            assert_eq!(world.committed(), [2], "{held}, {lazily}");
            world.is_whole();
        }
    }
}
