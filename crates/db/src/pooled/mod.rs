//! A connection as the pool keeps it, the hooks that the pool calls, and what all users of a handle share.

pub(crate) mod connection;
pub(crate) mod handle;
pub(crate) mod manager;
pub(crate) mod shared;
pub(crate) mod statement_log;
