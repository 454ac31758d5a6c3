//! Callbacks and errors around the end of a transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cenote::Result;
use cenote_testkit::Fake;
use cenote_testkit::poll::{Hand, poll_once};

use super::support::{ONE, World, no};

/// A callback that panics when it is dropped, as anything may that it holds.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb went off");
    }
}

/// The panic in the drop of an unused callback kept the other callbacks from running, and waiters from being
/// woken.
#[test]
fn an_on_end_callback_runs_though_a_dropped_after_commit_panics() {
    let world = World::new(1);
    let db = &world.db;
    let ran = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ran);
    let scope = cenote::scope(async {
        db.exec("BEGIN", ()).await.unwrap();
        let bomb = Bomb;
        db.after_commit(move || drop(bomb));
    });
    let scope = scope.on_end(move || told.store(true, Ordering::SeqCst));
    // Whether the panic comes through is not promised.
    drop(catch_unwind(AssertUnwindSafe(|| world.run(scope))));
    assert!(ran.load(Ordering::SeqCst));
    world.is_whole();
}

/// The error was shared with what the coroutine remembers of it, and could not be changed.
#[test]
fn an_error_of_a_coroutine_can_be_given_a_cause() {
    let world = World::new(1);
    let db = &world.db;
    world.scope(async {
        let error = db.exec("FAIL 22000", ()).await.unwrap_err();
        let error = error.because("the weather");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("the weather"));
    });
}

/// What is registered while an older transaction is still being undone belongs to the new one.
#[test]
fn after_commit_is_not_lost_with_an_undo_that_is_still_to_come() {
    let world = World::new(1);
    let db = &world.db;
    let ran = Arc::new(AtomicUsize::new(0));
    world.scope(async {
        db.exec("SET a = 1", ()).await.unwrap();
        drop(db.begin().await.unwrap());
        let closure = db.transaction(async || {
            let ran = Arc::clone(&ran);
            db.after_commit(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            });
            db.exec(ONE, ()).await
        });
        closure.await.unwrap();
    });
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(world.committed(), [1]);
    world.is_whole();
}

/// A panic passes through the polling task and must leave no transaction open.
#[test]
fn panicking_closure_is_rolled_back_and_gives_its_place_back() {
    let world = World::new(1);
    let db = &world.db;
    let mut closure = Hand::new(db.transaction(async || {
        db.exec(ONE, ()).await?;
        if db.in_transaction() {
            panic!("the closure panics");
        }
        no::<()>()
    }));
    let done = catch_unwind(AssertUnwindSafe(|| {
        while closure.poll().is_pending() {
            world.runtime.run();
        }
    }));
    assert!(done.is_err());
    drop(closure);
    assert_eq!(world.committed(), [0; 0]);
    world.is_whole();
    let after: Result<_> = world.run(db.exec(ONE, ()));
    after.unwrap();
}

/// A transaction that was begun inside another database's closure and carried out of it was undone,
/// without a word, by the commit of the transaction around it.
#[tokio::test]
async fn commit_never_undoes_a_held_inner_transaction() -> Result<()> {
    let (one, two) = (Fake::new(), Fake::new());
    let db = one.builder().max(2).acquire_timeout(None).open().await?;
    let other = two.builder().max(2).open().await?;
    cenote::scope(async {
        let outer = db.begin().await?;
        let inner = other.transaction(async || db.begin().await).await?;
        inner.exec("INSERT INTO t VALUES (?)", (1,)).await?;
        let mut commit = Box::pin(outer.commit());
        assert!(
            poll_once(commit.as_mut()).is_pending(),
            "it waits for the one inside"
        );
        inner.commit().await?;
        commit.await
    })
    .await?;
    assert_eq!(one.rows("t").len(), 1);
    Ok(())
}
