//! Calls that are dropped half-way.

use std::pin::pin;

use cenote::{Error, Kind, Result};

use super::support::{
    ENDLESS, GATED, Step, begins_to_wait, connection_id, count, gated_shop, insert, numbers,
    poll_once, quiet, shop, soon, watched_shop,
};

/// Polls a call until the statement has begun, and drops it then.
macro_rules! drop_half_way {
    ($gate:expr, $call:expr) => {{
        let mut call = Box::pin($call);
        tokio::select! {
            biased;
            _ = &mut call => panic!("it never ends"),
            () = $gate.begun() => {}
        }
        drop(call);
    }};
}

#[tokio::test]
async fn a_dropped_call_dooms_its_transaction_which_names_it() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(2)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            drop_half_way!(gate, shop.exec(ENDLESS, ()));
            let line = line!() - 1;
            for _ in 0..2 {
                let error = insert(&shop, 2).await.unwrap_err();
                assert_eq!(error.kind(), Kind::Doomed, "{error}");
                let sites: Vec<_> = error.call_sites().iter().map(|site| site.line()).collect();
                assert_eq!(sites, [line]);
            }
            assert_eq!(
                shop.prepare("SELECT 1").await.unwrap_err().kind(),
                Kind::Doomed
            );
            assert_eq!(
                shop.stream("SELECT 1", ()).await.unwrap_err().kind(),
                Kind::Doomed
            );
            let inner = shop.transaction(async || Ok(())).await;
            assert_eq!(inner.unwrap_err().kind(), Kind::Doomed);
            Ok(())
        })
        .await;
    assert_eq!(
        done.unwrap_err().kind(),
        Kind::Doomed,
        "its commit fails, too"
    );
    assert_eq!(numbers(&shop).await, [0; 0]);
    assert_eq!(shop.status().total, 1, "its connection can be used again");
    Ok(())
}

#[tokio::test]
async fn a_doomed_guard_can_be_rolled_back_and_then_all_is_well() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        drop_half_way!(gate, tx.exec(ENDLESS, ()));
        assert_eq!(insert(&shop, 2).await.unwrap_err().kind(), Kind::Doomed);
        tx.rollback().await?;
        insert(&shop, 3).await?;
        let tx = shop.begin().await?;
        drop_half_way!(gate, shop.exec(ENDLESS, ()));
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Doomed);
        insert(&shop, 4).await?;
        let tx = shop.begin().await?;
        drop_half_way!(gate, shop.exec(ENDLESS, ()));
        drop(tx);
        insert(&shop, 5).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [3, 4, 5]);
    Ok(())
}

#[tokio::test]
async fn doomed_raw_transaction_rolls_back_with_the_sql_that_ends_it() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        for ending in ["ROLLBACK", "COMMIT"] {
            shop.exec("BEGIN", ()).await?;
            insert(&shop, 1).await?;
            drop_half_way!(gate, shop.exec(ENDLESS, ()));
            assert_eq!(insert(&shop, 2).await.unwrap_err().kind(), Kind::Doomed);
            match (ending, shop.exec(ending, ()).await) {
                ("ROLLBACK", ended) => drop(ended?),
                (_, ended) => assert_eq!(ended.unwrap_err().kind(), Kind::Doomed),
            }
            assert!(!shop.in_transaction());
            insert(&shop, 3).await?;
        }
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [3, 3]);
    Ok(())
}

/// What was dropped is undone with its savepoint, so the rest is as sound as before.
#[tokio::test]
async fn rolled_back_doomed_savepoint_leaves_the_transaction_intact() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let inner: Result<()> = shop
            .transaction(async || {
                drop_half_way!(gate, shop.query(ENDLESS, ()));
                Ok(())
            })
            .await;
        assert_eq!(inner.unwrap_err().kind(), Kind::Doomed);
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_call_that_was_never_polled_dooms_nothing() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        drop(insert(&shop, 1));
        drop(shop.exec("INSERT INTO t (n) VALUES (2)", ()));
        insert(&shop, 3).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [3]);
    Ok(())
}

