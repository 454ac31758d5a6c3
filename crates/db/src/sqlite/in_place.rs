//! Running what is short where it is called, without a hop to the connection's thread: statements, and
//! the BEGIN of a transaction whose turn to write has come. COMMIT never is: it may wait for the disk.

use std::sync::Arc;
use std::time::Duration;

use super::lane::{Joined, Pass};
use super::pace::{self, Pace, Sort, Stopwatch};
use super::session::{Order, Session};
use super::statement::check_count;
use super::transaction::BEGIN_WRITING;
use super::types::bound;
use super::worker::Worker;
use crate::Result;
use crate::breather;
use crate::driver::{CommitOutcome, Outcome, Request};
use crate::worker;

impl Session {
    /// How a request would be run in place, if it may be: it is known to be short, and waits for
    /// nobody.
    fn pace_in_place(&self, request: &Request<'_>) -> Option<Pace> {
        if !self.in_place || request.script || !request.cache || !self.is_plain.get() {
            return None;
        }
        let pace = self.paces.borrow().of(request.sql);
        let pace = pace.filter(Pace::is_short)?;
        let may_be = match pace.sort {
            // A module of SQLite's may write while it reads: that could not be given up.
            _ if pace.plan.asks_module => false,
            Sort::Read => true,
            // It is never run twice, so nothing may come in between; nor is it ever stopped, so
            // it has to be one that changes a row or two, whatever its parameters are.
            Sort::Write => !self.has_functions && !pace.plan.loops && self.is_writing(),
            Sort::Other => false,
        };
        may_be.then_some(pace)
    }

    /// A transaction that writes may be begun in place, when its turn has come: that is known to be
    /// short here, and if another process is in the way, the thread waits.
    fn begins_in_place(&self) -> bool {
        self.in_place
            && self.is_plain.get()
            && !self.in_transaction()
            && self.begins.get().is_short()
    }

    /// Others should run before the next statement does: later if this is the one whose turn it is to write,
    /// because those who wait for theirs would wait for all others as well.
    fn is_breath_due(&self) -> bool {
        match self.pass.borrow().is_some() {
            true => breather::is_overdue(),
            false => breather::is_due(),
        }
    }

    fn run_request(&self, request: &Request<'_>) -> Result<Outcome> {
        let mut statement = self.statement(request.sql, true)?;
        check_count(&statement, request.params.len())?;
        self.bind(&mut statement, &bound(request.params)?)?;
        self.execute(&mut statement, request.sql, request.rows)
    }
}

impl Worker {
    /// Runs a request in place, if it may be and can be brought to its end there. Otherwise nothing
    /// has come of it, and it has to be run on the thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened: once begun, it is not interrupted by anything.
    pub(super) async fn run_in_place(&mut self, request: &Request<'_>) -> Option<Result<Outcome>> {
        let Pace { sort, plan, .. } = self.session()?.pace_in_place(request)?;
        tokio::task::consume_budget().await;
        if !request.alone && self.session()?.is_breath_due() {
            // One that is alone has done so before it took its connection.
            breather::take().await;
        }
        let session = self.session()?;
        session.alarm.take_used();
        let was_in_transaction = session.in_transaction();
        let watch = Stopwatch::start(session.is_timed);
        let until = (sort == Sort::Read).then(|| watch.limit());
        let (done, given_up) = self.here(until, |session| {
            if plan.sets_aside {
                session.set_aside_in_memory(true);
            }
            session.run_request(request)
        })?;
        let took = watch.took();
        breather::note(took);
        let session = self.session()?;
        if !given_up {
            session.in_place_runs.update(|runs| runs + 1);
        }
        // Once more outside of its transaction would be another read.
        let is_same = session.in_transaction() == was_in_transaction;
        let is_repeated = given_up && sort == Sort::Read && is_same;
        let calls_out = session.alarm.take_used();
        session
            .paces
            .borrow_mut()
            .change(request.sql, sort, |pace| {
                if calls_out {
                    pace.note_call_out();
                }
                if given_up {
                    pace.note_given_up();
                } else {
                    pace.note(took);
                }
            });
        (!is_repeated).then_some(done)
    }

