//! SQL text: its placeholders, and what it may do to a session.
//!
//! [`scan`] reads a text once and gives three things: the text to send, the placeholders
//! that need values, and the [`Class`] of the text. What differs between databases stands
//! in one table, [`Dialect`].
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
//! | `?` | as it is | becomes `$1`, `$2` … | as it is |
//! | `:name` | becomes `?1` … | becomes `$1` … | becomes `?` |
//! | `?1` | as it is | | |
//! | `$1` | an error | as it is | |
//! | `@name`, `$name`, `:1` | an error | | |
//!
//! One text uses one kind. A name is a letter or `_`, then letters, digits and `_`; where
//! placeholders have numbers, the same name twice is one of them. What stands in strings,
//! quoted identifiers and comments is never a placeholder; nor are `::`, `:=`, a colon that
//! ends a MySQL label (`again:LOOP`), or one between the bounds of a PostgreSQL slice.
//! In `a[:n]` the colon begins a placeholder: as a slice, write `a[ : n]`.
//! In PostgreSQL's PREPARE, CREATE FUNCTION and CREATE PROCEDURE, and in a script of several statements,
//! `$1` is none: it belongs to what the text defines.
//! PostgreSQL's operators with a question mark are written with two: `??`, `??|`, `??&`,
//! `@??` arrive as `?`, `?|`, `?&`, `@?`.
//!
//! SQL that does not end properly (a string, a comment) is passed on as it is: the
//! database has the better error message.

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
mod notes;
mod placeholders;
mod plan;
mod resolved;
mod scan;
mod session;
mod setting;
#[cfg(any(feature = "odbc", feature = "migrate"))]
mod split;
mod statement;
mod verdict;
mod words;

pub use class::{Class, Statements, TransactionVerb};
pub use dialect::{Backslashes, Brackets, Dialect, DoubleQuotes, PlaceholderStyle};
pub(crate) use lists::{Origin, expand};
#[cfg(feature = "mysql")]
pub(crate) use marks::question_marks;
pub use placeholders::Placeholders;
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "odbc"
))]
pub(crate) use plan::class;
#[cfg(feature = "sqlite")]
pub(crate) use plan::is_remembered;
pub(crate) use plan::{Plan, plan, tagged_plan};
#[cfg(feature = "postgres")]
pub(crate) use resolved::Resolved;
#[cfg(any(test, feature = "sqlite", feature = "odbc"))]
pub(crate) use scan::classify;
pub use scan::{Scanned, scan};
pub use session::{SessionEffect, SessionFunction};
#[cfg(feature = "odbc")]
pub(crate) use split::split;
#[cfg(feature = "migrate")]
pub(crate) use split::{Piece, pieces, verbatim};
#[cfg(any(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "odbc"
))]
pub(crate) use words::Keyword;
#[cfg(any(feature = "mysql", feature = "odbc"))]
pub(crate) use words::contains_any;
