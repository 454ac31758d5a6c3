//! The connection that the pool keeps, the pool's hooks, and the state that all users of a handle share.

pub(crate) mod activity;
pub(crate) mod connection;
pub(crate) mod handle;
pub(crate) mod manager;
pub(crate) mod shared;
pub(crate) mod statement_events;
pub(crate) mod statement_log;
pub(crate) mod statement_timings;
