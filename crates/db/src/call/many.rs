//! Runs one statement with many sets of parameters, which are taken chunk by chunk from an iterator or a stream.
//!
//! | where | chunks | what runs |
//! |---|---|---|
//! | outside of a transaction | one | the driver's batch, which is all or nothing |
//! | | more | a transaction around the batches |
//! | in a transaction | any | the batches; an error dooms the transaction |
//!
//! While a chunk runs, the next one is taken.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::op::{QueryBatch, RunBatch};
use super::trace::{self, Traced};
use super::{Call, Given, Target};
use crate::api::closure::attempt;
use crate::api::transaction_options::TransactionOptions;
use crate::binding::{Bound, Caller};
use crate::coroutine::call_context;
use crate::driver::{Outcome, Param, Value};
use crate::sql::{CachedScan, Statements};
use crate::types::params::{IntoParams, List};
use crate::types::row::Row;
use crate::{Error, Kind, Result};

/// A chunk has at most this many sets …
const MOST_SETS: usize = 8 * 1024;

/// … and ends with the set that makes it larger than this.
const MOST_BYTES: usize = 1024 * 1024;

/// The task yields after it has taken this many sets.
const TAKEN_AT_ONCE: usize = 512;

/// Where the sets come from.
pub(crate) enum Sets<'a> {
    Iterator(Box<dyn Iterator<Item = Given<'a>> + Send + 'a>),
    Stream(Pin<Box<dyn Stream<Item = Given<'a>> + Send + 'a>>),
}

impl<'a> Sets<'a> {
    pub(crate) fn of_iterator<P: IntoParams<'a> + 'a>(
        sets: impl IntoIterator<Item = P, IntoIter: Send + 'a>,
    ) -> Self {
        let sets = sets.into_iter().map(|set: P| set.into_params());
        Sets::Iterator(Box::new(sets))
    }

    pub(crate) fn of_stream<P: IntoParams<'a> + 'a>(
        sets: impl Stream<Item = Result<P>> + Send + 'a,
    ) -> Self {
        let mut sets = Box::pin(sets);
        let next = move |cx: &mut Context<'_>| {
            let next = sets.as_mut().poll_next(cx);
            next.map(|set| set.map(|set| set.and_then(P::into_params)))
        };
        Sets::Stream(Box::pin(FromPoll(next)))
    }

    /// Returns the next set.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no set is taken.
    async fn next(&mut self) -> Option<Given<'a>> {
        match self {
            Sets::Iterator(sets) => sets.next(),
            Sets::Stream(sets) => poll_fn(|cx| sets.as_mut().poll_next(cx)).await,
        }
    }
}

/// A stream of what a function returns at each poll.
struct FromPoll<F>(F);

impl<T, F> Stream for FromPoll<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<T>> + Unpin,
{
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        (self.0)(cx)
    }
}

/// Takes the sets in chunks.
struct Feed<'a> {
    sets: Sets<'a>,
    scan: Arc<CachedScan>,
    /// How many sets have been taken.
    taken: u64,
    /// The last set has been taken.
    is_over: bool,
}

/// The sets of one chunk.
struct Chunk<'a> {
    sets: Vec<Vec<Param<'a>>>,
    /// How many sets came before.
    before: u64,
}

impl<'a> Feed<'a> {
    /// Takes the next chunk, which is empty if there are no more sets.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the sets that it has taken are lost: the call is dropped with it.
    async fn chunk(&mut self) -> Result<Chunk<'a>> {
        let placeholders = self.scan.placeholders();
        let mut sets = Vec::new();
        let mut bytes = 0;
        let before = self.taken;
        while !self.is_over && sets.len() < MOST_SETS && bytes < MOST_BYTES {
            let Some(given) = self.sets.next().await else {
                self.is_over = true;
                break;
            };
            let index = self.taken;
            self.taken += 1;
            let set = given.and_then(|params| {
                let values = params.len();
                let bound = params.bind(&placeholders);
                bound.map_err(|wrong| self.scan.with_operator_hint(wrong, values))
            });
            let set = set.map_err(|wrong| wrong.in_set(index))?;
            if set.iter().any(|param| List::of(param).is_some()) {
                let message = "exec_many runs one statement, and a list would make it another one for each set: \
                               use exec for each";
                return Err(Error::new(Kind::Parameters, message).in_set(index));
            }
            bytes += set.iter().map(size).sum::<usize>();
            sets.push(set);
            if sets.len() % TAKEN_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Chunk { sets, before })
    }
}

