//! Transactions of closures that begin with their first statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cenote::{Db, Error, Kind, Result, TransactionOptions};
use cenote_testkit::poll::drop_after;

use super::support::{Fault, Step, insert, numbers, quiet, shop, timed_shop, until, watched_shop};

fn lazily() -> TransactionOptions {
    TransactionOptions::new().begin_lazily()
}

fn begins(log: &[String]) -> usize {
    log.iter().filter(|line| line.starts_with("begin")).count()
}

#[tokio::test]
async fn h32_untouched_transaction_takes_no_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let ran = Arc::new(AtomicUsize::new(0));
    for (commits, expected) in [(true, 1), (false, 1)] {
        let ran = Arc::clone(&ran);
        let counted = Arc::clone(&ran);
        let done = lazily().on(&shop).run(async || {
            assert!(shop.in_transaction());
            shop.after_commit(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            });
            match commits {
                true => Ok(()),
                false => Err(Error::other("no")),
            }
        });
        assert_eq!(done.await.is_ok(), commits);
        assert_eq!(ran.load(Ordering::SeqCst), expected, "{commits}");
    }
    assert!(!shop.in_transaction());
    assert_eq!(wire.opened(), 0);
    Ok(())
}

#[tokio::test]
async fn h32_first_statement_begins_whatever_it_is() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    insert(&shop, 1).await?;
    for what in 0..7 {
        wire.take_log();
        let left = lazily().on(&shop).run(async || {
            let db: &Db = &shop;
            match what {
                0 => insert(db, 2).await.map(drop)?,
                1 => db
                    .exec_many("INSERT INTO t (n) VALUES (?)", [(2,), (3,)])
                    .await
                    .map(drop)?,
                2 => {
                    let mut rows = db.stream("SELECT n FROM t", ()).await?;
                    while rows.try_next().await?.is_some() {}
                }
                3 => drop(db.prepare("SELECT n FROM t").await?),
                4 => drop(db.pin().await?),
                5 => db.ping().await?,
                _ => {
                    db.transaction(async || insert(db, 2).await.map(drop))
                        .await?
                }
            }
            assert_eq!(db.status().active, 1, "{what}");
            assert!(
                db.peek().is_some_and(|binding| binding.in_transaction),
                "{what}"
            );
            assert_eq!(db.begin().await.unwrap_err().kind(), Kind::NestedBegin);
            insert(db, 4).await?;
            Err::<(), _>(Error::other("no"))
        });
        left.await.unwrap_err();
        quiet(&shop).await;
        assert_eq!(begins(&wire.take_log()), 1, "{what}");
        assert_eq!(numbers(&shop).await, [1], "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn h32_one_inside_another_is_a_savepoint() -> Result<()> {
    let shop = shop(2).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(what)
    };
    lazily()
        .on(&shop)
        .run(async || {
            shop.after_commit(note("outer"));
            let inner = lazily().on(&shop).run(async || {
                shop.after_commit(note("forgotten"));
                insert(&shop, 1).await?;
                assert_eq!(shop.peek().unwrap().savepoints, 1);
                Err::<(), _>(Error::other("no"))
            });
            inner.await.unwrap_err();
            let untouched = lazily().on(&shop).run(async || {
                shop.after_commit(note("untouched"));
                Ok(())
            });
            untouched.await?;
            assert!(order.lock().unwrap().is_empty());
            insert(&shop, 2).await.map(drop)
        })
        .await?;
    assert_eq!(*order.lock().unwrap(), ["outer", "untouched"]);
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn h32_failed_begin_fails_the_whole_transaction() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let refused = || Error::new(Kind::Database, "no BEGIN today");
    for commits in [true, false] {
        wire.next(Step::Begin, Fault::Refused(refused()));
        let done = lazily().on(&shop).run(async || {
            for _ in 0..2 {
                // The second time at once: nothing can run in it any more.
                let failed = insert(&shop, 1).await.unwrap_err();
                assert_eq!(failed.message(), "no BEGIN today");
            }
            match commits {
                true => Ok(()),
                false => Err(Error::other("no")),
            }
        });
        assert_eq!(done.await.unwrap_err().message(), "no BEGIN today");
    }
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn h32_dropped_anywhere_it_is_done_whole_or_not_at_all() -> Result<()> {
    for polls in 0.. {
        let shop = shop(2).await;
        let work = lazily().on(&shop).run(async || {
            let (one, two) = tokio::join!(insert(&shop, 1), insert(&shop, 2));
            one.and(two)?;
            insert(&shop, 3).await.map(drop)
        });
        let done = drop_after(polls, work).await;
        quiet(&shop).await;
        let found = numbers(&shop).await;
        if let Some(done) = done {
            done?;
            assert_eq!(found, [1, 2, 3]);
            return Ok(());
        }
        assert!([0, 3].contains(&found.len()), "{found:?} after {polls}");
    }
    Ok(())
}

/// The statement is dropped, and the closure goes on.
#[tokio::test]
async fn h32_dropped_first_statement_leaves_no_half_transaction() -> Result<()> {
    for polls in 0.. {
        let shop = shop(2).await;
        let mut was_dropped = true;
        let done = lazily().on(&shop).run(async || {
            was_dropped = drop_after(polls, insert(&shop, 1)).await.is_none();
            insert(&shop, 2).await.map(drop)
        });
        let done = done.await;
        quiet(&shop).await;
        let found = numbers(&shop).await;
        match done {
            Ok(()) if was_dropped => assert_eq!(found, [2], "after {polls}"),
            Ok(()) => {
                assert_eq!(found, [1, 2]);
                return Ok(());
            }
            // The INSERT itself was under way: nobody knows what it did.
            Err(error) => {
                assert_eq!(error.kind(), Kind::Doomed);
                assert_eq!(found, [0; 0], "after {polls}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn h32_idle_limit_of_one_transaction() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.max(1)).await;
    let options = lazily().idle_in_transaction(Duration::from_secs(10));
    assert_eq!(options.idle_limit(), Some(Duration::from_secs(10)));
    let done = options.on(&shop).run(async || {
        // Not begun: it does not idle.
        clock.advance(Duration::from_secs(60));
        insert(&shop, 1).await?;
        clock.advance(Duration::from_secs(11));
        until("its place is free", || shop.status().active == 0).await;
        insert(&shop, 2).await.map(drop)
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::TransactionTimeout);
    // Others have no limit.
    shop.transaction(async || {
        insert(&shop, 3).await?;
        clock.advance(Duration::from_secs(60));
        insert(&shop, 4).await.map(drop)
    })
    .await?;
    assert_eq!(numbers(&shop).await, [3, 4]);
    Ok(())
}

#[tokio::test]
async fn h32_outside_handle_begins_its_own() -> Result<()> {
    let shop = shop(2).await;
    let outside = shop.outside();
    let left = lazily().on(&shop).run(async || {
        lazily()
            .on(&outside)
            .run(async || insert(&outside, 1).await.map(drop))
            .await?;
        // That was another transaction: this one has not begun.
        assert_eq!(shop.status().active, 0);
        insert(&shop, 2).await?;
        Err::<(), _>(Error::other("no"))
    });
    left.await.unwrap_err();
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}
