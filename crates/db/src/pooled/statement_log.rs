//! The statement log: every request at level DEBUG, slow ones at level WARN, all with the target `cenote::statement`.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_pool::Runtime;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::Result;
use crate::call::op::Op;
use crate::driver::{BoxFuture, Connection};
use crate::error::rounded;
use crate::pooled::activity::Activities;
use crate::pooled::statement_events::StatementListeners;
use crate::pooled::statement_timings::StatementTimings;
use crate::sql::{Dialect, masked};

/// The target of all events of the log.
macro_rules! target {
    () => {
        "cenote::statement"
    };
}

/// What a handle logs of its statements.
#[derive(Debug)]
pub(crate) struct StatementLog {
    /// A statement that takes this long is logged as slow.
    pub(crate) slow: Option<Duration>,
    pub(crate) dialect: &'static Dialect,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) timings: StatementTimings,
    pub(crate) listeners: StatementListeners,
    pub(crate) activities: Activities,
}

impl StatementLog {
    /// Returns the level from which statements have to be watched. If nobody listens, a statement costs one comparison
    /// with the level of the program's subscriber.
    pub(crate) fn watches_from(&self) -> LevelFilter {
        match self.slow {
            Some(_) => LevelFilter::OFF,
            None => LevelFilter::DEBUG,
        }
    }

    /// Sends a request, and logs it when it is answered or dropped.
    #[cold]
    pub(crate) fn watch<'c, O: Op>(
        &'c self,
        op: &'c O,
        site: &'static Location<'static>,
        on: &'c mut dyn Connection,
    ) -> BoxFuture<'c, Result<O::Out>> {
        self.watch_answer::<O>(op.sql(), site, op.start(on))
    }

    /// Logs a request when it is answered or dropped.
    #[cold]
    pub(crate) fn watch_answer<'c, O: Op>(
        &'c self,
        sql: &'c str,
        site: &'static Location<'static>,
        answer: BoxFuture<'c, Result<O::Out>>,
    ) -> BoxFuture<'c, Result<O::Out>>
    where
        O::Out: 'c,
    {
        let logs_all = tracing::enabled!(target: target!(), Level::DEBUG);
        if sql.is_empty() || (self.slow.is_none() && !logs_all) {
            return answer;
        }
        Box::pin(async move {
            let mut watched = Watched {
                log: self,
                sql,
                site,
                began: self.runtime.now(),
                outcome: "dropped",
                rows: None,
            };
            // A cancel here logs the statement as dropped.
            let answer = answer.await;
            watched.outcome = match O::error(&answer) {
                None => "ok",
                Some(_) => "failed",
            };
            watched.rows = answer.as_ref().ok().and_then(O::rows);
            answer
        })
    }
}

/// A running request. Dropped, it is logged.
struct Watched<'l> {
    log: &'l StatementLog,
    sql: &'l str,
    site: &'static Location<'static>,
    began: Instant,
    outcome: &'static str,
    rows: Option<u64>,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let took = self.log.runtime.now().saturating_duration_since(self.began);
        let is_slow = self.log.slow.is_some_and(|slow| took >= slow);
        let (sql, site, outcome) = (self.shown_sql(), self.site, self.outcome);
        let rows = self.rows.map(tracing::field::display);
        let elapsed = rounded(took);
        match is_slow {
            true => tracing::warn!(
                target: target!(), %elapsed, rows, outcome, caller = %site, "slow statement: {sql}"
            ),
            false => tracing::debug!(
                target: target!(), %elapsed, rows, outcome, caller = %site, "{sql}"
            ),
        }
    }
}

impl Watched<'_> {
    fn shown_sql(&self) -> impl fmt::Display {
        masked(self.log.dialect, self.sql)
    }
}
