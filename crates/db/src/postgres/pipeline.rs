//! Runs several statements in one round trip.
//!
//! | where | messages | an error |
//! |---|---|---|
//! | outside of a transaction | each statement with a Sync of its own | belongs to its statement alone |
//! | in a transaction | one Sync after the last statement | the server skips the rest |
//!
//! A cancel request ends one statement, and the server goes on with the next Sync. So outside of a transaction, a
//! statement that may write has a round trip of its own: nothing waits behind a statement that is cancelled, but reads.
//!
//! A statement that is prepared only to learn the types of its parameters begins a round trip, too, and after one that may
//! change how texts are read (a definition, a setting, a procedure) a new one begins.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::error;
use super::execute::{StatementRef, way_of_nothing};
use super::param::{has_unclear_array, need_types};
use super::protocol::answer::Answer;
use super::session::Misread;
use super::statement::{Statement, is_planned};
use crate::driver::{Outcome, Request, Status};
use crate::sql::{self, Resolved};
use crate::{Error, Result};

/// A statement on its way.
pub(super) struct Sent {
    pub(super) by: StatementRef,
    pub(super) answer: Answer,
    /// Where it begins in the outbox.
    pub(super) position: u64,
    /// The evicted statements that are closed before it.
    pub(super) closes: Vec<String>,
    /// The number of warnings before its answer and after it.
    pub(super) warnings: (u64, u64),
    /// The server read its text differently than this client.
    pub(super) misread: Option<Misread>,
}

/// What has come of the statements of one round trip.
enum Part {
    /// All that were sent are answered, up to the first error if the rest depends on it.
    Answered,
    /// One was stale and has not run, and those behind it only read: they run again.
    Stale,
}

