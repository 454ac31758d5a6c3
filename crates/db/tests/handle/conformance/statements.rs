//! Prepared statements, in coroutines, outside of them and beyond their end.

use std::pin::pin;
use std::time::Duration;

use cenote::{Error, Kind, Result, named};

use super::support::{
    WHO, begins_to_wait, connection_id, count, insert, numbers, poll_once, quiet, shop, soon,
    timed_shop, until, watched_shop,
};

#[tokio::test]
async fn a_statement_knows_its_sql_its_parameters_and_its_columns() -> Result<()> {
    let shop = shop(1).await;
    let sql = "SELECT n AS number, id FROM t WHERE n > :min OR id = :min";
    let statement = shop.prepare(sql).await?;
    assert_eq!(statement.sql(), sql);
    let names: Vec<_> = statement
        .columns()
        .iter()
        .map(|column| column.name.clone())
        .collect();
    assert_eq!(names, ["number", "id"]);
    assert_eq!(statement.query(named! { min: 0 }).await?.len(), 0);
    drop(statement);
    let insert = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
    assert_eq!(insert.columns().len(), 0);
    Ok(())
}

#[tokio::test]
async fn every_form_of_running_a_statement_works() -> Result<()> {
    let shop = shop(2).await;
    let insert = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
    assert_eq!(insert.param_count(), 1);
    assert_eq!(insert.exec((1,)).await?.rows_affected, 1);
    assert_eq!(insert.exec_many([(2,), (3,)]).await?.rows_affected, 2);
    let select = shop
        .prepare("SELECT n FROM t WHERE n >= ? ORDER BY n")
        .await?;
    assert_eq!(select.query((1,)).await?.len(), 3);
    assert_eq!(select.query_one((3,)).await?.get::<i64>(0)?, 3);
    assert!(select.query_opt((9,)).await?.is_none());
    assert_eq!(select.query_as::<i64>((2,)).await?, [2, 3]);
    let mut rows = select.stream((2,)).await?;
    assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 2);
    assert_eq!(select.query((1,)).await.unwrap_err().kind(), Kind::Busy);
    drop(rows);
    assert_eq!(
        select.query((1, 2)).await.unwrap_err().kind(),
        Kind::Parameters
    );
    Ok(())
}

#[tokio::test]
async fn outside_of_coroutines_every_statement_has_its_own_connection() -> Result<()> {
    let shop = shop(3).await;
    let one = shop.prepare(WHO).await?;
    let other = shop.prepare(WHO).await?;
    let ids = (
        one.query_as::<i64>(()).await?,
        other.query_as::<i64>(()).await?,
    );
    assert_ne!(ids.0, ids.1);
    assert_eq!(shop.status().active, 2);
    let third = connection_id(&shop).await?;
    assert!(third != ids.0[0] && third != ids.1[0]);
    drop(one);
    assert_eq!(shop.status().active, 1);
    drop(other);
    assert_eq!(shop.status().active, 0);
    Ok(())
}

/// D-lite-s007
#[tokio::test]
async fn escaped_statement_keeps_its_connection_and_returns_it_once() -> Result<()> {
    let shop = shop(4).await;
    let statement = cenote::scope(async {
        insert(&shop, 1).await?;
        shop.prepare("SELECT n FROM t").await
    })
    .await?;
    assert_eq!(shop.status().active, 1);
    assert_eq!(statement.query_as::<i64>(()).await?, [1]);
    // Also in another coroutine, which it binds nothing of.
    cenote::scope(async {
        assert_eq!(statement.query_as::<i64>(()).await?, [1]);
        assert!(shop.peek().is_none());
        Ok::<(), Error>(())
    })
    .await?;
    drop(statement);
    assert_eq!((shop.status().active, shop.status().idle), (0, 1));
    assert_eq!(numbers(&shop).await, [1]);
    assert_eq!((shop.status().active, shop.status().total), (0, 1));
    Ok(())
}

#[tokio::test]
async fn statement_of_a_transaction_left_open_refuses_to_run() -> Result<()> {
    let shop = shop(2).await;
    let statement = cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        std::mem::forget(tx);
        Ok::<_, Error>(statement)
    })
    .await?;
    // Rolled back at once, though the statement still holds the connection.
    assert_eq!(shop.status().active, 1);
    insert(&shop, 2).await?;
    for _ in 0..2 {
        let error = statement.exec((3,)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TransactionEnded, "{error}");
    }
    assert_eq!(
        statement.query(()).await.unwrap_err().kind(),
        Kind::Parameters
    );
    drop(statement);
    quiet(&shop).await;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}

