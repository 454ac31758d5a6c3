//! Transactions of SeaORM and of `Db`, in and around each other.

use cenote_sea_orm::{OrmDb, OrmTransaction, cenote_error};
use futures_util::TryStreamExt;
use sea_orm::prelude::*;
use sea_orm::{IsolationLevel, Statement, TransactionError, TransactionSession, TransactionTrait};

use crate::entities::customer;
use crate::support::{Shop, on_both};

/// Writes through the plain handle, which knows of no transaction.
async fn add_by_db(orm: &OrmDb, shop: &Shop, name: &str) -> cenote::Result<()> {
    let name = format!("{}-{name}", shop.0);
    let sql = "INSERT INTO orm_customer (shop, name, balance, active) VALUES (?, ?, 1, true)";
    orm.db().exec(sql, (&shop.0, &name)).await?;
    Ok(())
}

on_both! {
    async fn closure_commits_on_ok_and_rolls_back_on_err(orm: OrmDb) {
        let shop = Shop::new();
        let inner = (orm.clone(), shop.clone());
        orm.transaction::<_, (), DbErr>(|tx| Box::pin(async move {
            let (orm, shop) = inner;
            shop.add(tx, "ada").await;
            add_by_db(&orm, &shop, "grace").await.expect("in the same transaction");
            // Another connection sees nothing yet.
            assert_eq!(shop.count(&OrmDb::new(orm.db().outside()).expect("known")).await, 0);
            Ok(())
        })).await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);

        let inner = (orm.clone(), shop.clone());
        let failed = orm.transaction::<_, (), DbErr>(|tx| Box::pin(async move {
            let (orm, shop) = inner;
            shop.add(tx, "lost").await;
            add_by_db(&orm, &shop, "lost too").await.expect("in the same transaction");
            Err(DbErr::Custom("no".to_owned()))
        })).await;
        assert!(matches!(failed, Err(TransactionError::Transaction(DbErr::Custom(_)))));
        assert_eq!(shop.count(&orm).await, 2);
    }

    async fn begun_transaction_needs_no_coroutine(orm: OrmDb) {
        let shop = Shop::new();
        assert_eq!(cenote::current(), None);
        let tx = orm.begin().await.expect("begun");
        shop.add(&tx, "ada").await;
        assert_eq!(shop.count(&orm).await, 0);
        tx.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 1);

        let tx = orm.begin().await.expect("begun");
        shop.add(&tx, "lost").await;
        drop(tx);
        let tx = orm.begin().await.expect("begun");
        shop.add(&tx, "lost").await;
        tx.rollback().await.expect("rolled back");
        assert_eq!(shop.count(&orm).await, 1);
    }

    async fn begun_transaction_is_ambient_in_a_coroutine(orm: OrmDb) {
        let shop = Shop::new();
        cenote::scope(async {
            let tx = orm.begin().await.expect("begun");
            shop.add(&orm, "ada").await;
            add_by_db(&orm, &shop, "grace").await.expect("in the transaction");
            assert_eq!(shop.count(&tx).await, 2);
            tx.rollback().await.expect("rolled back");
        }).await;
        assert_eq!(shop.count(&orm).await, 0);
    }

    async fn inner_transactions_are_savepoints(orm: OrmDb) {
        let shop = Shop::new();
        let outer = orm.begin().await.expect("begun");
        shop.add(&outer, "kept").await;
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "rolled back").await;
        let innermost = inner.begin().await.expect("a savepoint");
        shop.add(&innermost, "committed and rolled back").await;
        innermost.commit().await.expect("released");
        inner.rollback().await.expect("rolled back");
        assert_eq!(shop.count(&outer).await, 1);

        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "committed").await;
        inner.commit().await.expect("released");
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);
    }

    async fn dropped_savepoint_is_rolled_back(orm: OrmDb) {
        let shop = Shop::new();
        let outer = orm.begin().await.expect("begun");
        shop.add(&outer, "kept").await;
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "dropped").await;
        let innermost = inner.begin().await.expect("a savepoint");
        shop.add(&innermost, "dropped too").await;
        drop((innermost, inner));
        shop.add(&outer, "after").await;
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);

        // Dropped in the other order, and the inner one is ended later.
        let outer = orm.begin().await.expect("begun");
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "dropped first").await;
        let innermost = inner.begin().await.expect("a savepoint");
        drop(inner);
        innermost.rollback().await.expect("rolled back");
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);

        let outer = orm.begin().await.expect("begun");
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "dropped at the end").await;
        drop(inner);
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);
    }

    async fn savepoint_saves_a_transaction_from_an_error(orm: OrmDb) {
        let shop = Shop::new();
        let outer = orm.begin().await.expect("begun");
        shop.add(&outer, "ada").await;
        let taken = outer.transaction::<_, customer::Model, DbErr>(|tx| {
            let again = shop.customer("ada");
            Box::pin(async move { again.insert(tx).await })
        }).await;
        assert!(taken.is_err());
        shop.add(&outer, "grace").await;
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 2);
    }

    async fn commit_with_an_open_savepoint_fails_and_rolls_back(orm: OrmDb) {
        let shop = Shop::new();
        let outer = orm.begin().await.expect("begun");
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "ada").await;
        let error = outer.commit().await.expect_err("the savepoint lives");
        assert!(error.to_string().contains("still open"), "{error}");
        drop(inner);
        assert_eq!(shop.count(&orm).await, 0);
    }

    async fn orm_joins_a_transaction_of_db(orm: OrmDb) {
        let shop = Shop::new();
        orm.db().transaction(async || {
            add_by_db(&orm, &shop, "kept").await?;
            shop.add(&orm, "kept too").await;
            let inner = orm.begin().await.expect("a savepoint");
            shop.add(&inner, "rolled back").await;
            inner.rollback().await.expect("rolled back");
            let inner = orm.begin().await.expect("a savepoint");
            shop.add(&inner, "committed").await;
            inner.commit().await.expect("released");
            Ok(())
        }).await.expect("committed");
        assert_eq!(shop.count(&orm).await, 3);
    }

    async fn savepoint_dropped_in_a_transaction_of_db_is_not_kept(orm: OrmDb) {
        let shop = Shop::new();
        let ended = orm.db().transaction(async || {
            let inner = orm.begin().await.expect("a savepoint");
            shop.add(&inner, "dropped").await;
            drop(inner);
            Ok(())
        }).await;
        // Either the drop completed the rollback, or the transaction could not be committed.
        assert_eq!(shop.count(&orm).await, 0, "{ended:?}");
    }

    async fn savepoint_of_db_fails_in_another_task(orm: OrmDb) {
        let shop = Shop::new();
        let ended = orm.db().transaction(async || {
            let inner = orm.begin().await.expect("a savepoint");
            let customer = shop.customer("elsewhere");
            let elsewhere = tokio::spawn(async move { customer.insert(&inner).await });
            let error = elsewhere.await.expect("no panic").expect_err("not its coroutine");
            assert!(cenote_error(&error).is_some(), "{error}");
            Ok(())
        }).await;
        assert_eq!(shop.count(&orm).await, 0, "{ended:?}");
    }

    async fn stream_runs_in_its_transaction(orm: OrmDb) {
        let shop = Shop::new();
        let tx = orm.begin().await.expect("begun");
        for name in ["a", "b", "c"] {
            shop.add(&tx, name).await;
        }
        let mine = customer::Entity::find().filter(customer::Column::Shop.eq(&shop.0));
        let rows: Vec<customer::Model> = {
            let rows = mine.stream(&tx).await.expect("a stream");
            rows.try_collect().await.expect("rows")
        };
        assert_eq!(rows.len(), 3);
        tx.rollback().await.expect("rolled back");
        assert_eq!(shop.count(&orm).await, 0);
    }

    async fn options_are_for_the_outermost_transaction_only(orm: OrmDb) {
        let serializable = Some(IsolationLevel::Serializable);
        let tx: OrmTransaction = orm.begin_with_config(serializable, None).await.expect("begun");
        let error = tx.begin_with_config(serializable, None).await.expect_err("a savepoint");
        assert!(error.to_string().contains("outermost"), "{error}");
    }
}

#[tokio::test]
async fn isolation_level_reaches_the_server() {
    let orm = crate::support::postgres().await;
    let serializable = Some(IsolationLevel::Serializable);
    let tx = orm
        .begin_with_config(serializable, None)
        .await
        .expect("begun");
    let show = Statement::from_string(tx.get_database_backend(), "SHOW transaction_isolation");
    let row = tx
        .query_one_raw(show)
        .await
        .expect("a query")
        .expect("a row");
    let level: String = row.try_get("", "transaction_isolation").expect("text");
    assert_eq!(level, "serializable");
}
