//! Servers and networks at their worst: each fault is a typed error within its deadline, and
//! the pool is whole afterwards.

mod garbage;
#[path = "../../server_faults/mod.rs"]
mod shared;
mod silence;
mod terminated;
