//! Streams: rows one by one, as they arrive.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::binding::Control;
use crate::call::op::StartStream;
use crate::call::route::Purpose;
use crate::call::route::{Route, left_open};
use crate::call::{Call, Given, Hold, Target, may_pin};
use crate::driver::Columns;
use crate::sql::{Class, Plan};
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
    /// `None` after the last row or an error.
    route: Option<Route>,
    columns: Arc<Columns>,
    ready: VecDeque<Row>,
    /// Of the call that has started it, for errors.
    plan: Arc<Plan>,
    site: &'static Location<'static>,
}

impl Call<'_> {
    /// Starts a stream whose rows are read by `read`.
    pub(crate) async fn stream<T>(
        self,
        sql: &str,
        params: Given<'_>,
        read: fn(Row) -> Result<T>,
    ) -> Result<RowStream<T>> {
        let started = self.start_stream(sql, params).await;
        let started = self.ended(Some(sql), started);
        started.map(|rows| RowStream { rows, read })
    }

    async fn start_stream(&self, sql: &str, params: Given<'_>) -> Result<Rows> {
        let text = self.text(sql, params)?;
        let class = text.class();
        let mut start = StartStream(text.request(self, true));
        let (mut route, started) = self.send(Hold::Stream, class, &mut start).await?;
        match started {
            Ok(columns) => {
                route.link().start_stream(class);
                Ok(Rows {
                    route: Some(route),
                    columns,
                    ready: VecDeque::new(),
                    plan: Arc::clone(&text.plan),
                    site: self.site,
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
            Ok(Some(row)) => Poll::Ready((self.read)(row).map(Some).map_err(|mut error| {
                self.rows.plan.set_call(&mut error, self.rows.site);
                error
            })),
            Ok(None) => Poll::Ready(Ok(None)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Rows {
    fn poll_row(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Row>>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(row)));
            }
            let Some(route) = &mut self.route else {
                return Poll::Ready(Ok(None));
            };
            if let Route::ConnectionTurn(turn, _) = route
                && let Some(mut lost) = turn.bound().why_lost()
            {
                // The next user of the connection settles what is left of the stream.
                self.route = None;
                self.plan.set_call(&mut lost, self.site);
                return Poll::Ready(Err(lost));
            }
            match ready!(route.link().driver().poll_batch(cx)) {
                Ok(Some(batch)) => self.ready.extend(batch.into_rows()),
                Ok(None) => self.end(true),
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
        }
    }

    /// Ends with an error, which names the call that has started the stream.
    #[cold]
    fn fail(&mut self, mut error: Error) -> Error {
        let bound = match &self.route {
            Some(Route::ConnectionTurn(turn, _)) => Some(Arc::clone(turn.bound())),
            _ => None,
        };
        self.end(false);
        self.plan.relocate(&mut error);
        self.plan.set_call(&mut error, self.site);
        if let Some(bound) = bound {
            bound.explain_abort(&mut error);
        }
        error
    }

    /// Gives the connection back after the last row or an error.
    fn end(&mut self, succeeded: bool) {
        let Some(mut route) = self.route.take() else {
            return;
        };
        let control = route.link().stream().copied();
        let control = control.and_then(|class| Control::of(&class, succeeded));
        route.link().end_stream();
        if !succeeded {
            route.link().note_error();
        }
        if let Route::ConnectionTurn(turn, _) = &mut route {
            turn.observe(Some(self.site), control);
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
            .field("ended", &self.rows.route.is_none())
            .finish()
    }
}
