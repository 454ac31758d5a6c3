#![doc = include_str!("../README.md")]
// All that is unsafe is in one file of the ODBC driver, `odbc/handle.rs`.
#![cfg_attr(not(feature = "odbc"), forbid(unsafe_code))]
#![cfg_attr(feature = "odbc", deny(unsafe_code))]

mod binding;
mod builder;
mod call;
mod config;
mod connection;
mod connections;
mod contention;
mod coroutine;
mod db;
mod de;
pub mod driver;
mod dsn;
mod error;
mod executed;
pub mod guide;
mod handle;
mod lazy;
mod link;
mod methods;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "odbc")]
pub mod odbc;
mod op;
mod params;
mod place;
#[cfg(feature = "postgres")]
pub mod postgres;
mod row;
mod secret;
mod shared;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod statement;
mod stream;
mod transaction;
mod value;
#[cfg(any(feature = "odbc", feature = "sqlite"))]
mod worker;
mod writers;

pub use cenote_pool as pool;
#[doc(no_inline)]
pub use serde::de::DeserializeOwned;

pub use crate::builder::Builder;
pub use crate::config::{DbConfig, ResetPolicy};
pub use crate::connection::{Connection, Pinned};
pub use crate::connections::Connections;
pub use crate::coroutine::{
    Coroutine, CoroutineId, Detached, Scope, current, detached, scope, spawn,
};
pub use crate::db::{Binding, Db};
pub use crate::de::from_row;
pub use crate::driver::{Isolation, Violation};
pub use crate::error::{Error, Kind, Result};
pub use crate::executed::Executed;
pub use crate::link::Link;
pub use crate::params::{IntoParam, IntoParams, Named, Params, native};
pub use crate::row::{Column, ColumnIndex, Columns, Row};
pub use crate::secret::{CredentialProvider, Credentials, Secret};
pub use crate::statement::Statement;
pub use crate::stream::RowStream;
pub use crate::transaction::{Transaction, TransactionOptions};
#[cfg(feature = "json")]
pub use crate::value::Json;
pub use crate::value::{ConvertError, Date, DateTime, FromValue, Time, Value};

/// The repository's front page, compiled as printed.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
