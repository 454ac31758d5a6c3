//! A prepared statement.

use std::sync::Arc;

use super::types::Layout;

/// A statement that the server has prepared.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) handle: mysql_async::Statement,
    /// The layout of its last rows.
    pub(super) layout: Arc<Layout>,
    /// It may change the session, and so the meaning of other statements.
    pub(super) touches_session: bool,
    /// Its verb is one that writes.
    pub(super) writes: bool,
}
