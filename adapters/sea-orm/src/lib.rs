#![doc = include_str!("../README.md")]

mod bind;
mod casts;
mod connection;
mod error;
mod proxy;
mod rows;
mod transaction;

pub use crate::bind::Bind;
pub use crate::connection::{OrmDb, OrmStream};
pub use crate::error::{cenote_error, sql_err};
pub use crate::transaction::OrmTransaction;
