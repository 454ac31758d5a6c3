//! Values, parameters and rows, without a database.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod agree;
mod convert;
mod crates;
mod diagnostics;
#[cfg(feature = "json")]
mod json;
mod moment;
mod params;
mod rows;
mod serde;
#[path = "../values_support/mod.rs"]
mod values_support;
