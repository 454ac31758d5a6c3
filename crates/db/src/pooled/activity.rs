//! What each connection does, for [`Db::holders`](crate::Db::holders): what pins it, and its last statement.
//!
//! A pinned connection is always known. A statement's text is copied only while a
//! [`StatementWatch`](crate::StatementWatch) lives.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cenote_pool::{Holder, ResourceId};

use crate::binding::Bound;
use crate::pooled::statement_log::StatementLog;
use crate::sql::{Dialect, masked, summary};

/// The most bytes of a statement that are copied. What they show is shorter.
const LONGEST: usize = 1024;

/// The most texts whose description is kept.
const MOST_DESCRIBED: usize = 256;

/// A connection in use: see [`Db::holders`](crate::Db::holders).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionHolder {
    /// The connection.
    pub connection: ResourceId,
    /// The line that took the connection: of the call, or of the beginning of the transaction.
    pub caller: &'static Location<'static>,
    /// How long it has been in use, exact to a few milliseconds.
    pub held_for: Duration,
    /// What pins it; `None` if it is taken for one call.
    pub pin: Option<PinReason>,
    /// The statement that it runs, or ran last in this use. Known while a [`StatementWatch`] lives.
    pub statement: Option<HolderStatement>,
    /// How many reads are in flight on it, if several tasks [share](crate::Builder::share_connections) it; otherwise 0.
    pub shared_by: usize,
}

/// What pins a connection. If several things do, the first of this list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum PinReason {
    /// An open transaction.
    Transaction,
    /// A live [`Statement`](crate::Statement) or stream.
    Statement,
    /// [`Db::pin`](crate::Db::pin) or [`Db::connection`](crate::Db::connection).
    Explicit,
    /// The session was changed.
    Session,
}

impl fmt::Display for PinReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            PinReason::Transaction => "transaction",
            PinReason::Statement => "live statement",
            PinReason::Explicit => "connection() or pin()",
            PinReason::Session => "changed session",
        })
    }
}

/// A statement of a [`ConnectionHolder`]. It contains no literal and no parameter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HolderStatement {
    /// What it does: `SELECT orders customers`. Empty if the text begins with no known word.
    pub summary: Arc<str>,
    /// Its text in one line of at most 120 characters, with `***` in place of every string and number.
    pub text: Arc<str>,
    /// The line that made the call.
    pub caller: &'static Location<'static>,
    /// It was not answered yet.
    pub running: bool,
    /// How long ago it was sent, exact to a few milliseconds.
    pub age: Duration,
}

/// Makes [`Db::holders`](crate::Db::holders) know statements while it lives: see
/// [`Db::watch_statements`](crate::Db::watch_statements). It does not keep the handle open.
#[derive(Debug)]
#[must_use = "a watch that is dropped ends"]
pub struct StatementWatch(Weak<StatementLog>);

impl StatementWatch {
    pub(crate) fn new(log: &Arc<StatementLog>) -> Self {
        // Relaxed: a statement that begins meanwhile may be missed.
        log.activities.watches.fetch_add(1, Ordering::Relaxed);
        StatementWatch(Arc::downgrade(log))
    }
}

impl Drop for StatementWatch {
    fn drop(&mut self) {
        if let Some(log) = self.0.upgrade() {
            log.activities.watches.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What the connections of a handle do.
#[derive(Default)]
pub(crate) struct Activities {
    watches: AtomicUsize,
    all: Mutex<Vec<Weak<Activity>>>,
    described: Mutex<HashMap<Box<str>, Described>>,
}

#[derive(Clone)]
struct Described {
    summary: Arc<str>,
    text: Arc<str>,
}

impl Activities {
    #[inline]
    pub(crate) fn are_watched(&self) -> bool {
        self.watches.load(Ordering::Relaxed) > 0
    }

    /// Returns what a new connection does.
    pub(crate) fn register(&self) -> Arc<Activity> {
        let activity = Arc::new(Activity::default());
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&activity));
        activity
    }

    /// Adds what is known about the connections to the holders of the pool. `now` is the time by the coarse clock.
    pub(crate) fn describe(
        &self,
        holders: Vec<Holder>,
        dialect: &Dialect,
        now: u64,
    ) -> Vec<ConnectionHolder> {
        let all: HashMap<u64, Arc<Activity>> = lock(&self.all)
            .iter()
            .filter_map(Weak::upgrade)
            .map(|activity| (activity.connection.load(Ordering::Relaxed), activity))
            .collect();
        let described = holders.into_iter().map(|holder| {
            let activity = all.get(&holder.resource.get());
            // Taken out of the lock before the connection's own lock is taken.
            let bound = activity.and_then(|activity| lock(&activity.now).bound.upgrade());
            ConnectionHolder {
                connection: holder.resource,
                caller: holder.caller,
                held_for: holder.held_for,
                pin: bound.and_then(|bound| bound.pin_reason()),
                statement: activity.and_then(|it| self.statement(it, dialect, now)),
                shared_by: 0,
            }
        });
        described.collect()
    }

    fn statement(
        &self,
        activity: &Activity,
        dialect: &Dialect,
        now: u64,
    ) -> Option<HolderStatement> {
        let doing = lock(&activity.now);
        let caller = doing.caller.filter(|_| self.are_watched())?;
        let described = self.text(&doing.sql, dialect);
        Some(HolderStatement {
            summary: described.summary,
            text: described.text,
            caller,
            running: doing.running,
            age: Duration::from_nanos(now.saturating_sub(doing.began)),
        })
    }

    /// Describes a text. A program has few of them, and is asked for them often.
    fn text(&self, sql: &str, dialect: &Dialect) -> Described {
        let mut known = lock(&self.described);
        if let Some(described) = known.get(sql) {
            return described.clone();
        }
        let described = Described {
            summary: summary(dialect, sql).text.into(),
            text: masked(dialect, sql).into(),
        };
        if known.len() == MOST_DESCRIBED {
            known.clear();
        }
        known.insert(sql.into(), described.clone());
        described
    }
}

impl fmt::Debug for Activities {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Texts may contain secrets.
        out.debug_struct("Activities").finish_non_exhaustive()
    }
}

