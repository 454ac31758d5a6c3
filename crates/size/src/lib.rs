//! How large should a pool be? Measured on a database, with its user's own statements.
//!
//! Clients execute a [`Workload`] through pools of growing size. Throughput grows with the number of connections up to a
//! knee; from there on, further connections only wait inside the database. The knee is the recommended size.
//!
//! | part | what it does |
//! |---|---|
//! | [`workload`] | reads the file of statements |
//! | [`ramp`] | decides which size is measured next: a pure state machine |
//! | [`estimate`](mod@estimate) | finds the knee of noisy samples, and how certain it is |
//! | [`limit`](mod@limit) | names what keeps further connections from doing more |
//! | [`Session`] | measures on a [`Db`](cenote::Db) |
//! | [`Report`] | the result: figures, recommendation, JSON, a page in HTML |
//!
//! The rule for the knee is that of the live page: [`cenote_dashboard::sizing::curve`].
#![forbid(unsafe_code)]

mod advice;
mod cpu;
pub mod estimate;
pub mod limit;
mod measure;
mod page;
pub mod ramp;
mod report;
mod scheduled;
mod server;
mod session;
mod words;
pub mod workload;

pub use crate::advice::Recommendation;
pub use crate::measure::{Sample, Times};
pub use crate::report::{Report, Row};
pub use crate::session::{Error, Options, Session};
pub use crate::workload::{Workload, WorkloadError};
