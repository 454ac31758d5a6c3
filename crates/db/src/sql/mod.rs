//! Scans SQL: finds placeholders, and what a text may do to a session.
//!
//! [`scan`] reads a text once and returns three things: the text to send, the placeholders that need values, and the
//! [`Class`] of the text. [`Dialect`] holds all differences between databases.
//!
//! ```text
//!              ┌─ Lexer ─┐        ┌─> Rewriter ──> text to send, placeholders
//! text ──────> │ Dialect │ tokens ┤
//!              └─────────┘        └─> Classifier ──> Class
//! ```
//!
//! # Placeholders
//!
//! | written | SQLite | PostgreSQL | MySQL, ODBC |
//! |---|---|---|---|
//! | `?` | unchanged | becomes `$1`, `$2` … | unchanged |
//! | `:name` | becomes `?1` … | becomes `$1` … | becomes `?` |
//! | `?1` | unchanged | | |
//! | `$1` | an error | unchanged | |
//! | `@name`, `$name`, `:1` | an error | | |
//!
//! A text uses one kind of placeholder. A name is a letter or `_`, then letters, digits and `_`. Where placeholders have
//! numbers, the same name twice is one placeholder. Strings, quoted identifiers and comments contain no
//! placeholders. Neither are `::`, `:=`, a colon that ends a MySQL label (`again:LOOP`), or one between the bounds of
//! a PostgreSQL slice. In `a[:n]` the colon begins a placeholder; write a slice as `a[ : n]`.
//! In PostgreSQL's PREPARE, CREATE FUNCTION and CREATE PROCEDURE, and in a script of several statements, `$1` is no
//! placeholder: it belongs to the routine or statement that the text defines.
//! Double the question mark of PostgreSQL's operators: `??`, `??|`, `??&`, `@??` arrive as `?`, `?|`, `?&`, `@?`.
//!
//! SQL that does not end properly (a string, a comment) is sent unchanged: the database's error message is better.

#[cfg(feature = "postgres")]
mod arrays;
mod calls;
mod class;
mod compound;
mod copy;
mod dialect;
mod harmless;
mod harmless_postgres;
mod insert;
mod lexer;
mod lists;
#[cfg(feature = "mysql")]
mod marks;
mod masked;
mod notes;
mod placeholders;
mod resolved;
#[cfg(any(test, feature = "postgres"))]
mod rows;
mod scan;
mod scan_cache;
mod session;
mod setting;
mod split;
mod statement;
mod summary;
mod verdict;
mod words;

#[cfg(feature = "postgres")]
pub(crate) use arrays::are_arrays;
pub use class::{Class, Statements, TransactionVerb};
#[cfg(feature = "postgres")]
pub(crate) use copy::ClientCopy;
pub use dialect::{Backslashes, Brackets, Dialect, DoubleQuotes, PlaceholderStyle};
pub(crate) use lists::expand;
#[cfg(feature = "mysql")]
pub(crate) use marks::question_marks;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) use masked::MASK;
pub(crate) use masked::{masked, masked_at};
pub use placeholders::Placeholders;
pub(crate) use resolved::Resolved;
#[cfg(feature = "postgres")]
pub(crate) use rows::RowInsert;
pub(crate) use scan::classify;
pub use scan::{Scanned, scan};
#[cfg(feature = "sqlite")]
pub(crate) use scan_cache::is_remembered;
pub(crate) use scan_cache::{CachedScan, cached_scan, cached_tagged_scan, class};
pub use session::{SessionEffect, SessionFunction};
pub(crate) use split::pieces;
#[cfg(feature = "odbc")]
pub(crate) use split::split;
#[cfg(feature = "migrate")]
pub(crate) use split::{Piece, verbatim};
pub(crate) use summary::{operation, summary};
pub(crate) use words::Keyword;
#[cfg(any(feature = "mysql", feature = "odbc"))]
pub(crate) use words::contains_any;
