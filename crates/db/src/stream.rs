//! Rows one by one, as they arrive.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::binding::Position;
use crate::call::{Call, Given, Target};
use crate::driver::Columns;
use crate::op::StartStream;
use crate::place::Place;
use crate::row::Row;
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
    place: Option<Place>,
    columns: Arc<Columns>,
    ready: VecDeque<Row>,
    site: &'static Location<'static>,
}

impl Call<'_> {
    /// Starts a stream.
    pub(crate) async fn stream(self, sql: &str, params: Given<'_>) -> Result<RowStream> {
        let done = self.start_stream(sql, params).await;
        self.note(&done);
        done
    }

    async fn start_stream(&self, sql: &str, params: Given<'_>) -> Result<RowStream> {
        let text = self.text(sql, params)?;
        let mut place = self.stream_place().await?;
        place.begin_now(self.site).await?;
        if let Place::Turn(turn) = &mut place {
            turn.set_streaming();
        }
        let started = place.fly(&StartStream(text.request()), self.site).await;
        match started {
            Ok(columns) => {
                place.link().set_streaming(true);
                if text.class().touches_session {
                    place.link().touch();
                }
                Ok(RowStream {
                    place: Some(place),
                    columns,
                    ready: VecDeque::new(),
                    site: self.site,
                })
            }
            Err(error) => place.finish(text.class(), self.site, Err(error)).await,
        }
    }

    /// A stream runs on the bound connection only if it has to see what is there.
    async fn stream_place(&self) -> Result<Place> {
        let Target::Ambient(handle) = &self.target else {
            return self.place().await;
        };
        let bound = self
            .seen
            .frame()
            .and_then(|frame| frame.lookup(handle.shared.id));
        match bound {
            Some(bound) if bound.holds_streams() => {
                let position = Position::Frame(self.seen.frame().cloned());
                Ok(Place::Turn(bound.turn(&position, self.site).await?))
            }
            _ => self.place_alone(handle, None).await,
        }
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
            let Some(place) = &mut self.place else {
                return Poll::Ready(Ok(None));
            };
            match ready!(place.link().connection().poll_batch(cx)) {
                Ok(Some(batch)) => self.ready.extend(batch.into_rows()),
                Ok(None) => self.end(),
                Err(error) => {
                    self.end();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// The last row was read: the connection goes back.
    fn end(&mut self) {
        let Some(mut place) = self.place.take() else {
            return;
        };
        place.link().set_streaming(false);
        if let Place::Turn(turn) = &mut place {
            turn.observe(Some(self.site));
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
            .field("ended", &self.place.is_none())
            .finish()
    }
}
