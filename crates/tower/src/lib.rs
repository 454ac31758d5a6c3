#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod coroutine;
mod future;
mod position;
mod transaction;

pub use crate::body::CoroutineBody;
pub use crate::coroutine::{CoroutineLayer, CoroutineService};
pub use crate::future::ResponseFuture;
pub use crate::position::{POSITION_HEADER, PositionLayer};
pub use crate::transaction::{
    TransactionFuture, TransactionLayer, TransactionService, Verdict, commit_2xx_and_3xx,
};
