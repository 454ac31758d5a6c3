//! The layers over real services and a real database.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod coroutine;
mod lazy;
mod position;
mod sandbox;
mod support;
mod transaction;
