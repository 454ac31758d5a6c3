//! What a server and a network can do to connections: every error has its kind, the pool stays whole, and
//! nothing of one task is seen by another.

mod killed;
mod limits;
mod locks;
#[path = "../../server_faults/mod.rs"]
mod shared;
mod stale;
