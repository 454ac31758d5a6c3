//! The client libraries, each as its documentation says it is used.

pub mod cenote;
pub mod mysql_async;
pub mod sqlx;