/// What one connection does.
#[derive(Default)]
pub(crate) struct Activity {
    /// The number of the connection in its pool; 0 until it is known.
    connection: AtomicU64,
    now: Mutex<Doing>,
}

#[derive(Default)]
struct Doing {
    /// What pins the connection, if anything does.
    bound: Weak<Bound>,
    /// The line of the last statement; `None` if none was noted since the connection was taken.
    caller: Option<&'static Location<'static>>,
    /// The first bytes of its text.
    sql: String,
    /// When it was sent, by the coarse clock.
    began: u64,
    running: bool,
}

impl Activity {
    #[cold]
    pub(crate) fn set_connection(&self, connection: ResourceId) {
        self.connection.store(connection.get(), Ordering::Relaxed);
    }

    pub(crate) fn set_bound(&self, bound: Weak<Bound>) {
        let old = std::mem::replace(&mut lock(&self.now).bound, bound);
        // After the lock.
        drop(old);
    }

    /// Notes a statement that is about to be sent.
    #[cold]
    pub(crate) fn begin(&self, sql: &str, caller: &'static Location<'static>, now: u64) {
        let mut doing = lock(&self.now);
        doing.sql.clear();
        doing.sql.push_str(beginning(sql));
        doing.caller = Some(caller);
        doing.began = now;
        doing.running = true;
    }

    /// Notes the answer.
    #[cold]
    pub(crate) fn end(&self) {
        lock(&self.now).running = false;
    }

    /// Forgets the statement: the connection gets another holder.
    #[cold]
    pub(crate) fn clear(&self) {
        let mut doing = lock(&self.now);
        doing.caller = None;
        doing.running = false;
        doing.sql.clear();
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain secrets.
        out.debug_struct("Activity").finish_non_exhaustive()
    }
}

/// Returns the first bytes of a text, up to the end of a character.
fn beginning(sql: &str) -> &str {
    let mut end = sql.len().min(LONGEST);
    while !sql.is_char_boundary(end) {
        end -= 1;
    }
    &sql[..end]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copied text may end in the middle of a literal.
    #[test]
    fn text_that_is_cut_anywhere_reveals_no_literal() {
        let texts = [
            "SELECT a FROM t WHERE b = 'zq77' AND c = \"col\"",
            "INSERT INTO t VALUES ('it''s zq77', 8877665544, X'7a713737')",
            "SELECT $tag$zq77$tag$, E'zq77\\'' FROM t -- zq77",
            "/* zq77 */ UPDATE t SET a = 'zq77' WHERE b = 8877665544",
        ];
        let dialects = [&Dialect::POSTGRES, &Dialect::SQLITE, &Dialect::MYSQL];
        for (sql, dialect) in texts.iter().flat_map(|sql| dialects.map(|d| (sql, d))) {
            for end in 0..=sql.len() {
                let cut = &sql[..end];
                for shown in [masked(dialect, cut), summary(dialect, cut).text] {
                    let leaks = shown.contains("zq") || shown.contains("887766");
                    // MySQL and SQLite have no dollar quotes.
                    let is_text = dialect.dollar_quotes || !sql.contains("$tag$");
                    assert!(!leaks || !is_text, "{cut} is shown as {shown}");
                }
            }
        }
    }
}
