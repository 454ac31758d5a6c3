//! COPY from and to the client.
//!
//! A COPY runs by the simple protocol: the server answers it with exactly one ReadyForQuery, whether it fails before the
//! data, in the middle of it or at its end, and ignores data that it still receives after that. By the extended
//! protocol the number of answers would depend on how much of the batch the server has read.
//!
//! | file | what is in it |
//! |---|---|
//! | `rows` | `copy_in_rows`: looks the types up, and sends rows in binary |
//! | `value`, `numeric` | the binary form of values |
//! | `place` | the row and the column of a server's error |

mod numeric;
pub(super) mod place;
mod rows;
pub(super) mod value;

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

pub(crate) use self::rows::{CopyRows, Rows};
use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::protocol::answer::{Answer, CopyMode};
use super::protocol::frontend;
use crate::driver::{BoxFuture, Status};
use crate::sql::{self, ClientCopy};
use crate::{Error, Kind, Result};

/// Data to the server is collected up to this size before it is sent, and data from the server before it is returned.
pub(crate) const CHUNK: usize = 64 * 1024;

/// A COPY that has not ended.
#[derive(Debug)]
pub(super) struct OpenCopy {
    answer: Answer,
    mode: CopyMode,
    /// The transaction status when it began.
    status: Status,
    /// It only reads, so a cancel undoes nothing.
    is_pure: bool,
    /// CopyDone or CopyFail is sent.
    is_ended: bool,
}

impl OpenCopy {
    /// Returns the status that the connection shows meanwhile. While data is sent, it is unknown.
    pub(super) fn status(&self) -> Status {
        match self.mode {
            CopyMode::Out => self.status,
            CopyMode::In | CopyMode::Refuse => Status::Unknown,
        }
    }

    /// Returns whether a cancel undoes nothing that should stay: neither writes, nor the transaction around it.
    pub(super) fn may_cancel(&self) -> bool {
        match self.mode {
            CopyMode::Out => self.is_pure && self.status == Status::Idle,
            CopyMode::In | CopyMode::Refuse => true,
        }
    }
}

