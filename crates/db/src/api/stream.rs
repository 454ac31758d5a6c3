//! Rows one by one, as they arrive.

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
/// A [`Stream`]; [`next`](RowStream::next) does without one. Outside of a transaction it has a connection of
/// its own, which goes back with its last row or when it is dropped.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = cenote::Db::open("sqlite:file:stream-doc?mode=memory&cache=shared").await?;
/// let mut rows = db.stream("SELECT 1 AS n UNION SELECT 2", ()).await?;
/// let mut sum = 0;
/// while let Some(row) = rows.next().await? {
///     sum += row.get::<i64>("n")?;
/// }
/// assert_eq!(sum, 3);
/// # Ok(()) }
/// ```
#[must_use = "a stream that is dropped gives no rows"]
pub struct RowStream {
    /// `None` when it is over.
    route: Option<Route>,
    columns: Arc<Columns>,
    ready: VecDeque<Row>,
    /// Of the call that has started it, for errors.
    plan: Arc<Plan>,
    site: &'static Location<'static>,
}

impl Call<'_> {
    /// Starts a stream.
    pub(crate) async fn stream(self, sql: &str, params: Given<'_>) -> Result<RowStream> {
        let done = self.start_stream(sql, params).await;
        self.ended(Some(sql), done)
    }

    async fn start_stream(&self, sql: &str, params: Given<'_>) -> Result<RowStream> {
        let text = self.text(sql, params)?;
        let class = text.class();
        let mut start = StartStream(text.request(true));
        let (mut route, started) = self.send(Hold::Stream, class, &mut start).await?;
        match started {
            Ok(columns) => {
                route.link().start_stream(class);
                Ok(RowStream {
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

    /// A stream runs on the bound connection only if it has to see what is there, or may
    /// leave something there.
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

impl RowStream {
    /// The next row; `None` after the last.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no row is lost.
    ///
    /// # Errors
    ///
    /// What the database says. There are no more rows after an error.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        poll_fn(|cx| self.poll_row(cx)).await
    }

    /// The columns of its rows.
    pub fn columns(&self) -> &[crate::Column] {
        self.columns.as_slice()
    }

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
                // What is left of it is settled by whoever has the connection next.
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

    /// The last row was read: the connection goes back.
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

impl Stream for RowStream {
    type Item = Result<Row, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_row(cx).map(Result::transpose)
    }
}

impl fmt::Debug for RowStream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RowStream")
            .field("columns", &self.columns)
            .field("ready", &self.ready.len())
            .field("ended", &self.route.is_none())
            .finish()
    }
}
