//! Behaviour of the handle over a real MariaDB, case by case.
//!
//! A test is named by what it promises; the IDs of the rows of the conformance list that it covers
//! stand in its doc comment, and `coverage` checks that none is forgotten. What holds on every server
//! is in `server_conformance`; what is left out is in `README.md`.

mod cache;
mod coverage;
mod errors;
mod handle;
mod lost;
mod queries;
mod session;
#[path = "../../server_conformance/mod.rs"]
mod shared;
mod transactions;

use self::shared::{counts, insert, numbers, shop, shop_with};
