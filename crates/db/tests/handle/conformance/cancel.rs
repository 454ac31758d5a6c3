//! Every call, dropped after 0, 1, 2 … polls until it completes: nothing is left behind.

use std::future::Future;
use std::task::Poll;

use cenote::{Error, Result};

use super::support::{Shop, count, insert, poll_once, quiet, shop, soon};

/// Polls a call so many times; `None` if that was not enough, and it is dropped.
async fn polled<T>(times: usize, call: impl Future<Output = Result<T>>) -> Option<T> {
    let mut call = Box::pin(call);
    for _ in 0..times {
        if let Poll::Ready(done) = poll_once(call.as_mut()).await {
            return Some(done.expect("it only fails if it is dropped"));
        }
        tokio::task::yield_now().await;
    }
    None
}

/// The only connection is free and sound, and there is no transaction.
async fn assert_nothing_left(shop: &Shop, times: usize) -> Result<()> {
    assert!(!shop.in_transaction(), "a transaction after {times} polls");
    let next = soon("the connection comes back", insert(shop, 0)).await;
    next.unwrap_or_else(|error| panic!("after {times} polls: {error}"));
    Ok(())
}

/// Makes the same call again and again, in a coroutine of its own each time, and drops it one poll
/// later each time. What it gives when it completes is dropped.
macro_rules! at_every_poll {
    ($shop:ident, $call:expr) => {{
        let mut times = 0;
        loop {
            let done = cenote::scope(async {
                let is_done = polled(times, async { $call }).await.is_some();
                if !is_done {
                    assert_nothing_left(&$shop, times).await?;
                }
                Ok::<bool, Error>(is_done)
            })
            .await?;
            // What the coroutine left is taken down with it.
            assert_nothing_left(&$shop, times).await?;
            quiet(&$shop).await;
            assert_eq!($shop.status().total, 1, "after {times} polls");
            if done {
                break;
            }
            times += 1;
            assert!(times < 100_000, "it never completes");
        }
        Ok::<(), Error>(())
    }};
}

#[tokio::test]
async fn a_dropped_statement_or_query_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.exec("INSERT INTO t (n) VALUES (1)", ()).await)?;
    at_every_poll!(shop, shop.query("SELECT * FROM t", ()).await)?;
    let sets = [(1,), (2,), (3,)];
    at_every_poll!(
        shop,
        shop.exec_many("INSERT INTO t (n) VALUES (?)", sets).await
    )?;
    at_every_poll!(shop, shop.ping().await)
}

#[tokio::test]
async fn a_dropped_statement_that_would_pin_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.exec("CREATE TEMP TABLE mine (n)", ()).await)?;
    at_every_poll!(shop, shop.exec("PRAGMA cache_size = 7", ()).await)?;
    at_every_poll!(shop, shop.exec("SELECT 1; SELECT 2", ()).await)
}

/// It may have taken effect.
#[tokio::test]
async fn a_dropped_raw_begin_is_rolled_back() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.exec("BEGIN IMMEDIATE", ()).await)
}

#[tokio::test]
async fn a_dropped_pin_or_connection_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.pin().await)?;
    at_every_poll!(shop, shop.connection().await)?;
    at_every_poll!(shop, {
        let mut connection = shop.connection().await?;
        let tx = connection.begin().await?;
        tx.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
        tx.commit().await
    })
}

#[tokio::test]
async fn dropped_prepare_or_run_of_a_statement_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.prepare("SELECT 1").await)?;
    at_every_poll!(shop, {
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        statement.exec((1,)).await?;
        statement.exec_many([(2,), (3,)]).await
    })
}

#[tokio::test]
async fn a_dropped_stream_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    shop.exec_many("INSERT INTO t (n) VALUES (?)", (0..600).map(|n| (n,)))
        .await?;
    let read = async || {
        let mut rows = shop.stream("SELECT n FROM t", ()).await?;
        let mut read = 0;
        while rows.try_next().await?.is_some() {
            read += 1;
        }
        assert!(read >= 600);
        Ok(())
    };
    at_every_poll!(shop, read().await)?;
    at_every_poll!(shop, shop.transaction(read).await)?;
    at_every_poll!(shop, shop.stream("SELECT n FROM t", ()).await)
}

