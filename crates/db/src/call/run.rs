//! Runs a text: un-pinned or on the bound connection, once or for many sets of parameters.

use std::panic::Location;

use cenote_pool::Lease;

use super::op::{Op, Run, RunAll, RunBatch};
use super::route::Route;
use super::{Call, Given, Hold, Text, may_pin, route};
use crate::driver::{BoxFuture, Outcome, Param};
use crate::pooled::handle::Handle;
use crate::sql::{Class, Statements, TransactionVerb};
use crate::types::params::Params;
use crate::types::row::Row;
use crate::{Error, Kind, Result};

/// Whether a text of this class needs nothing but a connection (no permit to write, no time limit), and is
/// expected to leave nothing on it.
fn is_plain(handle: &Handle, class: &Class) -> bool {
    let shared = &handle.shared;
    let is_free = class.reads_only || shared.writers.is_none();
    is_free && !may_pin(class) && shared.statement_timeout.is_none()
}

impl Call<'_> {
    /// Runs a statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it runs, it is cancelled; whether it took effect is unknown.
    pub(crate) async fn run(&self, sql: &str, params: Given<'_>, rows: bool) -> Result<Outcome> {
        let text = match self.text(sql, params) {
            Ok(text) => text,
            Err(wrong) => return self.noted(Err(wrong)),
        };
        if self.options.is_none()
            && let Some(handle) = self.unbound()
            && is_plain(handle, text.class())
        {
            // The way of nearly all calls, without a detour: every layer of futures costs.
            let acquired = handle.pool.acquire_as(self.site).await;
            let mut lease = match acquired {
                Ok(lease) => lease,
                Err(error) => return self.noted(Err(route::from_pool(error))),
            };
            let mut op = Run(text.request(self, rows));
            op.set_unpinned(true);
            // A cancel from here on gives the connection back, to be settled.
            let answer = lease.send(&op, self.site).await;
            if lease.is_check_due() {
                handle.check_idle();
            }
            if answer.is_ok() && lease.is_clean() {
                return self.noted(answer);
            }
            let route = Route::unpinned(Lease::into_owned(lease), self.owner().cloned());
            let done = self.end_unclean(route, text.class(), op, answer).await;
            return self.noted(text.located(done));
        }
        let done = self.run_bound(&text, rows).await;
        self.noted(text.located(done))
    }

    /// Runs a statement on the connection that it belongs on. Boxed and out of line, so that
    /// neither the future nor the code of an un-pinned call contains it.
    #[inline(never)]
    fn run_bound<'f>(&'f self, text: &'f Text<'_>, rows: bool) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            if let Some(ended) = self.end_failed_raw(text.class()) {
                return ended;
            }
            let mut op = Run(text.request(self, rows));
            self.send_and_finish(text.class(), &mut op).await
        })
    }

    /// Ends an un-pinned run that failed or left something on its connection.
    #[cold]
    fn end_unclean<'f>(
        &'f self,
        route: Route,
        class: &'f Class,
        mut op: Run<'f>,
        answer: Result<Outcome>,
    ) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            let sent = self.repeat_if_lost(Hold::Call, class, &mut op, route, answer);
            let (route, answer) = sent.await?;
            route.finish(class, self.shared(), self.site, answer).await
        })
    }

    /// A lost or doomed transaction that a statement's text began is ended by such a text: a
    /// ROLLBACK has done its work, a COMMIT has failed.
    fn end_failed_raw(&self, class: &Class) -> Option<Result<Outcome>> {
        let commits = match class.transaction? {
            TransactionVerb::Commit => true,
            TransactionVerb::Rollback => false,
            _ => return None,
        };
        let wrong = self.lookup()?.end_failed_raw()?;
        Some(match commits {
            true => Err(wrong),
            false => Ok(Outcome::default()),
        })
    }

    /// Runs a statement with many sets of parameters.
    pub(crate) async fn run_many(
        &self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Outcome> {
        let done = self.run_many_texts(sql, sets).await;
        self.noted(done)
    }

    async fn run_many_texts(&self, sql: &str, sets: Result<Vec<Params<'_>>>) -> Result<Outcome> {
        self.check_here()?;
        let at_site = |wrong: Error| wrong.at(self.site);
        let plan = self.plan(sql).map_err(at_site)?;
        if plan.class.statements == Statements::Several {
            let message = "exec_many takes one statement, not a script of several";
            return Err(Error::new(Kind::Parameters, message).at(self.site));
        }
        self.refuse_session_only(&plan.class)?;
        let placeholders = plan.placeholders();
        let sets: Vec<Vec<Param<'_>>> = sets
            .map_err(at_site)?
            .into_iter()
            .map(|params| params.bind(&placeholders))
            .collect::<Result<_>>()
            .map_err(at_site)?;
        let mut batch = RunBatch {
            sql: plan.sql(),
            sets: &sets,
        };
        plan.located(self.send_and_finish(&plan.class, &mut batch).await)
    }

    /// Remembers the outcome for [`Db::last_error`](crate::Db::last_error).
    #[inline]
    pub(crate) fn note<T>(&self, done: &Result<T>) {
        if let Some(frame) = self.seen.frame() {
            frame.note_error(self.shared().id, done.as_ref().err());
        }
    }

    #[inline]
    fn noted<T>(&self, done: Result<T>) -> Result<T> {
        self.note(&done);
        done
    }

    pub(crate) async fn exec(self, sql: &str, params: Given<'_>) -> Result<Outcome> {
        self.run(sql, params, false).await
    }

    pub(crate) async fn run_with_rows(self, sql: &str, params: Given<'_>) -> Result<Outcome> {
        self.run(sql, params, true).await
    }

    /// Runs a text and returns the outcome of each statement in it.
    pub(crate) async fn run_all(self, sql: &str, params: Given<'_>) -> Result<Vec<Outcome>> {
        let done = match self.text(sql, params) {
            Ok(text) => {
                let mut op = RunAll(text.request(&self, true));
                let done = self.send_and_finish(text.class(), &mut op).await;
                text.located(done)
            }
            Err(wrong) => Err(wrong),
        };
        self.noted(done)
    }

    pub(crate) async fn exec_many(
        self,
        sql: &str,
        sets: Result<Vec<Params<'_>>>,
    ) -> Result<Outcome> {
        self.run_many(sql, sets).await
    }

    pub(crate) async fn query(self, sql: &str, params: Given<'_>) -> Result<Vec<Row>> {
        Ok(self.run(sql, params, true).await?.into_rows())
    }

    pub(crate) async fn query_opt(self, sql: &str, params: Given<'_>) -> Result<Option<Row>> {
        let outcome = self.run(sql, params, true).await?;
        at_most_one(outcome, self.site)
    }

    pub(crate) async fn query_one(self, sql: &str, params: Given<'_>) -> Result<Row> {
        let outcome = self.run(sql, params, true).await?;
        at_most_one(outcome, self.site)?.ok_or_else(|| {
            let message = "one row was asked for, and there is none";
            Error::new(Kind::NoRows, message).at(self.site)
        })
    }
}

#[inline]
fn at_most_one(outcome: Outcome, site: &'static Location<'static>) -> Result<Option<Row>> {
    let Some(rows) = outcome.rows else {
        return Ok(None);
    };
    if rows.len() > 1 {
        let message = format!(
            "at most one row was asked for, and there are {}",
            rows.len()
        );
        return Err(Error::new(Kind::TooManyRows, message).at(site));
    }
    Ok(rows.into_first())
}
