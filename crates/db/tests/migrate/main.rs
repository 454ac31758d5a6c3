//! Migrations on real databases: each once, in order, whole or not at all, and clear errors.

#![cfg(all(feature = "migrate", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod any;
mod files;
mod killed;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;
mod support;
