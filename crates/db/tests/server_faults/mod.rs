//! What every server can do to connections: `mysql` and `postgres` both try it.

pub(crate) mod bytes;
pub(crate) mod killed;
mod restarts;
