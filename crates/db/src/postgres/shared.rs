//! Reads of several callers in flight at once, each with a Sync of its own: the driver's side of a shared connection.
//!
//! A read that needs another round trip is refused: one with a parameter or a column whose type must be looked up, or a
//! text that the connection cannot keep prepared. While a text is being prepared, the same text is sent without a name.

use std::task::{Context, Poll};

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::error;
use super::execute::StatementRef;
use super::param::{has_unclear_array, need_types};
use super::pipeline::Sent;
use super::protocol::answer::Answer;
use super::statement::is_planned;
use crate::Result;
use crate::driver::{Request, SharedAnswer};
use crate::sql::{self, Resolved};

/// The longest read that is sent together with others, in bytes.
const LONGEST: u64 = 16 * 1024;

/// A read in flight. Its caller may be gone.
pub(super) struct SharedRead {
    sent: Sent,
    /// The text of a statement that is being prepared.
    text: Option<Box<str>>,
    params: usize,
    /// Its predecessor was answered.
    is_begun: bool,
}

impl PostgresConnection {
    /// Returns whether the server's process is the one that the connection was opened to: behind a pooler it is not.
    pub(super) async fn has_own_backend(&mut self) -> Result<bool> {
        self.begin_call(InFlight::Brief)?;
        let answer = self.simple("SELECT pg_catalog.pg_backend_pid()", Answer::new(true));
        let answer = answer.await;
        let mut answer = self.finish_call(answer)?;
        let mut rows = answer.outcome(0)?.into_rows().into_iter();
        let backend: Option<i32> = rows.next().map(|row| row.get(0)).transpose()?;
        Ok(backend == Some(self.process_id()))
    }

    /// Appends a read with a Sync of its own to the outbox. Returns false if it needs the connection for itself.
    ///
    /// # Errors
    ///
    /// The connection is lost, or a parameter cannot be sent. Nothing was appended.
    pub(super) fn push_read(&mut self, request: &Request<'_>) -> Result<bool> {
        if self.shared.is_empty() {
            self.begin_call(InFlight::Statement)?;
        } else if self.wire.is_broken() {
            return Err(self.why_broken());
        }
        let pushed = self.push_in_call(request);
        if self.shared.is_empty() {
            self.end_call();
        }
        pushed
    }

    fn push_in_call(&mut self, request: &Request<'_>) -> Result<bool> {
        self.check_reading()?;
        if !self.can_push(request) {
            return Ok(false);
        }
        self.wire.compact();
        let by = self.statement_ref(request.sql, request.cache)?;
        let mark = self.wire.mark();
        let sent = self.append(None, request, by)?;
        if self.wire.position() - sent.position > LONGEST {
            self.wire.undo(mark);
            self.end_preparing_of(&sent);
            self.cache.unwanted.extend(sent.closes);
            return Ok(false);
        }
        self.wire.sync();
        let text = match &sent.by {
            StatementRef::New(_) => Some(request.sql.into()),
            StatementRef::Known(_) => None,
        };
        self.shared.push_back(SharedRead {
            sent,
            text,
            params: request.params.len(),
            is_begun: false,
        });
        Ok(true)
    }

    /// Returns whether a read can run in one round trip, and be kept prepared.
    fn can_push(&mut self, request: &Request<'_>) -> bool {
        if request.script || !request.cache || !self.cache.is_on() || need_types(request.params) {
            return false;
        }
        if let Some(statement) = self.cached(request) {
            return statement.layout.unknown.is_empty();
        }
        let class = sql::class(&DIALECT, request.sql);
        class.resolved == Resolved::NOTHING
            && is_planned(class.verb)
            && !has_unclear_array(request.sql, request.params)
    }

    fn end_preparing_of(&mut self, sent: &Sent) {
        for name in &sent.closes {
            self.cache.end_preparing_one(name);
        }
        if let StatementRef::New(name) = &sent.by {
            self.cache.end_preparing_one(name);
        }
    }

    /// Sends, and reads until the oldest read is answered. After a loss, the connection is broken, and all others are lost
    /// with it.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<SharedAnswer> {
        let batches = self.shared.len();
        let Some(mut head) = self.shared.pop_front() else {
            return Poll::Ready(SharedAnswer::Again);
        };
        if !std::mem::replace(&mut head.is_begun, true) {
            self.begin_answer(&mut head.sent);
        }
        match self.poll_one(cx, &mut head.sent.answer, batches, false) {
            Poll::Pending => {
                self.shared.push_front(head);
                Poll::Pending
            }
            Poll::Ready(Err(lost)) => {
                self.wire.set_broken();
                self.shared.clear();
                self.end_call();
                // Unless it was not sent, it may be what has broken the connection.
                Poll::Ready(match self.wire.is_unsent_from(head.sent.position) {
                    true => SharedAnswer::Again,
                    false => SharedAnswer::Answered(Err(lost)),
                })
            }
            Poll::Ready(Ok(())) => {
                if self.shared.is_empty() {
                    self.end_call();
                }
                Poll::Ready(self.answer_of(head))
            }
        }
    }

    fn answer_of(&mut self, read: SharedRead) -> SharedAnswer {
        let mut sent = read.sent;
        self.end_preparing_of(&sent);
        if let Some(text) = &read.text {
            self.keep_one(&sent.by, text, &sent.answer);
        }
        sent.answer.explain(read.params, sent.by.name());
        if let Some(misread) = sent.misread {
            let wrong = &mut sent.answer.wrong;
            wrong.get_or_insert_with(|| error::misread_answer(misread));
        }
        let is_stale = self.forget_if_stale(&sent.answer, &sent.by, true);
        if is_stale || sent.answer.is_fine() && sent.answer.unknown_types().is_some() {
            return SharedAnswer::Again;
        }
        let warnings = self.warnings_so_far() - sent.warnings.0;
        SharedAnswer::Answered(sent.answer.outcome(warnings))
    }
}
