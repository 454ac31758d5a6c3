//! A COPY whose data the program takes.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use super::{Direction, on_own, own};
use crate::api::exchange::Exchange;
use crate::call::op::{Commits, Op};
use crate::call::{Call, Hold};
use crate::driver::{BoxFuture, Connection, Dialect};
use crate::sql::{self, ClientCopy};
use crate::{Error, Result};

/// The data of a `COPY … TO STDOUT`, as it arrives.
///
/// A [`Stream`] of `Result<Bytes>`; [`try_next`](CopyOut::try_next) reads it without a stream library. The data has the
/// format that the COPY names: text, CSV or binary. A piece has about 64 KiB and consists of whole messages of the server,
/// which sends each row in one message; do not rely on that.
///
/// Outside of a transaction the COPY has a connection of its own. The connection goes back after the last piece, or
/// when the stream is dropped.
///
/// A stream that is dropped early does not abort its transaction: the rest of the data is read and discarded before the
/// next call. If that takes longer than [`cleanup_timeout`](crate::Builder::cleanup_timeout), the connection is closed, and
/// the transaction is lost. Outside of a transaction a COPY that only reads is cancelled instead.
///
/// # Examples
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
///
/// let mut file = std::fs::File::create("account.csv")?;
/// let mut copy = db.copy_out("COPY account TO STDOUT (FORMAT csv, HEADER)").await?;
/// while let Some(piece) = copy.try_next().await? {
///     file.write_all(&piece)?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a stream that is dropped gives no data"]
pub struct CopyOut {
    exchange: Exchange,
}

struct StartCopyOut<'a>(&'a str);

impl Op for StartCopyOut<'_> {
    type Out = ();

    const STREAMS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on_own(on, |own| own.start_copy(self.0))
    }

    fn sql(&self) -> &str {
        self.0
    }

    fn commits(&self, dialect: &'static Dialect) -> Commits {
        let Some(ClientCopy::Out { query }) = sql::class(dialect, self.0).resolved.copies else {
            return Commits::Anything;
        };
        let query = query.and_then(|(start, end)| self.0.get(start..end));
        match query.is_none_or(|query| sql::class(dialect, query).pure_read) {
            true => Commits::Nothing,
            false => Commits::Anything,
        }
    }
}

impl Call<'_> {
    pub(crate) async fn copy_out(self, sql: &str) -> Result<CopyOut> {
        let started = self.start_copy_out(sql).await;
        self.ended(Some(sql), started)
    }

    async fn start_copy_out(&self, sql: &str) -> Result<CopyOut> {
        let text = self.copy_text(sql, Direction::Out)?;
        let class = text.class();
        let mut start = StartCopyOut(text.scan.sql());
        let (mut route, started) = self.send(Hold::Stream, class, &mut start).await?;
        match started {
            Ok(()) => {
                route.connection().start_stream(class);
                let exchange = Exchange::new(route, &text.scan, self.site);
                Ok(CopyOut { exchange })
            }
            Err(error) => {
                let wrong = text.located(Err(error));
                let (shared, site) = (self.shared(), self.site);
                route.finish(class, shared, site, wrong).await
            }
        }
    }
}

impl CopyOut {
    /// Returns the next piece of data, or `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no data is lost.
    ///
    /// # Errors
    ///
    /// The database reports an error, or the connection is lost. There is no more data after that.
    pub async fn try_next(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        let Some(connection) = self.exchange.connection()? else {
            return Poll::Ready(Ok(None));
        };
        let polled = ready!(own(connection.driver())?.poll_copy_out(cx));
        Poll::Ready(match polled {
            Ok(Some(piece)) => Ok(Some(piece)),
            Ok(None) => {
                self.exchange.end(true);
                Ok(None)
            }
            Err(error) => Err(self.exchange.fail(error)),
        })
    }
}

impl Stream for CopyOut {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_piece(cx).map(Result::transpose)
    }
}

impl fmt::Debug for CopyOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CopyOut")
            .field("ended", &self.exchange.is_over())
            .finish()
    }
}
