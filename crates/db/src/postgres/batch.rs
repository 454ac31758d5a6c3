//! Runs one statement with many sets of parameters.
//!
//! | statement | messages | round trips |
//! |---|---|---|
//! | any | Bind and Execute for each set, one Sync | 1 |
//! | a plain INSERT, at least [`FEWEST`] sets | see [`rows`](super::rows) | 1, and before the first batch up to 3 |
//!
//! Outside of a transaction one Sync makes the batch all or nothing. While the client sends, it reads the
//! answers: the server would stop reading if nobody took them.

use std::future::poll_fn;

use super::connection::{InFlight, PostgresConnection};
use super::execute::{StatementRef, way_of_nothing};
use super::param::{bind, has_array, need_types};
use super::protocol::answer::Answer;
use super::protocol::frontend::{bind_head, execute, undo_batch};
use super::rows::FEWEST;
use super::statement::ALL_TEXT;
use crate::driver::{Outcome, Param, Request, Status};
use crate::{Error, Kind, Result};

/// A batch is sent in parts of this size, while the rest is still being written.
pub(super) const CHUNK: usize = 64 * 1024;

impl PostgresConnection {
    /// Runs a statement with many parameter sets: outside of a transaction, all or nothing.
    pub(super) async fn execute_batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<Outcome> {
        if sets.is_empty() {
            return Ok(Outcome::default());
        }
        self.begin_call(InFlight::Statement)?;
        let done = self.batch_in_call(sql, sets, wants_rows).await;
        self.finish_call(done)
    }

    async fn batch_in_call(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<Outcome> {
        let was_idle = self.status == Status::Idle;
        let params = sets[0].len();
        if let Some(n) = sets.iter().position(|set| set.len() != params) {
            let given = sets[n].len();
            let message = format!("the set has {given} parameters, and the first has {params}");
            return Err(Error::new(Kind::Parameters, message).in_set(n as u64));
        }
        if !wants_rows
            && sets.len() >= FEWEST
            && let Some(outcome) = Box::pin(self.insert_rows(sql, sets)).await?
        {
            return Ok(outcome);
        }
        let (mut answer, mut by) = self.batch_once(sql, sets, wants_rows).await?;
        if self.forget_if_stale(&answer, &by, was_idle) {
            (answer, by) = self.batch_once(sql, sets, wants_rows).await?;
        }
        // The server answers in order: the failed set follows those that are complete.
        let failed = answer.completed;
        let is_prepared = answer.parsed > 0 || matches!(by, StatementRef::Known(_));
        let is_of_set = answer.report.is_some() && is_prepared;
        let done = self.outcome(answer, sql).await;
        done.map_err(|error| match is_of_set && error.set_index().is_none() {
            true => error.in_set(failed),
            false => error,
        })
    }

    async fn batch_once(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<(Answer, StatementRef)> {
        let native = sets.iter().find(|set| need_types(set));
        let typed = native.or_else(|| sets.iter().find(|set| has_array(set)));
        let params = typed.map_or(&[][..], Vec::as_slice);
        let by = match self
            .typed_statement_ref(&mut None, &Request::new(sql, params))
            .await?
        {
            Ok(by) => by,
            Err(refused) => return Ok((refused, way_of_nothing())),
        };
        let mut answer = match &by {
            StatementRef::Known(statement) => Answer::of(&statement.layout, wants_rows),
            StatementRef::New(_) => Answer::new(wants_rows),
        }
        .adding_up();
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue_preparation(None, sql, &by) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.note_preparing(&by);
        let new_head = bind_head(by.name());
        let mut was_flushed = false;
        let mut refused = None;
        for (n, set) in sets.iter().enumerate() {
            let out = self.wire.outbox();
            let bound = match &by {
                StatementRef::Known(of) => bind(
                    out,
                    &of.bind_head,
                    Some(&of.params),
                    set,
                    &of.result_formats,
                ),
                StatementRef::New(_) => bind(out, &new_head, None, set, ALL_TEXT),
            };
            if let Err(wrong) = bound {
                let wrong = wrong.in_set(n as u64);
                if !was_flushed {
                    self.wire.undo(mark);
                    self.cache.end_preparing();
                    return Err(wrong);
                }
                // Earlier sets have been sent: a deliberate error makes the server undo them.
                undo_batch(self.wire.outbox())?;
                self.wire.ask().parses += 1;
                refused = Some(wrong);
                break;
            }
            self.queue_execute();
            if self.wire.unsent() >= CHUNK {
                was_flushed = true;
                self.send_part(&mut answer).await?;
                if answer.report.is_some() {
                    break;
                }
            }
        }
        self.cache.unwanted.clear();
        self.wire.sync();
        self.receive(&mut answer).await?;
        self.keep(&by, sql, &answer);
        answer.explain(sets[0].len(), by.name());
        if refused.is_some() && answer.report.as_ref().is_none_or(|it| it.is_syntax_error()) {
            answer.report = None;
            answer.wrong = refused;
        }
        Ok((answer, by))
    }

    /// Appends the Execute of a Bind that is in the outbox.
    pub(super) fn queue_execute(&mut self) {
        execute(self.wire.outbox(), 0);
        let asked = self.wire.ask();
        asked.bind();
        asked.execute();
    }

    /// Sends a part of a batch, and reads the server's answers meanwhile.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the batch has no Sync; settling makes the server undo it.
    pub(super) async fn send_part(&mut self, answer: &mut Answer) -> Result<()> {
        let sent = poll_fn(|cx| self.wire.poll_flush(cx)).await;
        sent.map_err(|lost| self.why_lost(lost, answer))?;
        while let Some(frame) = self.wire.frame()? {
            self.take(frame, answer)?;
        }
        Ok(())
    }
}
