//! A connection of the pool: sends programs to its thread.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;

use super::session::{Order, Session};
use super::types::to_odbc;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Reset, Savepoint, Status,
};
use crate::worker::stream::{self, Inlet, Started};
use crate::worker::{self, Answer, Worker};
use crate::{Error, Kind, Result};

/// An open connection to an ODBC data source.
///
/// It is what [`Connection::as_any`] gives for this driver. All that it can do is in
/// [`Connection`]; how it behaves is told at [`Odbc`](super::Odbc).
#[derive(Debug)]
pub struct OdbcConnection {
    worker: Worker<Session>,
    /// None unless a stream has begun and has not been read to its end.
    stream: Option<Stream>,
}

/// A stream that has begun: the session is out.
#[derive(Debug)]
struct Stream {
    batches: mpsc::Receiver<Batch>,
    answer: Answer<()>,
    status: Status,
    /// It can be cancelled: there is nothing that this would undo.
    read_only: bool,
}

impl OdbcConnection {
    pub(super) fn new(worker: Worker<Session>) -> Self {
        OdbcConnection {
            worker,
            stream: None,
        }
    }

    async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_not_streaming()?;
        self.worker.call(program).await
    }

    fn check_not_streaming(&self) -> Result<()> {
        if self.stream.is_some() {
            let message = "a row stream is open on this connection; end it first";
            return Err(Error::new(Kind::Busy, message));
        }
        Ok(())
    }

    /// Throws away what is left of a stream, and waits until the thread is done with it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it can be called again.
    ///
    /// # Errors
    ///
    /// Of a statement that may write, if it could not be brought to its end.
    async fn wind_up_stream(&mut self) -> Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        // The thread stops at the next row that nobody wants. How long its driver takes to find
        // one nobody knows: so it is stopped before, if that undoes nothing.
        stream.batches.close();
        while stream.batches.try_recv().is_ok() {}
        let is_cancelled = stream.read_only;
        let home = poll_fn(|cx| {
            if is_cancelled {
                self.worker.cancel();
            }
            self.worker.poll_home(cx)
        });
        let home = home.await;
        let answer = match self.stream.take() {
            Some(mut stream) if !stream.read_only => stream.answer.try_recv(),
            _ => Ok(Ok(())),
        };
        home.and_then(|()| answer.unwrap_or_else(|_| Err(worker::lost())))
    }
}

/// A request, borrowing nothing.
fn order(request: &Request<'_>) -> Result<Order> {
    Ok(Order {
        sql: request.sql.to_owned(),
        params: to_odbc(request.params)?,
        script: request.script,
        cache: request.cache,
        rows: request.rows,
    })
}

impl Connection for OdbcConnection {
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let order = order(&request)?;
            self.call(move |session| session.run(&order)).await
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let in_set = |(n, set): (usize, &Vec<Param<'c>>)| {
                to_odbc(set).map_err(|error| {
                    let message = format!("set {} of {}: {}", n + 1, sets.len(), error.message());
                    error.wrapped(Kind::Type, message)
                })
            };
            let sets = sets.iter().enumerate().map(in_set);
            let sets = sets.collect::<Result<Vec<_>>>()?;
            let sql = sql.to_owned();
            self.call(move |session| session.run_batch(&sql, &sets))
                .await
        })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            let sql = sql.to_owned();
            self.call(move |session| session.prepare(&sql)).await
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            self.check_not_streaming()?;
            let order = order(&request)?;
            self.worker.settle().await?;
            let (outlet, inlet) = stream::channel();
            let mut answer = self
                .worker
                .send(move |session| session.stream(&order, outlet))?;
            let recall = self.worker.recall();
            let Inlet { started, batches } = inlet;
            // A cancel here leaves the session out, with its call cancelled.
            let Ok(started) = started.await else {
                // It ended before it began, so there is an error to tell.
                let home = poll_fn(|cx| self.worker.poll_home(cx)).await;
                recall.call_off();
                home?;
                let answer = answer.try_recv().map_err(|_| worker::lost())?;
                return Err(answer.err().unwrap_or_else(worker::lost));
            };
            recall.call_off();
            let Started {
                columns,
                status,
                read_only,
            } = started;
            self.stream = Some(Stream {
                batches,
                answer,
                status,
                read_only,
            });
            Ok(columns)
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(None));
        };
        if let Some(batch) = ready!(stream.batches.poll_recv(cx)) {
            return Poll::Ready(Ok(Some(batch)));
        }
        let home = ready!(self.worker.poll_home(cx));
        let answer = match self.stream.take() {
            Some(mut stream) => stream.answer.try_recv(),
            None => return Poll::Ready(Ok(None)),
        };
        Poll::Ready(home.and_then(|()| match answer {
            Ok(ended) => ended.map(|()| None),
            Err(_) => Err(worker::lost()),
        }))
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.wind_up_stream())
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let begin = *begin;
            let first = first.as_ref().map(order).transpose()?;
            self.call(move |session| {
                session.begin(begin)?;
                match first {
                    Some(first) => session.run(&first),
                    None => Ok(Outcome::default()),
                }
            })
            .await
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        Box::pin(self.call(Session::commit))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(Session::rollback))
    }

    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        Box::pin(async move {
            match step {
                Savepoint::Set(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.set_savepoint(&name)).await
                }
                Savepoint::Release(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.release_savepoint(&name))
                        .await
                }
                Savepoint::RollBack(name) => {
                    let name = name.to_owned();
                    self.call(move |session| session.roll_back_to(&name)).await
                }
            }
        })
    }

    fn status(&self) -> Status {
        match (&self.stream, self.worker.session()) {
            (_, Some(session)) => session.status(),
            (Some(stream), None) => stream.status,
            (None, None) => Status::Unknown,
        }
    }

    fn session_changed(&self) -> bool {
        self.worker.session().is_some_and(|session| session.changed)
    }

    fn is_broken(&self) -> bool {
        self.worker.is_lost() || self.worker.session().is_some_and(|session| session.broken)
    }

    fn probe(&mut self) {
        self.worker.look();
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // An error met here belongs to nobody; if the thread is gone, the next says so.
            let _ = self.wind_up_stream().await;
            self.worker.settle().await
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(Session::ping))
    }

    /// ODBC cannot bring a session back, so another connection takes its place.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(std::future::ready(Ok(Reset::Replace)))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let OdbcConnection { worker, stream } = *self;
        // With it the thread sees that nobody wants the rows.
        drop(stream);
        Box::pin(worker.close())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