impl PostgresConnection {
    /// Runs statements in order, after a BEGIN if there is one. With `stops_at_error` those after a failed one do not run.
    /// None runs after one that has ended the transaction or begun one.
    ///
    /// # Errors
    ///
    /// BEGIN failed; or the connection is lost before the first statement was answered.
    pub(super) async fn execute_pipeline(
        &mut self,
        begin: Option<&str>,
        requests: &[Request<'_>],
        stops_at_error: bool,
    ) -> Result<Vec<Result<Outcome>>> {
        let mut unsent_begin = begin;
        self.begin_call(InFlight::Statement)?;
        let is_in_transaction = begin.is_some() || self.status != Status::Idle;
        let mut results = Vec::with_capacity(requests.len());
        let mut stale_before = None;
        while results.len() < requests.len() {
            // What the last round trip has told may forbid the next one.
            if let Err(misread) = self.check_reading() {
                results.push(Err(misread));
                break;
            }
            let rest = &requests[results.len()..];
            let may_repeat = !stops_at_error && stale_before != Some(results.len());
            let done = self
                .run_part(
                    &mut unsent_begin,
                    rest,
                    stops_at_error,
                    may_repeat,
                    &mut results,
                )
                .await;
            match done {
                Ok(Part::Answered) => {}
                Ok(Part::Stale) => stale_before = Some(results.len()),
                Err(lost) if results.is_empty() => return self.finish_call(Err(lost)),
                Err(lost) => {
                    results.push(Err(lost));
                    break;
                }
            }
            let is_open = self.status != Status::Idle;
            let has_answer = results.first().is_some_and(Result::is_ok);
            if begin.is_some() && !is_open && !has_answer && !self.wire.is_broken() {
                // BEGIN has failed, or was not sent because the first statement cannot be.
                let first = results.drain(..).find_map(Result::err);
                let failed = first.unwrap_or_else(error::broken);
                return self.finish_call(Err(failed));
            }
            let has_failed = results.last().is_some_and(Result::is_err);
            if self.wire.is_broken() || stops_at_error && has_failed || is_open != is_in_transaction
            {
                break;
            }
        }
        self.finish_call(Ok(results))
    }

    /// Whether a statement must be the first of its round trip.
    fn begins_round_trip(&mut self, request: &Request<'_>, stops_at_error: bool) -> bool {
        let is_alone = !stops_at_error && !sql::class(&DIALECT, request.sql).pure_read;
        is_alone
            || match self.cached(request) {
                Some(statement) => self.lacks_types(&statement, request.params),
                None => {
                    need_types(request.params) || has_unclear_array(request.sql, request.params)
                }
            }
    }

    /// Whether a statement must be the last of its round trip.
    fn ends_round_trip(&mut self, request: &Request<'_>, stops_at_error: bool) -> bool {
        if stops_at_error && self.cached(request).is_some() {
            return false;
        }
        let class = sql::class(&DIALECT, request.sql);
        let resolved = Resolved {
            is_volatile: false,
            ..class.resolved
        };
        let is_alone = !stops_at_error && !class.pure_read;
        is_alone || !is_planned(class.verb) || resolved != Resolved::NOTHING
    }

    pub(super) fn cached(&mut self, request: &Request<'_>) -> Option<Arc<Statement>> {
        let keeps = request.cache && self.cache.is_on();
        keeps.then(|| self.cache.get(request.sql)).flatten()
    }

    /// Sends the next statements, as many as go together, in one round trip and adds their results.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call is unsettled; `settle_all` ends it.
    ///
    /// # Errors
    ///
    /// The connection is lost before the first of them was answered.
    async fn run_part(
        &mut self,
        begin: &mut Option<&str>,
        rest: &[Request<'_>],
        stops_at_error: bool,
        may_repeat: bool,
        results: &mut Vec<Result<Outcome>>,
    ) -> Result<Part> {
        let (mut sent, wrong) = self
            .send_part_of_pipeline(begin, rest, stops_at_error)
            .await?;
        let part = &rest[..sent.len()];
        let mut lost = None;
        let mut answered = 0;
        for at in &mut sent {
            if let Err(error) = self.receive_one(at, stops_at_error).await {
                lost = Some(error);
                break;
            }
            answered += 1;
            if stops_at_error && at.answer.report.is_some() {
                break;
            }
        }
        if lost.is_none() && self.wire.is_pending() {
            lost = self.receive_end(&mut sent[answered - 1]).await.err();
        }
        let unanswered = sent.split_off(answered);
        self.cache.end_preparing();
        if let Some(error) = lost {
            self.collect(part, sent, false, results).await;
            if results.is_empty() {
                return Err(error);
            }
            for (n, it) in unanswered.iter().enumerate() {
                match (n, self.wire.is_unsent_from(it.position)) {
                    // The rest has not run.
                    (1.., true) => break,
                    (_, true) => results.push(Err(error.clone().never_sent())),
                    (_, false) => results.push(Err(error.clone())),
                }
            }
            return Ok(Part::Answered);
        }
        // The server has skipped what follows an error.
        for skipped in unanswered {
            self.cache.give_up(skipped.closes);
            if let StatementRef::New(name) = skipped.by {
                self.cache.give_up([name]);
            }
        }
        if self.collect(part, sent, may_repeat, results).await {
            return Ok(Part::Stale);
        }
        if let Some(wrong) = wrong
            && (!stops_at_error || results.last().is_none_or(Result::is_ok))
        {
            results.push(Err(wrong));
        }
        Ok(Part::Answered)
    }

    /// Appends the statements that go together to the outbox, each with its Sync, or all with one. Returns what was appended,
    /// and the error of the statement that cannot be sent, before which it stops.
    ///
    /// # Errors
    ///
    /// The connection is lost while the first statement is prepared.
    async fn send_part_of_pipeline(
        &mut self,
        begin: &mut Option<&str>,
        rest: &[Request<'_>],
        stops_at_error: bool,
    ) -> Result<(Vec<Sent>, Option<Error>)> {
        let mut sent = Vec::new();
        let mut wrong = None;
        // Only the first statement may need a round trip of its own: nothing is in flight yet.
        let first = self.typed_statement_ref(begin, &rest[0]).await;
        let mut first = match first {
            Ok(Ok(by)) => Some(by),
            Ok(Err(mut refused)) => {
                return Ok((sent, Some(refused.error().unwrap_or_else(error::broken))));
            }
            Err(error) if self.wire.is_broken() => return Err(error),
            Err(error) => return Ok((sent, Some(error))),
        };
        self.cache.end_preparing();
        for request in rest {
            // Asked here: what is sent together may evict the statement that knows its types.
            if !sent.is_empty() && self.begins_round_trip(request, stops_at_error) {
                break;
            }
            let is_last = self.ends_round_trip(request, stops_at_error);
            let by = match first.take() {
                Some(by) => Ok(by),
                None => self.statement_ref(request.sql, request.cache),
            };
            let begin_here = if sent.is_empty() { *begin } else { None };
            let appended = by.and_then(|by| self.append(begin_here, request, by));
            let appended = match appended {
                Ok(appended) => appended,
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            };
            if !stops_at_error {
                self.wire.sync();
            }
            sent.push(appended);
            if is_last {
                break;
            }
        }
        if !sent.is_empty() {
            *begin = None;
            if stops_at_error {
                self.wire.sync();
            }
        }
        Ok((sent, wrong))
    }

    /// Appends a statement, up to its Execute, to the outbox; nothing if it cannot be sent.
    pub(super) fn append(
        &mut self,
        begin: Option<&str>,
        request: &Request<'_>,
        by: StatementRef,
    ) -> Result<Sent> {
        let (mark, position) = (self.wire.mark(), self.wire.position());
        let by = self.unless_preparing(by);
        if let Err(error) = self.queue(begin, request, &by, 0) {
            self.wire.undo(mark);
            return Err(error);
        }
        let closes = std::mem::take(&mut self.cache.unwanted);
        closes
            .iter()
            .for_each(|name| self.cache.begin_preparing(name));
        if let StatementRef::New(name) = &by
            && !name.is_empty()
        {
            self.cache.begin_preparing(name);
        }
        Ok(Sent {
            answer: by.answer(begin, request),
            by,
            position,
            closes,
            warnings: (0, 0),
            misread: None,
        })
    }

    /// Returns the way of a statement that has no name yet: without one if the same text is being prepared already.
    fn unless_preparing(&self, by: StatementRef) -> StatementRef {
        match by {
            StatementRef::New(name) if self.cache.is_preparing(&name) => way_of_nothing(),
            by => by,
        }
    }

    /// Receives the answer of one statement: up to its ReadyForQuery, or up to its result if the statements share one.
    async fn receive_one(&mut self, sent: &mut Sent, shares_sync: bool) -> Result<()> {
        let batches = self.wire.unanswered_batches();
        self.begin_answer(sent);
        poll_fn(|cx| self.poll_one(cx, &mut sent.answer, batches, shares_sync)).await?;
        sent.warnings.1 = self.warnings_so_far();
        Ok(())
    }

    /// Notes what the answers so far have told, before the first message of this one is read.
    pub(super) fn begin_answer(&self, sent: &mut Sent) {
        sent.warnings.0 = self.warnings_so_far();
        sent.misread = self.session.misread();
    }

    /// Sends, and reads until the answer of one statement is complete: fewer than `batches` are unanswered, or it has its
    /// result if the statements share a Sync.
    pub(super) fn poll_one(
        &mut self,
        cx: &mut Context<'_>,
        answer: &mut Answer,
        batches: usize,
        shares_sync: bool,
    ) -> Poll<Result<()>> {
        let is_over = |connection: &Self, answer: &Answer| {
            let has_result = answer.complete || answer.report.is_some();
            connection.wire.unanswered_batches() < batches || shares_sync && has_result
        };
        loop {
            while !is_over(self, answer) {
                let Some(frame) = self.wire.frame()? else {
                    break;
                };
                self.take(frame, answer)?;
            }
            if is_over(self, answer) {
                return Poll::Ready(Ok(()));
            }
            match self.wire.poll_fill(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(lost)) => return Poll::Ready(Err(self.why_lost(lost, answer))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Receives the ReadyForQuery that statements share. An error that comes with it is that of the last one.
    async fn receive_end(&mut self, last: &mut Sent) -> Result<()> {
        let mut end = Answer::new(false);
        self.receive(&mut end).await?;
        match last.answer.report.as_deref() {
            // Its error came before the message at which errors are looked at.
            Some(report) => self.suspect_by(Some(report)),
            None => last.answer.report = end.report,
        }
        last.warnings.1 = self.warnings_so_far();
        Ok(())
    }

    /// Adds the results of answered statements. Returns true at one that was stale and has to run again with those behind it.
    async fn collect(
        &mut self,
        part: &[Request<'_>],
        sent: Vec<Sent>,
        may_repeat: bool,
        results: &mut Vec<Result<Outcome>>,
    ) -> bool {
        let part = &part[..sent.len()];
        // All of them first: those behind a stale one are prepared, too.
        for (it, request) in sent.iter().zip(part) {
            self.keep_one(&it.by, request.sql, &it.answer);
        }
        for (mut it, request) in sent.into_iter().zip(part) {
            it.answer.explain(request.params.len(), it.by.name());
            if let Some(misread) = it.misread {
                it.answer
                    .wrong
                    .get_or_insert_with(|| error::misread_answer(misread));
            }
            // Where one may be repeated, those behind it in the round trip only read.
            if self.forget_if_stale(&it.answer, &it.by, may_repeat) {
                return true;
            }
            let warnings = it.warnings.1 - it.warnings.0;
            results.push(self.outcome_in_pipeline(it.answer, request, warnings).await);
        }
        false
    }

    /// Returns the outcome of one statement, after it has looked unknown column types up.
    async fn outcome_in_pipeline(
        &mut self,
        mut answer: Answer,
        request: &Request<'_>,
        warnings: u64,
    ) -> Result<Outcome> {
        // In a failed transaction a look-up would fail as well; the values stay text.
        let can_look_up = self.status != Status::Failed && !self.wire.is_broken();
        let has_unknown = answer.unknown_types().is_some() && answer.is_fine();
        if !(can_look_up && has_unknown) {
            return answer.outcome(warnings);
        }
        let outcome = self.outcome(answer, request.sql).await;
        outcome.map(|mut outcome| {
            outcome.warnings = warnings;
            outcome
        })
    }
}
