//! The clients, each as its documentation says it is used.

pub mod cenote;
pub mod deadpool;
pub mod floor;
pub mod shared;
