//! Explicit connections, and calls outside of what is bound.

use cenote::{Error, Kind, Result};

use super::support::{
    Fault, Step, WHO, connection_id, count, insert, numbers, quiet, shop, shop_with, watched_shop,
};

#[tokio::test]
async fn call_on_an_explicit_connection_runs_only_there() -> Result<()> {
    let shop = shop(2).await;
    let connection = shop.connection().await?;
    let id: i64 = connection.query_as_one(WHO, ()).await?;
    for _ in 0..3 {
        assert_eq!(connection.query_as_one::<i64>(WHO, ()).await?, id);
    }
    assert_ne!(connection_id(&shop).await?, id);
    assert_eq!(shop.status().active, 1);
    drop(connection);
    assert_eq!(shop.status().active, 0);
    Ok(())
}

#[tokio::test]
async fn an_explicit_connection_binds_nothing_and_joins_nothing() -> Result<()> {
    let shop = shop(2).await;
    cenote::scope(async {
        let connection = shop.connection().await?;
        assert!(shop.peek().is_none());
        drop(connection);
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let connection = shop.connection().await?;
        assert!(!connection.in_transaction());
        let n: i64 = connection
            .query_as_one("SELECT count(*) FROM t", ())
            .await?;
        assert_eq!(n, 0);
        tx.rollback().await
    })
    .await
}

#[tokio::test]
async fn an_explicit_connection_is_never_the_one_of_a_transaction() -> Result<()> {
    let shop = shop(3).await;
    let read_only = cenote::TransactionOptions::new().read_only();
    let ask = async || {
        let own = connection_id(&shop).await?;
        let connection = shop.connection().await?;
        assert!(!connection.in_transaction());
        assert_ne!(connection.query_as_one::<i64>(WHO, ()).await?, own);
        let connection = shop.outside().connection().await?;
        assert!(!connection.in_transaction());
        assert_ne!(connection.query_as_one::<i64>(WHO, ()).await?, own);
        Ok(())
    };
    read_only.on(&shop).run(ask).await?;
    read_only.on(&shop.outside()).run(ask).await?;
    cenote::scope(async {
        let _pin = shop.pin().await?;
        ask().await
    })
    .await
}

#[tokio::test]
async fn explicit_connection_has_transactions_and_sessions_of_its_own() -> Result<()> {
    let shop = shop(2).await;
    let mut connection = shop.connection().await?;
    let tx = connection.begin().await?;
    tx.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
    tx.commit().await?;
    let tx = connection.begin().await?;
    tx.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
    drop(tx);
    assert!(!connection.in_transaction());
    connection.exec("CREATE TEMP TABLE mine (n)", ()).await?;
    connection.exec("INSERT INTO mine VALUES (1)", ()).await?;
    connection.exec("BEGIN", ()).await?;
    assert!(connection.in_transaction());
    connection.exec("INSERT INTO t (n) VALUES (3)", ()).await?;
    connection.exec("COMMIT", ()).await?;
    assert_eq!(numbers(&shop).await, [1, 3]);
    Ok(())
}

