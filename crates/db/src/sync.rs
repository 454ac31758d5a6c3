//! The locks and atomics of shared connections. `crates/lane_model` replaces this module by loom's, and so models the code of
//! `lane/` itself.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};
