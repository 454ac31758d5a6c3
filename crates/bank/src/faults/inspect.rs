//! A quiet moment: nobody is at work, and everything is looked at.

use std::sync::Arc;
use std::time::Duration;

use cenote::{Kind, Result};
use tokio::time::{Instant, interval};

use super::dialect::{Backends, Dialect};
use super::stage::STATEMENTS;
use crate::bank;
use crate::check::PoolState;
use crate::figures::money;
use crate::ledger;
use crate::shift::Desk;

/// How long whatever is not right may take to become so.
const SETTLING: Duration = Duration::from_secs(15);
/// What an office keeps, at most, beside the connections of the bank.
const OFFICE_STATEMENTS: usize = 64;

/// What a check is called, and what it found wrong.
pub(crate) type Wrong = (&'static str, String);

/// Looks at everything when all is quiet.
#[derive(Debug)]
pub(crate) struct Inspector {
    desk: Arc<Desk>,
    dialect: Dialect,
    /// Nobody else has sessions on this server.
    alone: bool,
    /// So many transfers were compared already.
    compared: usize,
}

impl Inspector {
    pub(crate) fn new(desk: Arc<Desk>, dialect: Dialect, alone: bool) -> Self {
        Inspector {
            desk,
            dialect,
            alone,
            compared: 0,
        }
    }

    /// Looks at everything; at the transfers that are new since the last time.
    pub(crate) async fn look(&mut self) -> Vec<Wrong> {
        let mut wrong = self.look_at_places().await;
        let after = self.compared;
        wrong.extend(self.look_at_books(after).await);
        if let Some(trial) = self.desk.trial() {
            self.compared = trial.ledger.len();
        }
        wrong
    }

    /// Looks at everything, and at all transfers from the first on.
    pub(crate) async fn look_at_all(&mut self) -> Vec<Wrong> {
        let mut wrong = self.look_at_places().await;
        wrong.extend(self.look_at_books(0).await);
        wrong
    }

    /// The pool, and what the server keeps for it.
    async fn look_at_places(&self) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let pool = self.desk.pool_at_rest().await;
        if !is_whole(&pool) {
            wrong.push(("pool", format!("it does not come to rest: {pool:?}")));
            let pool = self.desk.db().pool();
            let holders = pool.map(|pool| pool.holders()).unwrap_or_default();
            wrong.extend(
                holders
                    .first()
                    .map(|one| ("pool", format!("held: {one:?}"))),
            );
        }
        wrong.extend(self.look_at_server().await);
        wrong.extend(self.look_at_statements().await);
        wrong
    }

    /// As many sessions as the pool has connections, and none of them in a transaction.
    async fn look_at_server(&self) -> Vec<Wrong> {
        if !self.dialect.has_server() {
            return Vec::new();
        }
        let begun = Instant::now();
        let mut looks = interval(Duration::from_millis(20));
        loop {
            looks.tick().await;
            let seen = patiently(async || self.dialect.backends(self.desk.office()).await).await;
            let total = i64::try_from(self.desk.db().status().total).unwrap_or(i64::MAX);
            let wrong = match seen {
                Ok(Backends { total: of, busy: 0 }) if of == total => return Vec::new(),
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

    /// The server keeps no more statements than the connections do.
    async fn look_at_statements(&self) -> Vec<Wrong> {
        let db = self.desk.db();
        let mut held = Vec::new();
        let mut wrong = Vec::new();
        // All idle ones at once, so that each is looked at.
        for _ in 0..db.status().idle {
            held.extend(db.connection().await.ok());
        }
        for connection in &held {
            match self.dialect.prepared(connection).await {
                Ok(kept) => wrong.extend(too_many(kept, STATEMENTS)),
                // One that has just died keeps nothing.
                Err(error) if error.is_connection_lost() => {}
                Err(error) => wrong.push(("statements", format!("it cannot be asked: {error}"))),
            }
        }
        if self.alone {
            let office = self.desk.office();
            let most = held.len() * STATEMENTS + OFFICE_STATEMENTS;
            match patiently(async || self.dialect.prepared_by_all(office).await).await {
                Ok(kept) => wrong.extend(too_many(kept, most)),
                Err(error) => wrong.push(("statements", format!("it cannot be asked: {error}"))),
            }
        }
        wrong
    }

    /// The money, and every single transfer after the first so many.
    async fn look_at_books(&self, after: usize) -> Vec<Wrong> {
        let office = self.desk.office();
        let Some(trial) = self.desk.trial() else {
            return Vec::new();
        };
        let mut wrong = Vec::new();
        let failed = |name, error| vec![(name, format!("it cannot be read: {error}"))];
        match patiently(async || bank::audit(office).await).await {
            Ok(books) if books.sum == self.desk.before() => {}
            Ok(books) => wrong.push(("money", format!("there is {}", money(books.sum)))),
            Err(error) => return failed("money", error),
        }
        let written = match patiently(async || ledger::read(office, after).await).await {
            Ok(written) => written,
            Err(error) => return failed("ledger", error),
        };
        let contradictions = trial.ledger.compare(after, &written);
        wrong.extend(contradictions.into_iter().map(|text| ("ledger", text)));
        if after == 0 {
            match patiently(async || ledger::read_balances(office).await).await {
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

fn is_whole(pool: &PoolState) -> bool {
    let accounted = pool.created == pool.destroyed + pool.total as u64;
    pool.is_at_rest() && pool.total == pool.idle && accounted
}

/// Asks again while the connection is the trouble.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T>) -> Result<T> {
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
