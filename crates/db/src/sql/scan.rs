//! Reads a text in one pass.

use std::borrow::Cow;

use super::class::{Class, Classifier};
use super::dialect::Dialect;
use super::lexer::Lexer;
use super::placeholders::{Placeholders, Rewriter};
use crate::Result;

/// The result of a [`scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scanned<'a> {
    /// The text to send, with the database's own placeholders. Borrowed if nothing was changed.
    pub sql: Cow<'a, str>,
    /// The placeholders that need values.
    pub placeholders: Placeholders<'a>,
    /// What the text may do to the session and to the transaction.
    pub class: Class,
}

/// Scans a text: finds its placeholders and its class, and rewrites the placeholders for the database.
///
/// Allocates nothing if the placeholders are already the database's own.
///
/// ```
/// use cenote::sql::{Dialect, Placeholders, scan};
///
/// let scanned = scan(&Dialect::POSTGRES, "SELECT ':no' FROM t WHERE a = :a OR b = :a")?;
/// assert_eq!(scanned.sql, "SELECT ':no' FROM t WHERE a = $1 OR b = $1");
/// assert_eq!(scanned.placeholders, Placeholders::Named(vec!["a"]));
/// assert!(!scanned.class.touches_session);
/// # Ok::<(), cenote::Error>(())
/// ```
///
/// # Errors
///
/// [`Kind::Parameters`](crate::Kind::Parameters) if the text mixes kinds of placeholders (the message names two of them),
/// or uses a placeholder of the database that Cenote does not support.
pub fn scan<'a>(dialect: &Dialect, sql: &'a str) -> Result<Scanned<'a>> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut rewriter = Rewriter::new(dialect, sql);
    let mut classifier = Classifier::new(dialect, sql);
    while let Some(token) = lexer.next() {
        rewriter.take(&token)?;
        classifier.take(&token);
    }
    let class = classifier.finish(lexer.had_executable_comment());
    let (text, placeholders) = rewriter.finish(classifier.takes_parameters());
    Ok(Scanned {
        sql: text,
        placeholders,
        class,
    })
}

/// Returns the class of a text, whatever its placeholders are.
pub(crate) fn classify(dialect: &Dialect, sql: &str) -> Class {
    let mut lexer = Lexer::new(dialect, sql);
    let mut classifier = Classifier::new(dialect, sql);
    while let Some(token) = lexer.next() {
        classifier.take(&token);
    }
    classifier.finish(lexer.had_executable_comment())
}
