//! The guide: how to use it, and how to come here from elsewhere.
//!
//! | page | for whom |
//! |---|---|
//! | [`styles`] | everybody: the three ways to run SQL, what each guarantees, and the mistakes one makes |
//! | [`sqlite`] | users of SQLite: what is different about it, and what is done about that |
//! | [`drivers`] | those who choose a database: what each driver can do |
//! | [`migrate`](crate::migrate) | those whose program brings its schema: migrations |
//! | [`own_driver`] | those whose database is not among them: how to write a driver |
//! | [`from_sqlx`] | those who know sqlx |
//! | [`from_deadpool`] | those who know deadpool or deadpool-postgres |
//! | [`from_pdo`] | those who know PHP's PDO, or TrueAsync's pool for it |
//!
//! The pages hold no code of their own but examples, and every example in Rust is run as a test.

#[doc = include_str!("../docs/styles.md")]
pub mod styles {}

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
