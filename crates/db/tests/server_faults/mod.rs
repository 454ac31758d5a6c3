//! What every server can do to connections: `mysql_faults` and `postgres_faults` both try it.

pub(crate) mod bytes;
pub(crate) mod killed;
mod restarts;
