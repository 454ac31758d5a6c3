//! Closing a handle, replacing its connections, and dropping it.

use std::pin::pin;
use std::time::Duration;

use cenote::{Db, Error, Kind, Result};

use super::support::{
    Shop, begins_to_wait, connection_id, insert, numbers, replaced, shop, soon, timed_shop, until,
    watched_shop,
};

/// All calls with which new work can begin are refused.
async fn all_is_closed(db: &Db) {
    let mut served = Vec::new();
    macro_rules! closed {
        ($($call:expr;)*) => {$(
            match $call.await.map(drop) {
                Err(error) if error.kind() == Kind::Closed => {}
                done => served.push((stringify!($call), done)),
            }
        )*};
    }
    closed! {
        db.exec("SELECT 1", ());
        db.exec_many("INSERT INTO t (n) VALUES (?)", [(1,)]);
        db.query("SELECT 1", ());
        db.prepare("SELECT 1");
        db.stream("SELECT 1", ());
        db.transaction(async || Ok(()));
        db.connection();
        db.ping();
        db.outside().exec("SELECT 1", ());
    }
    if cenote::current().is_some() {
        closed! {
            db.begin();
            db.pin();
        }
    }
    assert!(served.is_empty(), "{served:#?}");
}

#[tokio::test]
async fn a_closed_handle_refuses_new_work() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.min(2).max(3)).await;
    shop.close().await?;
    assert_eq!(wire.alive(), 0, "idle connections are closed");
    assert!(shop.status().closed);
    all_is_closed(&shop).await;
    cenote::scope(all_is_closed(&shop)).await;
    // Again does nothing.
    shop.close().await
}

#[tokio::test]
async fn an_open_transaction_may_finish_after_the_handle_was_closed() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let place_dsn = shop.database.dsn();
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        shop.close().await?;
        insert(&shop, 2).await?;
        shop.transaction(async || insert(&shop, 3).await).await?;
        let error = shop.outside().exec("SELECT 1", ()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Closed);
        tx.commit().await?;
        assert_eq!(insert(&shop, 4).await.unwrap_err().kind(), Kind::Closed);
        assert!(shop.peek().is_none(), "no binding survives");
        Ok::<(), Error>(())
    })
    .await?;
    until("its connection is closed", || wire.alive() == 0).await;
    let again = Db::open(&place_dsn).await?;
    assert_eq!(numbers(&again).await, [1, 2, 3]);
    Ok(())
}

/// A live statement, a pin and a touched session are no transactions.
#[tokio::test]
async fn pinned_connection_takes_no_new_work_after_close() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    cenote::scope(async {
        let pin = shop.pin().await?;
        insert(&shop, 1).await?;
        shop.close().await?;
        all_is_closed(&shop).await;
        drop(pin);
        Ok::<(), Error>(())
    })
    .await?;
    until("its connection is closed", || wire.alive() == 0).await;
    Ok(())
}

#[tokio::test]
async fn close_wakes_every_waiter() -> Result<()> {
    let shop = shop(1).await;
    let holder = shop.connection().await?;
    let mut one = pin!(shop.exec("SELECT 1", ()));
    let mut other = pin!(shop.transaction(async || Ok(())));
    begins_to_wait(one.as_mut()).await;
    begins_to_wait(other.as_mut()).await;
    shop.close().await?;
    assert_eq!(
        soon("it is woken", one).await.unwrap_err().kind(),
        Kind::Closed
    );
    assert_eq!(
        soon("it is woken", other).await.unwrap_err().kind(),
        Kind::Closed
    );
    let late = holder.exec("SELECT 1", ()).await;
    assert_eq!(late.unwrap_err().kind(), Kind::Closed);
    Ok(())
}

#[tokio::test]
async fn close_and_drain_waits_for_the_holders() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let holder = shop.connection().await?;
    let mut draining = pin!(shop.close_and_drain(Duration::from_secs(3600)));
    begins_to_wait(draining.as_mut()).await;
    assert_eq!(
        shop.exec("SELECT 1", ()).await.unwrap_err().kind(),
        Kind::Closed
    );
    begins_to_wait(draining.as_mut()).await;
    drop(holder);
    soon("it is drained", draining).await?;
    assert_eq!(wire.alive(), 0);
    Ok(())
}