/// Returns about how many bytes a parameter needs.
pub(super) fn size(param: &Param<'_>) -> usize {
    fn of(value: &Value<'_>) -> usize {
        let more = match value {
            Value::Text(text) | Value::Decimal(text) | Value::Json(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Array(elements) => elements.iter().map(of).sum(),
            _ => 0,
        };
        size_of::<Param<'_>>() + more
    }
    match param {
        Param::Value(value) => of(value),
        // Its size is unknown.
        Param::Native(_) => 256,
    }
}

/// What has come of the sets so far.
struct Total {
    outcome: Outcome,
    /// `None` if the caller does not want the rows.
    rows: Option<Vec<Row>>,
}

impl<'a> Call<'a> {
    /// Runs a statement with each set and returns what they changed.
    pub(crate) async fn exec_many(self, sql: &'a str, sets: Sets<'a>) -> Result<Outcome> {
        Ok(self.many(sql, sets, None).await?.outcome)
    }

    /// Runs a statement with each set and returns their rows.
    pub(crate) async fn query_many(self, sql: &'a str, sets: Sets<'a>) -> Result<Vec<Row>> {
        let total = self.many(sql, sets, Some(Vec::new())).await?;
        Ok(total.rows.unwrap_or_default())
    }

    async fn many(&self, sql: &str, sets: Sets<'_>, rows: Option<Vec<Row>>) -> Result<Total> {
        let mut total = Total {
            outcome: Outcome::default(),
            rows,
        };
        let span = trace::statement_span(self.shared(), self.site, sql);
        let run = self.run_sets(sql, sets, &mut total);
        let done = Box::pin(Traced::new(span, run, trace::record_result)).await;
        self.ended(Some(sql), done)?;
        Ok(total)
    }

    async fn run_sets(&self, sql: &str, sets: Sets<'_>, total: &mut Total) -> Result<()> {
        self.check_here()?;
        let scan = self.cached_scan(sql)?;
        if scan.class.statements == Statements::Several {
            let message = "exec_many takes one statement, not a script of several";
            return Err(Error::new(Kind::Parameters, message));
        }
        self.refuse_session_only(&scan.class)?;
        self.check_in_transaction()?;
        // A lazy transaction begins now, so that it is found.
        self.begin_around().await?;
        let mut feed = Feed {
            sets,
            scan,
            taken: 0,
            is_over: false,
        };
        if let Some((bound, caller)) = self.transaction_around() {
            return self.run_inside(&bound, caller, feed, total).await;
        }
        let first = feed.chunk().await?;
        if feed.is_over {
            return self.run_chunk(&feed.scan, &first, total).await;
        }
        // Dropped from here on, also by a panic of the iterator, the transaction is rolled back.
        let body = async || {
            let call = Call {
                context: call_context(),
                ..self.clone()
            };
            call.run_chunks(first, feed, total, || ()).await
        };
        let done = attempt!(self, TransactionOptions::new(), body);
        done.map_err(|failed| failed.error)
    }

    /// Runs a chunk and all that follow it. Calls `each` after each.
    async fn run_chunks<'s>(
        &self,
        first: Chunk<'s>,
        mut feed: Feed<'s>,
        total: &mut Total,
        mut each: impl FnMut() + Send,
    ) -> Result<()> {
        let scan = Arc::clone(&feed.scan);
        let mut chunk = first;
        while !feed.is_over {
            let running = self.run_chunk(&scan, &chunk, total);
            let next = run_and_take(running, feed.chunk(), &mut each).await?;
            chunk = next;
        }
        self.run_chunk(&scan, &chunk, total).await?;
        each();
        Ok(())
    }

    /// Returns the transaction that the call is made in, and the caller as which its calls run in that
    /// transaction or not at all.
    fn transaction_around(&self) -> Option<(Arc<Bound>, Caller)> {
        let bound = self.lookup()?;
        let caller = match (&self.target, self.caller()) {
            // A guard, which names its level.
            (Target::Bound(..), caller @ Caller::Level(..)) => caller,
            (_, caller) => match caller.frame() {
                Some(frame) => Caller::FrameWithin(Arc::clone(frame), bound.level_around(frame)?),
                None if bound.in_transaction() => caller,
                None => return None,
            },
        };
        Some((bound, caller))
    }

    /// Runs all sets in the open transaction. An error dooms it, because sets before the failed one may have taken
    /// effect.
    async fn run_inside(
        &self,
        bound: &Arc<Bound>,
        caller: Caller,
        mut feed: Feed<'_>,
        total: &mut Total,
    ) -> Result<()> {
        // Dropped after a chunk, or by a panic of the iterator, the transaction is doomed, too.
        let mut half_done = HalfDone {
            bound,
            call: self,
            is_armed: false,
        };
        let call = Call {
            target: Target::Bound(bound, caller),
            context: self.context.clone(),
            site: self.site,
            options: self.options.clone(),
        };
        let done = match feed.chunk().await {
            Ok(first) => {
                let each = || half_done.is_armed = true;
                call.run_chunks(first, feed, total, each).await
            }
            Err(wrong) => Err(wrong),
        };
        match &done {
            Ok(()) => half_done.is_armed = false,
            Err(error) => half_done.is_armed |= error.set_index().is_some(),
        }
        done
    }

    async fn run_chunk(
        &self,
        scan: &CachedScan,
        chunk: &Chunk<'_>,
        total: &mut Total,
    ) -> Result<()> {
        let mut batch = RunBatch {
            sent: scan.sql(),
            sql: scan.written_sql(),
            sets: &chunk.sets,
        };
        let class = &scan.class;
        let done = match &mut total.rows {
            None => {
                let done = self.send_and_finish(class, &mut batch).await;
                done.map(|done| {
                    let sum = &mut total.outcome;
                    sum.rows_affected += done.rows_affected;
                    sum.last_insert_id = done.last_insert_id.or(sum.last_insert_id);
                    sum.warnings += done.warnings;
                })
            }
            Some(rows) => {
                let done = self.send_and_finish(class, &mut QueryBatch(batch)).await;
                done.map(|done| rows.extend(done.into_iter().flat_map(|rows| rows.into_rows())))
            }
        };
        scan.located(done.map_err(|error| error.after_sets(chunk.before)))
    }
}

