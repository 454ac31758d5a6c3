//! Row streams.
//!
//! In a transaction the driver fetches rows in portions from a portal that stays open: the server never produces the rest,
//! and closing the portal is harmless. Outside of a transaction the server sends all rows as fast as they are read. When
//! such a stream ends early, the driver cancels the statement if that undoes nothing, and otherwise reads to its end.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::execute::StatementRef;
use super::protocol::answer::Answer;
use super::protocol::frontend::{self, execute};
use crate::driver::{Batch, Columns, Request, Status};
use crate::sql::class;
use crate::{Error, Kind, Result};

/// A batch has at most this many rows, and is returned when it has this many bytes.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 64 * 1024;

/// The rows of the first portion; later portions have about this many bytes.
const FIRST_PORTION: i32 = 256;
const PORTION_BYTES: usize = 512 * 1024;
const LARGEST_PORTION: usize = 16 * 1024;

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    answer: Answer,
    /// The transaction status when the stream began.
    status: Status,
    /// Its rows come in portions from a portal.
    in_portions: bool,
    /// It only reads, so a cancel undoes nothing. A function that is not PostgreSQL's own may write.
    is_pure: bool,
    /// The current portion.
    portion: Portion,
}

#[derive(Debug)]
struct Portion {
    limit: i32,
    rows: usize,
    bytes: usize,
}

impl Stream {
    pub(super) fn status(&self) -> Status {
        self.status
    }

    /// Whether the rest can be cancelled without undoing anything.
    pub(super) fn may_cancel(&self) -> bool {
        self.is_pure && !self.in_portions
    }
}

impl PostgresConnection {
    /// Starts a statement and returns its columns.
    pub(super) async fn open_stream(&mut self, request: Request<'_>) -> Result<Arc<Columns>> {
        if request.script {
            let message = "a script of several statements cannot be streamed; stream one statement";
            return Err(Error::new(Kind::Unsupported, message));
        }
        self.begin_call(InFlight::Statement)?;
        let done = self.open_in_call(&request).await;
        if done.is_err() {
            self.stream = None;
        }
        self.finish_call(done)
    }

    async fn open_in_call(&mut self, request: &Request<'_>) -> Result<Arc<Columns>> {
        let was_idle = self.status == Status::Idle;
        let (started, by) = self.start(request).await?;
        let Err(mut refused) = started else {
            return self.columns_of_stream();
        };
        if self.forget_if_stale(&refused, &by, was_idle) {
            let (again, _) = self.start(request).await?;
            match again {
                Ok(()) => return self.columns_of_stream(),
                Err(answer) => refused = answer,
            }
        }
        let refused = refused.error();
        Err(refused.unwrap_or_else(|| self.wire.garbage("a stream ended without CommandComplete")))
    }

    fn columns_of_stream(&mut self) -> Result<Arc<Columns>> {
        self.in_flight = InFlight::Nothing;
        let layout = self
            .stream
            .as_ref()
            .and_then(|it| it.answer.layout.as_ref());
        match layout {
            Some(layout) => Ok(Arc::clone(&layout.columns)),
            None => Err(self.wire.garbage("rows without a description")),
        }
    }

    /// Sends the statement and reads until its first row may arrive. If the server refuses the statement, the answer
    /// contains its error.
    async fn start(&mut self, request: &Request<'_>) -> Result<(Result<(), Answer>, StatementRef)> {
        let by = match self.typed_statement_ref(&mut None, request).await? {
            Ok(by) => self.best_statement_ref(request, by).await?,
            Err(refused) => Err(refused),
        };
        let by = match by {
            Ok(by) => by,
            Err(refused) => return Ok((Err(refused), StatementRef::New(String::new()))),
        };
        let in_portions = self.status != Status::Idle;
        let limit = if in_portions { FIRST_PORTION } else { 0 };
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue(None, request, &by, limit) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.cache.unwanted.clear();
        let status = self.status;
        self.wire.sync();
        let mut answer = match &by {
            StatementRef::Known(statement) => Answer::of(&statement.layout, true),
            StatementRef::New(_) => Answer::new(true),
        };
        self.note_preparing(&by);
        while answer.bound == 0 && self.wire.is_pending() {
            match self.wire.frame()? {
                Some(frame) => self.take(frame, &mut answer)?,
                None => self.fill(&mut answer).await?,
            }
        }
        self.keep(&by, request.sql, &answer);
        if answer.report.is_some() {
            self.receive(&mut answer).await?;
            answer.explain(request.params.len(), by.name());
            return Ok((Err(answer), by));
        }
        self.stream = Some(Stream {
            answer,
            status,
            in_portions,
            is_pure: class(&DIALECT, request.sql).pure_read,
            portion: Portion {
                limit,
                rows: 0,
                bytes: 0,
            },
        });
        Ok((Ok(()), by))
    }

