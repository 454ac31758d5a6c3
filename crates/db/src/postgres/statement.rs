//! A prepared statement, and which texts are worth being kept as one.

use std::sync::Arc;

use postgres_types::Type;

use super::protocol::frontend::bind_head;
use super::types::Layout;
use crate::sql::Keyword;

/// A statement that the server has prepared.
#[derive(Debug)]
pub(super) struct Statement {
    /// What the server calls it; empty for the one that the next takes the place of.
    pub(super) name: String,
    pub(super) sql: Box<str>,
    /// The types of its parameters.
    pub(super) params: Vec<Type>,
    pub(super) layout: Arc<Layout>,
    /// The beginning of its Bind, up to the parameters; its length is yet to be written.
    pub(super) bind_head: Box<[u8]>,
    /// The end of its Bind: in which form each column is to come.
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

/// All columns as text, or none there.
pub(super) const ALL_TEXT: &[u8] = &[0, 0];

fn result_formats(layout: &Layout) -> Vec<u8> {
    let count = u16::try_from(layout.shapes.len()).unwrap_or(u16::MAX);
    let mut formats = count.to_be_bytes().to_vec();
    for shape in &layout.shapes {
        formats.extend(u16::from(shape.is_binary()).to_be_bytes());
    }
    formats
}

/// Whether the server plans a text that begins so: then keeping it pays. All else may mean something else each time: a
/// FETCH and an EXECUTE have the rows of whatever goes by that name when they are run.
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
    fn only_what_the_server_plans_is_kept() {
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
