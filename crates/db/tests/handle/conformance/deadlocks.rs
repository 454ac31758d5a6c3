//! Waiting for a connection that cannot come.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cenote::{Coroutine, Error, Kind, Result, TransactionOptions};
use tokio::sync::Barrier;

use super::support::{
    begins_to_wait, count, insert, numbers, quiet, shop, shop_with, soon, timed_shop,
};

fn lines(error: &Error) -> Vec<u32> {
    let lines = error.call_sites().iter().map(|site| site.line());
    lines.collect()
}

#[tokio::test]
async fn at_max_1_waiting_inside_a_transaction_fails_at_once() -> Result<()> {
    let shop = shop(1).await;
    let begun = line!() + 1;
    shop.transaction(async || {
        let error = shop.outside().exec("SELECT 1", ()).await.unwrap_err();
        let waited = line!() - 1;
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        let mut sites = lines(&error);
        sites.sort_unstable();
        assert_eq!(sites, [begun, waited], "it names both call sites");
        // It is an error of the call, not of the transaction.
        insert(&shop, 1).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn h25_nested_coroutine_that_waits_for_its_place_fails() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        let is_told = |error: Error| assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        is_told(cenote::scope(insert(&shop, 1)).await.unwrap_err());
        let begins = async { shop.begin().await.map(drop) };
        is_told(cenote::scope(begins).await.unwrap_err());
        is_told(
            cenote::detached(async { insert(&shop, 1).await })
                .await
                .unwrap_err(),
        );
        let nested = async { cenote::scope(async { insert(&shop, 1).await }).await };
        is_told(cenote::detached(nested).await.unwrap_err());
        let nested = async { cenote::scope(async { insert(&shop, 1).await }).await };
        is_told(cenote::scope(nested).await.unwrap_err());
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

/// As an HTTP request inside of another one is driven.
#[tokio::test]
async fn hosted_coroutine_that_waits_for_its_place_fails() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        let hosted = Coroutine::new();
        let mut call = Box::pin(hosted.enter(|| insert(&shop, 1)));
        let driven = poll_fn(|cx| hosted.enter(|| call.as_mut().poll(cx)));
        let error = soon("the error", driven).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn h25_a_coroutine_of_its_own_task_waits_for_the_place() -> Result<()> {
    let shop = shop(1).await;
    let inner = shop.clone();
    let spawned = shop
        .transaction(async || {
            let spawned = cenote::spawn(async move { insert(&inner, 1).await.map(drop) });
            tokio::task::yield_now().await;
            insert(&shop, 2).await?;
            Ok(spawned)
        })
        .await?;
    soon("the other task ends", spawned).await.unwrap()?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn every_self_deadlock_inside_a_transaction_is_reported() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        let outside = shop.outside();
        let error = shop.connection().await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "connection");
        let error = outside.prepare("SELECT 1").await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "prepare");
        let error = outside.stream("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "stream");
        let error = outside.transaction(async || Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "transaction");
        let error = outside.ping().await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "ping");
        shop.transaction(async || {
            let error = outside.exec("SELECT 1", ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::SelfDeadlock, "below it");
            Ok(())
        })
        .await
    })
    .await
}

/// A guard and a raw transaction are no frames: what ends them may be beside the waiter.
#[tokio::test]
async fn beside_a_guard_or_raw_transaction_a_waiter_waits_for_its_end() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        for raw in [false, true] {
            let holds = async {
                let tx = match raw {
                    true => shop.exec("BEGIN", ()).await.map(|_| None)?,
                    false => Some(shop.begin().await?),
                };
                while shop.status().waiting == 0 {
                    tokio::task::yield_now().await;
                }
                insert(&shop, 1).await?;
                match tx {
                    Some(tx) => tx.commit().await,
                    None => shop.exec("COMMIT", ()).await.map(drop),
                }
            };
            let waits = async {
                while !shop.in_transaction() {
                    tokio::task::yield_now().await;
                }
                shop.outside().exec("SELECT 1", ()).await
            };
            let (holds, waits) = soon("both end", async { tokio::join!(holds, waits) }).await;
            holds?;
            waits?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn inside_a_guard_or_raw_transaction_a_waiter_gets_the_deadline() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        for raw in [false, true] {
            let tx = match raw {
                true => shop.exec("BEGIN", ()).await.map(|_| None)?,
                false => Some(shop.begin().await?),
            };
            let outside = shop.outside();
            let mut waiting = pin!(outside.exec("SELECT 1", ()));
            begins_to_wait(waiting.as_mut()).await;
            clock.advance(Duration::from_secs(31));
            let error = soon("the deadline passes", waiting).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Timeout);
            match tx {
                Some(tx) => tx.commit().await?,
                None => shop.exec("COMMIT", ()).await.map(drop)?,
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_tasks_at_max_2_that_wait_for_each_other_fail() -> Result<()> {
    let shop = shop(2).await;
    let barrier = Arc::new(Barrier::new(2));
    let task = || {
        let (db, barrier) = (shop.db.clone(), Arc::clone(&barrier));
        cenote::spawn(async move {
            let options = TransactionOptions::new().read_only();
            options
                .on(&db)
                .run(async || {
                    barrier.wait().await;
                    db.outside().exec("SELECT 1", ()).await
                })
                .await
        })
    };
    let (one, other) = (task(), task());
    let both = soon("neither hangs", async { (one.await, other.await) }).await;
    let (one, other) = (both.0.unwrap(), both.1.unwrap());
    // The wait that closed the cycle fails, and the other wait ends.
    let (served, told) = match (one, other) {
        (Ok(served), Err(told)) | (Err(told), Ok(served)) => (served, told),
        both => panic!("{both:?}"),
    };
    assert_eq!(served.rows_affected, 0);
    assert_eq!(told.kind(), Kind::SelfDeadlock, "{told}");
    assert_eq!(told.call_sites().len(), 4, "two holders and two waiters");
    quiet(&shop).await;
    Ok(())
}

#[tokio::test]
async fn a_waiter_beside_the_frame_is_no_deadlock() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let frame = shop.transaction(async || {
            insert(&shop, 1).await?;
            tokio::task::yield_now().await;
            insert(&shop, 2).await
        });
        let beside = async {
            while shop.status().active == 0 {
                tokio::task::yield_now().await;
            }
            shop.outside().exec("SELECT 1", ()).await
        };
        let (frame, beside) = soon("both end", async { tokio::join!(frame, beside) }).await;
        frame?;
        beside?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_waiter_of_another_coroutine_is_no_deadlock() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        let mut other = pin!(cenote::scope(async { count(&shop).await }));
        begins_to_wait(other.as_mut()).await;
        insert(&shop, 1).await?;
        tx.commit().await?;
        assert_eq!(soon("it is served", other).await, 1);
        Ok(())
    })
    .await
}

