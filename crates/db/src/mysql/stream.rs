//! Row streams.
//!
//! The server sends all rows as fast as they are read. When a stream ends early, the rest must be read: in a transaction to
//! its end, outside of one for 100 ms; then the connection is closed.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{BinaryProtocol, Error as ClientError, Params, QueryResult, TextProtocol};

use super::commit_detection;
use super::connection::{MysqlConnection, status_of};
use super::decimal;
use super::dropped_call::ask;
use super::engine::Engine;
use super::error;
use super::param;
use super::stale::is_stale;
use super::statement::Statement;
use super::types::Layout;
use super::wire::{Wire, caught};
use crate::driver::time_limit::within;
use crate::driver::{Batch, BatchBuilder, BoxFuture, Columns, Request, Status};
use crate::{Error, Kind, Result};

/// A batch has at most this many rows, and is returned when it has this many bytes.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 64 * 1024;

/// How long the rest of a stream is read outside of a transaction.
const PATIENCE: Duration = Duration::from_millis(100);

/// An open stream. It occupies the connection.
pub(super) struct Stream {
    layout: Arc<Layout>,
    is_binary: bool,
    /// Its text may end the transaction: the marker is checked at its end.
    is_watched: bool,
    /// It only reads, so a kill undoes nothing. A function that is not the server's own may write.
    is_pure: bool,
    /// A statement that is not cached, and is closed at the end of the stream.
    one_shot: Option<mysql_async::Statement>,
    /// Reads the next batch. It owns the wire meanwhile.
    reading: Option<BoxFuture<'static, Read>>,
}

/// What to do after the last row.
struct AtTheEnd {
    engine: Engine,
    check_marker: bool,
    close: Option<mysql_async::Statement>,
}

/// The result of reading a batch.
struct Read {
    /// `None` if the connection is lost.
    wire: Option<Wire>,
    rows: Result<Batch>,
    /// Set if the stream has ended.
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Ended {
    status: Status,
    warnings: u64,
}

impl MysqlConnection {
    /// Starts a statement and returns its columns.
    pub(super) async fn open_stream(&mut self, mut request: Request<'_>) -> Result<Arc<Columns>> {
        if request.script {
            let message = "a script of several statements cannot be streamed; stream one statement";
            return Err(Error::new(Kind::Unsupported, message));
        }
        self.check_reading().await?;
        let sql = match decimal::is_among(request.params) {
            true => decimal::with_casts(self.facts.dialect, request.sql, request.params),
            false => Cow::Borrowed(request.sql),
        };
        request.sql = &sql;
        if self.may_touch_session(request.sql) {
            // It may change the session at any time while it runs, so nothing stays cached.
            self.forget_kept().await?;
            self.expect_touch(request.sql);
            request.cache = false;
        }
        let is_watched = self.set_marker(request.sql).await?;
        let was_idle = self.status == Status::Idle;
        let kept = self.kept(&request);
        let was_kept = kept.is_some();
        let started = match self.start(&request, kept).await {
            Err(wrong) if was_kept && is_stale(&wrong) => {
                self.forget_stale(request.sql).await?;
                match was_idle {
                    true => self.start(&request, None).await,
                    false => Err(wrong),
                }
            }
            done => done,
        };
        match &mut self.stream {
            Some(stream) if started.is_ok() => {
                stream.is_watched = is_watched;
                let class = crate::sql::class(self.facts.dialect, request.sql);
                stream.is_pure = class.pure_read;
            }
            _ if is_watched => self.check_marker().await?,
            _ => {}
        }
        started
    }

    async fn start(
        &mut self,
        request: &Request<'_>,
        kept: Option<Statement>,
    ) -> Result<Arc<Columns>> {
        let params = param::to_raw(request.params, self.is_utc)?;
        self.check_size(request.sql.len(), param::size_of(&params))?;
        let is_binary = kept.is_some() || !params.is_empty();
        let is_one_shot = kept.is_none() && !(request.cache && self.cache.is_on());
        let statement = match kept {
            None if is_binary => Some(self.make_statement(request.sql, !is_one_shot).await?),
            kept => kept,
        };
        let wanted = statement
            .as_ref()
            .map_or(0, |statement| usize::from(statement.handle.num_params()));
        if is_binary && wanted != params.len() {
            if let Some(statement) = statement.filter(|_| is_one_shot) {
                self.close_statement(statement).await?;
            }
            return Err(error::wrong_count(wanted, params.len()));
        }
        self.begin_call().await?;
        let wire = self.wire()?;
        let described = match &statement {
            Some(statement) => {
                let params = match params.is_empty() {
                    true => Params::Empty,
                    false => Params::Positional(params),
                };
                let begun = caught(wire.exec_iter(&statement.handle, params)).await;
                begun.map(|result| result.columns())
            }
            None => {
                let begun = caught(wire.query_iter(request.sql)).await;
                begun.map(|result| result.columns())
            }
        };
        let described = match described {
            Ok(described) => described.unwrap_or_default(),
            Err(wrong) => {
                let refused = self.end_call(Err(wrong)).await;
                if let Some(statement) = statement.filter(|_| is_one_shot && !self.is_broken) {
                    self.close_statement(statement).await?;
                }
                return refused;
            }
        };
        let is_utc = self.is_utc;
        let layout = match &statement {
            Some(statement) => statement.layout.now(described, is_utc),
            None => Layout::new(described, is_utc),
        };
        let columns = Arc::clone(&layout.columns);
        self.stream = Some(Stream {
            layout,
            is_binary,
            is_watched: false,
            is_pure: false,
            one_shot: statement
                .filter(|_| is_one_shot)
                .map(|statement| statement.handle),
            reading: None,
        });
        // From now on the stream marks the connection as busy.
        self.in_flight = false;
        Ok(columns)
    }

