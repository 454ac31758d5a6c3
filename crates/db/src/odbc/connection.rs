//! A connection: implements the driver contract by sending programs to its thread.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::session::{OwnedRequest, Session};
use super::types::to_odbc;
use crate::Result;
use crate::driver::worker::Worker;
use crate::driver::worker::stream::Stream;
use crate::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Reset, Savepoint, Status,
};

/// An open connection to an ODBC data source.
///
/// [`Connection::as_any`] returns this type for this driver. [`Odbc`](super::Odbc) describes its behaviour.
#[derive(Debug)]
pub struct OdbcConnection {
    worker: Worker<Session>,
    stream: Stream,
}

impl OdbcConnection {
    pub(super) fn new(worker: Worker<Session>) -> Self {
        OdbcConnection {
            worker,
            stream: Stream::default(),
        }
    }

    /// Runs a statement with many sets of parameters on the thread.
    async fn batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        let own = |(n, set): (usize, &Vec<Param<'_>>)| {
            to_odbc(set).map_err(|error| error.in_set(n as u64))
        };
        let sets = sets.iter().enumerate().map(own);
        let sets = sets.collect::<Result<Vec<_>>>()?;
        let sql = sql.to_owned();
        self.call(move |session| session.run_batch(&sql, &sets, wants_rows))
            .await
    }

    async fn call<T: Send + 'static>(
        &mut self,
        program: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.stream.check_none()?;
        self.worker.call(program).await
    }
}

/// Returns a copy of a request, for the thread.
fn owned(request: &Request<'_>) -> Result<OwnedRequest> {
    Ok(OwnedRequest {
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
            let request = owned(&request)?;
            self.call(move |session| session.run(&request)).await
        })
    }

    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let request = owned(&request)?;
            self.call(move |session| session.run_all(&request)).await
        })
    }

    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move { Ok(self.batch(sql, sets, false).await?.0) })
    }

    fn query_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Vec<Batch>>> {
        Box::pin(async move { Ok(self.batch(sql, sets, true).await?.1) })
    }

    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        Box::pin(async move {
            let sql = sql.to_owned();
            self.call(move |session| session.prepare(&sql)).await
        })
    }

    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        Box::pin(async move {
            self.stream.check_none()?;
            let request = owned(&request)?;
            let program = move |session: &mut Session, outlet| session.stream(&request, outlet);
            self.stream.start(&mut self.worker, program).await
        })
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        self.stream.poll_batch(&mut self.worker, cx)
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.stream.end(&mut self.worker))
    }

    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move {
            let begin = *begin;
            let first = first.as_ref().map(owned).transpose()?;
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
        match self.worker.session() {
            Some(session) => session.status(),
            None => self.stream.status(),
        }
    }

    fn session_changed(&self) -> bool {
        self.worker.session().is_some_and(|session| session.changed)
    }

    fn is_broken(&self) -> bool {
        self.worker.is_lost() || self.worker.session().is_some_and(|session| session.broken)
    }

    fn probe(&mut self, _rested: Duration) {
        self.worker.look();
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // The error belongs to a dropped call; if the thread has ended, the next call reports it.
            let _ = self.stream.end(&mut self.worker).await;
            self.worker.settle().await
        })
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(Session::ping))
    }

    /// Replaces the connection, because ODBC cannot reset a session.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        Box::pin(std::future::ready(Ok(Reset::Replace)))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        let OdbcConnection { worker, stream } = *self;
        // Tells the thread that the rows are not wanted any more.
        drop(stream);
        Box::pin(worker.close())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
