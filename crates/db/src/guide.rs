//! The guide: how to use Cenote, and how to migrate from other libraries.
//!
//! | page | for whom |
//! |---|---|
//! | [`styles`] | everybody: the three ways to run SQL, what each guarantees, and common mistakes |
//! | [`errors`] | everybody: what each error means, what to do about it, what is safe to log |
//! | [`sqlite`] | users of SQLite: how it differs, and how Cenote handles that |
//! | [`drivers`] | readers who choose a database: what each driver can do |
//! | [`migrate`](crate::migrate) | readers whose program manages its schema: migrations |
//! | [`own_driver`] | readers who need another database: how to write a driver |
//! | [`from_sqlx`] | readers who know sqlx |
//! | [`from_deadpool`] | readers who know deadpool or deadpool-postgres |
//! | [`from_pdo`] | readers who know PHP's PDO, or TrueAsync's pool for it |
//!
//! Every Rust example on these pages runs as a test.

#[doc = include_str!("../docs/styles.md")]
pub mod styles {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("../docs/sqlite.md")]
pub mod sqlite {}

#[doc = include_str!("../docs/drivers.md")]
pub mod drivers {}

#[doc = include_str!("../docs/own_driver.md")]
pub mod own_driver {}

#[doc = include_str!("../docs/from_sqlx.md")]
pub mod from_sqlx {}

#[doc = include_str!("../docs/from_deadpool.md")]
pub mod from_deadpool {}

#[doc = include_str!("../docs/from_pdo.md")]
pub mod from_pdo {}
