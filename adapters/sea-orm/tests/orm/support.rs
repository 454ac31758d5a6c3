//! Handles on the servers of the tests, and tables in them.

use std::sync::atomic::{AtomicU32, Ordering};

use cenote::Db;
use cenote_sea_orm::OrmDb;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityTrait, PaginatorTrait, QueryFilter,
    Schema, Set,
};
use tokio::sync::OnceCell;

use crate::entities::{customer, sample};

static POSTGRES: OnceCell<()> = OnceCell::const_new();
static MARIADB: OnceCell<()> = OnceCell::const_new();
static SHOPS: AtomicU32 = AtomicU32::new(1);

pub(crate) async fn postgres() -> OrmDb {
    open("CENOTE_TEST_POSTGRES", "ci/postgres.sh", &POSTGRES).await
}

pub(crate) async fn mariadb() -> OrmDb {
    open("CENOTE_TEST_MARIADB", "ci/mariadb.sh", &MARIADB).await
}

async fn open(variable: &str, script: &str, tables: &OnceCell<()>) -> OrmDb {
    let dsn = std::env::var(variable);
    let dsn = dsn.unwrap_or_else(|_| panic!("no {variable}: run the tests inside {script} run"));
    let db = Db::builder(&dsn)
        .max(4)
        .open()
        .await
        .expect("the server is up");
    let orm = OrmDb::new(db).expect("a database that SeaORM knows");
    tables.get_or_init(async || create_tables(&orm).await).await;
    orm
}

async fn create_tables(orm: &OrmDb) {
    let schema = Schema::new(orm.get_database_backend());
    for table in ["orm_customer", "orm_sample"] {
        orm.execute_unprepared(&format!("DROP TABLE IF EXISTS {table}"))
            .await
            .expect("dropped");
    }
    let customer = schema.create_table_from_entity(customer::Entity);
    orm.execute(&customer).await.expect("created");
    let sample = schema.create_table_from_entity(sample::Entity);
    orm.execute(&sample).await.expect("created");
}

/// The customers of one test.
#[derive(Clone)]
pub(crate) struct Shop(pub(crate) String);

impl Shop {
    pub(crate) fn new() -> Self {
        Shop(format!("shop-{}", SHOPS.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn customer(&self, name: &str) -> customer::ActiveModel {
        customer::ActiveModel {
            shop: Set(self.0.clone()),
            name: Set(format!("{}-{name}", self.0)),
            balance: Set(5_000_000_000),
            active: Set(true),
            ..Default::default()
        }
    }

    pub(crate) async fn add(&self, on: &impl ConnectionTrait, name: &str) -> customer::Model {
        self.customer(name).insert(on).await.expect("inserted")
    }

    pub(crate) async fn count(&self, on: &impl ConnectionTrait) -> u64 {
        let mine = customer::Column::Shop.eq(&self.0);
        customer::Entity::find()
            .filter(mine)
            .count(on)
            .await
            .expect("counted")
    }
}

/// Writes a test for each database.
macro_rules! on_both {
    ($($(#[$doc:meta])* async fn $name:ident($orm:ident: OrmDb) $body:block)+) => {
        $(
            $(#[$doc])*
            mod $name {
                use super::*;

                async fn test($orm: OrmDb) $body

                #[tokio::test]
                async fn on_postgres() {
                    test(crate::support::postgres().await).await;
                }

                #[tokio::test]
                async fn on_mariadb() {
                    test(crate::support::mariadb().await).await;
                }
            }
        )+
    };
}
pub(crate) use on_both;
