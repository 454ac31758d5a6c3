//! Queries, values and streams.

use cenote_sea_orm::{Bind, OrmDb};
use futures_util::TryStreamExt;
use sea_orm::prelude::*;
use sea_orm::sea_query::{ExprTrait, MysqlQueryBuilder, PostgresQueryBuilder, Query};
use sea_orm::{DbBackend, QueryOrder, Set, Statement};

use crate::entities::{customer, document, sample};
use crate::support::{Shop, on_both};

on_both! {
    async fn entities_are_inserted_found_changed_and_deleted(orm: OrmDb) {
        let shop = Shop::new();
        let ada = shop.add(&orm, "ada").await;
        shop.add(&orm, "grace").await;
        assert_eq!((ada.balance, ada.active), (5_000_000_000, true));
        let found = customer::Entity::find_by_id(ada.id).one(&orm).await.expect("a query");
        assert_eq!(found.as_ref(), Some(&ada));

        let mut changed: customer::ActiveModel = ada.clone().into();
        changed.active = Set(false);
        assert!(!changed.update(&orm).await.expect("updated").active);

        let mine = customer::Entity::find().filter(customer::Column::Shop.eq(&shop.0));
        let mut pages = mine.clone().order_by_asc(customer::Column::Id).paginate(&orm, 1);
        assert_eq!(pages.num_pages().await.expect("counted"), 2);
        let first = pages.fetch_and_next().await.expect("a page").expect("rows");
        assert_eq!(first[0].id, ada.id);

        let deleted = ada.delete(&orm).await.expect("deleted");
        assert_eq!(deleted.rows_affected, 1);
        assert_eq!(shop.count(&orm).await, 1);
        assert_eq!(customer::Entity::find_by_id(-1).one(&orm).await.expect("a query"), None);
    }

    async fn several_rows_are_inserted_at_once(orm: OrmDb) {
        let shop = Shop::new();
        let rows = ["a", "b", "c"].map(|name| shop.customer(name));
        customer::Entity::insert_many(rows).exec(&orm).await.expect("inserted");
        assert_eq!(shop.count(&orm).await, 3);
    }

    async fn each_type_comes_back_as_it_was_sent(orm: OrmDb) {
        let model = sample::Model {
            id: 0,
            small: -7,
            big: Some(i64::MIN),
            single: 1.5,
            double: Some(-0.1),
            price: Some("12345.67".parse().expect("a number")),
            note: Some("zażółć".to_owned()),
            bytes: Some(vec![0, 255, 7]),
            day: Some("2026-02-28".parse().expect("a day")),
            hour: Some("23:59:58".parse().expect("a time")),
            moment: Some("2026-02-28T12:30:00".parse().expect("a moment")),
            zoned: Some("2026-02-28T12:30:00+00:00".parse().expect("a moment")),
        };
        let mut active: sample::ActiveModel = model.clone().into();
        active.id = sea_orm::NotSet;
        let mut stored = active.reset_all().insert(&orm).await.expect("inserted");
        let found = sample::Entity::find_by_id(stored.id).one(&orm).await.expect("a query");
        assert_eq!(found.as_ref(), Some(&stored));
        stored.id = 0;
        assert_eq!(stored, model);
    }

    async fn nulls_of_each_type_are_none(orm: OrmDb) {
        let empty = sample::ActiveModel { small: Set(1), single: Set(1.0), ..Default::default() };
        let stored = empty.insert(&orm).await.expect("inserted");
        assert_eq!((stored.big, stored.double, stored.price), (None, None, None));
        assert_eq!((stored.note, stored.bytes), (None, None));
        assert_eq!((stored.day, stored.hour, stored.moment, stored.zoned), (None, None, None, None));
    }

    async fn stream_yields_the_rows_of_an_entity(orm: OrmDb) {
        let shop = Shop::new();
        for number in 0..20 {
            shop.add(&orm, &number.to_string()).await;
        }
        let mine = customer::Entity::find().filter(customer::Column::Shop.eq(&shop.0));
        let mut rows = mine.order_by_asc(customer::Column::Id).stream(&orm).await.expect("a stream");
        let mut names = Vec::new();
        while let Some(row) = rows.try_next().await.expect("a row") {
            names.push(row.name);
        }
        assert_eq!(names.len(), 20);
        assert_eq!(names[19], format!("{}-19", shop.0));
    }

    async fn built_query_of_sea_query_runs_on_db(orm: OrmDb) {
        let shop = Shop::new();
        shop.add(&orm, "ada").await;
        let query = Query::select()
            .column("name")
            .from("orm_customer")
            .and_where(Expr::col("shop").eq(&shop.0))
            .and_where(Expr::col("balance").gt(1_i64))
            .to_owned();
        let (sql, values) = match orm.get_database_backend() {
            DbBackend::MySql => query.build(MysqlQueryBuilder),
            _ => query.build(PostgresQueryBuilder),
        };
        let names: Vec<String> = orm.db().query_scalar(&sql, Bind(values)).await.expect("a query");
        assert_eq!(names, [format!("{}-ada", shop.0)]);
    }

    async fn two_columns_of_one_name_are_an_error(orm: OrmDb) {
        let statement = Statement::from_string(orm.get_database_backend(), "SELECT 1 AS n, 2 AS n");
        let error = orm.query_one_raw(statement).await.expect_err("it would lose a column");
        assert!(error.to_string().contains("two columns \"n\""), "{error}");
    }

    async fn several_statements_run_unprepared(orm: OrmDb) {
        let shop = Shop::new();
        let insert = |name: &str| {
            let shop = &shop.0;
            format!("INSERT INTO orm_customer (shop, name, balance, active) VALUES ('{shop}', '{shop}-{name}', 1, true)")
        };
        let script = format!("{}; {}", insert("a"), insert("b"));
        orm.execute_unprepared(&script).await.expect("both run");
        assert_eq!(shop.count(&orm).await, 2);
    }
}

