//! Lost transactions and lost connections.

use std::time::Duration;

use cenote::{Error, Kind, Result};

use super::support::{
    Clock, Fault, Probe, Shop, Step, TestDatabase, connection_id, insert, numbers, quiet, shop,
    watched_shop,
};

/// Everything that is done in such a transaction fails, and its commit does.
async fn assert_lost(shop: &Shop, first: &str) {
    let done: Result<()> = shop
        .transaction(async || {
            insert(shop, 1).await?;
            // Whether this itself is refused is up to the database.
            let _ = shop.exec(first, ()).await;
            for _ in 0..2 {
                let error = insert(shop, 2).await.unwrap_err();
                assert_eq!(
                    error.kind(),
                    Kind::TransactionLost,
                    "after {first}: {error}"
                );
            }
            let error = shop.query("SELECT 1", ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionLost);
            let error = shop.prepare("SELECT 1").await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionLost);
            let error = shop.stream("SELECT 1", ()).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionLost);
            let inner = shop.transaction(async || insert(shop, 3).await).await;
            assert_eq!(inner.unwrap_err().kind(), Kind::TransactionLost);
            Ok(())
        })
        .await;
    assert_eq!(
        done.unwrap_err().kind(),
        Kind::TransactionLost,
        "after {first}"
    );
    quiet(shop).await;
}

#[tokio::test]
async fn after_a_raw_commit_every_later_call_fails() -> Result<()> {
    let shop = shop(2).await;
    assert_lost(&shop, "COMMIT").await;
    // The text of the statement committed it: that cannot be undone. But nothing after it ran.
    assert_eq!(numbers(&shop).await, [1]);
    insert(&shop, 4).await?;
    Ok(())
}

#[tokio::test]
async fn after_a_raw_rollback_every_later_call_fails() -> Result<()> {
    let shop = shop(2).await;
    assert_lost(&shop, "ROLLBACK").await;
    assert_lost(&shop, "END; SELECT 1").await;
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// After the script the server reports "in transaction" again, but it is another transaction.
#[tokio::test]
async fn script_that_replaces_the_transaction_is_noticed() {
    let shop = shop(2).await;
    assert_lost(&shop, "COMMIT; BEGIN").await;
    assert_eq!(numbers(&shop).await, [1]);
}

/// The same behind our back from inside a statement: a conflict that rolls everything back.
#[tokio::test]
async fn after_an_automatic_rollback_every_later_call_fails() -> Result<()> {
    let shop = shop(2).await;
    insert(&shop, 0).await?;
    assert_lost(&shop, "INSERT OR ROLLBACK INTO t (id, n) VALUES (1, 1)").await;
    assert_eq!(numbers(&shop).await, [0]);
    Ok(())
}

#[tokio::test]
async fn guard_ended_by_raw_sql_fails_until_it_is_ended() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        shop.exec("COMMIT", ()).await?;
        let line = line!() - 1;
        let error = insert(&shop, 1).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionLost);
        let sites: Vec<_> = error.call_sites().iter().map(|site| site.line()).collect();
        assert_eq!(sites, [line], "it names the call that ended it");
        let error = tx.exec("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionLost);
        assert_eq!(tx.commit().await.unwrap_err().kind(), Kind::TransactionLost);
        insert(&shop, 2).await?;
        let tx = shop.begin().await?;
        shop.exec("ROLLBACK", ()).await?;
        tx.rollback().await?;
        insert(&shop, 3).await?;
        let tx = shop.begin().await?;
        shop.exec("ROLLBACK", ()).await?;
        drop(tx);
        insert(&shop, 4).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2, 3, 4]);
    Ok(())
}

#[tokio::test]
async fn a_raw_commit_in_a_savepoint_loses_the_whole_transaction() -> Result<()> {
    let shop = shop(2).await;
    let done: Result<()> = shop
        .transaction(async || {
            let inner: Result<()> = shop
                .transaction(async || {
                    shop.exec("COMMIT", ()).await?;
                    Ok(())
                })
                .await;
            assert_eq!(inner.unwrap_err().kind(), Kind::TransactionLost);
            let error = insert(&shop, 1).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionLost);
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

/// B-031: D-my-021b is decided otherwise here.
#[tokio::test]
async fn a_transaction_whose_connection_is_lost_fails_closed() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            wire.next(Step::Run, Fault::LostAfter);
            let error = insert(&shop, 2).await.unwrap_err();
            assert_eq!(error.kind(), Kind::ConnectionLost);
            assert!(error.is_connection_lost());
            for _ in 0..2 {
                let error = insert(&shop, 3).await.unwrap_err();
                assert_eq!(error.kind(), Kind::TransactionLost, "{error}");
                assert!(error.is_connection_lost());
            }
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    quiet(&shop).await;
    assert_eq!((shop.status().total, wire.alive()), (0, 0));
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn a_lost_transaction_can_be_rolled_back() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        wire.cut();
        insert(&shop, 1).await.unwrap_err();
        tx.rollback().await?;
        insert(&shop, 2).await?;
        let tx = shop.begin().await?;
        wire.cut();
        insert(&shop, 3).await.unwrap_err();
        drop(tx);
        insert(&shop, 4).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2, 4]);
    Ok(())
}

