//! The connection of a sandbox: transactions are savepoints of one that is never committed.
//!
//! Savepoints have names that are never used again. So one that was set by a call that was dropped, or that was not
//! released, does no harm: the next one is set inside it.

mod levels;

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Rules;
use super::text::{self, Family, Text};
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Dialect, Outcome, Param, Prepared,
    Request, Reset, Savepoint, Status, Tls, Value,
};
use crate::{Error, Kind, Result};

pub(super) struct SandboxConnection {
    inner: Box<dyn Connection>,
    family: Family,
    dialect: &'static Dialect,
    rules: Arc<Rules>,
    /// The layer runs its hooks and sets its defaults: these calls are not the test's. After a reset they run inside the
    /// sandbox's transaction.
    setting_up: bool,
    /// The transaction that is never committed is open.
    begun: bool,
    /// The transaction of the code under test.
    transaction: Option<Level>,
    /// The savepoint around a statement outside of a transaction of the code under test.
    statement: Option<Level>,
    /// The number of savepoints so far.
    savepoints: u64,
    /// PostgreSQL: some constraints can be deferred, so commits have to check them.
    has_deferrable: bool,
}

/// A savepoint.
struct Level {
    name: String,
    step: Step,
    read_only: bool,
}

/// What a dropped call leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The savepoint is being set. Nothing has run in it.
    Setting,
    Open,
    /// The savepoint is being released.
    Releasing,
    RollingBack,
}

impl SandboxConnection {
    pub(super) fn around(
        inner: Box<dyn Connection>,
        driver: &str,
        dialect: &'static Dialect,
        rules: Arc<Rules>,
    ) -> Self {
        SandboxConnection {
            inner,
            family: Family::of(driver),
            dialect,
            rules,
            setting_up: true,
            begun: false,
            transaction: None,
            statement: None,
            savepoints: 0,
            has_deferrable: false,
        }
    }

    fn new_level(&mut self, read_only: bool) -> Level {
        self.savepoints += 1;
        Level {
            name: format!("cenote_sandbox_{}", self.savepoints),
            step: Step::Setting,
            read_only,
        }
    }

    /// Returns whether the server has ended the sandbox's transaction.
    fn is_lost(&self) -> bool {
        self.begun && (self.inner.status() == Status::Idle || self.rules.lost.get().is_some())
    }

    /// Returns the answer of a call, or an error if the call has ended the sandbox's transaction.
    fn still_inside<T>(&self, answer: Result<T>) -> Result<T> {
        if !self.is_lost() {
            return answer;
        }
        self.rules.lose("the server has ended its transaction");
        answer.and(Err(Error::new(
            Kind::TransactionLost,
            "this statement has ended the sandbox's transaction: what ran before it in the sandbox may be committed, and \
             the sandbox is over",
        )))
    }