    /// Queues in the writer lane with a request that another session may run as well. `None` if
    /// this is not one, or cannot be looked after while it waits.
    pub(super) fn join(&self, request: &Request<'_>, order: &Arc<Order>) -> Option<Joined> {
        let watchdog = self.watchdog()?;
        let session = self.session()?;
        let lane = session.lane_to_join(request)?;
        let timeout = session.control.busy_timeout();
        let joined = lane.join(session.make, Some(order), timeout);
        watchdog.attend();
        Some(joined)
    }

    /// Queues in the writer lane, to begin a transaction in place when it is its turn. `None` if
    /// that is for the thread.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    pub(super) async fn join_to_begin(&mut self) -> Option<Joined> {
        self.session().filter(|session| session.begins_in_place())?;
        // Before, not in its turn: others wait then.
        tokio::task::consume_budget().await;
        if breather::is_due() {
            breather::take().await;
        }
        let watchdog = self.watchdog()?;
        let session = self.session()?;
        let lane = session.lane.as_ref()?;
        let joined = lane.join(session.make, None, session.control.busy_timeout());
        watchdog.attend();
        Some(joined)
    }

    /// Begins a transaction that writes, in its turn. Gives the pass back if that did not work, for
    /// the thread to wait or to find out why.
    pub(super) fn begin_in_place(&mut self, pass: Pass) -> Option<Pass> {
        let timed = self.session().is_some_and(|session| session.is_timed);
        let watch = Stopwatch::start(timed);
        let mut pass = Some(pass);
        self.here(None, |session| {
            session.set_aside_in_memory(false);
            if session.often(BEGIN_WRITING).is_ok() {
                session.pass.replace(pass.take());
                session.heed_schema();
            }
        });
        let took = watch.took();
        breather::note(took);
        if let Some(session) = self.session() {
            session.note_begin(took);
        }
        pass
    }

    /// Commits on the thread, as always: it may wait for the disk. Where commits have been brief, the
    /// task stands by for this one instead of going to sleep, so that the next writer in the lane
    /// is woken from here: one that another thread wakes has to wait for the executor as well.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the commit is cancelled, or has been done.
    pub(super) async fn commit(&mut self) -> Result<CommitOutcome> {
        self.settle().await?;
        let brief = self.session().filter(|session| session.commits_briefly());
        let Some(control) = brief.map(|session| Arc::clone(&session.control)) else {
            return self.call(|session| session.commit()).await;
        };
        control.stand_by();
        let began = pace::now();
        let mut answer = self.send(|session| session.commit())?;
        let is_asleep = loop {
            if self.is_home() {
                break false;
            }
            if pace::now() - began > STANDS_BY && control.leaves() {
                break true;
            }
            // The thread may be waiting for this very processor.
            self.doze(STANDS_BY);
        };
        breather::note(pace::now() - began);
        match is_asleep {
            true => self.arrival().await?,
            false => control.stand_down(),
        }
        let done = answer.try_recv().unwrap_or_else(|_| Err(worker::lost()));
        if self.session().is_some_and(Session::let_next_write) {
            // It has been woken here, and others wait for it in turn: it goes first.
            breather::let_run().await;
        }
        done
    }
}

/// A task stands by for so long.
const STANDS_BY: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::driver::{Begin, ConnectSettings, Credentials, Driver, Dsn, Options};
    use crate::sqlite::{Sqlite, SqliteConnection};

    /// Others wait for the one whose turn it is to write, and would wait for all that run meanwhile.
    #[tokio::test]
    async fn one_whose_turn_it_is_to_write_lets_others_run_later_than_one_who_reads() {
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
        // Nothing counts but what is noted here.
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
            breather::take().await;
            let mut runs_at_once = || {
                let mut cx = Context::from_waker(Waker::noop());
                pin!(db.run(read)).poll(&mut cx).is_ready()
            };
            assert!(runs_at_once(), "nothing has run before");
            breather::note(A_WHILE);
            assert_eq!(runs_at_once(), writes);
            breather::note(2 * A_WHILE);
            assert!(!runs_at_once(), "its time is up as well");
        }
    }
}