impl PostgresConnection {
    /// Starts a COPY, and waits until the server takes or sends data.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling ends the COPY.
    pub(crate) fn start_copy<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            self.begin_call(InFlight::Statement)?;
            let done = self.begin_copy(sql, sql).await;
            if let Some(copy) = &self.copy
                && copy.mode == CopyMode::Out
            {
                self.in_flight = InFlight::Nothing;
            }
            self.finish_call(done)
        })
    }

    /// Sends a COPY inside the call that is under way. `sent` is its text with what has to run after it.
    async fn begin_copy(&mut self, sql: &str, sent: &str) -> Result<()> {
        let class = sql::class(&DIALECT, sql);
        let Some(copy) = class.resolved.copies else {
            let message = "this text is no COPY from or to the client";
            return Err(Error::new(Kind::Unsupported, message));
        };
        if self.cache.is_on() {
            self.expect_text(&class);
        }
        let mark = self.wire.mark();
        if let Err(wrong) = frontend::query(self.wire.outbox(), sent) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        self.wire.note_query();
        let (mode, is_pure) = match copy {
            ClientCopy::In => (CopyMode::In, false),
            ClientCopy::Out { query } => {
                let query = query.and_then(|(start, end)| sql.get(start..end));
                let is_pure = query.is_none_or(|query| sql::class(&DIALECT, query).pure_read);
                (CopyMode::Out, is_pure)
            }
        };
        self.copy = Some(OpenCopy {
            answer: Answer::of_copy(mode).adding_up(),
            mode,
            status: self.status,
            is_pure,
            is_ended: false,
        });
        poll_fn(|cx| self.poll_copy(cx, Self::poll_begun)).await
    }

    /// Waits until the connection takes more data.
    ///
    /// # Errors
    ///
    /// The server has failed the COPY, or the connection is lost. Either ends the COPY.
    pub(crate) fn poll_copy_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_copy(cx, Self::poll_room)
    }

    /// Appends data of a COPY. It is sent when there is enough of it.
    ///
    /// # Errors
    ///
    /// `write` fails. Then nothing was appended.
    pub(crate) fn put_copy_data(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        frontend::copy_data(self.wire.outbox_in_batch(), write)
    }

    /// Ends a COPY from the client, and returns the number of rows that the server has stored.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it is unknown whether the rows are stored. Settling waits for the server or cancels it.
    pub(crate) fn finish_copy(&mut self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            if let Some(copy) = &mut self.copy
                && copy.mode == CopyMode::In
                && !copy.is_ended
            {
                copy.is_ended = true;
                frontend::copy_done(self.wire.outbox_in_batch());
            }
            poll_fn(|cx| self.poll_copy(cx, Self::poll_finished)).await
        })
    }

    /// Returns the next data of a COPY to the client, or `None` after the last.
    pub(crate) fn poll_copy_out(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        if self.copy.is_none() {
            return Poll::Ready(Ok(None));
        }
        self.poll_copy(cx, Self::poll_data)
    }

    /// Makes the server fail a COPY from the client that is still open. The answer must be read afterwards.
    pub(super) fn fail_open_copy(&mut self) -> Result<()> {
        if let Some(copy) = &mut self.copy
            && copy.mode == CopyMode::In
            && copy.answer.has_copy_begun
            && !copy.is_ended
        {
            copy.is_ended = true;
            let reason = "the client has cancelled this COPY";
            frontend::copy_fail(self.wire.outbox_in_batch(), reason)?;
        }
        Ok(())
    }

    /// Polls a step of the open COPY. An error, or the end of the server's answer, ends the COPY.
    fn poll_copy<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Self, &mut Context<'_>, &mut OpenCopy) -> Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        // Taken out of `self` meanwhile: nothing awaits before it is put back.
        let Some(mut copy) = self.copy.take() else {
            let message = "no COPY is open on this connection";
            return Poll::Ready(Err(Error::new(Kind::Unsupported, message)));
        };
        let polled = step(self, cx, &mut copy);
        let is_over = matches!(&polled, Poll::Ready(Err(_))) || !self.wire.is_pending();
        match is_over && polled.is_ready() {
            true => self.end_call(),
            false => self.copy = Some(copy),
        }
        polled
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>, copy: &mut OpenCopy) -> Poll<Result<()>> {
        loop {
            while self.wire.is_pending() && !copy.answer.has_copy_begun {
                let Some(frame) = self.wire.frame()? else {
                    break;
                };
                self.take(frame, &mut copy.answer)?;
            }
            if copy.answer.has_copy_begun {
                return Poll::Ready(Ok(()));
            }
            if !self.wire.is_pending() {
                return Poll::Ready(Err(self.ended_early(copy)));
            }
            ready!(self.poll_copy_fill(cx, copy))?;
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>, copy: &mut OpenCopy) -> Poll<Result<()>> {
        loop {
            if self.digest(&mut copy.answer)? {
                return self.poll_failed(cx, copy).map(Err);
            }
            let has_failed = copy.answer.report.is_some();
            if !has_failed && self.wire.has_room(CHUNK) {
                return Poll::Ready(Ok(()));
            }
            match self.poll_copy_fill(cx, copy)? {
                Poll::Ready(()) => {}
                Poll::Pending if !has_failed && self.wire.has_room(CHUNK) => {
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_finished(&mut self, cx: &mut Context<'_>, copy: &mut OpenCopy) -> Poll<Result<u64>> {
        loop {
            if !self.digest(&mut copy.answer)? {
                ready!(self.poll_copy_fill(cx, copy))?;
                continue;
            }
            return match copy.answer.is_fine() && copy.answer.complete {
                true => Poll::Ready(Ok(copy.answer.affected())),
                false => self.poll_failed(cx, copy).map(Err),
            };
        }
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        copy: &mut OpenCopy,
    ) -> Poll<Result<Option<Bytes>>> {
        loop {
            while self.wire.is_pending() && copy.answer.copied() < CHUNK {
                let Some(frame) = self.wire.frame()? else {
                    break;
                };
                self.take(frame, &mut copy.answer)?;
            }
            if !self.wire.is_pending() && !copy.answer.is_fine() {
                return Poll::Ready(Err(self.ended_early(copy)));
            }
            if copy.answer.copied() > 0 {
                return Poll::Ready(Ok(Some(copy.answer.take_copied().into())));
            }
            if !self.wire.is_pending() {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_copy_fill(cx, copy))?;
        }
    }

    /// Sends and reads until bytes have arrived.
    fn poll_copy_fill(&mut self, cx: &mut Context<'_>, copy: &mut OpenCopy) -> Poll<Result<()>> {
        let filled = ready!(self.wire.poll_fill(cx));
        Poll::Ready(filled.map_err(|lost| self.why_lost(lost, &mut copy.answer)))
    }

    /// Returns the error of a COPY whose answer is complete, after the rest of the data was sent: the server ignores it,
    /// and a pooler must not take it for a part of the next call.
    fn poll_failed(&mut self, cx: &mut Context<'_>, copy: &mut OpenCopy) -> Poll<Error> {
        if !self.wire.is_broken() {
            // If this fails, the connection is broken, and the server's error still is the reason.
            let _ = ready!(self.wire.poll_flush(cx));
        }
        Poll::Ready(self.ended_early(copy))
    }

    fn ended_early(&mut self, copy: &mut OpenCopy) -> Error {
        let error = copy.answer.error();
        error.unwrap_or_else(|| self.wire.garbage("a COPY ended before its data"))
    }
}
