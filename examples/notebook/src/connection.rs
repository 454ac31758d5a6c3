//! What the layer calls. Each call is written, then its answer is read; [`Wire`] counts both.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use cenote::driver::{
    Batch, BatchBuilder, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param,
    Prepared, Request, Reset, Savepoint, Status, Value,
};
use cenote::{Error, Kind, Result};

use crate::rows;
use crate::wire::{Line, Wire};

/// The number of rows in a batch of a stream.
const BATCH: usize = 100;

/// A connection to a notebook.
#[derive(Debug)]
pub(crate) struct NotebookConnection {
    wire: Wire,
    /// The columns of a stream that has not been read to its end.
    streaming: Option<Arc<Columns>>,
}

/// Parameters as the protocol writes them.
fn fields(params: &[Param<'_>]) -> Result<Vec<Option<String>>> {
    let field = |param: &Param<'_>| {
        Ok(match param {
            Param::Value(Value::Null) => None,
            Param::Value(Value::Int(number)) => Some(number.to_string()),
            Param::Value(Value::UInt(number)) => Some(number.to_string()),
            Param::Value(Value::Text(text)) => Some(text.to_string()),
            _ => return Err(Error::new(Kind::Type, "a notebook takes numbers and text")),
        })
    };
    params.iter().map(field).collect()
}

impl NotebookConnection {
    pub(crate) fn new(wire: Wire) -> Self {
        NotebookConnection {
            wire,
            streaming: None,
        }
    }

    /// Writes a statement. Nothing is written if its parameters cannot be.
    fn ask(&mut self, text: &str, params: &[Param<'_>]) -> Result<()> {
        self.check_free()?;
        let params = fields(params)?;
        let params = params.iter().map(Option::as_deref);
        let line: Vec<_> = [Some("RUN"), Some(text)]
            .into_iter()
            .chain(params)
            .collect();
        self.wire.ask(&line);
        Ok(())
    }

    fn check_free(&self) -> Result<()> {
        match self.streaming {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::Busy, "a row stream is open: end it first")),
        }
    }

    /// Reads an answer to its end.
    async fn answer(&mut self, wants_rows: bool) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut gathered: Option<BatchBuilder> = None;
        loop {
            match poll_fn(|cx| self.wire.poll_line(cx)).await? {
                Line::Columns(names) => {
                    gathered = wants_rows.then(|| BatchBuilder::new(rows::columns(&names)));
                }
                Line::Row(fields) => {
                    if let Some(gathered) = &mut gathered {
                        rows::push(gathered, &fields)?;
                    }
                }
                Line::Done(affected) => {
                    outcome.rows_affected = affected;
                    outcome.rows = gathered.map(BatchBuilder::finish);
                    return Ok(outcome);
                }
            }
        }
    }

    async fn control(&mut self, text: &str) -> Result<()> {
        self.check_free()?;
        self.wire.ask_control(text);
        self.answer(false).await.map(drop)
    }
}

impl Connection for NotebookConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            self.ask(request.sql, request.params)?;
            self.answer(request.rows).await
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            self.check_free()?;
            self.wire.ask(&[Some("DESCRIBE"), Some(sql)]);
            let described = self.answer(true).await?;
            let params = usize::try_from(described.rows_affected).unwrap_or(0);
            let columns = match described.rows {
                Some(rows) => Arc::clone(rows.columns()),
                None => rows::columns(&[]),
            };
            Ok(Prepared::new(params, columns))
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            self.ask(request.sql, request.params)?;
            match poll_fn(|cx| self.wire.poll_line(cx)).await? {
                Line::Columns(names) => {
                    let columns = rows::columns(&names);
                    self.streaming = Some(Arc::clone(&columns));
                    Ok(columns)
                }
                // It has no rows, and is over.
                _ => Ok(rows::columns(&[])),
            }
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let Some(columns) = &self.streaming else {
            return Poll::Ready(Ok(None));
        };
        let mut batch = BatchBuilder::new(Arc::clone(columns));
        while batch.rows() < BATCH {
            match self.wire.poll_line(cx) {
                Poll::Ready(Ok(Line::Row(fields))) => rows::push(&mut batch, &fields)?,
                Poll::Ready(Ok(_)) => {
                    self.streaming = None;
                    break;
                }
                Poll::Ready(Err(error)) => {
                    self.streaming = None;
                    return Poll::Ready(Err(error));
                }
                // Returns the rows that are there instead of waiting for more.
                Poll::Pending if batch.rows() > 0 => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok((batch.rows() > 0).then(|| batch.finish())))
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // To read the rest is all that this protocol offers; the status comes with it.
            while self.streaming.is_some() {
                poll_fn(|cx| self.poll_batch(cx)).await?;
            }
            Ok(())
        })
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            self.check_free()?;
            if let Some(level) = begin.isolation {
                let message = format!("a notebook has no isolation level {level:?}");
                return Err(Error::new(Kind::Unsupported, message));
            }
            let text = match begin.read_only {
                true => "BEGIN READONLY",
                false => "BEGIN",
            };
            // A parameter that cannot be written is an error before BEGIN is sent.
            let first = first.map(|first| (first, fields(first.params)));
            let first = match first {
                Some((first, params)) => Some((first, params?)),
                None => None,
            };
            self.wire.ask_control(text);
            if let Some((first, params)) = &first {
                let params = params.iter().map(Option::as_deref);
                let line: Vec<_> = [Some("RUN"), Some(first.sql)]
                    .into_iter()
                    .chain(params)
                    .collect();
                self.wire.ask(&line);
            }
            // Both were sent together; the answers come one after the other.
            let begun = self.answer(false).await;
            match first {
                Some((first, _)) => {
                    let done = self.answer(first.rows).await;
                    begun.and(done)
                }
                None => begun,
            }
        })
    }

    fn begins_lazily(&self) -> bool {
        true
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(async move {
            self.control("COMMIT").await?;
            Ok(CommitOutcome::Committed)
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.control("ROLLBACK"))
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            let text = match step {
                Savepoint::Set(name) => format!("SAVEPOINT {name}"),
                Savepoint::Release(name) => format!("RELEASE {name}"),
                Savepoint::RollBack(name) => format!("BACK {name}"),
            };
            self.ask(&text, &[])?;
            self.answer(false).await.map(drop)
        })
    }

    fn status(&self) -> Status {
        self.wire.status
    }

    fn is_broken(&self) -> bool {
        self.wire.broken
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.wire.settle().await?;
            self.streaming = None;
            Ok(())
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.ask("SEVEN", &[])?;
            self.answer(false).await.map(drop)
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(async move {
            self.ask("RESET", &[])?;
            self.answer(false).await?;
            Ok(Reset::Done)
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        // The server rolls back when the connection closes.
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
