//! What users hold: the handle and its builder, executors, transactions, statements, streams, connections.

pub(crate) mod batch;
pub(crate) mod builder;
pub(crate) mod closure;
pub(crate) mod connection;
#[cfg(feature = "postgres")]
pub(crate) mod copy;
pub(crate) mod db;
pub(crate) mod exchange;
pub(crate) mod executor;
pub(crate) mod lazy;
pub(crate) mod methods;
pub(crate) mod shared_connections;
pub(crate) mod statement;
pub(crate) mod stream;
pub(crate) mod transaction;
pub(crate) mod transaction_options;
