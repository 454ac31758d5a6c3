//! The scenarios that are measured.

pub mod crowd;
pub mod one;
pub mod threads;
pub mod waiting;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A pool that takes this much longer than planned counts as hung.
const GRACE: Duration = Duration::from_secs(5);

/// A Tokio runtime with timers, which some pools cannot do without, and without
/// sockets, which none needs here.
fn runtime(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_time().build();
    runtime.expect("a runtime")
}

/// Shuts a runtime down, so that the next measurement has the machine to itself. A
/// hung runtime is leaked.
fn end(runtime: Runtime, stuck: bool) {
    if stuck {
        runtime.shutdown_background();
    } else {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