#[tokio::test]
async fn a_dropped_step_of_a_guard_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    at_every_poll!(shop, shop.begin().await)?;
    at_every_poll!(shop, shop.begin().await?.commit().await)?;
    at_every_poll!(shop, {
        let mut tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let savepoint = tx.savepoint().await?;
        insert(&shop, 2).await?;
        savepoint.commit().await?;
        let savepoint = tx.savepoint().await?;
        insert(&shop, 3).await?;
        savepoint.rollback().await?;
        tx.rollback().await
    })
}

/// What is not committed is not there: only its last step may be either way.
#[tokio::test]
async fn a_guard_that_is_dropped_at_any_poll_is_all_or_nothing() -> Result<()> {
    let shop = shop(1).await;
    let mut times = 0;
    loop {
        let before = count(&shop).await;
        let done = cenote::scope(polled(times, async {
            let tx = shop.begin().await?;
            insert(&shop, 1).await?;
            insert(&shop, 2).await?;
            tx.commit().await
        }))
        .await;
        let added = count(&shop).await - before;
        assert!(added == 0 || added == 2, "{added} after {times} polls");
        if done.is_some() {
            assert_eq!(added, 2);
            return Ok(());
        }
        times += 1;
    }
}

#[tokio::test]
async fn a_dropped_closure_or_savepoint_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    let nested = async || {
        insert(&shop, 1).await?;
        shop.transaction(async || insert(&shop, 2).await).await?;
        let undone: Result<()> = shop
            .transaction(async || {
                insert(&shop, 3).await?;
                Err(Error::other("undone"))
            })
            .await;
        assert_eq!(undone.unwrap_err().message(), "undone");
        Ok(())
    };
    at_every_poll!(shop, shop.transaction(nested).await)?;
    at_every_poll!(shop, shop.outside().transaction(nested).await)
}

/// Inside a transaction that goes on: it is as it was, or doomed, but never in doubt.
#[tokio::test]
async fn savepoint_dropped_in_a_transaction_is_undone_or_dooms_it() -> Result<()> {
    let shop = shop(1).await;
    let mut times = 0;
    loop {
        let before = count(&shop).await;
        let mut completed = false;
        let done = shop
            .transaction(async || {
                insert(&shop, 1).await?;
                let inner = shop.transaction(async || insert(&shop, 2).await);
                completed = polled(times, inner).await.is_some();
                insert(&shop, 3).await
            })
            .await;
        let added = count(&shop).await - before;
        match (done, completed) {
            (Ok(_), true) => assert_eq!(added, 3, "after {times} polls"),
            // The savepoint was undone, and nothing else.
            (Ok(_), false) => assert_eq!(added, 2, "after {times} polls"),
            (Err(error), _) => {
                assert_eq!(
                    error.kind(),
                    cenote::Kind::Doomed,
                    "after {times} polls: {error}"
                );
                assert_eq!(added, 0);
            }
        }
        if completed {
            return Ok(());
        }
        times += 1;
    }
}

/// SQLite undoes the whole transaction when a write is interrupted: what comes next must not run without it.
#[tokio::test]
async fn after_a_savepoint_write_that_rolled_all_back_nothing_runs() -> Result<()> {
    const LONG: &str = "INSERT INTO t (n) WITH RECURSIVE c (x) AS (VALUES (1) UNION ALL \
                        SELECT x + 1 FROM c WHERE x < 1000000000) SELECT 2 FROM c";
    let shop = shop(1).await;
    let mut doomed = 0;
    for _ in 0..20 {
        let before = count(&shop).await;
        let done = shop
            .transaction(async || {
                insert(&shop, 1).await?;
                let inner = shop.transaction(async || shop.exec(LONG, ()).await);
                assert!(polled(2000, inner).await.is_none(), "it takes minutes");
                insert(&shop, 3).await
            })
            .await;
        let added = count(&shop).await - before;
        match done {
            // It had not begun.
            Ok(_) => assert_eq!(added, 2),
            Err(error) => {
                assert_eq!(error.kind(), cenote::Kind::Doomed, "{error}");
                assert_eq!(added, 0);
                doomed += 1;
            }
        }
    }
    assert!(doomed > 0, "it was never interrupted");
    Ok(())
}