#[tokio::test]
async fn statement_of_a_committed_transaction_runs_on() -> Result<()> {
    let shop = shop(2).await;
    let statement = cenote::scope(async {
        let tx = shop.begin().await?;
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        statement.exec((1,)).await?;
        tx.commit().await?;
        Ok::<_, Error>(statement)
    })
    .await?;
    statement.exec((2,)).await?;
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn statement_carried_out_of_a_closure_binds_the_coroutine() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let statement = shop
            .transaction(async || shop.prepare("SELECT id FROM connection").await)
            .await?;
        let id = statement.query_as::<i64>(()).await?[0];
        assert_eq!(connection_id(&shop).await?, id);
        assert_eq!(shop.peek().map(|bound| bound.statements), Some(1));
        drop(statement);
        assert!(shop.peek().is_none());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn statement_carried_out_without_a_coroutine_is_independent() -> Result<()> {
    let shop = shop(2).await;
    let statement = shop
        .transaction(async || {
            let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
            statement.exec((1,)).await?;
            Ok(statement)
        })
        .await?;
    assert_eq!(shop.status().active, 1);
    statement.exec((2,)).await?;
    drop(statement);
    assert_eq!(shop.status().active, 0);
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

/// D-lite-s009, B-021
#[tokio::test]
async fn a_statement_may_outlive_its_handle() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(2)).await;
    let super::support::Shop { db, database } = shop;
    let statement =
        cenote::scope(async { db.prepare("INSERT INTO t (n) VALUES (?)").await }).await?;
    let other = db.prepare("SELECT 1").await?;
    drop(db);
    statement.exec((1,)).await?;
    other.query(()).await?;
    assert_eq!(wire.alive(), 2);
    drop((statement, other));
    until("the connections are closed", || wire.alive() == 0).await;
    let again = cenote::Db::open(&database.dsn()).await?;
    assert_eq!(count(&again).await, 1);
    Ok(())
}

#[tokio::test]
async fn a_statement_that_outlives_its_handle_does_not_keep_that_open() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(3)).await;
    let statement = shop.prepare("SELECT 1").await?;
    insert(&shop, 1).await?;
    assert_eq!(wire.alive(), 2);
    drop(shop);
    until("the idle one is closed", || wire.alive() == 1).await;
    drop(statement);
    until("the other one is closed", || wire.alive() == 0).await;
    Ok(())
}

#[tokio::test]
async fn statement_used_by_another_task_waits_for_its_own_transaction() -> Result<()> {
    let (shop, clock) = timed_shop(|builder| builder.max(2)).await;
    cenote::scope(async {
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let tx = shop.begin().await?;
        statement.exec((1,)).await?;
        {
            let mut elsewhere = pin!(cenote::scope(async { statement.exec((2,)).await }));
            begins_to_wait(elsewhere.as_mut()).await;
            clock.advance(Duration::from_secs(31));
            let error = soon("the deadline passes", elsewhere).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Timeout);
        }
        let mut elsewhere = pin!(cenote::scope(async { statement.exec((3,)).await }));
        begins_to_wait(elsewhere.as_mut()).await;
        tx.rollback().await?;
        soon("its turn comes", elsewhere).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [3]);
    Ok(())
}

#[tokio::test]
async fn statement_with_a_lost_connection_fails_but_not_its_coroutine() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    cenote::scope(async {
        let statement = shop.prepare("SELECT 1").await?;
        wire.cut();
        let error = statement.query(()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::ConnectionLost);
        insert(&shop, 1).await?;
        let error = statement.query(()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::ConnectionLost);
        drop(statement);
        insert(&shop, 2).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!((shop.status().total, shop.status().active), (1, 0));
    assert_eq!(numbers(&shop).await, [1, 2]);
    Ok(())
}

#[tokio::test]
async fn a_prepare_that_fails_or_is_dropped_pins_nothing() -> Result<()> {
    let shop = shop(1).await;
    cenote::scope(async {
        shop.prepare("SELECT * FROM nowhere").await.unwrap_err();
        assert!(shop.peek().is_none());
        let mut prepare = Box::pin(shop.prepare("SELECT 1"));
        // Under way, or done already: SQLite may be quick.
        drop(poll_once(prepare.as_mut()).await);
        drop(prepare);
        assert!(shop.peek().is_none());
        soon("the connection is back", insert(&shop, 1)).await
    })
    .await?;
    assert_eq!(shop.status().active, 0);
    Ok(())
}

/// B-041: the transaction that a statement runs in is its connection's.
#[tokio::test]
async fn a_statement_prepared_before_a_transaction_runs_in_it() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let statement = shop.prepare("INSERT INTO t (n) VALUES (?)").await?;
        let tx = shop.begin().await?;
        statement.exec((1,)).await?;
        assert!(shop.in_transaction());
        tx.rollback().await?;
        statement.exec((2,)).await?;
        Ok::<(), Error>(())
    })
    .await?;
    assert_eq!(numbers(&shop).await, [2]);
    Ok(())
}
