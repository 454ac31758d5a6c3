//! A small shop: how a web service on axum and cenote looks.
//!
//! - [`repository`] has the SQL. Its functions take a `&Db` and know nothing of transactions.
//! - `handlers` turn requests into calls of the repository; `export` streams a table into a body.
//! - [`Error`] says which status a failure is.
//! - [`app`] puts them together; `main.rs` opens the database, listens, and ends in order.
#![forbid(unsafe_code)]

mod app;
mod error;
mod export;
mod handlers;
pub mod repository;
mod schema;

pub use crate::app::{app, routes, with_layers};
pub use crate::error::{Error, Result};
pub use crate::schema::set_up;