    /// Ends the sandbox because a savepoint of its own failed.
    fn lost_at<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_err() && !self.inner.is_broken() {
            self.rules
                .lose("the server has refused one of its savepoints");
        }
        done
    }

    /// Refuses a write where the server does not do so itself.
    fn check_read_only(&self, reads_only: bool) -> Result<()> {
        let is_read_only = self
            .transaction
            .as_ref()
            .is_some_and(|level| level.read_only);
        if !is_read_only || reads_only || self.family == Family::Postgres {
            return Ok(());
        }
        let message = "cannot write in a read-only transaction";
        Err(Error::new(Kind::Database, message))
    }

    /// Returns whether there is no transaction to protect yet.
    fn is_unprotected(&self) -> bool {
        self.setting_up && !self.begun
    }

    /// Checks a text of the code under test, or of a hook. Sends nothing.
    fn check(&self, sql: &str) -> Result<Text> {
        if self.setting_up {
            let checked = text::check_hook(self.family, self.dialect, sql);
            return checked.inspect_err(|wrong| {
                let wrong = wrong.message();
                self.rules
                    .lose(format!("on_connect could not run again in it ({wrong})"));
            });
        }
        self.rules.check_caller()?;
        let text = text::check(self.family, self.dialect, sql)?;
        match text {
            Text::Plain { reads_only } => self.check_read_only(reads_only)?,
            Text::AtSavepoint if self.transaction.is_none() => {
                let message = "there is no transaction for this savepoint";
                return Err(Error::new(Kind::NoTransaction, message));
            }
            _ => {}
        }
        Ok(text)
    }

    /// Checks a text that cannot be transaction control.
    fn check_plain(&self, sql: &str) -> Result<()> {
        match self.check(sql)? {
            Text::Plain { .. } => Ok(()),
            _ => {
                let message = "a sandbox runs transaction control with exec only";
                Err(Error::new(Kind::Unsupported, message))
            }
        }
    }

    /// Runs a batch outside of a transaction of the code under test: in a savepoint of its own, because the driver undoes
    /// a failed batch only outside of a transaction.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the layer finds a transaction open, and rolls it back.
    async fn run_batch_alone(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<Outcome> {
        self.begin_transaction(&Begin::default()).await?;
        match self.inner.run_batch(sql, sets).await {
            Ok(outcome) => self.commit_transaction().await.map(|_| outcome),
            Err(error) => {
                if !self.is_broken() {
                    self.roll_back_transaction().await?;
                }
                self.still_inside(Err(error))
            }
        }
    }

    async fn run_text(&mut self, request: Request<'_>) -> Result<Outcome> {
        match self.check(request.sql)? {
            Text::Plain { .. } => {
                self.enter().await?;
                let answer = self.inner.run(inside(request)).await;
                self.leave(answer).await
            }
            Text::AtSavepoint => {
                let answer = self.inner.run(inside(request)).await;
                self.still_inside(answer)
            }
            Text::Begin => {
                self.begin_transaction(&Begin::default()).await?;
                Ok(Outcome::default())
            }
            // The databases accept an end without a transaction.
            Text::Commit if self.transaction.is_none() => Ok(Outcome::default()),
            Text::Commit => match self.commit_transaction().await? {
                CommitOutcome::Committed => Ok(Outcome::default()),
                CommitOutcome::RolledBack => Err(Error::new(
                    Kind::RolledBack,
                    "the transaction was rolled back, because a statement in it had failed",
                )),
            },
            Text::Rollback => {
                self.roll_back_transaction().await?;
                Ok(Outcome::default())
            }
        }
    }
}

fn command(sql: &str) -> Request<'_> {
    let mut request = Request::new(sql, &[]);
    request.rows = false;
    request.cache = false;
    request
}

