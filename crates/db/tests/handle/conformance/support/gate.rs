//! SQL that stops half-way, so that a test can act meanwhile.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cenote::sqlite::Sqlite;
use tokio::sync::Notify;

/// Runs until it is interrupted. Signals that it has begun.
pub(crate) const ENDLESS: &str = "WITH RECURSIVE up (n) AS (SELECT begun() UNION ALL SELECT n + 1 \
                                  FROM up) SELECT max(n) FROM up";

/// Signals that it has begun, and continues when the gate opens.
pub(crate) const GATED: &str = "SELECT gate()";

/// The test's end of the functions `begun` and `gate`.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    begun: Notify,
    /// How many may still pass.
    passes: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn add_to(driver: Sqlite) -> (Sqlite, Gate) {
        let gate = Gate::default();
        let (begun, gated) = (gate.clone(), gate.clone());
        let driver = driver
            .function("begun", 0, false, move |_| {
                begun.shared.begun.notify_one();
                Ok(1_i64)
            })
            .function("gate", 0, false, move |_| {
                gated.shared.begun.notify_one();
                gated.wait();
                Ok(1_i64)
            });
        (driver, gate)
    }

    /// Blocks the thread of a connection, as SQLite itself would.
    fn wait(&self) {
        let passes = self.shared.passes.lock();
        let passes = passes.unwrap_or_else(PoisonError::into_inner);
        let mut passes = self
            .shared
            .opened
            .wait_while(passes, |passes| *passes == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *passes -= 1;
    }

    /// Waits until a statement has reached one of the functions.
    pub(crate) async fn begun(&self) {
        super::soon("a statement begins", self.shared.begun.notified()).await;
    }

    /// Lets one statement pass.
    pub(crate) fn open(&self) {
        let passes = self.shared.passes.lock();
        *passes.unwrap_or_else(PoisonError::into_inner) += 1;
        self.shared.opened.notify_one();
    }
}
