//! A complete driver for a small server that keeps notes.
//!
//! [`Notebook`] is the driver, [`Server`] the database. See the README for which file is what.
#![forbid(unsafe_code)]

mod connection;
mod driver;
mod line;
mod rows;
mod server;
mod store;
mod wire;

pub use crate::driver::Notebook;
pub use crate::server::Server;
