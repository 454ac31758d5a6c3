//! Streams: rows one by one, as they arrive.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::api::exchange::Exchange;
use crate::call::op::StartStream;
use crate::call::route::Purpose;
use crate::call::route::{Route, left_open};
use crate::call::trace::{self, OpenSpan, Traced};
use crate::call::{Call, Given, Hold, Target, may_pin};
use crate::driver::Columns;
use crate::sql::Class;
use crate::types::row::Row;
use crate::{Error, Result};

/// The rows of a query, one by one, as they arrive.
///
/// A [`Stream`] of `Result<T>`; [`try_next`](RowStream::try_next) reads it without a stream library. `T` is [`Row`],
/// or the type that `stream_as` reads each row into.
///
/// Outside of a transaction the stream has a connection of its own. The connection goes back after the last row, or
/// when the stream is dropped.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = cenote::Db::open("sqlite:file:stream-doc?mode=memory&cache=shared").await?;
/// let mut rows = db.stream("SELECT 1 AS n UNION SELECT 2", ()).await?;
/// let mut sum = 0;
/// while let Some(row) = rows.try_next().await? {
///     sum += row.get::<i64>("n")?;
/// }
/// assert_eq!(sum, 3);
///
/// let mut pairs = db.stream_as::<(i64, String)>("SELECT 1, 'one'", ()).await?;
/// assert_eq!(pairs.try_next().await?, Some((1, "one".to_owned())));
/// # Ok(()) }
/// ```
#[must_use = "a stream that is dropped gives no rows"]
pub struct RowStream<T = Row> {
    rows: Rows,
    /// Reads a row into what the stream gives.
    read: fn(Row) -> Result<T>,
}

/// The rows of a stream as the driver gives them.
struct Rows {
    exchange: Exchange,
    columns: Arc<Columns>,
    ready: VecDeque<Row>,
    span: OpenSpan,
}

impl Call<'_> {
    /// Starts a stream whose rows are read by `read`.
    pub(crate) async fn stream<T>(
        self,
        sql: &str,
        params: Given<'_>,
        read: fn(Row) -> Result<T>,
    ) -> Result<RowStream<T>> {
        let span = trace::statement_span(self.shared(), self.site, sql);
        let open = OpenSpan::new(&span);
        let started = Traced::new(span, self.start_stream(sql, params), |span, started| {
            // The span of a stream that has started ends with the stream.
            if let Err(error) = started {
                trace::record_error(span, error);
            }
        });
        let started = self.ended(Some(sql), started.await);
        match started {
            Ok(mut rows) => {
                rows.span = open;
                Ok(RowStream { rows, read })
            }
            Err(error) => {
                open.forget();
                Err(error)
            }
        }
    }

    async fn start_stream(&self, sql: &str, params: Given<'_>) -> Result<Rows> {
        let text = self.text(sql, params)?;
        let class = text.class();
        let mut start = StartStream(text.request(self, true), Some(&text.scan));
        let (mut route, mut started) = self.send(Hold::Stream, class, &mut start).await?;
        if started.is_err() && route.connection().is_of_replica() {
            drop(route);
            let primary = self.on_primary();
            (route, started) = primary.send(Hold::Stream, class, &mut start).await?;
        }
        match started {
            Ok(columns) => {
                route.connection().start_stream(class);
                Ok(Rows {
                    exchange: Exchange::new(route, &text.scan, self.site),
                    columns,
                    ready: VecDeque::new(),
                    span: OpenSpan::none(),
                })
            }
            Err(error) => {
                let (shared, site) = (self.shared(), self.site);
                let wrong = text.located(Err(error));
                route.finish(class, shared, site, wrong).await
            }
        }
    }

    /// Takes the connection for a stream: the bound one only if the stream has to see what is open there, or may
    /// change its session.
    pub(crate) async fn stream_place(&self, class: &Class) -> Result<Route> {
        let handle = match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => handle,
            Target::Bound(..) => return self.route(class).await,
        };
        self.check_in_transaction()?;
        self.begin_around().await?;
        self.check_in_transaction()?;
        let holds = self.lookup().is_some_and(|bound| bound.holds_streams());
        if holds || (self.owner().is_some() && may_pin(class)) {
            return self.route(class).await;
        }
        if class.contains_transaction_control || class.transaction.is_some() {
            return Err(left_open());
        }
        if !class.reads_only {
            self.check_writer()?;
        }
        if self.is_reading()
            && let Some((_, lease)) = self.lease_of_replica(class).await
        {
            return Ok(Route::unpinned(lease, None));
        }
        let purpose = Purpose::of(class);
        self.route_unpinned(handle, None, purpose).await
    }
}

impl<T> RowStream<T> {
    /// Returns the next row, or `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no row is lost.
    ///
    /// # Errors
    ///
    /// The database reports an error, after which there are no more rows; or a row does not fit `T`
    /// ([`Kind::Type`](crate::Kind::Type), [`Kind::Column`](crate::Kind::Column)), after which the next row can be read.
    pub async fn try_next(&mut self) -> Result<Option<T>> {
        poll_fn(|cx| self.poll_item(cx)).await
    }

    /// Returns the columns of the rows, before the first row and also if there is none.
    pub fn columns(&self) -> &[crate::Column] {
        self.rows.columns.as_slice()
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<T>>> {
        match ready!(self.rows.poll_row(cx)) {
            Ok(Some(row)) => {
                let read = (self.read)(row).map(Some);
                Poll::Ready(read.map_err(|error| self.rows.exchange.named(error)))
            }
            Ok(None) => Poll::Ready(Ok(None)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Rows {
    fn poll_row(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Row>>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                self.span.count_row();
                return Poll::Ready(Ok(Some(row)));
            }
            let connection = match self.exchange.connection() {
                Ok(Some(connection)) => connection,
                Ok(None) => return Poll::Ready(Ok(None)),
                Err(lost) => {
                    self.span.end(Err(&lost));
                    return Poll::Ready(Err(lost));
                }
            };
            match ready!(connection.driver().poll_batch(cx)) {
                Ok(Some(batch)) => self.ready.extend(batch.into_rows()),
                Ok(None) => {
                    self.exchange.end(true);
                    self.span.end(Ok("ok"));
                }
                Err(error) => {
                    let error = self.exchange.fail(error);
                    self.span.end(Err(&error));
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<T> Stream for RowStream<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(cx).map(Result::transpose)
    }
}

impl<T> fmt::Debug for RowStream<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RowStream")
            .field("columns", &self.rows.columns)
            .field("ready", &self.rows.ready.len())
            .field("ended", &self.rows.exchange.is_over())
            .finish()
    }
}
