#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod breaker;
mod builder;
mod config;
mod core;
mod error;
mod hooks;
mod info;
mod lease;
mod manager;
mod observe;
mod pool;
mod runtime;
mod sync;
mod upkeep;
mod user_code;

pub use crate::acquire::AcquireOptions;
pub use crate::breaker::{
    Advice, BreakerState, ConsecutiveFailures, Failure, FailureRate, PoolId, Report, Strategy,
};
pub use crate::builder::Builder;
pub use crate::config::{Config, Order};
pub use crate::error::{
    AcquireError, CloseError, ConfigError, DestroyError, OpenError, Phase, Timeout, Unavailable,
};
pub use crate::hooks::{
    Answer, AsyncHook, DestroyAnswer, FnManager, Informed, InformedHook, ReleaseAnswer, With,
    informed, with,
};
pub use crate::info::Info;
pub use crate::lease::{Lease, OwnedLease, Place};
pub use crate::manager::{Manager, Verdict};
pub use crate::observe::events::{DestroyReason, Event, Events, Hook, Subscription};
pub use crate::observe::histogram::{Bucket, Histogram, LiveHistogram, Timings};
pub use crate::observe::status::{
    Counters, CreationError, Holder, QueuedAcquire, ResourceId, Status, WaitReason,
};
pub use crate::pool::{FnPool, Pool, WeakPool};
#[cfg(feature = "tokio")]
pub use crate::runtime::TokioRuntime;
pub use crate::runtime::{Runtime, Task, ThreadRuntime, within};
