//! The inside of a `Db`: its pool and the shared state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_pool::{Pool, Runtime};

use crate::config::DbConfig;
use crate::lane::Lanes;
use crate::listen::Hub;
use crate::pooled::connection::PooledConnection;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::shared::Shared;
use crate::replicas::Replicas;

pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Pool<ConnectionManager>,
    pub(crate) config: DbConfig,
    /// Receives notifications, on a connection outside of the pool.
    pub(crate) hub: Hub,
    /// The replicas, if there are any.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// The driver's name.
    pub(crate) driver: &'static str,
    /// When idle connections may be checked early again, by the coarse clock.
    pub(crate) next_check: AtomicU64,
    /// The connections that short reads share, if the program has asked for that.
    pub(crate) lanes: Option<Arc<Lanes>>,
}

/// The time between two early checks, in nanoseconds of the coarse clock.
const CHECK_INTERVAL: u64 = 1_000_000_000;

impl Handle {
    /// Refuses new calls, and ends what runs beside the pool.
    pub(crate) fn close(&self) {
        self.shared.close();
        self.hub.close();
        if let Some(replicas) = &self.replicas {
            replicas.close();
        }
        if let Some(hosts) = self.pool.manager().template.hosts() {
            hosts.close();
        }
    }

    /// Returns whether another read may join those that are in flight on the connection.
    pub(crate) fn may_share(&self, connection: &PooledConnection) -> bool {
        !self.pool.is_closed() && self.pool.manager().may_share(connection)
    }

    /// Has the idle connections checked if the acquired connection has answered often enough. Every acquire ends with it.
    #[inline]
    pub(crate) fn check_idle_if_due(&self, acquired: &mut PooledConnection) {
        if acquired.take_check_due() {
            self.check_idle();
        }
    }

    /// Starts a check of the idle connections, at most once a second: without it, a dead idle connection stays
    /// unnoticed until its next use.
    #[cold]
    fn check_idle(&self) {
        let now = self.shared.runtime.coarse_now();
        // Relaxed: the thread that changes the time runs the check, and one check too many is harmless.
        let next = self.next_check.load(Ordering::Relaxed);
        let after = now.saturating_add(CHECK_INTERVAL);
        let order = Ordering::Relaxed;
        if now >= next
            && self
                .next_check
                .compare_exchange(next, after, order, order)
                .is_ok()
        {
            self.pool.check_idle();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(replicas) = &self.replicas {
            replicas.close();
        }
        if let Some(hosts) = self.pool.manager().template.hosts() {
            hosts.close();
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Db")
            .field("driver", &self.driver)
            .field("address", &self.pool.manager().template.address())
            .field("status", &self.pool.status())
            .field("listening", &self.hub)
            .finish_non_exhaustive()
    }
}
