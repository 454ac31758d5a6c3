#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fake;
pub mod poll;
mod runtime;
pub mod suite;

pub use crate::fake::{Break, DroppedCalls, Fake, FakeConnection, FakeDriver};
pub use crate::runtime::ManualRuntime;
