//! Row streams: whose connection they use, and what they leave.

use std::pin::pin;
use std::task::Poll;

use cenote::{Error, Kind, Result};
use futures_core::Stream;

use super::support::{
    ENDLESS, WHO, connection_id, count, gated_shop, insert, numbers, poll_once, quiet, shop, soon,
    watched_shop,
};

const MANY: &str = "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up LIMIT 100000) \
                    SELECT n FROM up";

#[tokio::test]
async fn a_stream_gives_all_rows_in_order() -> Result<()> {
    let shop = shop(1).await;
    let mut rows = shop.stream(MANY, ()).await?;
    let mut expected = 1;
    while let Some(row) = rows.try_next().await? {
        assert_eq!(row.get::<i64>("n")?, expected);
        expected += 1;
    }
    assert_eq!(expected, 100_001);
    assert!(rows.try_next().await?.is_none(), "and none after the last");
    Ok(())
}

#[tokio::test]
async fn a_stream_is_a_stream_of_the_futures_crates() -> Result<()> {
    let shop = shop(1).await;
    let mut rows = pin!(shop.stream("SELECT 1 UNION SELECT 2", ()).await?);
    let mut found = Vec::new();
    while let Some(row) = std::future::poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
        found.push(row?.get::<i64>(0)?);
    }
    assert_eq!(found, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn stream_outside_a_transaction_has_a_private_connection() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let mut rows = shop.stream(WHO, ()).await?;
        assert!(shop.peek().is_none());
        assert_eq!(shop.status().active, 1);
        // A call meanwhile is no error: it has a connection of its own.
        let other = connection_id(&shop).await?;
        let own = rows.try_next().await?.unwrap().get::<i64>(0)?;
        assert_ne!(own, other);
        assert_eq!(shop.status().active, 1, "it has not been read to its end");
        assert!(rows.try_next().await?.is_none());
        assert_eq!(shop.status().active, 0, "it goes back with the last row");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn stream_beside_a_live_statement_has_a_private_connection_too() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let statement = shop.prepare(WHO).await?;
        let mut rows = shop.stream(WHO, ()).await?;
        let bound = statement.query_as::<i64>(()).await?[0];
        assert_ne!(rows.try_next().await?.unwrap().get::<i64>(0)?, bound);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn in_a_transaction_a_stream_sees_it_and_another_call_is_busy() -> Result<()> {
    let shop = shop(2).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        insert(&shop, 2).await?;
        let mut rows = shop.stream("SELECT n FROM t ORDER BY n", ()).await?;
        let line = line!() - 1;
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 1);
        let error = insert(&shop, 3).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
        let sites: Vec<_> = error.call_sites().iter().map(|site| site.line()).collect();
        assert_eq!(sites, [line], "it names the stream");
        assert_eq!(
            shop.prepare("SELECT 1").await.unwrap_err().kind(),
            Kind::Busy
        );
        assert_eq!(
            shop.stream("SELECT 1", ()).await.unwrap_err().kind(),
            Kind::Busy
        );
        let inner = shop.transaction(async || Ok(())).await;
        assert_eq!(inner.unwrap_err().kind(), Kind::Busy);
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 2);
        assert!(rows.try_next().await?.is_none());
        // A stream that was read to its end blocks no call, even before it is dropped.
        insert(&shop, 3).await?;
        Ok(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2, 3]);
    Ok(())
}

#[tokio::test]
async fn stream_runs_on_a_pinned_connection_or_in_a_touched_session() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let pin = shop.pin().await?;
        let id = connection_id(&shop).await?;
        let mut rows = shop.stream(WHO, ()).await?;
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, id);
        assert_eq!(insert(&shop, 1).await.unwrap_err().kind(), Kind::Busy);
        drop((rows, pin));
        quiet(&shop).await;
        shop.exec("CREATE TEMP TABLE mine AS SELECT 7 AS n", ())
            .await?;
        let mut rows = shop.stream("SELECT n FROM mine", ()).await?;
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 7);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn dropping_a_stream_early_never_aborts_the_transaction() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        for read in [0, 1, 1000] {
            let mut rows = shop.stream(MANY, ()).await?;
            for _ in 0..read {
                rows.try_next().await?;
            }
            drop(rows);
            insert(&shop, 2).await?;
        }
        drop(shop.stream(MANY, ()).await?);
        Ok(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [1, 2, 2, 2]);
    Ok(())
}

#[tokio::test]
async fn dropping_a_writing_stream_does_not_undo_the_transaction() -> Result<()> {
    let shop = shop(1).await;
    shop.transaction(async || {
        insert(&shop, 1).await?;
        let sql = format!("INSERT INTO t (n) {MANY} RETURNING n");
        let mut rows = shop.stream(&sql, ()).await?;
        rows.try_next().await?;
        drop(rows);
        insert(&shop, 2).await
    })
    .await?;
    let found = numbers(&shop).await;
    assert!(
        found.contains(&1) && found.contains(&2),
        "{} rows",
        found.len()
    );
    Ok(())
}

