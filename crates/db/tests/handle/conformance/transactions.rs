//! Transactions that go well, and those that are given up in time.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cenote::driver::DatabaseError;
use cenote::{Error, Isolation, Kind, Result, TransactionOptions, Violation};

use super::support::{
    Fault, Step, connection_id, count, insert, numbers, poll_once, quiet, shop, soon, watched_shop,
};

fn serialization_failure() -> Error {
    Error::database(DatabaseError::new("try again").with_sql_state("40001"))
}

fn retries(n: u32) -> TransactionOptions {
    TransactionOptions::new().retries(n)
}

#[tokio::test]
async fn guard_commits_or_rolls_back_and_rolls_back_when_dropped() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        tx.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
        tx.commit().await?;
        let tx = shop.begin().await?;
        insert(&shop, 3).await?;
        tx.rollback().await?;
        let tx = shop.begin().await?;
        insert(&shop, 4).await?;
        drop(tx);
        assert!(!shop.in_transaction());
        // On the same connection, which has to be tidied up first.
        insert(&shop, 5).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2, 5]);
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn savepoints_of_a_guard_nest() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let mut tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let mut outer = tx.savepoint().await?;
        outer.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
        let inner = outer.savepoint().await?;
        // Ambient calls are in the innermost.
        insert(&shop, 3).await?;
        drop(inner);
        let inner = outer.savepoint().await?;
        insert(&shop, 4).await?;
        inner.commit().await?;
        outer.commit().await?;
        let undone = tx.savepoint().await?;
        undone.exec("INSERT INTO t (n) VALUES (5)", ()).await?;
        undone.rollback().await?;
        tx.commit().await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2, 4]);
    Ok(())
}

#[tokio::test]
async fn rolled_back_savepoint_takes_its_committed_inner_ones_along() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        let outer: Result<()> = shop
            .transaction(async || {
                shop.transaction(async || insert(&shop, 1).await).await?;
                Err(Error::other("undone"))
            })
            .await;
        outer.unwrap_err();
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn a_failed_statement_leaves_the_rest_of_the_transaction_alone() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let clash = shop.exec("INSERT INTO t (id, n) VALUES (1, 2)", ()).await;
        assert!(clash.unwrap_err().is_unique_violation());
        insert(&shop, 3).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn a_read_only_transaction_cannot_write_and_the_next_one_can() -> Result<()> {
    let shop = shop(1).await;
    TransactionOptions::new()
        .read_only()
        .on(&shop)
        .run(async || {
            let error = insert(&shop, 1).await.unwrap_err();
            assert_eq!(error.violation(), Some(Violation::Permission), "{error}");
            Ok(())
        })
        .await?;
    let serializable = TransactionOptions::new().isolation(Isolation::Serializable);
    serializable
        .on(&shop)
        .run(async || insert(&shop, 2).await)
        .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn commit_refused_by_the_database_is_an_error_and_rolled_back() -> Result<()> {
    let shop = shop(1).await;
    shop.exec("CREATE TABLE parent (id INTEGER PRIMARY KEY)", ())
        .await?;
    let child = "CREATE TABLE child (
                     parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
    shop.exec(child, ()).await?;
    let done = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            // Looked at when it is committed.
            shop.exec("INSERT INTO child VALUES (7)", ()).await
        })
        .await;
    assert!(done.unwrap_err().is_foreign_key_violation());
    assert_eq!(shop.status().active, 0);
    assert_eq!(numbers(&shop).await, [0; 0]);
    shop.transaction(async || insert(&shop, 2).await).await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn a_commit_without_any_statement_is_fine() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || Ok(())).await?;
    cenote::scope(async { shop.begin().await?.commit().await }).await?;
    cenote::scope(async { shop.begin().await?.rollback().await }).await?;
    assert_eq!(shop.status().active, 0);
    Ok(())
}

