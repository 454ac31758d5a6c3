//! Coroutines that end in unusual places, and those that a host drives.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use cenote::Coroutine;
use cenote_testkit::DroppedCalls;
use cenote_testkit::poll::{Hand, yield_now};

use super::support::{ONE, TWO, World, comes_to_an_end, ended, started, stuck};

/// The root frame did not know the closure's: the coroutine ended with a connection in use, and
/// the closure went on outside and committed.
#[test]
fn a_closure_carried_out_of_its_coroutine_ends_with_it() {
    let world = World::new(1);
    let db = &world.db;
    let carried = world.scope(async {
        let go_on = tokio::sync::Notify::new();
        started(db.transaction(async move || {
            db.exec(ONE, ()).await?;
            go_on.notified().await;
            db.exec(TWO, ()).await
        }))
        .await
    });
    world.runtime.run();
    assert_eq!(db.status().active, 0);
    drop(carried);
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// The same for one that goes on by itself.
#[test]
fn closure_that_continues_outside_its_coroutine_commits_nothing() {
    let world = World::new(1);
    let db = &world.db;
    let mut carried = world.scope(async {
        let mut closure = Hand::new(db.transaction(async || {
            db.exec(ONE, ()).await?;
            yield_now().await;
            yield_now().await;
            db.exec(TWO, ()).await
        }));
        while world.count(ONE) == 0 {
            closure.waits();
            yield_now().await;
        }
        closure
    });
    let done = world.run(async { ended(&mut carried).await });
    done.unwrap_err();
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
}

/// Its calls in flight were neither undone nor given back.
#[test]
fn host_coroutine_that_ends_mid_call_gives_everything_back() {
    for dropped_calls in [DroppedCalls::Executed, DroppedCalls::NotExecuted] {
        comes_to_an_end(move || end_with_calls_in_flight(dropped_calls));
    }
}

fn end_with_calls_in_flight(dropped_calls: DroppedCalls) {
    let world = World::new(2);
    world.dropped_calls(dropped_calls);
    let db = &world.db;
    let coroutine = Coroutine::new();
    world.hold("run");
    let mut begin = coroutine.enter(|| Hand::new(db.exec("BEGIN", ())));
    let mut set = coroutine.enter(|| Hand::new(db.exec("SET a = 1", ())));
    for _ in 0..9 {
        coroutine.enter(|| begin.waits());
        coroutine.enter(|| set.waits());
        world.runtime.run();
    }
    coroutine.end();
    world.release();
    // What they give is not promised: only that it comes, and that nothing stays.
    drop(world.run(async { ended(&mut begin).await }));
    drop(world.run(async { ended(&mut set).await }));
    world.is_whole();
    world.run(db.exec(ONE, ())).expect("all is well again");
    assert_eq!(world.committed(), [1]);
}

/// Its frame could not be made current any more, which panicked in a drop and aborted the process.
#[test]
fn a_scope_that_is_dropped_with_its_thread_does_not_panic() {
    type Kept = RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>;
    thread_local!(static KEPT: Kept = const { RefCell::new(None) });
    // A panic there would abort this process, and all tests with it.
    let thread = std::thread::spawn(|| {
        // Registered before what the scope needs, and so dropped after it.
        KEPT.with(|kept| drop(kept.borrow_mut().take()));
        let mut scope: Pin<Box<dyn Future<Output = ()>>> = Box::pin(cenote::scope(pending()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(scope.as_mut().poll(&mut cx).is_pending());
        KEPT.with(|kept| *kept.borrow_mut() = Some(scope));
    });
    thread.join().expect("it ends in peace");
}

/// The end of a coroutine needs no executor: here it is another thread's, there it is dead.
#[test]
fn a_scope_dropped_on_a_plain_thread_gives_everything_back() {
    for is_dead in [false, true] {
        let world = World::new(1);
        let db = world.db.clone();
        let mut scope = Hand::new(cenote::scope(async move {
            let _statement = db.prepare(ONE).await.expect("it prepares");
            let _tx = db.begin().await.expect("it begins");
            db.exec(ONE, ()).await.expect("it inserts");
            pending::<()>().await;
        }));
        world.run(async { stuck(&mut scope).await });
        if is_dead {
            world.runtime.die();
        }
        let dropping = std::thread::spawn(move || drop(scope));
        dropping.join().expect("dropping it does not panic");
        assert_eq!(world.committed(), [0; 0]);
        world.is_whole();
    }
}

/// Whatever a coroutine has left open must not keep its frame alive, and with it everything in it.
#[test]
fn a_dropped_coroutine_lets_go_of_everything() {
    let world = World::new(1);
    let db = &world.db;
    let token = Arc::new(());
    for what in ["guard", "raw", "session", "statement"] {
        let inside = Arc::clone(&token);
        let scope = cenote::scope(async {
            match what {
                "guard" => std::mem::forget(db.begin().await.unwrap()),
                "raw" => {
                    db.exec("BEGIN", ()).await.unwrap();
                    let inside = Arc::clone(&inside);
                    db.after_commit(move || drop(inside));
                }
                "session" => drop(db.exec("SET a = 1", ()).await.unwrap()),
                _ => drop(db.prepare(ONE).await.unwrap()),
            }
            pending::<()>().await;
        });
        let ending = Arc::clone(&token);
        let mut scope = Hand::new(scope.on_end(move || drop(ending)));
        world.run(async { stuck(&mut scope).await });
        drop(scope);
        world.is_whole();
        drop(inside);
        assert_eq!(Arc::strong_count(&token), 1, "{what}");
    }
}