#[tokio::test]
async fn a_call_that_still_waited_for_its_turn_dooms_nothing() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    shop.transaction(async || {
        let mut first = pin!(shop.query(GATED, ()));
        begins_to_wait(first.as_mut()).await;
        gate.begun().await;
        {
            let mut second = pin!(insert(&shop, 1));
            begins_to_wait(second.as_mut()).await;
        }
        gate.open();
        first.await?;
        insert(&shop, 2).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn transaction_given_up_while_waiting_leaves_nothing_behind() -> Result<()> {
    let shop = shop(1).await;
    let holder = shop.connection().await?;
    {
        let mut waiting = pin!(shop.transaction(async || insert(&shop, 1).await));
        begins_to_wait(waiting.as_mut()).await;
        assert_eq!(shop.status().waiting, 1);
    }
    assert_eq!(shop.status().waiting, 0);
    drop(holder);
    assert_eq!(count(&shop).await, 0);
    Ok(())
}

/// B-030, B-006: the test waits until the query has begun, and not for some time.
#[tokio::test]
async fn dropped_query_is_cancelled_and_settled_before_reuse() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    insert(&shop, 1).await?;
    let id = connection_id(&shop).await?;
    drop_half_way!(gate, shop.query(ENDLESS, ()));
    // No foreign row, no foreign error, no open transaction.
    let found = soon("the place is free", numbers(&shop)).await;
    assert_eq!(found, [1]);
    assert_eq!(connection_id(&shop).await?, id);
    assert_eq!(shop.status().total, 1);
    insert(&shop, 2).await?;
    Ok(())
}

/// B-031: in the same coroutine.
#[tokio::test]
async fn after_a_dropped_query_the_task_continues() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(2)).await;
    cenote::scope(async {
        for n in 0..3 {
            drop_half_way!(gate, shop.query(ENDLESS, ()));
            insert(&shop, n).await?;
        }
        // And on a pinned connection.
        let _pin = shop.pin().await?;
        drop_half_way!(gate, shop.query(ENDLESS, ()));
        insert(&shop, 3).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [0, 1, 2, 3]);
    assert!(shop.status().total <= 2);
    Ok(())
}

#[tokio::test]
async fn query_that_cannot_be_cancelled_in_time_costs_its_connection() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| {
        // A function of the application blocks the thread, and nothing can stop that.
        builder
            .max(1)
            .cleanup_timeout(std::time::Duration::from_millis(1))
    })
    .await;
    drop_half_way!(gate, shop.query(GATED, ()));
    soon("the place is free", insert(&shop, 1)).await?;
    gate.open();
    assert_eq!(numbers(&shop).await, [1]);
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn a_commit_that_is_dropped_half_way_leaves_a_clean_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let (reached, _go_on) = wire.hold(Step::Commit);
    let mut transaction = Box::pin(shop.transaction(async || insert(&shop, 1).await));
    tokio::select! {
        biased;
        _ = &mut transaction => panic!("its commit is held"),
        () = reached.notified() => {}
    }
    drop(transaction);
    // It was never sent, so it did not happen.
    assert_eq!(soon("the connection is back", numbers(&shop)).await, [0; 0]);
    assert_eq!((shop.status().total, shop.status().active), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a_begin_that_is_dropped_half_way_leaves_a_clean_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let mut polls = 0;
        loop {
            let mut begin = Box::pin(shop.begin());
            let mut begun = None;
            for _ in 0..polls {
                if let std::task::Poll::Ready(tx) = poll_once(begin.as_mut()).await {
                    begun = Some(tx?);
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(begin);
            match begun {
                Some(tx) => {
                    insert(&shop, 1).await?;
                    return tx.commit().await;
                }
                None => assert!(!shop.in_transaction(), "after {polls} polls"),
            }
            polls += 1;
        }
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1]);
    quiet(&shop).await;
    assert!(wire.opened() <= 2);
    Ok(())
}

#[tokio::test]
async fn savepoint_dropped_half_way_leaves_the_transaction_intact() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let (reached, _go_on) = wire.hold(Step::Savepoint);
        let mut inner = Box::pin(shop.transaction(async || insert(&shop, 2).await));
        tokio::select! {
            biased;
            _ = &mut inner => panic!("its savepoint is held"),
            () = reached.notified() => {}
        }
        drop(inner);
        insert(&shop, 3).await
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

/// Whether the release of a savepoint took effect is unknown.
#[tokio::test]
async fn a_release_that_is_dropped_half_way_dooms_the_transaction() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            let mut inner = Box::pin(shop.transaction(async || {
                insert(&shop, 2).await?;
                Ok(wire.hold(Step::Savepoint))
            }));
            // Polled until the release is under way: its set-up has passed by then.
            loop {
                assert!(poll_once(inner.as_mut()).await.is_pending());
                tokio::task::yield_now().await;
                if wire.take_log().contains(&"release".to_owned()) {
                    break;
                }
            }
            drop(inner);
            assert_eq!(insert(&shop, 3).await.unwrap_err().kind(), Kind::Doomed);
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::Doomed);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn a_statement_whose_call_was_dropped_can_be_used_again() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    let statement = shop.prepare(ENDLESS).await?;
    drop_half_way!(gate, statement.query(()));
    drop_half_way!(gate, statement.query(()));
    drop(statement);
    assert_eq!(soon("the connection is back", numbers(&shop)).await, [0; 0]);
    assert_eq!(shop.status().total, 1);
    Ok(())
}
