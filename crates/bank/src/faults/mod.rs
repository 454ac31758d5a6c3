//! Faults: while the clients work, the injector kills, cuts, freezes and starves what they work
//! with. At quiet moments in between the inspector examines everything.

mod dialect;
mod failovers;
mod fault;
mod injector;
mod inspector;
mod network;
mod report;
mod server;
mod session_marks;
mod testbed;

use std::sync::Arc;

pub(crate) use self::dialect::{Dialect, SESSIONS};
pub use self::failovers::{ClusterReport, FailoverReport};
pub use self::fault::{FAULTS, Fault};
pub(crate) use self::injector::Injector;
pub use self::report::{ChaosReport, FaultReport};
pub(crate) use self::server::Server;
pub(crate) use self::session_marks::SessionMarks;
pub(crate) use self::testbed::Testbed;
use crate::ledger::Ledger;

/// What clients record in a run with faults.
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) sessions: SessionMarks,
}