/// Returns a request that has to run on this very connection.
fn inside(mut request: Request<'_>) -> Request<'_> {
    request.unpinned = false;
    request
}

impl Connection for SandboxConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            match self.is_unprotected() {
                true => self.inner.run(inside(request)).await,
                false => self.run_text(request).await,
            }
        })
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.run_all(inside(request)).await;
            }
            if !request.script {
                return Ok(vec![self.run_text(request).await?]);
            }
            self.check_plain(request.sql)?;
            self.enter().await?;
            let answer = self.inner.run_all(inside(request)).await;
            self.leave(answer).await
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.run_batch(sql, sets).await;
            }
            self.check_plain(sql)?;
            if self.transaction.is_some() || self.family.aborts() {
                self.enter().await?;
                let answer = self.inner.run_batch(sql, sets).await;
                return self.leave(answer).await;
            }
            self.run_batch_alone(sql, sets).await
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.prepare(sql).await;
            }
            self.check(sql)?;
            self.enter().await?;
            let answer = self.inner.prepare(sql).await;
            self.leave(answer).await
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.start_stream(request).await;
            }
            self.check_plain(request.sql)?;
            self.enter().await?;
            let started = self.inner.start_stream(inside(request)).await;
            match started {
                // The next call, or the end of the stream, ends the savepoint.
                Ok(columns) => Ok(columns),
                Err(error) => self.leave(Err(error)).await,
            }
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.inner.poll_batch(cx)
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.end_stream().await?;
            self.finish_statement().await
        })
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.begin_with(begin, first).await;
            }
            if !self.setting_up {
                self.rules.check_caller()?;
            }
            self.begin_transaction(begin).await?;
            match first {
                Some(first) => self.run_text(first).await,
                None => Ok(Outcome::default()),
            }
        })
    }

    fn begins_lazily(&self) -> bool {
        self.inner.begins_lazily()
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(async move {
            match self.is_unprotected() {
                true => self.inner.commit().await,
                false => self.commit_transaction().await,
            }
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.is_unprotected() {
                true => self.inner.rollback().await,
                false => self.roll_back_transaction().await,
            }
        })
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            if self.transaction.is_none() && self.begun {
                let message = "there is no transaction for this savepoint";
                return Err(Error::new(Kind::NoTransaction, message));
            }
            let done = self.inner.savepoint(step).await;
            self.still_inside(done)
        })
    }

    fn status(&self) -> Status {
        if !self.begun {
            return match self.setting_up {
                true => self.inner.status(),
                false => Status::Idle,
            };
        }
        match &self.transaction {
            None => Status::Idle,
            Some(level) if level.step == Step::Open => self.inner.status(),
            Some(_) => Status::Unknown,
        }
    }

    fn session_changed(&self) -> bool {
        self.inner.session_changed()
    }

    fn expect_session_change(&mut self) {
        self.inner.expect_session_change();
    }

    fn session_is_set_up(&mut self) {
        self.setting_up = false;
        // Release pairs with the acquire in `SandboxTemplate::connect`.
        self.rules.opened.store(true, Ordering::Release);
        self.inner.session_is_set_up();
    }

    fn warnings(&self) -> u64 {
        self.inner.warnings()
    }

    fn tls(&self) -> Option<Tls> {
        self.inner.tls()
    }

    fn is_broken(&self) -> bool {
        self.inner.is_broken() || self.is_lost()
    }

    fn probe(&mut self, rested: Duration) {
        self.inner.probe(rested);
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.settle().await?;
            if self.inner.is_broken() {
                return Ok(());
            }
            // The dropped statement may have run, or not: it is undone.
            if matches!(&self.statement, Some(level) if level.step == Step::Open) {
                self.roll_back_statement().await?;
            }
            self.finish_statement().await
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !self.setting_up {
                self.begin_outermost().await?;
            }
            self.inner.ping().await
        })
    }

    /// Resets the session inside the transaction where the driver can. Elsewhere statements that only change the session
    /// are refused, and what else a statement may have changed stays.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(async move {
            let done = match self.family.resets_in_transaction() || !self.begun {
                true => self.inner.reset().await?,
                false => Reset::Done,
            };
            self.setting_up = true;
            Ok(done)
        })
    }

    fn set_call_site(&mut self, site: &'static Location<'static>) {
        self.inner.set_call_site(site);
    }

    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            if self.is_unprotected() {
                return self.inner.set(name, value).await;
            }
            if self.family == Family::Mysql && name.eq_ignore_ascii_case("autocommit") {
                let message = "MySQL and MariaDB commit when autocommit changes to 1: set it before the sandbox is opened";
                return Err(Error::new(Kind::Unsupported, message));
            }
            self.enter().await?;
            let answer = self.inner.set(name, value).await;
            self.leave(answer).await
        })
    }

    /// Rolls back, and waits for the answer, so that nothing is left when a test has ended.
    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            if self.begun && !self.inner.is_broken() {
                // If either fails, closing rolls back.
                let settled = self.inner.settle().await;
                if settled.is_ok() && !self.inner.is_broken() {
                    let _ = self.inner.rollback().await;
                }
            }
            self.inner.close().await
        })
    }

    /// Returns the sandbox's own connection: the driver's could commit.
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl std::fmt::Debug for SandboxConnection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SandboxConnection")
            .field("inner", &self.inner)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}