    /// Prepares a new statement before its rows are requested: so the types of its columns are known before the
    /// first row, and many rows are worth the round trip. A statement that is not cached is parsed again with
    /// its rows, because a pooler may give the second batch another session.
    async fn best_statement_ref(
        &mut self,
        request: &Request<'_>,
        by: StatementRef,
    ) -> Result<Result<StatementRef, Answer>> {
        let statement = match by {
            StatementRef::Known(statement) => statement,
            by => match self.prepare_with(None, request.sql, by).await? {
                Ok(statement) => statement,
                Err(refused) => return Ok(Err(refused)),
            },
        };
        if statement.layout.unknown.is_empty() {
            return Ok(Ok(StatementRef::Known(statement)));
        }
        self.look_up_columns(&statement.layout).await?;
        Ok(Ok(StatementRef::Known(self.with_types(&statement))))
    }

    pub(super) fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        // Taken out of `self` meanwhile: nothing awaits before it is put back.
        let Some(mut stream) = self.stream.take() else {
            return Poll::Ready(Ok(None));
        };
        let polled = self.poll_stream_with(cx, &mut stream);
        match &polled {
            Poll::Pending | Poll::Ready(Ok(Some(_))) => self.stream = Some(stream),
            Poll::Ready(Ok(None) | Err(_)) => {}
        }
        polled
    }

    fn poll_stream_with(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
    ) -> Poll<Result<Option<Batch>>> {
        loop {
            if !self.wire.is_pending() {
                let (rows, _) = stream.answer.waiting();
                if let Some(error) = stream.answer.error() {
                    return Poll::Ready(Err(error));
                }
                if rows > 0 {
                    return Poll::Ready(Ok(stream.take_batch()));
                }
                if !stream.answer.suspended {
                    return Poll::Ready(Ok(None));
                }
                stream.next_portion();
                execute(self.wire.outbox(), stream.portion.limit);
                self.wire.ask().execute();
                self.wire.sync();
            }
            match self.digest_some(stream) {
                Ok(Digested::Batch) => return Poll::Ready(Ok(stream.take_batch())),
                Ok(Digested::End) => continue,
                Ok(Digested::More) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let filled = ready!(self.wire.poll_fill(cx));
            if let Err(lost) = filled {
                return Poll::Ready(Err(self.why_lost(lost, &mut stream.answer)));
            }
        }
    }

    /// Reads rows until a batch is complete or the answer ends.
    fn digest_some(&mut self, stream: &mut Stream) -> Result<Digested> {
        while self.wire.is_pending() {
            let (rows, bytes) = stream.answer.waiting();
            if rows >= BATCH_ROWS || bytes >= BATCH_BYTES {
                return Ok(Digested::Batch);
            }
            let Some(frame) = self.wire.frame()? else {
                return Ok(Digested::More);
            };
            self.take(frame, &mut stream.answer)?;
        }
        Ok(Digested::End)
    }

    /// Ends a stream before its last row, or a COPY to the client before its last data.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling continues it.
    ///
    /// # Errors
    ///
    /// A statement that writes failed before its end.
    pub(super) async fn close_stream(&mut self) -> Result<()> {
        let may_cancel = match (&self.stream, &self.copy) {
            (Some(stream), _) => stream.may_cancel(),
            (None, Some(copy)) => copy.may_cancel(),
            (None, None) => return Ok(()),
        };
        self.in_flight = InFlight::Brief;
        self.fail_open_copy()?;
        let mut waste = self.drain(may_cancel).await?;
        self.copy = None;
        self.close_portal().await?;
        self.end_call();
        match waste.error() {
            Some(error) if !may_cancel => Err(error),
            _ => Ok(()),
        }
    }

    /// Closes the portal of a stream that is read in portions, which ends the stream.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it can be repeated.
    pub(super) async fn close_portal(&mut self) -> Result<()> {
        let is_open = |stream: &Stream| stream.in_portions;
        if self.stream.as_ref().is_some_and(is_open) && self.status == Status::InTransaction {
            frontend::close_portal(self.wire.outbox());
            self.wire.ask().closes += 1;
            self.wire.sync();
            self.receive(&mut Answer::new(false)).await?;
        }
        self.stream = None;
        Ok(())
    }
}

enum Digested {
    /// A batch is complete.
    Batch,
    /// The answer has ended.
    End,
    /// More bytes must arrive first.
    More,
}

impl Stream {
    fn take_batch(&mut self) -> Option<Batch> {
        let (rows, bytes) = self.answer.waiting();
        self.portion.rows += rows;
        self.portion.bytes += bytes;
        self.answer.take_rows()
    }

    /// Chooses the number of rows to request next.
    fn next_portion(&mut self) {
        let Portion { rows, bytes, .. } = self.portion;
        let size = bytes.checked_div(rows).unwrap_or(0).max(1);
        let limit = (PORTION_BYTES / size).clamp(1, LARGEST_PORTION);
        self.portion = Portion {
            limit: i32::try_from(limit).unwrap_or(FIRST_PORTION),
            rows: 0,
            bytes: 0,
        };
        self.answer.suspended = false;
    }
}