/// Runs a chunk, calls `ran` when that has succeeded, and takes the next chunk meanwhile. The error of the running
/// chunk comes first, without waiting for the next one.
///
/// # Cancel safety
///
/// Dropped, the running call is settled before its connection is used again.
async fn run_and_take<T>(
    running: impl Future<Output = Result<()>> + Send,
    taking: impl Future<Output = Result<T>> + Send,
    ran: &mut (impl FnMut() + Send),
) -> Result<T> {
    let (mut running, mut taking) = (pin!(running), pin!(taking));
    let (mut has_run, mut taken) = (false, None);
    poll_fn(|cx| {
        if !has_run && let Poll::Ready(done) = running.as_mut().poll(cx) {
            if let Err(error) = done {
                return Poll::Ready(Err(error));
            }
            has_run = true;
            ran();
        }
        if taken.is_none()
            && let Poll::Ready(next) = taking.as_mut().poll(cx)
        {
            taken = Some(next);
        }
        match has_run {
            true => taken.take().map_or(Poll::Pending, Poll::Ready),
            false => Poll::Pending,
        }
    })
    .await
}

/// Dooms the transaction around a call that ends before all its sets have taken effect.
struct HalfDone<'c> {
    bound: &'c Arc<Bound>,
    call: &'c Call<'c>,
    /// Some sets may have taken effect.
    is_armed: bool,
}

impl Drop for HalfDone<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.bound.doom_half_done(self.call.site);
        }
    }
}
