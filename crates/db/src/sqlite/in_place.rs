//! Runs short statements inline, on the calling task, without a hop to the connection's thread; and the BEGIN of a
//! transaction that has the permit to write. COMMIT never runs inline: it may wait for the disk.
//!
//! An inline statement delays every other task of its executor thread. So its [plan](super::plan) bounds
//! every step, and while it runs:
//!
//! - SQLite compiles nothing (`SQLITE_LIMIT_SQL_LENGTH` is 0): it runs the program that the plan was read from;
//! - no value is longer than 64 KiB (`SQLITE_LIMIT_LENGTH`), nor are all parameters together;
//! - the progress handler gives a read up after 0.5 ms.
//!
//! A statement that exceeds one of these limits runs again, on the thread.

use std::sync::Arc;

use rusqlite::limits::Limit as SqliteLimit;

use super::config::DIALECT;
use super::coop_budget;
use super::error;
use super::plan::{INLINE_LENGTH, Inline};
use super::session::Session;
use super::statement::{OwnedRequest, check_count};
use super::timing::StatementTiming;
use super::transaction::BEGIN_WRITING;
use super::types::{Bound, bound};
use super::worker::Worker;
use super::write_queue::{EnterOutcome, WritePermit};
use crate::Result;
use crate::driver::{Outcome, Request};
use crate::sql::class;

/// The most parameters that are bound inline.
const MOST_PARAMETERS: usize = 1000;

/// The most bytes of rows that are copied inline.
const MOST_BYTES: usize = 256 * 1024;

/// An inline statement that sorts is given up after this many calls of the progress handler: sorting what it has
/// read by then is short.
const CHECKS_BEFORE_SORT: u32 = 64;

impl Session {
    /// Returns the timing of a request that may run inline: it is short, and waits for no lock.
    fn inline(&self, request: &Request<'_>) -> Option<StatementTiming> {
        if !self.timing.allows_inline() || request.script || !request.cache || !self.is_plain() {
            return None;
        }
        let timing = self.timing.of(request.sql)?;
        let may_run = match timing.inline() {
            Inline::Never => false,
            Inline::Read | Inline::Sort => true,
            // A write never runs twice, so no function of the application may end it half-way.
            Inline::Write => !self.has_functions() && self.is_writing(),
        };
        may_run.then_some(timing)
    }

    /// Returns whether a transaction that writes may begin inline once it has the permit: the last BEGINs were short.
    /// If another process holds the lock, the thread waits for it.
    fn begins_in_place(&self) -> bool {
        self.timing.allows_inline()
            && self.is_plain()
            && !self.in_transaction()
            && self.timing.begins_are_short()
    }

    /// Returns whether other tasks should run before the next statement. The owner of the permit yields later: every
    /// waiting writer would wait for these tasks as well.
    fn is_yield_due(&self) -> bool {
        match self.writing.has_permit() {
            true => coop_budget::is_due_for_writer(),
            false => coop_budget::is_due(),
        }
    }

