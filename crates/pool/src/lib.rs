#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod alarm;
mod backoff;
mod breaker;
mod builder;
mod check;
mod claims;
mod close;
mod config;
mod core;
mod create;
mod crowd;
mod destroy;
mod error;
mod events;
mod fork;
mod grants;
mod histogram;
mod hooks;
mod idle;
mod info;
mod keeper;
mod lease;
mod log;
mod manager;
mod pool;
mod release;
mod replace;
mod report;
mod retain;
mod runtime;
mod slot;
mod state;
mod status;
mod sync;
mod table;
mod user_code;
mod wait;
mod waiters;

pub use crate::breaker::{
    Advice, BreakerState, ConsecutiveFailures, Failure, FailureRate, PoolId, Report, Strategy,
};
pub use crate::builder::Builder;
pub use crate::config::{Config, Order};
pub use crate::error::{
    AcquireError, CloseError, ConfigError, DestroyError, OpenError, Phase, Timeout,
};
pub use crate::events::{DestroyReason, Event, Events, Hook, Subscription};
pub use crate::histogram::{Histogram, Timings};
pub use crate::hooks::{
    Answer, AsyncHook, DestroyAnswer, FnManager, Informed, InformedHook, ReleaseAnswer, With,
    informed, with,
};
pub use crate::info::Info;
pub use crate::lease::{Lease, OwnedLease, Place};
pub use crate::manager::{Manager, Verdict};
pub use crate::pool::{FnPool, Pool, WeakPool};
#[cfg(feature = "tokio")]
pub use crate::runtime::TokioRuntime;
pub use crate::runtime::{Runtime, Task, ThreadRuntime, within};
pub use crate::status::{Counters, CreationError, Holder, ResourceId, Status};
