//! `DatabaseConnection` on a `Db`.

use cenote_sea_orm::OrmDb;
use sea_orm::prelude::*;
use sea_orm::{DatabaseConnection, TransactionTrait};

use crate::support::{Shop, on_both};

/// Code that names the type of SeaORM.
async fn signed_up(connection: &DatabaseConnection, shop: &Shop, name: &str) -> i32 {
    shop.add(connection, name).await.id
}

on_both! {
    async fn code_that_names_database_connection_runs(orm: OrmDb) {
        let shop = Shop::new();
        let connection = orm.database_connection();
        connection.ping().await.expect("the server answers");
        assert!(signed_up(&connection, &shop, "ada").await > 0);
        assert_eq!(shop.count(&connection).await, 1);
    }

    async fn transactions_of_the_proxy_nest(orm: OrmDb) {
        let shop = Shop::new();
        let connection = orm.database_connection();
        let outer = connection.begin().await.expect("begun");
        shop.add(&outer, "kept").await;
        let inner = outer.begin().await.expect("a savepoint");
        shop.add(&inner, "rolled back").await;
        inner.rollback().await.expect("rolled back");
        {
            let dropped = outer.begin().await.expect("a savepoint");
            shop.add(&dropped, "dropped").await;
        }
        outer.commit().await.expect("committed");
        assert_eq!(shop.count(&orm).await, 1);
    }

    async fn dropped_transaction_of_the_proxy_is_rolled_back(orm: OrmDb) {
        let shop = Shop::new();
        let connection = orm.database_connection();
        let dropped = connection.begin().await.expect("begun");
        shop.add(&dropped, "lost").await;
        drop(dropped);
        assert_eq!(shop.count(&connection).await, 0);
        shop.add(&connection, "kept").await;
        assert_eq!(shop.count(&orm).await, 1);
    }

    async fn transactions_of_two_tasks_do_not_mix(orm: OrmDb) {
        let connection = orm.database_connection();
        let shops = [Shop::new(), Shop::new()];
        let tasks = shops.clone().map(|shop| {
            let connection = connection.clone();
            tokio::spawn(async move {
                let tx = connection.begin().await.expect("begun");
                shop.add(&tx, "ada").await;
                tokio::task::yield_now().await;
                shop.add(&tx, "grace").await;
                match shop.0.ends_with(['1', '3', '5', '7', '9']) {
                    true => tx.commit().await.expect("committed"),
                    false => tx.rollback().await.expect("rolled back"),
                }
            })
        });
        for task in tasks {
            task.await.expect("no panic");
        }
        for shop in shops {
            let kept = shop.0.ends_with(['1', '3', '5', '7', '9']);
            assert_eq!(shop.count(&orm).await, if kept { 2 } else { 0 });
        }
    }
}

#[tokio::test]
async fn failed_commit_of_the_proxy_is_returned_next() {
    let orm = crate::support::postgres().await;
    let connection = orm.database_connection();
    let setup = "DROP TABLE IF EXISTS orm_child, orm_parent;
        CREATE TABLE orm_parent (id int PRIMARY KEY);
        CREATE TABLE orm_child (parent int REFERENCES orm_parent DEFERRABLE INITIALLY DEFERRED)";
    connection.execute_unprepared(setup).await.expect("created");
    let tx = connection.begin().await.expect("begun");
    tx.execute_unprepared("INSERT INTO orm_child VALUES (1)")
        .await
        .expect("checked later");
    tx.commit().await.expect("the proxy cannot tell");
    let error = connection
        .execute_unprepared("SELECT 1")
        .await
        .expect_err("told now");
    assert!(cenote_sea_orm::sql_err(&error).is_some(), "{error}");
    connection
        .execute_unprepared("SELECT 1")
        .await
        .expect("told once");
}
