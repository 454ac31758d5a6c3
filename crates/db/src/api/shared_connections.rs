//! What programs see of shared connections.

use crate::Db;

/// The shared connections of a handle, as [`Db::shared_connections`] shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedConnections {
    /// How many connections are shared now. [`Db::status`] counts each as one in use.
    pub connections: usize,
    /// How many reads are in flight on them.
    pub reads_in_flight: usize,
    /// How many reads have run on shared connections so far.
    pub reads: u64,
}

impl Db {
    /// Returns how many connections are [shared](crate::Builder::share_connections) now, and how many reads run and ran on them; `None`
    /// if the handle shares none.
    pub fn shared_connections(&self) -> Option<SharedConnections> {
        let lanes = self.handle().lanes.as_ref()?;
        let loads = lanes.loads();
        Some(SharedConnections {
            connections: loads.len(),
            reads_in_flight: loads.iter().map(|(_, load)| load).sum(),
            reads: lanes.reads(),
        })
    }
}
