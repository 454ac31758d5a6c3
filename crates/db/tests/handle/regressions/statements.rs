//! Prepared statements run in the transaction that they belong to, or not at all.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Kind, Result};
use cenote_testkit::Fake;
use cenote_testkit::poll::{Hand, yield_now};
use tokio::sync::oneshot;

use super::support::{ONE, TWO, World, dropped, ended, kind, no, started};

/// Its calls were made from the frame of the other task, which is outside: they waited until the
/// transaction had ended.
#[test]
fn statement_of_a_transaction_runs_in_it_from_any_task() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let (send, done) = oneshot::channel();
        world.spawn(async move {
            let statement = tx.prepare(ONE).await.unwrap();
            statement.exec(()).await.unwrap();
            drop(statement);
            send.send(tx.commit().await).expect("somebody waits for it");
        });
        done.await.unwrap().unwrap();
    });
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// After the end of the transaction it ran in autocommit: what it inserted stayed, though the
/// transaction had been rolled back.
#[test]
fn a_statement_prepared_by_a_transaction_never_runs_outside_it() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let tx = db.begin().await.unwrap();
        let statement = tx.prepare(ONE).await.unwrap();
        tx.rollback().await.unwrap();
        let (send, done) = oneshot::channel();
        world.spawn(async move {
            send.send(statement.exec(()).await)
                .expect("somebody waits for it");
        });
        assert_eq!(kind(done.await.unwrap()), Kind::TransactionEnded);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Everything on a bound connection was let through unchecked.
#[test]
fn a_statements_future_carried_out_of_a_closure_is_escaped() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let statement = db.prepare(ONE).await.unwrap();
        let carried = RefCell::new(None);
        let failed: Result<()> = db
            .transaction(async || {
                *carried.borrow_mut() = Some(statement.exec(()));
                no()
            })
            .await;
        failed.unwrap_err();
        let call = carried.take().expect("it was carried out");
        assert_eq!(kind(call.await), Kind::Escaped);
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Neither can have changed anything, and yet the transaction could only be rolled back.
#[test]
fn a_dropped_ping_or_prepare_does_not_doom_a_transaction() {
    let world = World::new(1);
    let db = &world.db;
    let done = world.run(db.transaction(async || {
        world.hold("ping");
        dropped(db.ping()).await;
        world.hold("prepare");
        dropped(db.prepare(ONE)).await;
        db.exec(ONE, ()).await
    }));
    done.unwrap();
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// A connection that another branch had bound meanwhile was taken for a second transaction.
#[test]
fn a_begin_beside_a_prepare_is_no_nested_begin() {
    let world = World::new(3);
    let db = &world.db;
    world.hold("connect");
    world.scope(async {
        let mut prepare = started(db.prepare(ONE)).await;
        let mut begin = started(db.begin()).await;
        world.release();
        let statement = ended(&mut prepare).await.unwrap();
        let tx = ended(&mut begin).await.unwrap();
        statement.exec(()).await.unwrap();
        tx.rollback().await.unwrap();
    });
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Only statements were tried once more: after a restart of the server every idle
/// connection cost one transaction.
#[test]
fn call_whose_connection_died_in_the_pool_is_retried_once() {
    let mut failed = Vec::new();
    for what in [
        "exec",
        "transaction",
        "begin",
        "prepare",
        "stream",
        "ping",
        "exec_many",
        "BEGIN",
    ] {
        let world = World::new(1);
        let db = &world.db;
        world.run(db.exec(ONE, ())).unwrap();
        world.kill(1);
        let done = world.scope(async {
            match what {
                "exec" => db.exec(TWO, ()).await.map(drop),
                "transaction" => db
                    .transaction(async || db.exec(TWO, ()).await)
                    .await
                    .map(drop),
                "begin" => db.begin().await?.commit().await,
                "prepare" => db.prepare(TWO).await.map(drop),
                "stream" => db.stream("SELECT 1", ()).await.map(drop),
                "ping" => db.ping().await,
                "BEGIN" => db.exec("BEGIN", ()).await.map(drop),
                _ => {
                    let sets = [(1,), (2,)];
                    let many = db.exec_many("INSERT INTO t VALUES (?)", sets);
                    many.await.map(drop)
                }
            }
        });
        failed.extend(done.is_err().then_some(what));
        world.is_whole();
    }
    assert!(failed.is_empty(), "not tried once more: {failed:?}");
}

/// Between the look for the bound connection and the pin on it the connection could go back:
/// the begin then failed, though nothing had been lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_dropped_by_another_thread_never_costs_a_begin() -> Result<()> {
    let fake = Fake::new();
    let db = fake.builder().max(4).open().await?;
    for round in 0..2000 {
        let begun = cenote::scope(async {
            let statement = db.prepare("SELECT 1").await?;
            let is_running = Arc::new(AtomicBool::new(false));
            let running = Arc::clone(&is_running);
            let dropping = tokio::task::spawn_blocking(move || {
                running.store(true, Ordering::Release);
                drop(statement);
            });
            while !is_running.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            for _ in 0..(round % 40) {
                std::hint::spin_loop();
            }
            let tx = db.begin().await;
            dropping.await.expect("dropping it does not panic");
            tx?.rollback().await
        });
        begun.await?;
    }
    Ok(())
}

/// A connection went back while its frame ended, and was bound to the frame around it all
/// the same, dead.
#[test]
fn binding_losing_its_last_pin_at_frame_end_is_not_passed_on() {
    let world = World::new(3);
    let (db, other) = (&world.db, world.neighbour());
    world.scope(async {
        let closure = other.db.transaction(async || {
            db.exec("BEGIN", ()).await?;
            let statement = db.prepare(ONE).await?;
            db.after_commit(move || drop(statement));
            Ok(())
        });
        closure.await.unwrap();
        db.exec(ONE, ()).await.unwrap();
        db.exec("ROLLBACK", ()).await.unwrap();
        db.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}

/// What was meant for the transaction must not be done without it.
#[test]
fn statement_of_a_coroutine_ended_in_a_transaction_will_not_run() {
    let world = World::new(1);
    let db = &world.db;
    let statement = world.scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        db.prepare(ONE).await.unwrap()
    });
    assert_eq!(kind(world.run(statement.exec(()))), Kind::TransactionEnded);
    drop(statement);
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// It is the coroutine's, and not the closure's that another branch runs meanwhile.
#[test]
fn statement_beside_a_closure_waits_and_is_not_part_of_it() {
    let world = World::new(2);
    let db = &world.db;
    world.scope(async {
        let statement = db.prepare(TWO).await.unwrap();
        world.hold(ONE);
        let closure = db.transaction(async || {
            db.exec(ONE, ()).await?;
            no::<()>()
        });
        let mut closure = started(closure).await;
        let mut beside = Hand::new(statement.exec(()));
        beside.waits();
        world.release();
        ended(&mut closure).await.unwrap_err();
        yield_now().await;
        ended(&mut beside).await.unwrap();
    });
    assert_eq!(world.committed(), [2]);
    world.is_whole();
}
