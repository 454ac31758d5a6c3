//! What the pools are put through.

pub mod crowd;
pub mod one;
pub mod threads;
pub mod waiting;

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A pool that needs this much longer than it was given hangs.
const GRACE: Duration = Duration::from_secs(5);

/// A Tokio runtime with timers, which some pools cannot do without, and without
/// sockets, which none needs here.
fn runtime(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_time().build();
    runtime.expect("a runtime")
}

/// Ends a runtime, so that the next measurement has the machine to itself; one
/// that is stuck is left behind.
fn end(runtime: Runtime, stuck: bool) {
    if stuck {
        runtime.shutdown_background();
    } else {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