#[tokio::test]
async fn private_stream_dropped_early_returns_a_usable_connection() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    for _ in 0..3 {
        let mut rows = shop.stream(MANY, ()).await?;
        rows.try_next().await?;
        drop(rows);
        assert_eq!(soon("the place is free", count(&shop)).await, 0);
    }
    assert_eq!(wire.opened(), 1);
    Ok(())
}

#[tokio::test]
async fn a_stream_that_was_never_begun_to_an_end_can_be_dropped() -> Result<()> {
    let (shop, gate) = gated_shop(|builder| builder.max(1)).await;
    let mut starting = Box::pin(shop.stream(ENDLESS, ()));
    tokio::select! {
        biased;
        _ = &mut starting => panic!("it has no first row"),
        () = gate.begun() => {}
    }
    drop(starting);
    soon("the place is free", insert(&shop, 1)).await?;
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn a_next_that_is_dropped_loses_no_row() -> Result<()> {
    let shop = shop(1).await;
    let mut rows = shop.stream(MANY, ()).await?;
    let mut expected = 1;
    while expected <= 100_000 {
        // Given up whenever the row is not there at once.
        let polled = {
            let next = pin!(rows.try_next());
            poll_once(next).await
        };
        match polled {
            Poll::Pending => tokio::task::yield_now().await,
            Poll::Ready(row) => {
                assert_eq!(row?.expect("there are more").get::<i64>(0)?, expected);
                expected += 1;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_ends_it() -> Result<()> {
    let shop = shop(1).await;
    shop.exec(&format!("INSERT INTO t (n) {MANY}"), ()).await?;
    insert(&shop, i64::MIN).await?;
    // There is no positive number for the last.
    let sql = "SELECT abs(n) FROM t ORDER BY id";
    let read = async || {
        let mut rows = shop.stream(sql, ()).await?;
        let mut expected = 1;
        let error = loop {
            match rows.try_next().await {
                Ok(row) => assert_eq!(row.expect("an error follows").get::<i64>(0)?, expected),
                Err(error) => break error,
            }
            expected += 1;
        };
        assert_eq!(error.kind(), Kind::Database);
        assert!(rows.try_next().await?.is_none());
        Ok::<(), Error>(())
    };
    read().await?;
    assert_eq!(shop.status().active, 0);
    // In a transaction it costs nothing but itself.
    shop.transaction(async || {
        shop.exec("DELETE FROM t WHERE n = 1", ()).await?;
        insert(&shop, 7).await?;
        let mut rows = shop.stream(sql, ()).await?;
        while rows.try_next().await.is_ok_and(|row| row.is_some()) {}
        insert(&shop, 8).await
    })
    .await?;
    assert_eq!(count(&shop).await, 100_002);
    Ok(())
}

#[tokio::test]
async fn stream_that_loses_its_connection_loses_its_transaction() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let done: Result<()> = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            let mut rows = shop.stream(MANY, ()).await?;
            wire.cut();
            let error = loop {
                match rows.try_next().await {
                    Ok(row) => assert!(row.is_some(), "it does not end in order"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), Kind::ConnectionLost);
            drop(rows);
            assert_eq!(
                insert(&shop, 2).await.unwrap_err().kind(),
                Kind::TransactionLost
            );
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::TransactionLost);
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

/// The transaction cannot be committed under it, and does not hang either.
#[tokio::test]
async fn transaction_ended_under_an_open_stream_is_busy_and_undone() -> Result<()> {
    let shop = shop(1).await;
    let mut kept = None;
    let done = shop
        .transaction(async || {
            insert(&shop, 1).await?;
            kept = Some(shop.stream(MANY, ()).await?);
            Ok(())
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), Kind::Busy);
    drop(kept);
    assert_eq!(soon("the connection is back", numbers(&shop)).await, [0; 0]);
    quiet(&shop).await;
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn escaped_stream_returns_its_connection_once() -> Result<()> {
    let shop = shop(2).await;
    let mut rows = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let rows = shop.stream(MANY, ()).await?;
        std::mem::forget(tx);
        Ok::<_, Error>(rows)
    })
    .await?;
    assert_eq!(shop.status().active, 1);
    while rows.try_next().await?.is_some() {}
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [0; 0]);
    drop(rows);
    assert_eq!((shop.status().active, shop.status().total), (0, 1));
    Ok(())
}

#[tokio::test]
async fn a_stream_keeps_no_more_than_a_few_rows_ready() -> Result<()> {
    // A stream without an end, of rows of a kilobyte: if nothing held it back this would not
    // come to an end, either.
    let shop = shop(1).await;
    let sql = "WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up) \
               SELECT n, zeroblob(1024) FROM up";
    let mut rows = shop.stream(sql, ()).await?;
    for expected in 1..=1000 {
        let row = rows.try_next().await?.unwrap();
        assert_eq!(row.get::<i64>(0)?, expected);
    }
    drop(rows);
    soon("the place is free", insert(&shop, 1)).await?;
    Ok(())
}

#[tokio::test]
async fn the_columns_of_a_stream_are_known_before_its_rows() -> Result<()> {
    let shop = shop(1).await;
    let mut rows = shop.stream("SELECT n AS number FROM t WHERE 0", ()).await?;
    assert_eq!(rows.columns()[0].name, "number");
    assert!(rows.try_next().await?.is_none());
    Ok(())
}