    /// Runs a request inline. Gives up a read that takes long, and a write that SQLite refuses before it changes
    /// anything.
    fn run_inline(
        &self,
        request: &Request<'_>,
        params: &[Bound<'_>],
        timing: &StatementTiming,
    ) -> Result<Outcome> {
        let most_bytes = match timing.inline() {
            Inline::Write => usize::MAX,
            _ => MOST_BYTES,
        };
        let tight = Tight::new(self)?;
        let mut statement = self.statement(request.sql, true)?;
        check_count(&statement, request.params.len())?;
        self.bind(&mut statement, params)?;
        let before = self.before_step(&statement);
        let rows = self.step(&mut statement, request.rows, most_bytes);
        // The driver's own SQL follows.
        drop(tight);
        let class = || {
            timing
                .class()
                .unwrap_or_else(|| class(&DIALECT, request.sql))
        };
        self.outcome(request.sql, class, before, rows?)
    }

    /// Keeps temporary b-trees in memory during `run`. By default SQLite prepares 80 KiB for each, in case it grows
    /// into a file, which takes longer than a short statement.
    fn with_temp_store_in_memory<T>(&self, run: impl FnOnce() -> T) -> T {
        // Changing `temp_store` drops all temporary tables. SQLite has a database `temp` only if there are some.
        let may_change = self.chooses_temp_store()
            && self.is_alike()
            && self.db.is_readonly("temp").is_err()
            && self.db.execute_batch("PRAGMA temp_store = MEMORY").is_ok();
        let done = run();
        if may_change
            && self
                .db
                .execute_batch("PRAGMA temp_store = DEFAULT")
                .is_err()
        {
            self.set_broken();
        }
        done
    }
}

/// Lowers SQLite's limits while a statement runs inline. Dropped, it restores them.
struct Tight<'s> {
    session: &'s Session,
    before: [(SqliteLimit, i32); 2],
}

impl<'s> Tight<'s> {
    fn new(session: &'s Session) -> Result<Self> {
        let set = |limit, to| {
            let before = session.db.set_limit(limit, to);
            before.map_err(error::from_sqlite)
        };
        let length = SqliteLimit::SQLITE_LIMIT_LENGTH;
        let sql = SqliteLimit::SQLITE_LIMIT_SQL_LENGTH;
        Ok(Tight {
            session,
            before: [(length, set(length, INLINE_LENGTH)?), (sql, set(sql, 0)?)],
        })
    }
}

impl Drop for Tight<'_> {
    fn drop(&mut self) {
        for (limit, before) in self.before {
            if self.session.db.set_limit(limit, before).is_err() {
                self.session.set_broken();
            }
        }
    }
}

