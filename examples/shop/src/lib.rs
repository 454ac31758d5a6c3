//! A small shop: how a web service on axum and cenote looks.
//!
//! - [`repository`] has the SQL. Its functions take a `&Db` and know nothing of transactions.
//! - `handlers` turn requests into calls of the repository; `export` streams a table into a body.
//! - [`Error`] says which status a failure is.
//! - [`app`] puts them together, [`serve`] ends in order, and `main.rs` listens.
//! - [`open`] opens the database that a DSN names, SQLite or PostgreSQL, and applies the migrations.
#![forbid(unsafe_code)]

mod app;
mod error;
mod export;
mod handlers;
pub mod repository;
mod schema;
mod server;

pub use crate::app::{app, routes, with_layers};
pub use crate::error::{Error, Result};
pub use crate::schema::{open, set_up};
pub use crate::server::serve;