#[tokio::test]
async fn uuid_and_json_come_back_from_postgres() {
    let orm = crate::support::postgres().await;
    let table =
        sea_orm::Schema::new(DbBackend::Postgres).create_table_from_entity(document::Entity);
    orm.execute_unprepared("DROP TABLE IF EXISTS orm_document")
        .await
        .expect("dropped");
    orm.execute(&table).await.expect("created");
    let stored = document::Model {
        token: Uuid::from_u128(0x1234_5678),
        content: Some(serde_json::json!({ "tags": ["a", null], "n": 1 })),
        settings: serde_json::json!([1, 2]),
    };
    let active: document::ActiveModel = stored.clone().into();
    document::Entity::insert(active)
        .exec(&orm)
        .await
        .expect("inserted");
    let found = document::Entity::find_by_id(stored.token)
        .one(&orm)
        .await
        .expect("a query");
    assert_eq!(found, Some(stored));
}

#[tokio::test]
async fn timestamps_are_utc_if_asked_for() {
    let orm = crate::support::postgres().await.utc_timestamps();
    let statement = Statement::from_string(DbBackend::Postgres, "SELECT 'epoch'::timestamptz AS t");
    let row = orm
        .query_one_raw(statement)
        .await
        .expect("a query")
        .expect("a row");
    let moment: sea_orm::prelude::DateTimeUtc = row.try_get("", "t").expect("UTC");
    assert_eq!(moment.timestamp(), 0);
}

/// PostgreSQL takes a parameter for text where the statement does not determine its type.
#[tokio::test]
async fn bare_parameters_have_the_type_of_their_value() {
    let orm = crate::support::postgres().await;
    let sql = "SELECT $1 AS flag, $2 AS number, $3 AS word, '$1' AS literal, $1 AND $2 > 0 AS both";
    let values: [sea_orm::Value; 3] = [false.into(), 7_i32.into(), "seven".into()];
    let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
    let row = orm
        .query_one_raw(statement)
        .await
        .expect("a query")
        .expect("a row");
    assert_eq!(row.try_get::<bool>("", "flag"), Ok(false));
    assert_eq!(row.try_get::<i32>("", "number"), Ok(7));
    assert_eq!(row.try_get::<String>("", "word"), Ok("seven".to_owned()));
    assert_eq!(row.try_get::<String>("", "literal"), Ok("$1".to_owned()));
    assert_eq!(row.try_get::<bool>("", "both"), Ok(false));
}
