//! A prepared statement, and which texts are worth caching.

use std::sync::Arc;

use postgres_types::Type;

use super::protocol::frontend::bind_head;
use super::types::Layout;
use crate::sql::Keyword;

/// A statement that the server has prepared.
#[derive(Debug)]
pub(super) struct Statement {
    /// Its name on the server; empty for the unnamed statement, which the next one replaces.
    pub(super) name: String,
    pub(super) sql: Box<str>,
    /// The parameter types.
    pub(super) params: Vec<Type>,
    pub(super) layout: Arc<Layout>,
    /// The beginning of its Bind message, up to the parameters, without the length.
    pub(super) bind_head: Box<[u8]>,
    /// The end of its Bind message: the format of each result column.
    pub(super) result_formats: Box<[u8]>,
}

impl Statement {
    pub(super) fn new(name: String, sql: &str, params: Vec<Type>, layout: Arc<Layout>) -> Self {
        let bind_head = bind_head(&name).into();
        let result_formats = result_formats(&layout).into();
        Statement {
            name,
            sql: sql.into(),
            params,
            layout,
            bind_head,
            result_formats,
        }
    }
}

/// All columns as text, or no columns.
pub(super) const ALL_TEXT: &[u8] = &[0, 0];

fn result_formats(layout: &Layout) -> Vec<u8> {
    let count = u16::try_from(layout.shapes.len()).unwrap_or(u16::MAX);
    let mut formats = count.to_be_bytes().to_vec();
    for shape in &layout.shapes {
        formats.extend(u16::from(shape.is_binary()).to_be_bytes());
    }
    formats
}

/// Whether the server plans a text that begins with this verb: only then a prepared statement pays. Other texts may
/// change their meaning: the columns of FETCH and EXECUTE depend on what the name refers to at that time.
pub(super) fn is_planned(verb: Option<Keyword>) -> bool {
    matches!(
        verb,
        Some(
            Keyword::Select
                | Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Merge
                | Keyword::Values
                | Keyword::Table
                | Keyword::With
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, classify};

    #[test]
    fn only_planned_statements_are_cached() {
        for sql in [
            "FETCH 1 FROM c",
            " \n-- SELECT\n/* a /* b */ */ Execute p",
            "--\r\nFETCH c",
            "/**/DEALLOCATE p",
            "CREATE TABLE t AS SELECT 1",
            "SELECTED",
            "/* SELECT",
            "-- SELECT",
            "",
            "/*/",
        ] {
            assert!(!is_planned(classify(&Dialect::POSTGRES, sql).verb), "{sql}");
        }
        for sql in [
            "SELECT 1",
            "/* FETCH */ select 1",
            "(SELECT 1)",
            "; ;WITH a AS (SELECT 1) TABLE a",
            "Insert INTO t VALUES (1)",
            "VALUES(1)",
        ] {
            assert!(is_planned(classify(&Dialect::POSTGRES, sql).verb), "{sql}");
        }
    }
}
