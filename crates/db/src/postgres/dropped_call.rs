//! Settles a dropped call: ends its statement, and discards its answer.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::connection::{InFlight, PostgresConnection};
use super::positions::EndPosition;
use super::protocol::answer::Answer;
use super::protocol::frontend::undo_batch;
use crate::Result;
use crate::driver::time_limit::within;

/// How long a dropped statement may take to end by itself before it is cancelled.
const PATIENCE: Duration = Duration::from_millis(2);

/// The time before the next cancel request, doubled while nothing is answered: a request that arrives before the
/// statement has begun has no effect. Each statement of a batch is cancelled by itself.
const CANCEL_AGAIN_AFTER: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

impl PostgresConnection {
    /// Ends a dropped call, and an open stream or COPY.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the next call continues where this one stopped.
    pub(super) async fn settle_all(&mut self) -> Result<()> {
        let may_cancel = match (&self.stream, &self.copy) {
            (Some(stream), _) => stream.may_cancel(),
            (None, Some(copy)) => copy.may_cancel(),
            (None, None) => self.in_flight == InFlight::Statement,
        };
        self.fail_open_copy()?;
        self.drain(may_cancel).await?;
        self.copy = None;
        self.shared.clear();
        self.close_portal().await?;
        self.cache.give_up_preparing();
        self.position = EndPosition::NotWanted;
        self.end_call();
        Ok(())
    }

    /// Reads until the server has answered everything, and returns the answer. With `may_cancel` it cancels a
    /// statement that takes long.
    ///
    /// After a cancel request the server must close the cancelling connection, answer the statement, and answer one
    /// more Sync: until then the request might hit the next statement.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the next call continues where this one stopped: a cancel request under way belongs to
    /// the connection.
    pub(super) async fn drain(&mut self, may_cancel: bool) -> Result<Answer> {
        if self.wire.is_unsynced() {
            // Half a batch has been sent, and a Sync alone would commit it.
            undo_batch(self.wire.outbox())?;
            self.wire.ask().parses += 1;
            self.wire.sync();
        }
        let mut waste = Answer::waste();
        if may_cancel && self.canceller.can_ask() {
            let mut wait = PATIENCE;
            let mut left = self.wire.unanswered_batches();
            while !self.drain_within(wait, &mut waste).await? {
                self.canceller.ask();
                let now = self.wire.unanswered_batches();
                wait = match now < left {
                    true => CANCEL_AGAIN_AFTER,
                    false => (wait * 2).clamp(CANCEL_AGAIN_AFTER, LONGEST),
                };
                left = now;
            }
        } else {
            poll_fn(|cx| self.poll_drain(cx, &mut waste)).await?;
        }
        if self.canceller.may_hit_next() {
            self.wire.sync();
            self.receive(&mut Answer::waste()).await?;
            self.canceller.note_answer();
        }
        Ok(waste)
    }

    /// Returns false if the server has not answered everything within the limit.
    async fn drain_within(&mut self, limit: Duration, waste: &mut Answer) -> Result<bool> {
        let draining = poll_fn(|cx| self.poll_drain(cx, waste));
        match within(Some(limit), draining).await {
            Some(done) => done.map(|()| true),
            None => Ok(false),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>, waste: &mut Answer) -> Poll<Result<()>> {
        let is_over = match self.poll_receive(cx, waste) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => false,
        };
        ready!(self.canceller.poll(cx, is_over));
        match is_over {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}
