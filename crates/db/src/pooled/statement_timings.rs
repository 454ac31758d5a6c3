//! How long statements take: every one is measured.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cenote_pool::{Histogram, LiveHistogram, Runtime, Timings};

use crate::Result;
use crate::call::op::Op;
use crate::pooled::statement_events::StatementEvent;
use crate::pooled::statement_log::StatementLog;

/// The histograms of successful statements. Each connection records into one of them: with one for all, threads would
/// wait for each other's cache lines.
const SHARDS: usize = 8;

/// The live histograms of a handle's statements.
#[derive(Debug)]
pub(crate) struct StatementTimings {
    succeeded: [LiveHistogram; SHARDS],
    failed: LiveHistogram,
    /// The number of connections that have got a shard.
    connections: AtomicUsize,
}

impl StatementTimings {
    pub(crate) fn new() -> Self {
        StatementTimings {
            succeeded: [const { LiveHistogram::new() }; SHARDS],
            failed: LiveHistogram::new(),
            connections: AtomicUsize::new(0),
        }
    }

    /// Returns the shard for a new connection.
    pub(crate) fn next_shard(&self) -> usize {
        // Relaxed: the number orders nothing.
        self.connections.fetch_add(1, Ordering::Relaxed) % SHARDS
    }

    /// Adds the histograms of all shards to those of the pool.
    pub(crate) fn snapshot(&self, pool: Timings) -> DbTimings {
        let mut statements = self.succeeded[0].snapshot();
        for shard in &self.succeeded[1..] {
            statements.add(&shard.snapshot());
        }
        DbTimings {
            statements,
            failed_statements: self.failed.snapshot(),
            pool,
        }
    }
}

/// A request that is being measured. Dropped before its end, it counts as failed.
pub(crate) struct Measuring<'l> {
    log: &'l StatementLog,
    sql: &'l str,
    site: &'static Location<'static>,
    began: Instant,
    shard: usize,
}

impl StatementLog {
    /// Begins to measure a request.
    #[inline]
    pub(crate) fn measure<'l>(
        &'l self,
        sql: &'l str,
        site: &'static Location<'static>,
        shard: usize,
    ) -> Measuring<'l> {
        Measuring {
            log: self,
            sql,
            site,
            began: self.runtime.now(),
            shard,
        }
    }
}

impl Measuring<'_> {
    /// Records nothing: the request runs again elsewhere.
    pub(crate) fn discard(self) {
        let _ = ManuallyDrop::new(self);
    }

    /// Records a request that was answered.
    #[inline]
    pub(crate) fn end<O: Op>(self, answer: &Result<O::Out>) {
        let this = ManuallyDrop::new(self);
        let took = this.record(O::error(answer).is_none());
        if this.log.listeners.any() {
            let (out, error) = (answer.as_ref().ok(), O::error(answer));
            this.tell(StatementEvent {
                rows: out.and_then(O::rows),
                returned_rows: out.and_then(O::returned_rows),
                error,
                ..this.event(took)
            });
        }
    }

    #[inline]
    fn record(&self, succeeded: bool) -> Duration {
        let took = self.log.runtime.now().saturating_duration_since(self.began);
        let timings = &self.log.timings;
        match succeeded {
            true => timings.succeeded[self.shard].record(took),
            false => timings.failed.record(took),
        }
        took
    }

    #[cold]
    fn tell(&self, event: StatementEvent<'_>) {
        self.log.listeners.tell(&event);
    }

    fn event(&self, took: Duration) -> StatementEvent<'_> {
        StatementEvent {
            caller: self.site,
            took,
            rows: None,
            returned_rows: None,
            error: None,
            dropped: false,
            sql: self.sql,
            dialect: self.log.dialect,
        }
    }
}

impl Drop for Measuring<'_> {
    fn drop(&mut self) {
        let took = self.record(false);
        if self.log.listeners.any() {
            self.tell(StatementEvent {
                dropped: true,
                ..self.event(took)
            });
        }
    }
}

/// How long statements, acquires and connects took, as histograms: see [`Db::timings`](crate::Db::timings).
///
/// Every statement counts, once for each time that it was sent. A statement is what the statement log shows: also a
/// prepare, and BEGIN, COMMIT and ROLLBACK. The time begins when the request is given to the connection, so it does not
/// contain the wait for a connection; the time of a stream ends when its first answer has arrived.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DbTimings {
    /// Statements that succeeded.
    pub statements: Histogram,
    /// Statements that failed, exceeded their time limit, or were dropped before their answer.
    pub failed_statements: Histogram,
    /// Acquires, connects and uses of connections.
    pub pool: Timings,
}
