#![doc = include_str!("../README.md")]
// All unsafe code is in one file of the ODBC driver, `odbc/handle.rs`.
#![cfg_attr(not(feature = "odbc"), forbid(unsafe_code))]
#![cfg_attr(feature = "odbc", deny(unsafe_code))]

mod api;
mod binding;
mod call;
#[cfg(feature = "check")]
pub mod checked_sql;
mod checked_sql_macro;
mod config;
mod coroutine;
pub mod driver;
mod error;
pub mod guide;
mod hosts;
mod lane;
pub mod listen;
#[cfg(feature = "migrate")]
pub mod migrate;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "odbc")]
pub mod odbc;
mod pooled;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod replicas;
mod sandbox;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod sync;
mod types;

#[doc(hidden)]
pub use self::lane::eager::{eagerly_shared_reads, share_eagerly};
pub use cenote_pool as pool;
/// For [`sql!`].
#[cfg(feature = "check")]
#[doc(hidden)]
pub use inventory;
#[doc(no_inline)]
pub use serde::de::DeserializeOwned;

pub use crate::api::batch::{BatchEntry, BatchResults, StatementBatch};
pub use crate::api::builder::Builder;
pub use crate::api::connection::{Connection, Pinned};
pub use crate::api::db::{Binding, Db};
pub use crate::api::executor::{CallOptions, Executor};
pub use crate::api::shared_connections::SharedConnections;
pub use crate::api::statement::Statement;
pub use crate::api::stream::RowStream;
pub use crate::api::transaction::Transaction;
pub use crate::api::transaction_options::TransactionOptions;
pub use crate::binding::writers::{QueueReason, QueuedCall};
pub use crate::config::secret::{CredentialProvider, Credentials, Secret};
pub use crate::config::{DbConfig, ResetPolicy};
pub use crate::coroutine::{
    Coroutine, CoroutineId, Detached, Scope, current, detached, scope, spawn,
};
pub use crate::driver::{Isolation, Outcome, Violation};
pub use crate::error::{Error, Kind, Result};
pub use crate::hosts::{HostState, HostStatus};
pub use crate::pooled::activity::{ConnectionHolder, HolderStatement, PinReason, StatementWatch};
pub use crate::pooled::connection::PooledConnection;
pub use crate::pooled::manager::ConnectionManager;
pub use crate::pooled::statement_events::{StatementEvent, StatementSubscription};
pub use crate::pooled::statement_timings::DbTimings;
pub use crate::replicas::{Position, PrimaryReads, ReplicaProblem, ReplicaStatus};
pub use crate::sandbox::Sandbox;
pub use crate::types::de::from_row;
pub use crate::types::params::{IntoParam, IntoParams, Named, Params, list, native};
pub use crate::types::row::{Column, ColumnIndex, Columns, RawCell, Row};
#[cfg(feature = "json")]
pub use crate::types::value::Json;
pub use crate::types::value::{ArrayElement, ConvertError, Date, DateTime, FromValue, Time, Value};

/// Compiles the examples of the repository's front page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
