//! Models of `crates/db/src/lane`: who gets which answer, who is woken, and who gives the connection back, in every order of
//! steps. `ci/test.sh loom` runs them.
//!
//! The code of the lanes is compiled here a second time, with loom's locks and atomics. What it uses of the other modules of
//! `cenote` and of the pool is replaced by a few lines in `stand_ins`: a pool of one connection with a queue, a server that
//! answers when the model allows it, and an executor with a thread for each task. So the models do not cover the pool (it
//! has its own), the driver and the sockets. A lane has room for two reads.
#![cfg(all(loom, test))]
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "tests; the models use only a part of the lanes"
)]

// The lanes find the stand-ins under the names of the real modules.
extern crate self as cenote_pool;

#[path = "../../db/src/lane/mod.rs"]
mod lane;
mod models;
mod stand_ins;
mod sync;

pub use self::lane::eager::{eagerly_shared_reads, share_eagerly};
use self::stand_ins::{ResourceId, Result, Runtime, Task, binding, driver, pooled};