/// Returns whether all parameters together are short enough to run inline.
fn are_short(params: &[Bound<'_>]) -> bool {
    let bytes: usize = params.iter().map(Bound::len).sum();
    params.len() <= MOST_PARAMETERS && i32::try_from(bytes).is_ok_and(|all| all <= INLINE_LENGTH)
}

impl Worker {
    /// Runs a request inline if it may run there to its end. `None`: nothing has happened, and the request has to run
    /// on the thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened: the run itself has no await.
    pub(super) async fn run_in_place(&mut self, request: &Request<'_>) -> Option<Result<Outcome>> {
        let timing = self.session()?.inline(request)?;
        let inline = timing.inline();
        let params = bound(request.params).ok().filter(|all| are_short(all))?;
        tokio::task::consume_budget().await;
        if self.session()?.is_yield_due() {
            coop_budget::yield_now().await;
        }
        let session = self.session()?;
        session.alarm.take_used();
        let (was_in_transaction, changes) = (session.in_transaction(), session.db.total_changes());
        let watch = session.timing.start();
        let limit = match inline {
            Inline::Sort => Some(watch.limit().and_looks(CHECKS_BEFORE_SORT)),
            Inline::Read => Some(watch.limit()),
            Inline::Write | Inline::Never => None,
        };
        let (done, given_up) = self.here(limit, |session| {
            let run = || session.run_inline(request, &params, &timing);
            match timing.has_ephemeral() {
                true => session.with_temp_store_in_memory(run),
                false => run(),
            }
        })?;
        let took = watch.took();
        coop_budget::note(took);
        let session = self.session()?;
        session.note_time(watch);
        let given_up = given_up || done.as_ref().is_err_and(error::is_too_big);
        if !given_up {
            session.timing.note_inline_run();
        }
        // A repeat outside its transaction would read another state, and a write must not run twice.
        let is_same =
            session.in_transaction() == was_in_transaction && session.db.total_changes() == changes;
        if given_up && !is_same && inline == Inline::Write {
            // The row was written, but its RETURNING is too long to copy inline. So the write is undone.
            session.undo();
        }
        let calls_out = session.alarm.take_used();
        let kind = timing.kind();
        session.timing.change(request.sql, kind, |timing| {
            if calls_out {
                timing.note_call_out();
            }
            if given_up {
                timing.note_given_up();
            } else {
                timing.note(took);
            }
        });
        (!given_up || !is_same).then_some(done)
    }

    /// Enters the write queue with a request that another session may run. `None` if only this session may run it.
    pub(super) fn enter_write_queue(
        &self,
        request: &Request<'_>,
        owned: &Arc<OwnedRequest>,
    ) -> Option<EnterOutcome> {
        let session = self.session()?;
        if !session.may_batch(request) {
            return None;
        }
        let timeout = session.control.busy_timeout();
        let kind = session.group_commit.kind();
        session.writing.enter(Some((kind, owned)), timeout)
    }

    /// Enters the write queue, to begin a transaction inline. `None` if the thread has to begin it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    pub(super) async fn enter_to_begin(&mut self) -> Option<EnterOutcome> {
        self.session().filter(|session| session.begins_in_place())?;
        // Yields before it has the permit: afterwards other writers would wait.
        tokio::task::consume_budget().await;
        if coop_budget::is_due() {
            coop_budget::yield_now().await;
        }
        let session = self.session()?;
        let timeout = session.control.busy_timeout();
        session.writing.enter(None, timeout)
    }

    /// Begins a transaction that writes. Returns the permit if BEGIN failed: then the thread tries, and waits or reports
    /// the error.
    pub(super) fn begin_in_place(&mut self, permit: WritePermit) -> Option<WritePermit> {
        let Some(watch) = self.session().map(|session| session.timing.start()) else {
            return Some(permit);
        };
        let mut permit = Some(permit);
        self.here(None, |session| {
            if session.often(BEGIN_WRITING).is_ok()
                && let Some(permit) = permit.take()
            {
                session.writing.set_permit(permit);
            }
        });
        let took = watch.took();
        coop_budget::note(took);
        if let Some(session) = self.session() {
            session.timing.note_begin(took);
        }
        permit
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use std::time::Duration;

    use super::*;
    use crate::driver::{Begin, ConnectSettings, Credentials, Driver, Dsn, Options};
    use crate::sqlite::{Sqlite, SqliteConnection};

    #[tokio::test]
    async fn the_writer_yields_later_than_a_reader() {
        const A_WHILE: Duration = Duration::from_micros(200);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("turn.db");
        let dsn = format!("sqlite:{}?in_place=on", file.display());
        let dsn: Dsn = dsn.parse().unwrap();
        let template = Sqlite::new().template(&dsn, &Options::new()).unwrap();
        let settings = ConnectSettings::new(16);
        let mut db = template
            .connect(Credentials::default(), &settings)
            .await
            .unwrap();
        // Only the times that this test notes count.
        let sqlite = db.as_any().downcast_mut::<SqliteConnection>().unwrap();
        sqlite.time_nothing();
        let create = "CREATE TABLE t (id INTEGER PRIMARY KEY)";
        db.run(Request::new(create, &[])).await.unwrap();
        let read = Request::new("SELECT id FROM t WHERE id = 1", &[]);
        for writes in [false, true] {
            if writes {
                db.begin_with(&Begin::default(), None).await.unwrap();
            }
            for _ in 0..8 {
                db.run(read).await.unwrap();
            }
            coop_budget::yield_now().await;
            let mut runs_at_once = || {
                let mut cx = Context::from_waker(Waker::noop());
                pin!(db.run(read)).poll(&mut cx).is_ready()
            };
            assert!(runs_at_once(), "nothing has run since the last yield");
            coop_budget::note(A_WHILE);
            assert_eq!(runs_at_once(), writes);
            coop_budget::note(2 * A_WHILE);
            assert!(!runs_at_once(), "the writer has to yield as well");
        }
    }
}