#[tokio::test]
async fn a_lost_raw_transaction_fails_until_its_text_ends_it() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        for (ending, is_ok) in [("ROLLBACK", true), ("COMMIT", false)] {
            shop.exec("BEGIN", ()).await?;
            insert(&shop, 1).await?;
            wire.cut();
            insert(&shop, 2).await.unwrap_err();
            for _ in 0..2 {
                let error = insert(&shop, 3).await.unwrap_err();
                assert_eq!(error.kind(), Kind::TransactionLost);
                assert!(shop.in_transaction(), "as far as the program knows");
            }
            let ended = shop.exec(ending, ()).await;
            assert_eq!(ended.is_ok(), is_ok, "{ending}");
            if let Err(error) = ended {
                assert_eq!(error.kind(), Kind::TransactionLost);
            }
            assert!(!shop.in_transaction());
            insert(&shop, 4).await?;
        }
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [4, 4]);
    Ok(())
}

#[tokio::test]
async fn a_connection_lost_during_the_commit_is_an_unknown_outcome() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    wire.next(Step::Commit, Fault::LostAfter);
    let done = shop.transaction(async || insert(&shop, 1).await).await;
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::OutcomeUnknown);
    assert!(error.is_connection_lost() && !error.is_retryable());
    wire.next(Step::Commit, Fault::LostBefore);
    let done = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 2).await?;
        tx.commit().await
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::OutcomeUnknown);
    quiet(&shop).await;
    assert_eq!(shop.status().total, 0);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn a_commit_that_the_server_answers_with_a_rollback_is_an_error() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    wire.next(Step::Commit, Fault::RolledBack);
    let done = shop.transaction(async || insert(&shop, 1).await).await;
    let error = done.unwrap_err();
    assert_eq!(error.kind(), Kind::RolledBack);
    assert!(!error.is_connection_lost());
    wire.next(Step::Commit, Fault::RolledBack);
    let done = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 2).await?;
        let done = tx.commit().await;
        assert!(!shop.in_transaction());
        insert(&shop, 3).await?;
        done
    });
    assert_eq!(done.await.unwrap_err().kind(), Kind::RolledBack);
    assert_eq!(numbers(&shop).await, [3]);
    assert_eq!(shop.status().total, 1, "its connection is sound");
    Ok(())
}

/// B-030: outside of a transaction the next statement simply gets a fresh connection.
#[tokio::test]
async fn outside_a_transaction_a_lost_connection_is_replaced() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        insert(&shop, 1).await?;
        wire.next(Step::Run, Fault::LostAfter);
        let error = insert(&shop, 2).await.unwrap_err();
        assert_eq!(error.kind(), Kind::ConnectionLost);
        insert(&shop, 3).await?;
        // And if it was pinned.
        let _pin = shop.pin().await?;
        let id = connection_id(&shop).await?;
        wire.cut();
        insert(&shop, 4).await.unwrap_err();
        assert_ne!(connection_id(&shop).await?, id);
        insert(&shop, 5).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2, 3, 5]);
    assert_eq!((shop.status().total, wire.alive()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn unseen_call_is_repeated_once_on_another_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    insert(&shop, 1).await?;
    wire.next(Step::Run, Fault::NeverSent);
    insert(&shop, 2).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    assert_eq!(wire.opened(), 2);
    // A read goes another way.
    wire.next(Step::Run, Fault::NeverSent);
    assert_eq!(numbers(&shop).await, [1, 2]);
    assert_eq!(wire.opened(), 3);
    // Once: then it is shown. (The first step on a fresh connection is its set-up.)
    wire.next(Step::Run, Fault::NeverSent);
    wire.next(Step::Connect, Fault::LostBefore);
    let error = insert(&shop, 3).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Connect);
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn in_a_transaction_an_unseen_call_is_not_repeated() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let done = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            wire.next(Step::Run, Fault::NeverSent);
            insert(&shop, 2).await
        })
        .await;
    assert!(done.unwrap_err().is_connection_lost());
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

/// B-026: a cheap look at one that has been idle for a while tells that it is dead.
#[tokio::test]
async fn a_connection_that_died_in_the_pool_is_not_handed_out() -> Result<()> {
    let database = TestDatabase::new();
    let clock = Clock::new();
    let (driver, wire) = Probe::new(cenote::sqlite::Sqlite::new());
    let builder = database.builder_with(driver).max(1).runtime(clock.clone());
    let shop = Shop::open(database, builder).await;
    insert(&shop, 1).await?;
    wire.cut();
    clock.advance(Duration::from_secs(1));
    insert(&shop, 2).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    assert_eq!((wire.opened(), wire.alive()), (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_savepoint_that_cannot_be_rolled_back_costs_the_transaction() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            let inner: Result<()> = shop
                .transaction(async || {
                    insert(&shop, 2).await?;
                    wire.next(Step::Savepoint, Fault::LostBefore);
                    Err(Error::other("undone"))
                })
                .await;
            assert_eq!(inner.unwrap_err().kind(), Kind::Other);
            let error = insert(&shop, 3).await.unwrap_err();
            assert_eq!(error.kind(), Kind::TransactionLost, "{error}");
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn a_begin_that_fails_leaves_no_transaction_behind() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        // A lost BEGIN is repeated once.
        for faults in [
            vec![Fault::LostBefore, Fault::LostBefore],
            vec![Fault::LostAfter, Fault::LostAfter],
            vec![Fault::Refused(Error::other("no"))],
        ] {
            for fault in faults {
                wire.next(Step::Begin, fault);
            }
            shop.begin().await.unwrap_err();
            assert!(!shop.in_transaction());
            assert!(shop.peek().is_none());
            insert(&shop, 1).await?;
        }
        Ok::<(), Error>(())
    })
    .await?;
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [1, 1, 1]);
    Ok(())
}
