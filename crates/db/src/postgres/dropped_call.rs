//! After a dropped call: what still runs is brought to its end, and all that comes of it is
//! thrown away.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::connection::{Flight, PostgresConnection};
use super::protocol::answer::Answer;
use super::protocol::frontend::undo_batch;
use crate::Result;

/// After so long a statement is taken for one that is not over soon.
const PATIENCE: Duration = Duration::from_millis(2);

/// A request to cancel that comes before the statement has begun is lost: so long is waited,
/// and twice as long each time, before the next one.
const AGAIN: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

impl PostgresConnection {
    /// Brings a dropped call and an open stream to their end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the next one goes on where it was.
    pub(super) async fn settle_all(&mut self) -> Result<()> {
        let may_cancel = match &self.stream {
            Some(stream) => stream.may_cancel(),
            None => self.flight == Flight::Statement,
        };
        self.wind_up(may_cancel).await?;
        self.close_portal().await?;
        self.cache.give_up_preparing();
        self.end_call();
        Ok(())
    }

    /// Waits until the server is done with all that was sent, and cancels it if that may be done
    /// and it takes long. Gives what came of it.
    ///
    /// After a cancel the server is done when it has closed the cancelling connection, answered
    /// the statement, and answered once more: until then the cancel might hit the next statement.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the next one goes on where it was: a request to cancel that is under way
    /// belongs to the connection.
    pub(super) async fn wind_up(&mut self, may_cancel: bool) -> Result<Answer> {
        if self.wire.is_unsynced() {
            // Half a batch has been sent. Its Sync alone would commit that.
            undo_batch(self.wire.outbox())?;
            self.wire.ask().parses += 1;
            self.wire.sync();
        }
        let mut waste = Answer::waste();
        if may_cancel && self.canceller.can_ask() {
            let mut wait = PATIENCE;
            while self.wind_up_within(wait, &mut waste).await? == Wound::NotYet {
                self.canceller.ask();
                wait = (wait * 2).clamp(AGAIN, LONGEST);
            }
        } else {
            poll_fn(|cx| self.poll_wind_up(cx, &mut waste)).await?;
        }
        if self.canceller.may_hit_next() {
            self.wire.sync();
            self.receive(&mut Answer::waste()).await?;
            self.canceller.note_answer();
        }
        Ok(waste)
    }

    async fn wind_up_within(&mut self, limit: Duration, waste: &mut Answer) -> Result<Wound> {
        let winding_up = poll_fn(|cx| self.poll_wind_up(cx, waste));
        match tokio::time::timeout(limit, winding_up).await {
            Ok(done) => done.map(|()| Wound::Up),
            Err(_) => Ok(Wound::NotYet),
        }
    }

    fn poll_wind_up(&mut self, cx: &mut Context<'_>, waste: &mut Answer) -> Poll<Result<()>> {
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

/// Whether all is over.
#[derive(PartialEq, Eq)]
enum Wound {
    Up,
    NotYet,
}