/// While the holder of one place may still release it, waiting may succeed.
#[tokio::test]
async fn a_place_that_may_still_come_back_is_waited_for() -> Result<()> {
    let shop = shop(2).await;
    let other = shop.connection().await?;
    shop.transaction(async || {
        let outside = shop.outside();
        let mut waiting = pin!(outside.exec("SELECT 1", ()));
        begins_to_wait(waiting.as_mut()).await;
        drop(other);
        soon("it is served", waiting).await
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn plain_pins_only_get_the_deadline() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let _pin = shop.pin().await?;
        let mut waiting = pin!(shop.connection());
        begins_to_wait(waiting.as_mut()).await;
        clock.advance(Duration::from_secs(31));
        let error = soon("the deadline passes", waiting).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(
            error.to_string().contains("deadlocks.rs"),
            "it names the holder: {error}"
        );
        Ok(())
    })
    .await
}

/// An outside transaction inside a transaction, and a waiter inside both.
#[tokio::test]
async fn waiter_below_an_outside_transaction_is_below_its_outer_too() -> Result<()> {
    // Its time stands still: there is no deadline to wait for.
    let (shop, _clock) = timed_shop(|builder| builder.max(2)).await;
    let options = TransactionOptions::new().read_only();
    let done = options.on(&shop).run(async || {
        let outside = shop.outside();
        let inner = options.on(&outside).run(async || {
            let connection = shop.connection().await;
            connection.map(drop)
        });
        inner.await
    });
    let error = soon("the error at once", done).await.unwrap_err();
    assert_eq!(error.kind(), Kind::SelfDeadlock);
    Ok(())
}

/// SQLite has one writer at a time, and this coroutine is it.
#[tokio::test]
async fn outside_write_while_sqlites_writer_fails_at_once() -> Result<()> {
    let shop = shop_with(|builder| builder.max(3).option("busy_timeout", "200ms")).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let error = insert(&shop.outside(), 2).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        // Reading is fine.
        assert_eq!(count(&shop.outside()).await, 0);
        insert(&shop, 3).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn outside_transaction_while_sqlites_writer_fails_at_once() -> Result<()> {
    let shop = shop_with(|builder| builder.max(3).option("busy_timeout", "200ms")).await;
    shop.transaction(async || {
        let outside = shop.outside();
        let error = outside.transaction(async || Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        Ok(())
    })
    .await
}

/// A stream that writes took a connection without being looked at.
#[tokio::test]
async fn outside_stream_that_writes_fails_at_once() -> Result<()> {
    let shop = shop_with(|builder| builder.max(3).option("busy_timeout", "200ms")).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let outside = shop.outside();
        let stream = outside.stream("INSERT INTO t VALUES (2) RETURNING n", ());
        let error = stream.await.unwrap_err();
        assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
        Ok(())
    })
    .await
}

/// The transaction around them is SQLite's writer, and waits for them.
#[tokio::test]
async fn nested_coroutine_that_waits_for_its_writer_fails() -> Result<()> {
    for max in [2, 10] {
        let shop = shop_with(|builder| builder.max(max).option("busy_timeout", "200ms")).await;
        shop.transaction(async || {
            insert(&shop, 1).await?;
            let is_told = |error: Error| assert_eq!(error.kind(), Kind::SelfDeadlock, "{error}");
            let write = || async { insert(&shop, 2).await };
            is_told(cenote::scope(write()).await.unwrap_err());
            is_told(cenote::detached(write()).await.unwrap_err());
            let nested = async { cenote::scope(write()).await };
            is_told(cenote::detached(nested).await.unwrap_err());
            let begins = async { shop.transaction(async || Ok(())).await };
            is_told(cenote::scope(begins).await.unwrap_err());
            // Reading is fine.
            assert_eq!(cenote::scope(count(&shop)).await, 0);
            Ok(())
        })
        .await?;
        assert_eq!(numbers(&shop).await, [1]);
    }
    Ok(())
}

/// The branch beside it ends the transaction: the write only has to wait.
#[tokio::test]
async fn nested_coroutine_beside_a_guard_waits_for_the_writer() -> Result<()> {
    let shop = shop_with(|builder| builder.max(3)).await;
    cenote::scope(async {
        let guard = shop.begin().await?;
        insert(&shop, 1).await?;
        let beside = cenote::scope(async { insert(&shop, 2).await });
        let (done, committed) = tokio::join!(beside, guard.commit());
        done?;
        committed
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}
