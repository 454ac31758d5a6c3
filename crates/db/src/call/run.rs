//! Runs a text, un-pinned or on the bound connection.

use cenote_pool::{AcquireOptions, Lease};

use super::op::{Op, Run, RunAll};
use super::read::{self, at_most_one, only_row};
use super::route::Route;
use super::trace::{self, Traced};
use super::{Call, Given, Hold, Text, may_pin, route};
use crate::driver::{BoxFuture, Outcome};
use crate::pooled::handle::Handle;
use crate::sql::{Class, TransactionVerb};
use crate::types::row::Row;
use crate::{DeserializeOwned, Result};

/// Returns whether a text of this class needs nothing but a connection of its own (no permit to write, no time limit, no
/// lane), and is expected to leave nothing on it.
fn is_plain(handle: &Handle, class: &Class) -> bool {
    let shared = &handle.shared;
    let is_free = class.reads_only || shared.writers.is_none();
    is_free && !may_pin(class) && shared.statement_timeout.is_none() && handle.lanes.is_none()
}

impl<'a> Call<'a> {
    /// Runs a statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it runs, it is cancelled; whether it took effect is unknown.
    pub(crate) async fn run(&self, sql: &str, params: Given<'_>, rows: bool) -> Result<Outcome> {
        if trace::is_on() {
            return self.run_traced(sql, params, rows).await;
        }
        let text = match self.text(sql, params) {
            Ok(text) => text,
            Err(wrong) => return self.ended(Some(sql), Err(wrong)),
        };
        if self.options.is_none()
            && let Some(handle) = self.unbound()
            && is_plain(handle, text.class())
        {
            // The path of nearly all calls. It is inline because every nested future costs.
            let options = AcquireOptions::new().call_site(self.site);
            let acquired = handle.pool.acquire_with(options).await;
            let mut lease = match acquired {
                Ok(lease) => lease,
                Err(error) => {
                    let error = route::from_pool(error, Some(&handle.pool));
                    return self.ended(Some(text.sql()), Err(error));
                }
            };
            handle.check_idle_if_due(&mut lease);
            if !lease.is_numbered() {
                let number = Lease::id(&lease);
                lease.set_number(number);
            }
            let mut op = Run(text.request(self, rows), Some(&text.scan));
            op.set_unpinned(true);
            // A cancel from here on gives the connection back; the pool settles its unanswered call.
            let answer = lease.send(&op, self.site).await;
            if answer.is_ok() && lease.is_clean() {
                self.note(None);
                return answer;
            }
            let route = Route::unpinned(Lease::into_owned(lease), self.owner().cloned());
            let done = self.end_unclean(route, text.class(), op, answer).await;
            return self.ended(Some(text.sql()), text.located(done));
        }
        let done = self.run_anywhere(&text, rows).await;
        self.ended(Some(text.sql()), text.located(done))
    }

    /// Runs a statement in a lane, or on the connection that it has to run on. A read that prefers a replica tries that first.
    fn run_anywhere<'f>(
        &'f self,
        text: &'f Text<'_>,
        rows: bool,
    ) -> BoxFuture<'f, Result<Outcome>> {
        if !self.is_reading()
            && let Some(handle) = self.unbound()
            && let Some(lanes) = self.lanes(handle, text.class())
        {
            return self.run_shared(handle, lanes, text, rows);
        }
        self.run_bound(text, rows)
    }

    /// Runs a statement in a span.
    #[cold]
    #[inline(never)]
    fn run_traced<'f>(
        &'f self,
        sql: &'f str,
        params: Given<'f>,
        rows: bool,
    ) -> BoxFuture<'f, Result<Outcome>> {
        let run = async move {
            let done = match self.text(sql, params) {
                Ok(text) => {
                    let done = self.run_anywhere(&text, rows).await;
                    text.located(done)
                }
                Err(wrong) => Err(wrong),
            };
            self.ended(Some(sql), done)
        };
        let span = trace::statement_span(self.shared(), self.site, sql);
        Box::pin(Traced::new(span, run, trace::record_outcome))
    }

    /// Runs a statement on the connection that it has to run on. Boxed and out of line, so that
    /// neither the future nor the code of an un-pinned call contains it.
    #[inline(never)]
    fn run_bound<'f>(&'f self, text: &'f Text<'_>, rows: bool) -> BoxFuture<'f, Result<Outcome>> {
        Box::pin(async move {
            if let Some(ended) = self.end_failed_raw(text.class()) {
                return ended;
            }
            if self.is_reading() {
                if let Some(answer) = self.read_on_replica(text, rows).await {
                    return answer;
                }
                return self.on_primary().run_anywhere(text, rows).await;
            }
            let mut op = Run(text.request(self, rows), Some(&text.scan));
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

    /// Ends a lost or doomed transaction that the text of a statement began, if this text does: a
    /// ROLLBACK succeeds, a COMMIT fails.
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

    /// Runs a text and returns the outcome of each statement in it.
    pub(crate) async fn run_all(self, sql: &str, params: Given<'_>) -> Result<Vec<Outcome>> {
        let run = async {
            let text = self.text(sql, params)?;
            let mut op = RunAll(text.request(&self, true), Some(&text.scan));
            let done = self.send_and_finish(text.class(), &mut op).await;
            text.located(done)
        };
        let span = trace::statement_span(self.shared(), self.site, sql);
        let done = Traced::new(span, run, trace::record_result).await;
        self.ended(Some(sql), done)
    }
}

#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async fn stores an argument twice that it uses after an await"
)]
impl<'a> Call<'a> {
    pub(crate) fn exec(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Outcome>> + Send {
        async move { self.run(sql, params, false).await }
    }

    pub(crate) fn run_with_rows(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Outcome>> + Send {
        async move { self.run(sql, params, true).await }
    }

    pub(crate) fn query(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send {
        async move { Ok(self.run(sql, params, true).await?.into_rows()) }
    }

    pub(crate) fn query_opt(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Option<Row>>> + Send {
        async move {
            let outcome = self.run(sql, params, true).await?;
            at_most_one(outcome).map_err(|error| self.named(Some(sql), error))
        }
    }

    pub(crate) fn query_one(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Row>> + Send {
        async move {
            let outcome = self.run(sql, params, true).await?;
            only_row(outcome).map_err(|error| self.named(Some(sql), error))
        }
    }

    /// Runs a query whose rows are to be read into a type. The type is no part of this future, which so needs no bound on
    /// its lifetime.
    pub(crate) fn query_unread(
        self,
        sql: &'a str,
        params: Given<'a>,
    ) -> impl Future<Output = Result<Unread<'a>>> + Send {
        async move {
            let outcome = self.run(sql, params, true).await?;
            Ok(Unread {
                outcome,
                call: self,
                sql,
            })
        }
    }
}

/// The rows of a query before they are read into a type; errors of that name the call.
pub(crate) struct Unread<'a> {
    outcome: Outcome,
    call: Call<'a>,
    sql: &'a str,
}

impl Unread<'_> {
    /// Reads all rows.
    pub(crate) fn all<T: DeserializeOwned>(self) -> Result<Vec<T>> {
        read::all(self.outcome).map_err(|error| self.call.named(Some(self.sql), error))
    }

    /// Reads the only row.
    pub(crate) fn one<T: DeserializeOwned>(self) -> Result<T> {
        read::one(self.outcome).map_err(|error| self.call.named(Some(self.sql), error))
    }

    /// Reads the row, if there is one.
    pub(crate) fn opt<T: DeserializeOwned>(self) -> Result<Option<T>> {
        read::opt(self.outcome).map_err(|error| self.call.named(Some(self.sql), error))
    }
}
