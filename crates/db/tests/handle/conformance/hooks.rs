//! What hooks and defaults do to connections, and what they must not leave there.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::Request;
use cenote::{Kind, PooledConnection, Result};

use super::support::{insert, numbers, poll_once, quiet, shop, shop_with};

/// What a coroutine did on such a connection ran in the hook's transaction: it was acknowledged,
/// and rolled back when the coroutine ended.
#[tokio::test]
async fn h23_hook_that_leaves_a_transaction_open_is_refused() {
    static LEAVES_OPEN: AtomicUsize = AtomicUsize::new(1);
    let shop = shop_with(|builder| {
        builder.on_connect(async |conn: &mut PooledConnection| {
            match LEAVES_OPEN.swap(0, Ordering::SeqCst) {
                0 => Ok(()),
                _ => conn.exec("BEGIN").await,
            }
        })
    })
    .await;
    let refused = cenote::scope(async { insert(&shop, 1).await })
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), Kind::LeftTransaction);
    assert!(refused.message().contains("on_connect"), "{refused}");
    assert!(
        refused.message().contains("COMMIT or ROLLBACK"),
        "{refused}"
    );
    assert_eq!(shop.status().total, 0);
    cenote::scope(async { insert(&shop, 2).await })
        .await
        .unwrap();
    assert_eq!(numbers(&shop).await, [2]);
}

#[tokio::test]
async fn h23_hooks_are_checked_after_a_reset_too() -> Result<()> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let shop = shop_with(|builder| {
        builder
            .max(1)
            .on_connect(async |conn: &mut PooledConnection| {
                match RUNS.fetch_add(1, Ordering::SeqCst) {
                    // After the reset.
                    1 => conn.exec("BEGIN").await,
                    _ => Ok(()),
                }
            })
    })
    .await;
    insert(&shop, 1).await?;
    cenote::scope(async { shop.exec("PRAGMA cache_size = 66", ()).await }).await?;
    quiet(&shop).await;
    assert_eq!(RUNS.load(Ordering::SeqCst), 2, "the reset ran the hook");
    assert_eq!(shop.status().total, 0, "and the connection was closed");
    cenote::scope(async { insert(&shop, 2).await }).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn h23_hook_that_drops_a_call_is_refused() {
    const LONG: &str = "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up) \
                        SELECT count(*) FROM up";
    static DROPS: AtomicUsize = AtomicUsize::new(1);
    let shop = shop_with(|builder| {
        builder.on_connect(async |conn: &mut PooledConnection| {
            if DROPS.swap(0, Ordering::SeqCst) > 0 {
                let mut call = Box::pin(conn.exec(LONG));
                assert!(poll_once(call.as_mut()).await.is_pending());
            }
            Ok(())
        })
    })
    .await;
    let refused = insert(&shop, 1).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Connect);
    assert!(refused.message().contains("await every call"), "{refused}");
    insert(&shop, 2).await.unwrap();
    assert_eq!(numbers(&shop).await, [2]);
}

#[tokio::test]
async fn h23_stream_that_a_hook_leaves_is_ended() -> Result<()> {
    let shop = shop_with(|builder| {
        builder.on_connect(async |conn: &mut PooledConnection| {
            let rows = Request::new("SELECT 1 UNION SELECT 2", &[]);
            conn.driver().start_stream(rows).await.map(drop)
        })
    })
    .await;
    cenote::scope(async { insert(&shop, 1).await }).await?;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// Every call failed from then on, and nothing could take the setting back.
#[tokio::test]
async fn h24_unknown_default_is_refused_and_changes_nothing() -> Result<()> {
    let shop = shop(1).await;
    let refused = shop.set_default("no_such_pragma", 1).await.unwrap_err();
    assert!(refused.message().contains("no_such_pragma"), "{refused}");
    insert(&shop, 1).await?;
    let refused = shop.set_default("cache_size", [1_u8].as_slice()).await;
    assert_eq!(refused.unwrap_err().kind(), Kind::Type);
    insert(&shop, 2).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn h24_unset_default_resets_the_connections_that_have_it() -> Result<()> {
    let shop = shop(1).await;
    let size = async || {
        shop.query_as_one::<i64>("SELECT * FROM pragma_cache_size", ())
            .await
    };
    let usual = size().await?;
    shop.set_default("cache_size", 77).await?;
    assert_eq!(size().await?, 77);
    shop.unset_default("no_such_default");
    assert_eq!(size().await?, 77);
    shop.unset_default("cache_size");
    assert_eq!(size().await?, usual);
    Ok(())
}

/// D-core-024a: a trial that is dropped leaves the setting nowhere.
#[tokio::test]
async fn h24_dropped_set_default_changes_nothing() -> Result<()> {
    let shop = shop(1).await;
    let size = async || {
        shop.query_as_one::<i64>("SELECT * FROM pragma_cache_size", ())
            .await
    };
    let usual = size().await?;
    // On a busy machine SQLite's thread may finish before the poll returns; then try again.
    while poll_once(pin!(shop.set_default("cache_size", 77)))
        .await
        .is_ready()
    {
        shop.unset_default("cache_size");
    }
    quiet(&shop).await;
    assert_eq!(size().await?, usual);
    Ok(())
}