#[tokio::test]
async fn an_explicit_connection_goes_back_clean() -> Result<()> {
    let shop = shop(1).await;
    let connection = shop.connection().await?;
    connection.exec("CREATE TEMP TABLE mine (n)", ()).await?;
    connection.exec("BEGIN", ()).await?;
    connection.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
    drop(connection);
    assert_eq!(count(&shop).await, 0);
    let error = shop.query("SELECT * FROM mine", ()).await.unwrap_err();
    assert!(error.message().contains("no such table"), "{error}");
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn savepoints_of_an_explicit_connection_roll_back_alone() -> Result<()> {
    let shop = shop(1).await;
    let mut connection = shop.connection().await?;
    let mut tx = connection.begin().await?;
    tx.exec("INSERT INTO t (n) VALUES (1)", ()).await?;
    let savepoint = tx.savepoint().await?;
    savepoint.exec("INSERT INTO t (n) VALUES (2)", ()).await?;
    savepoint.rollback().await?;
    let savepoint = tx.savepoint().await?;
    savepoint.exec("INSERT INTO t (n) VALUES (3)", ()).await?;
    drop(savepoint);
    let savepoint = tx.savepoint().await?;
    savepoint.exec("INSERT INTO t (n) VALUES (4)", ()).await?;
    savepoint.commit().await?;
    tx.commit().await?;
    drop(connection);
    assert_eq!(numbers(&shop).await, [1, 4]);
    Ok(())
}

#[tokio::test]
async fn a_statement_of_an_explicit_connection_keeps_that_alive() -> Result<()> {
    let shop = shop(1).await;
    let connection = shop.connection().await?;
    let statement = connection.prepare("INSERT INTO t (n) VALUES (?)").await?;
    drop(connection);
    assert_eq!(shop.status().active, 1);
    statement.exec((1,)).await?;
    drop(statement);
    assert_eq!(shop.status().active, 0);
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

#[tokio::test]
async fn lost_explicit_connection_fails_and_is_not_replaced() -> Result<()> {
    let (shop, wire) = watched_shop(|builder| builder.max(1)).await;
    let connection = shop.connection().await?;
    wire.next(Step::Run, Fault::LostAfter);
    let error = connection.exec("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost);
    let error = connection.exec("SELECT 1", ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::ConnectionLost);
    // Its place is free already.
    insert(&shop, 1).await?;
    drop(connection);
    assert_eq!(shop.status().total, 1);
    Ok(())
}

#[tokio::test]
async fn outside_calls_join_no_transaction() -> Result<()> {
    let shop = shop(2).await;
    // Read-only, because SQLite has only one writer at a time.
    let options = cenote::TransactionOptions::new().read_only();
    let failed: Result<()> = options
        .on(&shop)
        .run(async || {
            let id = connection_id(&shop).await?;
            let outside = shop.outside();
            assert!(!outside.in_transaction());
            assert!(outside.peek().is_none());
            insert(&outside, 1).await?;
            assert_ne!(connection_id(&outside).await?, id);
            assert_eq!(connection_id(&shop).await?, id);
            Err(Error::other("undone"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(numbers(&shop).await, [1], "an audit log stays");
    Ok(())
}

#[tokio::test]
async fn an_outside_transaction_is_a_transaction_of_its_own() -> Result<()> {
    let shop = shop(3).await;
    let options = cenote::TransactionOptions::new().read_only();
    let failed: Result<()> = options
        .on(&shop)
        .run(async || {
            let outer = connection_id(&shop).await?;
            let outside = shop.outside();
            outside
                .transaction(async || {
                    assert_ne!(connection_id(&shop).await?, outer);
                    insert(&shop, 1).await
                })
                .await?;
            let undone: Result<()> = outside
                .transaction(async || {
                    insert(&shop, 2).await?;
                    Err(Error::other("undone"))
                })
                .await;
            undone.unwrap_err();
            assert_eq!(connection_id(&shop).await?, outer);
            Err(Error::other("undone"))
        })
        .await;
    failed.unwrap_err();
    assert_eq!(numbers(&shop).await, [1]);
    Ok(())
}

/// `Db::transaction`: "what the closure does with this `Db` runs in the transaction".
#[tokio::test]
async fn what_an_outside_handle_does_in_its_own_transaction_is_in_it() -> Result<()> {
    let shop = shop_with(|builder| builder.max(4).option("busy_timeout", "0ms")).await;
    let audit = shop.outside();
    let fails = async || {
        let done = audit.transaction(async || {
            assert!(audit.in_transaction());
            insert(&audit, 1).await?;
            Err::<(), _>(Error::other("undone"))
        });
        done.await.unwrap_err()
    };
    assert_eq!(fails().await.kind(), Kind::Other);
    assert_eq!(cenote::scope(fails()).await.kind(), Kind::Other);
    assert_eq!(numbers(&shop).await, [0; 0]);
    Ok(())
}

#[tokio::test]
async fn outside_statements_and_streams_have_connections_of_their_own() -> Result<()> {
    let shop = shop(3).await;
    cenote::scope(async {
        let tx = shop.begin().await?;
        insert(&shop, 1).await?;
        let statement = shop.outside().prepare("SELECT count(*) FROM t").await?;
        assert_eq!(statement.query_as::<i64>(()).await?, [0]);
        let mut rows = shop.outside().stream("SELECT count(*) FROM t", ()).await?;
        assert_eq!(rows.try_next().await?.unwrap().get::<i64>(0)?, 0);
        drop((statement, rows));
        tx.commit().await
    })
    .await?;
    quiet(&shop).await;
    Ok(())
}
