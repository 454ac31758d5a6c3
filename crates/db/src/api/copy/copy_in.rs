//! A COPY to which the program sends data.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use cenote_pool::within;

use super::{Direction, on_own, own};
use crate::api::exchange::Exchange;
use crate::call::op::Op;
use crate::call::{Call, Hold};
use crate::driver::{BoxFuture, Connection};
use crate::pooled::shared::{Shared, TimeLimit};
use crate::postgres::copy::CHUNK;
use crate::{Error, Kind, Result};

/// A `COPY … FROM STDIN` that waits for data.
///
/// [`send`](CopyIn::send) sends the data, in the format that the COPY names: text, CSV or binary.
/// [`finish`](CopyIn::finish) ends it and returns the number of rows. Nothing is stored before that. A COPY that is
/// dropped without it is cancelled, and nothing of it is stored; a transaction around it can then only be rolled back, to
/// a savepoint if there is one.
///
/// # Examples
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> cenote::Result<()> {
/// let mut copy = db.copy_in("COPY account (id, name) FROM STDIN (FORMAT csv)").await?;
/// copy.send("1,ada\n2,grace\n").await?;
/// copy.send(std::fs::read("more.csv").unwrap()).await?;
/// let rows = copy.finish().await?;
/// # let _ = rows;
/// # Ok(()) }
/// ```
#[must_use = "a COPY that is dropped without finish stores nothing"]
pub struct CopyIn {
    exchange: Exchange,
    /// Data that the caller has given, and that does not fit into the buffer of the connection yet.
    rest: Bytes,
    /// Why the COPY has ended before `finish`.
    failed: Option<Error>,
    limit: Option<TimeLimit>,
    shared: Arc<Shared>,
}

struct StartCopyIn<'a>(&'a str);

impl Op for StartCopyIn<'_> {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on_own(on, |own| own.start_copy(self.0))
    }

    fn sql(&self) -> &str {
        self.0
    }
}

struct FinishCopyIn<'a>(&'a str);

impl Op for FinishCopyIn<'_> {
    type Out = u64;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<u64>> {
        on_own(on, |own| own.finish_copy())
    }

    fn sql(&self) -> &str {
        self.0
    }

    fn rows(out: &u64) -> Option<u64> {
        Some(*out)
    }
}

impl Call<'_> {
    pub(crate) async fn copy_in(self, sql: &str) -> Result<CopyIn> {
        let started = self.start_copy_in(sql).await;
        self.ended(Some(sql), started)
    }

    async fn start_copy_in(&self, sql: &str) -> Result<CopyIn> {
        let text = self.copy_text(sql, Direction::In)?;
        let class = text.class();
        let mut start = StartCopyIn(text.scan.sql());
        let (mut route, started) = self.send(Hold::Stream, class, &mut start).await?;
        match started {
            Ok(()) => {
                // Like a call without an answer, until `finish` has one.
                route.connection().hold_call(self.site);
                Ok(CopyIn {
                    exchange: Exchange::new(route, &text.scan, self.site),
                    rest: Bytes::new(),
                    failed: None,
                    limit: self.time_limit(),
                    shared: Arc::clone(self.shared()),
                })
            }
            Err(error) => {
                let wrong = text.located(Err(error));
                let (shared, site) = (self.shared(), self.site);
                route.finish(class, shared, site, wrong).await
            }
        }
    }
}

impl CopyIn {
    /// Sends data. It need not end where a row ends.
    ///
    /// Returns when the data before it is on its way: while the server is slower than the program, `send` waits. The
    /// connection buffers 64 KiB, and keeps `data` without a copy of what does not fit.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing of the data was taken: the same data can be sent again.
    ///
    /// # Errors
    ///
    /// The server refuses a row that was sent before, or the connection is lost. Then the COPY has ended, nothing is
    /// stored, and every later call returns the same error.
    pub fn send<D: Into<Bytes>>(&mut self, data: D) -> impl Future<Output = Result<()>> + Send {
        let data = data.into();
        async move {
            let mut data = Some(data);
            let sent = self.limited(|this, cx| {
                ready!(this.poll_room(cx))?;
                if let Some(data) = data.take() {
                    this.rest = data;
                    if let Poll::Ready(Err(error)) = this.poll_room(cx) {
                        return Poll::Ready(Err(error));
                    }
                }
                Poll::Ready(Ok(()))
            });
            sent.await
        }
    }

    /// Ends the COPY, and returns the number of rows that are stored.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is unknown whether the rows are stored, so a transaction around it can only be rolled back.
    ///
    /// # Errors
    ///
    /// The server refuses a row, or the connection is lost. [`Error::row`] and [`Error::column`] name the place, where
    /// the server does.
    pub async fn finish(mut self) -> Result<u64> {
        self.limited(Self::poll_room).await?;
        let limit = self.exchange.limit(self.limit);
        let (sql, site) = self.exchange.call();
        let finish = FinishCopyIn(&sql);
        let Some(connection) = self.exchange.connection()? else {
            return Err(ended());
        };
        let runtime = &self.shared.runtime;
        // A cancel from here on leaves an unanswered call on the connection.
        let finished = connection.send_within(&finish, site, runtime, limit).await;
        match finished {
            Ok(rows) => {
                self.exchange.end(true);
                Ok(rows)
            }
            Err(error) if error.kind() == Kind::StatementTimeout => {
                Err(self.exchange.give_up(error))
            }
            Err(error) => Err(self.exchange.fail(error)),
        }
    }

    /// Runs a step within the limits of statements and transactions. Remembers its error.
    async fn limited(
        &mut self,
        mut step: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<Result<()>> + Send,
    ) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let limit = self.exchange.limit(self.limit);
        let shared = Arc::clone(&self.shared);
        let time = limit.map(|limit| limit.time);
        let stepped = poll_fn(|cx| step(self, cx));
        let done = match (within(&shared.runtime, time, stepped).await, limit) {
            (Some(done), _) => done,
            (None, Some(limit)) => Err(self.exchange.give_up(limit.exceeded())),
            (None, None) => Err(ended()),
        };
        done.inspect_err(|error| {
            self.failed = Some(error.clone());
            self.rest = Bytes::new();
        })
    }

    /// Waits until all data is in the buffer of the connection, and the buffer takes more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let Some(connection) = self.exchange.connection()? else {
                return Poll::Ready(Err(ended()));
            };
            let own = own(connection.driver())?;
            if let Err(error) = ready!(own.poll_copy_room(cx)) {
                return Poll::Ready(Err(self.exchange.fail(error)));
            }
            if self.rest.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let piece = self.rest.split_to(self.rest.len().min(CHUNK));
            own.put_copy_data(|out| {
                out.extend_from_slice(&piece);
                Ok(())
            })?;
        }
    }
}

#[cold]
fn ended() -> Error {
    Error::new(Kind::TransactionEnded, "the COPY has ended")
}

impl fmt::Debug for CopyIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CopyIn")
            .field("rest", &self.rest.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
