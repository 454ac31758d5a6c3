//! Chaos: while the clients are at work, an actor kills, cuts, freezes and starves whatever they
//! work with; and from time to time all is quiet, and everything is looked at.
//!
//! What the actor does follows from the seed, and so does what each client plans. When the one meets
//! the other does not: a run that failed is repeated with its seed, perhaps more than once.

mod actor;
mod dialect;
mod fault;
mod inspect;
mod network;
mod report;
mod server;
mod sessions;
mod stage;

use std::sync::Arc;

pub(crate) use self::actor::{Actor, Work};
pub(crate) use self::fault::{FAULTS, Fault};
pub(crate) use self::report::ChaosReport;
pub(crate) use self::sessions::Sessions;
pub(crate) use self::stage::Stage;
use crate::ledger::Ledger;

/// What is looked at closely.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) sessions: Sessions,
}
