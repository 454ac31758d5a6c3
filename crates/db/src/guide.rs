//! The guide: how to use Cenote, and how to migrate from other libraries.
//!
//! | page | for whom |
//! |---|---|
//! | [`styles`] | everybody: the three ways to run SQL, what each guarantees, and common mistakes |
//! | [`errors`] | everybody: what each error means, what to do about it, what is safe to log |
//! | [`bulk_loading`] | readers who write many rows: `exec_many`, `query_many`, and what happens if a set fails |
//! | [`batches`] | readers who want fewer round trips: several statements of one task at once, each with its own result |
//! | [`shared_connections`] | users of PostgreSQL: many tasks on few connections, what it means and when it pays |
//! | [`sqlite`] | users of SQLite: how it differs, and how Cenote handles that |
//! | [`copy`] | users of PostgreSQL: many rows at once, in and out |
//! | [`listen`] | users of PostgreSQL: notifications, for caches and job queues |
//! | [`web_service`] | readers who write a web service on PostgreSQL |
//! | [`outgrowing`] | readers with several servers: failover, reads on replicas, and what each engine needs |
//! | [`type_features`] | readers who use chrono, uuid or rust_decimal: which features they need |
//! | [`parameter_types`] | users of PostgreSQL: when to write `?::type` |
//! | [`pool_size`] | everybody: how many connections a pool should have, and how to measure it |
//! | [`drivers`] | readers who choose a database: what each driver can do |
//! | [`migrate`](crate::migrate) | readers whose program manages its schema: migrations |
//! | [`testing`] | readers who test a service: sandboxes, a database for each test, checked SQL |
//! | [`own_driver`] | readers who need another database: how to write a driver |
//! | [`from_sqlx`] | readers who know sqlx |
//! | [`from_deadpool`] | readers who know deadpool or deadpool-postgres |
//! | [`from_bb8`] | readers who know bb8 |
//! | [`from_sea_orm`] | readers who know SeaORM |
//! | [`from_diesel`] | readers who know diesel |
//! | [`from_pdo`] | readers who know PHP's PDO, or TrueAsync's pool for it |
//!
//! Every Rust example on these pages runs as a test; those of [`listen`] run against a server, in the tests of this crate.

#[doc = include_str!("../docs/styles.md")]
pub mod styles {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("../docs/bulk_loading.md")]
pub mod bulk_loading {}

#[doc = include_str!("../docs/batches.md")]
pub mod batches {}

#[doc = include_str!("../docs/shared_connections.md")]
pub mod shared_connections {}

#[doc = include_str!("../docs/sqlite.md")]
pub mod sqlite {}

#[cfg_attr(feature = "postgres", doc = include_str!("../docs/copy.md"))]
#[cfg_attr(
    not(feature = "postgres"),
    doc = "COPY of PostgreSQL: needs the feature `postgres`."
)]
pub mod copy {}

#[doc = include_str!("../docs/listen.md")]
pub mod listen {}

#[cfg_attr(
    all(
        feature = "migrate",
        feature = "json",
        feature = "chrono",
        feature = "uuid",
        feature = "decimal"
    ),
    doc = include_str!("../docs/web_service.md")
)]
/// <!-- Its examples need the features migrate, json, chrono, uuid and decimal. -->
pub mod web_service {}

#[cfg_attr(
    all(
        feature = "sqlite",
        feature = "json",
        feature = "chrono",
        feature = "uuid",
        feature = "decimal"
    ),
    doc = include_str!("../docs/type_features.md")
)]
/// <!-- Its example needs the features sqlite, json, chrono, uuid and decimal. -->
pub mod type_features {}

#[doc = include_str!("../docs/parameter_types.md")]
pub mod parameter_types {}

#[doc = include_str!("../docs/pool_size.md")]
pub mod pool_size {}

#[doc = include_str!("../docs/outgrowing.md")]
pub mod outgrowing {}

#[doc = include_str!("../docs/drivers.md")]
pub mod drivers {}

#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/own_driver.md")]
pub mod own_driver {}

#[doc = include_str!("../docs/from_sqlx.md")]
pub mod from_sqlx {}

#[doc = include_str!("../docs/from_deadpool.md")]
pub mod from_deadpool {}

#[doc = include_str!("../docs/from_bb8.md")]
pub mod from_bb8 {}

#[doc = include_str!("../docs/from_sea_orm.md")]
pub mod from_sea_orm {}

#[doc = include_str!("../docs/from_diesel.md")]
pub mod from_diesel {}

#[doc = include_str!("../docs/from_pdo.md")]
pub mod from_pdo {}