#[tokio::test]
async fn guard_that_outlives_its_coroutine_reports_the_end() -> Result<()> {
    let shop = shop(1).await;
    let tx = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        Ok::<_, Error>(tx)
    })
    .await?;
    let error = tx
        .exec("INSERT INTO t (n) VALUES (2)", ())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::TransactionEnded);
    assert_eq!(
        tx.commit().await.unwrap_err().kind(),
        Kind::TransactionEnded
    );
    assert_eq!(numbers(&shop).await, [0; 0]);
    quiet(&shop).await;
    Ok(())
}

/// Where every poll of a closure transaction is the last, nothing is left behind.
#[tokio::test]
async fn transaction_dropped_at_any_poll_has_not_happened() -> Result<()> {
    let shop = shop(1).await;
    insert(&shop, 0).await?;
    let mut finished = false;
    let mut polls = 0;
    while !finished {
        let before = count(&shop).await;
        let mut transaction = Box::pin(shop.transaction(async || {
            insert(&shop, 1).await?;
            shop.transaction(async || insert(&shop, 2).await).await?;
            insert(&shop, 3).await
        }));
        for _ in 0..polls {
            if poll_once(transaction.as_mut()).await.is_ready() {
                finished = true;
                break;
            }
            // The answer is on its way on another thread: not every poll makes progress.
            std::thread::yield_now();
        }
        drop(transaction);
        let after = soon("the connection comes back", count(&shop)).await;
        // All or nothing; dropped in its commit, nobody knows which.
        assert!(
            after == before || after == before + 3,
            "after {polls} polls"
        );
        assert!(!finished || after == before + 3);
        quiet(&shop).await;
        assert_eq!(shop.status().total, 1);
        polls += 1;
        assert!(polls < 100_000);
    }
    Ok(())
}

/// What was registered, in the order in which it ran.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<i32>>>);

impl Ran {
    fn noting(&self, n: i32) -> impl FnOnce() + Send + 'static + use<> {
        let ran = Arc::clone(&self.0);
        move || ran.lock().unwrap().push(n)
    }

    fn seen(&self) -> Vec<i32> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn after_commit_callbacks_run_in_order_at_the_outermost_commit() -> Result<()> {
    let shop = shop(1).await;
    let ran = Ran::default();
    shop.transaction(async || {
        shop.after_commit(ran.noting(1));
        shop.transaction(async || {
            shop.after_commit(ran.noting(2));
            shop.transaction(async || {
                shop.after_commit(ran.noting(3));
                Ok(())
            })
            .await?;
            shop.after_commit(ran.noting(4));
            Ok(())
        })
        .await?;
        assert_eq!(ran.seen(), [0; 0]);
        shop.after_commit(ran.noting(5));
        Ok(())
    })
    .await?;
    assert_eq!(ran.seen(), [1, 2, 3, 4, 5]);
    Ok(())
}

#[tokio::test]
async fn a_rolled_back_savepoint_forgets_its_callbacks_and_no_others() -> Result<()> {
    let shop = shop(1).await;
    let ran = Ran::default();
    shop.transaction(async || {
        shop.after_commit(ran.noting(1));
        let undone: Result<()> = shop
            .transaction(async || {
                shop.after_commit(ran.noting(2));
                shop.transaction(async || {
                    shop.after_commit(ran.noting(3));
                    Ok(())
                })
                .await?;
                Err(Error::other("undone"))
            })
            .await;
        undone.unwrap_err();
        shop.after_commit(ran.noting(4));
        Ok(())
    })
    .await?;
    assert_eq!(ran.seen(), [1, 4]);
    Ok(())
}

#[tokio::test]
async fn transaction_that_is_not_committed_runs_no_callbacks() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let ran = Ran::default();
    let register = async || {
        shop.after_commit(ran.noting(1));
        insert(&shop, 1).await
    };
    let failed = shop.transaction(async || {
        register().await?;
        Err::<(), _>(Error::other("no"))
    });
    failed.await.unwrap_err();
    cenote::scope(async {
        let tx = shop.begin().await?;
        tx.after_commit(ran.noting(1));
        drop(tx);
        let _left_open = shop.begin().await?;
        register().await
    })
    .await?;
    wire.next(Step::Commit, Fault::LostAfter);
    let unknown = shop.transaction(register).await;
    assert_eq!(unknown.unwrap_err().kind(), Kind::OutcomeUnknown);
    assert_eq!(ran.seen(), [0; 0]);
    Ok(())
}

