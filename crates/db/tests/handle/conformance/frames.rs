//! Frames: which transaction a call runs in, and who waits for whom.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cenote::{Error, Kind, Result, TransactionOptions};
use tokio::sync::{Barrier, oneshot};

use super::support::{
    bare_spawn, begins_to_wait, connection_id, count, insert, numbers, poll_once, shop, soon,
    timed_shop,
};

fn read_only() -> TransactionOptions {
    TransactionOptions::new().read_only()
}

#[tokio::test]
async fn a_transaction_works_without_a_coroutine_and_brings_its_own() -> Result<()> {
    let shop = shop(1).await;
    assert_eq!(cenote::current(), None);
    shop.transaction(async || {
        assert!(cenote::current().is_some());
        insert(&shop, 1).await
    })
    .await?;
    assert_eq!(cenote::current(), None);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn inside_a_coroutine_a_transaction_is_a_frame_of_it() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let outer = cenote::current();
        shop.transaction(async || {
            assert_eq!(cenote::current(), outer);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn calls_in_a_closure_join_its_transaction_implicitly() -> Result<()> {
    async fn ledger(db: &cenote::Db, n: i64) -> Result<()> {
        insert(db, n).await.map(drop)
    }
    let shop = shop(1).await;
    let failed: Result<()> = shop
        .transaction(async || {
            ledger(&shop, 1).await?;
            ledger(&shop.db.clone(), 2).await?;
            Err(Error::other("no"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

#[tokio::test]
async fn joined_closures_are_two_transactions_on_two_connections() -> Result<()> {
    let shop = shop(2).await;
    for in_a_scope in [false, true] {
        let barrier = Barrier::new(2);
        // Read-only, because SQLite has only one writer at a time.
        let branch = || {
            read_only().on(&shop).run(async || {
                barrier.wait().await;
                assert!(shop.in_transaction());
                connection_id(&shop).await
            })
        };
        let both = async { tokio::join!(branch(), branch()) };
        let both = soon("both are open at once", async {
            match in_a_scope {
                false => both.await,
                true => cenote::scope(both).await,
            }
        });
        let (one, other) = both.await;
        assert_ne!(one?, other?);
    }
    Ok(())
}

/// One rolls back; the other is not affected.
#[tokio::test]
async fn two_writing_closures_in_one_join_end_each_for_itself() -> Result<()> {
    let shop = shop(2).await;
    let commits = shop.transaction(async || insert(&shop, 1).await);
    let fails = shop.transaction(async || {
        insert(&shop, 2).await?;
        Err::<(), _>(Error::other("no"))
    });
    let (commits, fails) = tokio::join!(commits, fails);
    commits?;
    fails.unwrap_err();
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// What happened in which order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn entries(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Who came in went out before anybody else came in. (Who comes next is left open: a
    /// turn is woken for, not handed over.)
    fn assert_one_after_the_other(&self) {
        let entries = self.entries();
        for pair in entries.chunks(2) {
            let who = pair[0].strip_suffix(" in").unwrap();
            assert_eq!(pair[1], format!("{who} out"), "{entries:?}");
        }
    }
}

#[tokio::test]
async fn on_a_pinned_connection_closures_run_one_after_the_other() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let _pin = shop.pin().await?;
        let diary = Diary::default();
        let branch = async |name: &str| {
            shop.transaction(async || {
                diary.note(format!("{name} in"));
                insert(&shop, 1).await?;
                tokio::task::yield_now().await;
                insert(&shop, 1).await?;
                diary.note(format!("{name} out"));
                Ok(())
            })
            .await
        };
        let (a, b) = tokio::join!(branch("a"), branch("b"));
        a.and(b)?;
        assert_eq!(diary.entries().len(), 4);
        diary.assert_one_after_the_other();
        assert_eq!(shop.status().total, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn closures_in_an_open_transaction_are_consecutive_savepoints() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let diary = Diary::default();
        let branch = async |name: &str, n: i64, fails: bool| {
            shop.transaction(async || {
                diary.note(format!("{name} in"));
                insert(&shop, n).await?;
                tokio::task::yield_now().await;
                diary.note(format!("{name} out"));
                match fails {
                    true => Err(Error::other("no")),
                    false => Ok(()),
                }
            })
            .await
        };
        let (a, b, c) = tokio::join!(
            branch("a", 1, false),
            branch("b", 2, true),
            branch("c", 3, false)
        );
        a.and(c)?;
        b.unwrap_err();
        assert_eq!(diary.entries().len(), 6);
        diary.assert_one_after_the_other();
        assert_eq!(shop.status().total, 1);
        tx.commit().await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn outer_calls_wait_while_an_inner_frame_has_a_savepoint_open() -> Result<()> {
    let shop = shop(3).await;
    let (go_on, told) = oneshot::channel::<()>();
    shop.transaction(async || {
        let mut inner = pin!(shop.transaction(async || {
            insert(&shop, 1).await?;
            told.await.unwrap();
            // Calls in it run all the time.
            insert(&shop, 2).await?;
            Err::<(), _>(Error::other("undone"))
        }));
        while count_of_savepoints(&shop) == 0 {
            assert!(poll_once(inner.as_mut()).await.is_pending());
            tokio::task::yield_now().await;
        }
        let mut outer = pin!(insert(&shop, 3));
        for _ in 0..3 {
            begins_to_wait(outer.as_mut()).await;
            begins_to_wait(inner.as_mut()).await;
            tokio::task::yield_now().await;
        }
        go_on.send(()).unwrap();
        let (inner, outer) = soon("the outer call is served", async {
            tokio::join!(inner, outer)
        })
        .await;
        inner.unwrap_err();
        outer?;
        Ok(())
    })
    .await?;
    // The outer call was no part of what the inner frame has undone.
    assert_eq!(numbers(&shop).await, [3]);
    Ok(())
}

fn count_of_savepoints(db: &cenote::Db) -> usize {
    db.peek().map_or(0, |bound| bound.savepoints)
}

#[tokio::test]
async fn outer_call_that_waits_too_long_names_the_inner_call_site() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.acquire_timeout(Duration::from_secs(4))).await;
    shop.transaction(async || {
        let mut inner = pin!(shop.transaction(async || {
            std::future::pending::<()>().await;
            Ok(())
        }));
        let line = line!() - 4;
        while count_of_savepoints(&shop) == 0 {
            assert!(poll_once(inner.as_mut()).await.is_pending());
            tokio::task::yield_now().await;
        }
        let mut outer = pin!(insert(&shop, 1));
        begins_to_wait(outer.as_mut()).await;
        clock.advance(Duration::from_secs(5));
        let error = soon("the deadline passes", outer).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        let sites: Vec<_> = error
            .call_sites()
            .iter()
            .map(|site| (site.file(), site.line()))
            .collect();
        assert_eq!(sites, [(file!(), line)], "{error}");
        assert!(
            error.to_string().contains(&format!("frames.rs:{line}")),
            "{error}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn calls_below_an_inner_frame_run_in_it() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        shop.transaction(async || {
            shop.transaction(async || insert(&shop, 1).await).await?;
            assert_eq!(count_of_savepoints(&shop), 1);
            let failed: Result<()> = shop
                .transaction(async || {
                    insert(&shop, 2).await?;
                    assert_eq!(count_of_savepoints(&shop), 2);
                    Err(Error::other("undone"))
                })
                .await;
            failed.unwrap_err();
            insert(&shop, 3).await
        })
        .await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn call_finds_its_transaction_through_frames_of_another_handle() -> Result<()> {
    let (a, b) = (shop(1).await, shop(1).await);
    let failed: Result<()> = a
        .transaction(async || {
            b.transaction(async || {
                assert!(a.in_transaction());
                insert(&a, 1).await?;
                insert(&b, 2).await
            })
            .await?;
            assert_eq!(count(&a).await, 1);
            Err(Error::other("undone"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(numbers(&a).await, [0; 0]);
    assert_eq!(numbers(&b).await, [2]);
    Ok(())
}

/// `outside()` is about one handle: what the closure does with another stays where it was.
#[tokio::test]
async fn outside_transaction_of_one_handle_keeps_another_handles_open() -> Result<()> {
    let (a, b) = (shop(2).await, shop(2).await);
    let failed: Result<()> = a
        .transaction(async || {
            let outside = b.outside();
            outside
                .transaction(async || {
                    assert!(a.in_transaction(), "a's transaction is still around this");
                    insert(&a, 1).await?;
                    insert(&b, 2).await
                })
                .await?;
            Err(Error::other("undone"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(
        numbers(&a).await,
        [0; 0],
        "it ran silently outside of a's transaction"
    );
    assert_eq!(numbers(&b).await, [2]);
    Ok(())
}

#[tokio::test]
async fn a_spawned_task_never_inherits_the_transaction_of_its_parent() -> Result<()> {
    let shop = shop(2).await;
    let failed: Result<()> = read_only()
        .on(&shop)
        .run(async || {
            let db = shop.db.clone();
            let spawned = cenote::spawn(async move {
                assert!(!db.in_transaction());
                assert!(db.peek().is_none());
                insert(&db, 1).await
            });
            spawned.await.unwrap()?;
            let db = shop.db.clone();
            let bare = bare_spawn(async move {
                assert!(!db.in_transaction());
                insert(&db, 2).await
            });
            bare.await.unwrap()?;
            Err(Error::other("undone"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_scope_inside_a_transaction_is_a_coroutine_of_its_own() -> Result<()> {
    let shop = shop(2).await;
    read_only()
        .on(&shop)
        .run(async || {
            let outer = cenote::current();
            cenote::scope(async {
                assert_ne!(cenote::current(), outer);
                assert!(!shop.in_transaction());
                insert(&shop, 1).await
            })
            .await?;
            assert!(shop.in_transaction());
            Ok(())
        })
        .await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// Nothing but one connection is needed.
#[tokio::test]
async fn a_transaction_under_a_live_statement_runs_on_its_connection() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let failed: Result<()> = shop
            .transaction(async || {
                statement.exec((1,)).await?;
                assert_eq!(count(&shop).await, 1);
                Err(Error::other("undone"))
            })
            .await;
        failed.unwrap_err();
        shop.transaction(async || statement.exec((2,)).await)
            .await?;
        statement.exec((3,)).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2, 3]);
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn second_begin_in_a_frame_is_an_error_that_says_how_to_nest() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let error = shop.begin().await.unwrap_err();
        assert_eq!(error.kind(), Kind::NestedBegin);
        assert!(error.message().contains("transaction("), "{error}");
        assert!(error.message().contains("savepoint()"), "{error}");
        insert(&shop, 1).await?;
        tx.commit().await?;
        // And in one that the text of a statement began.
        shop.exec("BEGIN", ()).await?;
        assert_eq!(shop.begin().await.unwrap_err().kind(), Kind::NestedBegin);
        shop.exec("ROLLBACK", ()).await?;
        Ok::<(), Error>(())
    })
    .await?;
    let error = shop
        .transaction(async || shop.begin().await.map(drop))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::NestedBegin);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn two_begins_in_one_join_are_one_transaction_and_one_error() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let (one, other) = tokio::join!(shop.begin(), shop.begin());
        let (opened, failed) = match (one, other) {
            (Ok(tx), Err(error)) | (Err(error), Ok(tx)) => (tx, error),
            both => panic!("{both:?}"),
        };
        assert_eq!(failed.kind(), Kind::NestedBegin);
        insert(&shop, 1).await?;
        opened.commit().await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn closures_inside_a_raw_transaction_are_savepoints_of_it() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        shop.exec("BEGIN", ()).await?;
        shop.transaction(async || insert(&shop, 1).await).await?;
        let failed: Result<()> = shop
            .transaction(async || {
                insert(&shop, 2).await?;
                Err(Error::other("undone"))
            })
            .await;
        failed.unwrap_err();
        assert_eq!(numbers(&shop).await, [1]);
        shop.exec("ROLLBACK", ()).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn outermost_only_options_are_refused_in_a_nested_transaction() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        let inner = read_only().on(&shop).run(async || Ok(()));
        assert_eq!(inner.await.unwrap_err().kind(), Kind::NestedBegin);
        insert(&shop, 1).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn guard_runs_in_its_transaction_from_any_task() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let tx = Arc::new(shop.begin().await?);
        let from_elsewhere = cenote::spawn({
            let tx = Arc::clone(&tx);
            async move { tx.exec("INSERT INTO t (n) VALUES (1)", ()).await }
        });
        from_elsewhere.await.unwrap()?;
        assert_eq!(count(&shop).await, 1);
        assert_eq!(count(&shop.outside()).await, 0);
        Arc::try_unwrap(tx).unwrap().rollback().await
    })
    .await?;
    assert_eq!(count(&shop).await, 0);
    Ok(())
}