    pub(super) fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(None));
        };
        if stream.reading.is_none() {
            let Some(wire) = self.wire.take() else {
                self.mark_lost();
                return Poll::Ready(Err(error::broken()));
            };
            let layout = Arc::clone(&stream.layout);
            let at_the_end = AtTheEnd {
                engine: self.engine,
                check_marker: stream.is_watched,
                close: stream.one_shot.clone(),
            };
            stream.reading = Some(match stream.is_binary {
                true => Box::pin(read::<BinaryProtocol>(wire, layout, at_the_end)),
                false => Box::pin(read::<TextProtocol>(wire, layout, at_the_end)),
            });
        }
        let Some(reading) = &mut stream.reading else {
            return Poll::Ready(Ok(None));
        };
        let read = ready!(reading.as_mut().poll(cx));
        stream.reading = None;
        self.wire = read.wire;
        let is_lost = self.wire.is_none();
        if let Some(ended) = read.ended {
            self.stream = None;
            self.status = ended.status;
            self.warnings = ended.warnings;
        }
        Poll::Ready(match read.rows {
            Ok(rows) if rows.is_empty() => Ok(None),
            Ok(rows) => Ok(Some(rows)),
            Err(error) if is_lost => Err(self.lose(error)),
            Err(error) => {
                self.suspect_by(&error);
                Err(error)
            }
        })
    }

    /// Ends a stream before its last row.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the next call continues it.
    ///
    /// # Errors
    ///
    /// The statement failed before its end.
    pub(super) async fn close_stream(&mut self) -> Result<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        if self.status != Status::Idle || !stream.is_pure {
            return self.drain().await;
        }
        match within(Some(PATIENCE), self.drain()).await {
            Some(drained) => drained,
            None => {
                self.close_and_kill().await;
                Ok(())
            }
        }
    }

    /// Reads the rest and discards it.
    async fn drain(&mut self) -> Result<()> {
        while poll_fn(|cx| self.poll_stream(cx)).await?.is_some() {}
        Ok(())
    }
}

/// Reads rows until a batch is complete or there are no more.
async fn read<P: Protocol>(mut wire: Wire, layout: Arc<Layout>, at_the_end: AtTheEnd) -> Read {
    let mut rows = BatchBuilder::new(Arc::clone(&layout.columns));
    let mut wrong = None;
    let outcome = caught(fill::<P>(&mut wire, &layout, &mut rows, &mut wrong)).await;
    let rows = match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(rows.finish()),
    };
    let (rows, mut ended) = match outcome {
        Ok(Filled::Enough) => (rows, None),
        Ok(Filled::Last) => {
            let status = match status_of(&wire) {
                Some(status) => status,
                None => return Read::lost(error::broken()),
            };
            let warnings = u64::from(wire.get_warnings());
            (rows, Some(Ended { status, warnings }))
        }
        Err(ClientError::Server(said)) => {
            let said = error::from_server(said, at_the_end.engine);
            match ask(&mut wire).await {
                Ok(status) => {
                    let warnings = 0;
                    (Err(said), Some(Ended { status, warnings }))
                }
                Err(_) => return Read::lost(error::closed_by(said)),
            }
        }
        Err(wrong) => return Read::lost(error::lost(wrong)),
    };
    if let Some(ended) = &mut ended
        && let Err(wrong) = caught(at_the_end.settle(&mut wire, ended)).await
    {
        return Read::lost(error::lost(wrong));
    }
    Read {
        wire: Some(wire),
        rows,
        ended,
    }
}

impl AtTheEnd {
    async fn settle(self, wire: &mut Wire, ended: &mut Ended) -> mysql_async::Result<()> {
        if self.check_marker && ended.status == Status::InTransaction {
            ended.status = commit_detection::release_marker(wire).await?;
        }
        match self.close {
            Some(statement) => wire.close(statement).await,
            None => Ok(()),
        }
    }
}

impl Read {
    fn lost(error: Error) -> Self {
        Read {
            wire: None,
            rows: Err(error),
            ended: None,
        }
    }
}

enum Filled {
    Enough,
    /// There are no more rows.
    Last,
}

async fn fill<P: Protocol>(
    wire: &mut Wire,
    layout: &Layout,
    rows: &mut BatchBuilder,
    wrong: &mut Option<Error>,
) -> mysql_async::Result<Filled> {
    let mut result = QueryResult::<'_, '_, P>::new(&mut **wire);
    while let Some(row) = result.next().await? {
        if wrong.is_none() {
            *wrong = layout.push(rows, &row).err();
        }
        if rows.rows() >= BATCH_ROWS || rows.bytes() >= BATCH_BYTES {
            return Ok(Filled::Enough);
        }
    }
    // A CALL has more results after its first rows.
    result.drop_result().await?;
    Ok(Filled::Last)
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Stream").finish_non_exhaustive()
    }
}