#[tokio::test]
async fn close_and_drain_lists_the_holders_left_at_its_deadline() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.max(2)).await;
    let _holder = shop.connection().await?;
    let line = line!() - 1;
    let mut draining = pin!(shop.close_and_drain(Duration::from_secs(5)));
    begins_to_wait(draining.as_mut()).await;
    clock.advance(Duration::from_secs(6));
    let error = soon("the time is over", draining).await.unwrap_err();
    assert!(
        error.to_string().contains(&format!("closing.rs:{line}")),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn replace_all_replaces_every_connection_there_is() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let holder = shop.connection().await?;
    let busy: i64 = holder.query_as_one("SELECT id FROM connection", ()).await?;
    let idle = connection_id(&shop).await?;
    shop.replace_all();
    // One in use stays what it is until it comes back.
    let same: i64 = holder.query_as_one("SELECT id FROM connection", ()).await?;
    assert_eq!(same, busy);
    drop(holder);
    until("all are replaced", || {
        (wire.opened(), wire.alive()) == (4, 2)
    })
    .await;
    for _ in 0..4 {
        let id = connection_id(&shop).await?;
        assert!(id != busy && id != idle);
    }
    Ok(())
}

#[tokio::test]
async fn replace_all_does_not_disturb_an_open_transaction() -> Result<()> {
    let shop = shop(1).await;
    let id = shop
        .transaction(async || {
            let id = connection_id(&shop).await?;
            shop.replace_all();
            insert(&shop, 1).await?;
            assert_eq!(connection_id(&shop).await?, id);
            Ok(id)
        })
        .await?;
    replaced(&shop, 1).await;
    assert_ne!(connection_id(&shop).await?, id);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn dropping_the_last_handle_closes_all_connections() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.min(3)).await;
    let Shop {
        db,
        database: _place,
    } = shop;
    let clone = db.clone();
    drop(db);
    insert(&clone, 1).await?;
    assert_eq!(wire.alive(), 3);
    drop(clone);
    until("all are closed", || wire.alive() == 0).await;
    Ok(())
}

/// D-lite-021, D-lite-s016, B-009
#[tokio::test]
async fn handle_dropped_during_an_error_or_panic_masks_neither() {
    async fn fails() -> Result<()> {
        let shop = shop(1).await;
        let db = Db::builder(&shop.database.dsn())
            .option("busy_timeout", "4s")
            .open()
            .await?;
        db.exec("SELECT 1", ()).await?;
        let _statement = db.prepare("SELECT 1").await?;
        Err(Error::other("the first one"))
    }
    assert_eq!(fails().await.unwrap_err().message(), "the first one");
    let panicked = cenote::spawn(async {
        let shop = shop(1).await;
        let _tx = shop.begin().await.unwrap();
        insert(&shop, 1).await.unwrap();
        panic!("the first one");
    });
    let panic = panicked.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the first one"));
}

/// They ran as if nobody had closed anything.
#[tokio::test]
async fn h26_statements_write_nothing_after_close() -> Result<()> {
    let shop = shop(4).await;
    let reader = shop.database.builder().open().await?;
    let alone = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
    let mut connection = shop.connection().await?;
    cenote::scope(async {
        let inside = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        shop.close().await?;
        assert_eq!(inside.exec((1,)).await.unwrap_err().kind(), Kind::Closed);
        Ok::<_, Error>(())
    })
    .await?;
    assert_eq!(alone.exec((2,)).await.unwrap_err().kind(), Kind::Closed);
    let many = alone.exec_many([(3,), (4,)]).await;
    assert_eq!(many.unwrap_err().kind(), Kind::Closed);
    assert_eq!(alone.stream((5,)).await.unwrap_err().kind(), Kind::Closed);
    let own = connection.exec("INSERT INTO t (n) VALUES (6)", ()).await;
    assert_eq!(own.unwrap_err().kind(), Kind::Closed);
    assert_eq!(connection.begin().await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(numbers(&reader).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn h26_statement_in_a_transaction_finishes_after_close() -> Result<()> {
    let shop = shop(2).await;
    let reader = shop.database.builder().open().await?;
    let mut connection = shop.connection().await?;
    let tx = connection.begin().await?;
    let insert = tx.prepare("INSERT INTO t (n) VALUES (?)").await?;
    shop.close().await?;
    insert.exec((1,)).await?;
    tx.commit().await?;
    assert_eq!(
        insert.exec((2,)).await.unwrap_err().kind(),
        Kind::TransactionEnded
    );
    assert_eq!(numbers(&reader).await, [1]);
    Ok(())
}
