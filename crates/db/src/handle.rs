//! The insides of a `Db`: its pool, and what it shares with everything made from it.

use std::fmt;
use std::sync::Arc;

use cenote_pool::Pool;

use crate::config::DbConfig;
use crate::connections::Connections;
use crate::shared::Shared;

pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Pool<Connections>,
    pub(crate) config: DbConfig,
    /// What the driver is called.
    pub(crate) driver: &'static str,
}

impl fmt::Debug for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Db")
            .field("driver", &self.driver)
            .field("address", &self.pool.manager().template.address())
            .field("status", &self.pool.status())
            .finish_non_exhaustive()
    }
}