#[tokio::test]
async fn callbacks_run_in_the_poll_that_reads_the_commits_answer() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let (reached, go_on) = wire.hold(Step::Commit);
    let done = Arc::new(AtomicBool::new(false));
    let mut transaction = pin!(shop.transaction(async || {
        let done = Arc::clone(&done);
        shop.after_commit(move || done.store(true, Ordering::SeqCst));
        insert(&shop, 1).await
    }));
    tokio::select! {
        biased;
        _ = &mut transaction => panic!("its commit is held"),
        () = reached.notified() => {}
    }
    assert!(!done.load(Ordering::SeqCst));
    go_on.notify_one();
    loop {
        let polled = poll_once(transaction.as_mut()).await;
        assert_eq!(polled.is_ready(), done.load(Ordering::SeqCst));
        if polled.is_ready() {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn callback_may_use_the_database_and_may_panic() -> Result<()> {
    let shop = shop(1).await;
    let ran = Ran::default();
    cenote::scope(async {
        shop.transaction(async || {
            let db = shop.db.clone();
            let note = ran.noting(1);
            shop.after_commit(|| panic!("a callback breaks"));
            shop.after_commit(move || {
                assert!(!db.in_transaction(), "it is over by then");
                assert_eq!(db.status().active, 0, "and its connection is back");
                note();
            });
            insert(&shop, 1).await
        })
        .await
    })
    .await?;
    assert_eq!(ran.seen(), [1]);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn without_a_transaction_a_callback_runs_at_once() {
    let shop = shop(1).await;
    let ran = Ran::default();
    shop.after_commit(ran.noting(1));
    assert_eq!(ran.seen(), [1]);
    cenote::scope(async { shop.after_commit(ran.noting(2)) }).await;
    assert_eq!(ran.seen(), [1, 2]);
    assert_eq!(shop.status().total, 0);
}

#[tokio::test]
async fn callbacks_of_a_raw_transaction_run_when_its_text_commits_it() -> Result<()> {
    let shop = shop(1).await;
    let ran = Ran::default();
    cenote::scope(async {
        shop.exec("BEGIN", ()).await?;
        shop.after_commit(ran.noting(1));
        assert_eq!(ran.seen(), [0; 0]);
        shop.exec("COMMIT", ()).await?;
        assert_eq!(ran.seen(), [1]);
        shop.exec("BEGIN", ()).await?;
        shop.after_commit(ran.noting(2));
        shop.exec("ROLLBACK", ()).await?;
        assert_eq!(ran.seen(), [1]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn transaction_retries_serialization_failures_within_a_limit() -> Result<()> {
    let shop = shop(1).await;
    let runs = AtomicUsize::new(0);
    let (runs, db) = (&runs, &shop.db);
    let done = retries(3).on(db).retry(async move || {
        insert(db, 1).await?;
        match runs.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(serialization_failure()),
            n => Ok(n),
        }
    });
    assert_eq!(done.await?, 2);
    assert_eq!(numbers(db).await, [1], "what failed was rolled back");

    runs.store(0, Ordering::SeqCst);
    let done: Result<()> = retries(3)
        .on(db)
        .retry(async move || {
            runs.fetch_add(1, Ordering::SeqCst);
            Err(serialization_failure())
        })
        .await;
    assert!(done.unwrap_err().is_retryable());
    assert_eq!(runs.load(Ordering::SeqCst), 4, "once, and three times more");
    Ok(())
}

#[tokio::test]
async fn a_transaction_is_not_retried_after_other_errors() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let runs = AtomicUsize::new(0);
    let (runs, db) = (&runs, &shop.db);
    let done: Result<()> = retries(3)
        .on(db)
        .retry(async move || {
            runs.fetch_add(1, Ordering::SeqCst);
            db.exec("SELECT * FROM nowhere", ()).await?;
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::Database);
    assert_eq!(runs.swap(0, Ordering::SeqCst), 1);

    wire.next(Step::Commit, Fault::LostAfter);
    let done = retries(3)
        .on(db)
        .retry(async move || {
            runs.fetch_add(1, Ordering::SeqCst);
            insert(db, 1).await
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::OutcomeUnknown);
    assert_eq!(runs.load(Ordering::SeqCst), 1, "it may have been committed");
    assert_eq!(numbers(db).await, [1], "and it was");
    Ok(())
}

#[tokio::test]
async fn only_the_outermost_transaction_is_retried() -> Result<()> {
    let shop = shop(1).await;
    let (inner_runs, outer_runs) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (inner_runs, outer_runs, db) = (&inner_runs, &outer_runs, &shop.db);
    let done: Result<()> = retries(1)
        .on(db)
        .retry(async move || {
            outer_runs.fetch_add(1, Ordering::SeqCst);
            retries(5)
                .on(db)
                .retry(async move || {
                    inner_runs.fetch_add(1, Ordering::SeqCst);
                    Err(serialization_failure())
                })
                .await
        })
        .await;
    done.unwrap_err();
    assert_eq!(outer_runs.load(Ordering::SeqCst), 2);
    assert_eq!(inner_runs.load(Ordering::SeqCst), 2, "once in each");
    Ok(())
}

#[tokio::test]
async fn a_pause_before_a_retry_holds_no_connection() -> Result<()> {
    let (shop, clock) = super::support::timed_shop(|builder| builder.max(1)).await;
    let runs = AtomicUsize::new(0);
    let (runs, db) = (&runs, &shop.db);
    let mut retried = pin!(retries(1).on(db).retry(async move || {
        insert(db, 1).await?;
        match runs.fetch_add(1, Ordering::SeqCst) {
            0 => Err(serialization_failure()),
            _ => Ok(()),
        }
    }));
    while runs.load(Ordering::SeqCst) == 0 || db.status().active > 0 {
        assert!(poll_once(retried.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(count(db).await, 0, "the only connection is free");
    clock.advance(std::time::Duration::from_secs(1));
    soon("it is tried again", retried).await?;
    assert_eq!(numbers(db).await, [1]);
    Ok(())
}

#[tokio::test]
async fn exec_many_is_all_or_nothing_and_joins_its_transaction() -> Result<()> {
    let shop = shop(1).await;
    let insert = "INSERT INTO t (id, n) VALUES (?, ?)";
    let done = shop.exec_many(insert, [(1, 1), (2, 2), (3, 3)]).await?;
    assert_eq!((done.rows_affected, done.last_insert_id), (3, Some(3)));
    let clash = shop.exec_many(insert, [(4, 4), (1, 1)]).await;
    assert!(clash.unwrap_err().is_unique_violation());
    assert_eq!(numbers(&shop).await, [1, 2, 3]);
    let undone: Result<()> = shop
        .transaction(async || {
            shop.exec_many(insert, [(5, 5), (6, 6)]).await?;
            Err(Error::other("undone"))
        })
        .await;
    undone.unwrap_err();
    assert_eq!(numbers(&shop).await, [1, 2, 3]);
    Ok(())
}

/// D-core-013b: in the order of the calls, all on one connection.
#[tokio::test]
async fn everything_from_begin_to_commit_uses_one_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(3)).await;
    insert(&shop, 0).await?;
    wire.take_log();
    let id = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            shop.transaction(async || insert(&shop, 2).await).await?;
            connection_id(&shop).await
        })
        .await?;
    let log = wire.take_log();
    let insert = "INSERT INTO t (n) VALUES (?)";
    let who = "SELECT id FROM connection";
    assert_eq!(
        log,
        [
            "begin",
            insert,
            "savepoint",
            insert,
            "release",
            who,
            "commit"
        ]
    );
    assert_eq!(connection_id(&shop).await?, id);
    assert_eq!(wire.opened(), 1);
    Ok(())
}
