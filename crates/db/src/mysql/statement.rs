//! A prepared statement.

use std::sync::Arc;

use super::types::Layout;

/// A statement that the server has prepared.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) handle: mysql_async::Statement,
    /// What its rows looked like the last time.
    pub(super) layout: Arc<Layout>,
    /// It may change the session, and with that what other statements mean.
    pub(super) touches_session: bool,
    /// Its first word is one that writes.
    pub(super) writes: bool,
}
