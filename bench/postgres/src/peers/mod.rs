//! The client libraries, each as its documentation says it is used.

pub mod cenote;
pub mod socket;
pub mod sqlx;
pub mod tokio_postgres;
