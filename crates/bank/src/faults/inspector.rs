//! Inspections at quiet moments, when no visit is under way.

use std::sync::Arc;
use std::time::Duration;

use cenote::{Kind, Result};
use tokio::time::{Instant, interval};

use super::dialect::{Backends, Dialect};
use super::testbed::STATEMENTS;
use crate::accounts;
use crate::figures::money;
use crate::ledger;
use crate::workload::Monitor;

/// How long the server may take to settle.
const SETTLING: Duration = Duration::from_secs(15);
/// How many statements the observer keeps, at most.
const OBSERVER_STATEMENTS: usize = 64;

/// The name of a check, and what it found wrong.
pub(crate) type Wrong = (&'static str, String);

/// Examines pool, server and ledger.
#[derive(Debug)]
pub(crate) struct Inspector {
    monitor: Arc<Monitor>,
    dialect: Dialect,
    /// No one else has sessions on this server.
    alone: bool,
    /// One more session asks the primary for its role.
    watched: bool,
    /// How many transfers were compared already.
    compared: usize,
}

impl Inspector {
    pub(crate) fn new(monitor: Arc<Monitor>, dialect: Dialect, alone: bool, watched: bool) -> Self {
        Inspector {
            monitor,
            dialect,
            alone,
            watched,
            compared: 0,
        }
    }

    /// Examines everything, and the transfers since the last inspection.
    pub(crate) async fn inspect(&mut self) -> Vec<Wrong> {
        let mut wrong = self.inspect_pool_and_server().await;
        let after = self.compared;
        wrong.extend(self.inspect_transfers(after).await);
        if let Some(tracking) = self.monitor.tracking() {
            self.compared = tracking.ledger.count();
        }
        wrong
    }

    /// Examines everything, and all transfers.
    pub(crate) async fn inspect_all(&mut self) -> Vec<Wrong> {
        let mut wrong = self.inspect_pool_and_server().await;
        wrong.extend(self.inspect_transfers(0).await);
        wrong
    }

    /// The pool, and the sessions and statements that the server keeps for it.
    async fn inspect_pool_and_server(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let pool = self.monitor.pool_at_rest().await;
        if !pool.is_whole() {
            wrong.push(("pool", format!("it does not come to rest: {pool:?}")));
            let pool = self.monitor.db().pool();
            let holders = pool.map(|pool| pool.holders()).unwrap_or_default();
            wrong.extend(
                holders
                    .first()
                    .map(|one| ("pool", format!("held: {one:?}"))),
            );
        }
        wrong.extend(self.inspect_sessions().await);
        wrong.extend(self.inspect_statements().await);
        wrong
    }

    /// There are as many sessions as connections, and none is in a transaction.
    async fn inspect_sessions(&self) -> Vec<Wrong> {
        if !self.dialect.has_server() {
            return Vec::new();
        }
        let begun = Instant::now();
        let mut ticks = interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            let seen =
                with_retries(async || self.dialect.backends(self.monitor.observer()).await).await;
            let total = i64::try_from(self.monitor.db().status().total).unwrap_or(i64::MAX);
            let wrong = match seen {
                Ok(Backends { total: of, busy: 0 }) if of == total + i64::from(self.watched) => {
                    return Vec::new();
                }
                Ok(Backends { total: of, busy }) => format!(
                    "{of} sessions for {total} connections, {busy} of them in a transaction"
                ),
                Err(error) => format!("it cannot be asked: {error}"),
            };
            if begun.elapsed() > SETTLING {
                return vec![("server", wrong)];
            }
        }
    }

    /// The server keeps no more statements than the connections.
    async fn inspect_statements(&self) -> Vec<Wrong> {
        let db = self.monitor.db();
        let mut held = Vec::new();
        let mut wrong = Vec::new();
        // All idle ones at once, so that each is examined.
        for _ in 0..db.status().idle {
            held.extend(db.connection().await.ok());
        }
        for connection in &held {
            match self.dialect.prepared(connection).await {
                Ok(kept) => wrong.extend(too_many(kept, STATEMENTS)),
                // A dead connection keeps nothing.
                Err(error) if error.is_connection_lost() => {}
                Err(error) => wrong.push(("statements", format!("it cannot be asked: {error}"))),
            }
        }
        if self.alone {
            let observer = self.monitor.observer();
            let most = held.len() * STATEMENTS + OBSERVER_STATEMENTS;
            match with_retries(async || self.dialect.prepared_by_all(observer).await).await {
                Ok(kept) => wrong.extend(too_many(kept, most)),
                Err(error) => wrong.push(("statements", format!("it cannot be asked: {error}"))),
            }
        }
        wrong
    }

    /// The total, and every transfer after the first `after`.
    async fn inspect_transfers(&self, after: usize) -> Vec<Wrong> {
        let observer = self.monitor.observer();
        let Some(tracking) = self.monitor.tracking() else {
            return Vec::new();
        };
        let mut wrong = Vec::new();
        let failed = |name, error| vec![(name, format!("it cannot be read: {error}"))];
        match with_retries(async || accounts::audit(observer).await).await {
            Ok(books) if books.sum == self.monitor.before() => {}
            Ok(books) => wrong.push(("money", format!("there is {}", money(books.sum)))),
            Err(error) => return failed("money", error),
        }
        let written = match with_retries(async || ledger::read(observer, after).await).await {
            Ok(written) => written,
            Err(error) => return failed("ledger", error),
        };
        let contradictions = tracking.ledger.compare(after, &written);
        wrong.extend(contradictions.into_iter().map(|text| ("ledger", text)));
        if after == 0 {
            match with_retries(async || ledger::read_balances(observer).await).await {
                Ok(balances) => {
                    let differ = ledger::balances_agree(&written, &balances);
                    wrong.extend(differ.into_iter().map(|text| ("ledger", text)));
                }
                Err(error) => return failed("ledger", error),
            }
        }
        wrong
    }
}

fn too_many(kept: Option<i64>, most: usize) -> Option<Wrong> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let kept = kept.filter(|kept| *kept > most)?;
    Some((
        "statements",
        format!("the server keeps {kept}, at most {most} are to be"),
    ))
}

/// Retries while the connection fails.
async fn with_retries<T>(ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let mut again = interval(Duration::from_millis(20));
    loop {
        again.tick().await;
        match ask().await {
            Err(error)
                if begun.elapsed() < SETTLING
                    && (error.is_connection_lost() || error.kind() == Kind::Connect) => {}
            answer => return answer,
        }
    }
}
