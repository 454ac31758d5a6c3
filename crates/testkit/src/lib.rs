#![doc = include_str!("../README.md")]
#![doc = "\n## A complete driver\n\n```"]
#![doc = include_str!("../examples/notes.rs")]
#![doc = "```"]
#![forbid(unsafe_code)]

mod fake;
pub mod poll;
pub mod proxy;
mod runtime;
pub mod suite;

pub use crate::fake::{Break, DroppedCalls, Fake, FakeConnection, FakeDriver};
pub use crate::runtime::ManualRuntime;
