//! What errors tell.

use cenote::Kind;
use cenote_sea_orm::{OrmDb, cenote_error, sql_err};
use sea_orm::prelude::*;
use sea_orm::{SqlErr, Statement};

use crate::support::{Shop, on_both};

on_both! {
    async fn violated_constraint_is_told_with_its_sqlstate(orm: OrmDb) {
        let shop = Shop::new();
        shop.add(&orm, "ada").await;
        let error = shop.customer("ada").insert(&orm).await.expect_err("the name is taken");
        assert!(matches!(sql_err(&error), Some(SqlErr::UniqueConstraintViolation(_))), "{error}");
        let inner = cenote_error(&error).expect("the error of cenote");
        assert_eq!(inner.kind(), Kind::Database);
        assert!(inner.is_unique_violation());
        assert!(matches!(inner.sql_state(), Some("23505" | "23000")), "{inner}");
        assert!(inner.sql().is_some_and(|sql| sql.contains("orm_customer")), "{inner}");
    }

    async fn unknown_table_is_no_violation(orm: OrmDb) {
        let statement = Statement::from_string(orm.get_database_backend(), "SELECT * FROM orm_nothing");
        let error = orm.query_all_raw(statement).await.expect_err("no such table");
        assert_eq!(sql_err(&error), None);
        assert!(error.to_string().contains("orm_nothing"), "{error}");
    }
}
