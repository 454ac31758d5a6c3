//! A database that answers at once without doing anything, so that only the layer's cost is left.

use std::any::Any;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use cenote::driver::{
    Batch, Begin, BoxFuture, Columns, CommitOutcome, ConnectSettings, Connection, Dialect, Driver,
    Dsn, Options, Outcome, Param, Prepared, Request, Reset, Savepoint, Status, Template,
};
use cenote::{Credentials, Error, Kind, Result};

#[derive(Debug)]
pub struct Null;

#[derive(Debug, Default)]
struct NullConnection {
    in_transaction: bool,
}

impl Driver for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn template(&self, _: &Dsn, _: &Options) -> Result<Arc<dyn Template>> {
        Ok(Arc::new(Null))
    }
}

impl Template for Null {
    fn dialect(&self) -> &'static Dialect {
        static DIALECT: Dialect = Dialect::SQLITE;
        &DIALECT
    }

    fn address(&self) -> String {
        "nowhere".to_owned()
    }

    fn connect<'t>(
        &'t self,
        _: Credentials,
        _: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        let connection: Box<dyn Connection> = Box::<NullConnection>::default();
        Box::pin(ready(Ok(connection)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn unsupported<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T>> {
    let error = Error::new(Kind::Unsupported, "the null driver only runs");
    Box::pin(ready(Err(error)))
}

impl NullConnection {
    fn done<'c, T: Send + 'c>(&mut self, in_transaction: bool, out: T) -> BoxFuture<'c, Result<T>> {
        self.in_transaction = in_transaction;
        Box::pin(ready(Ok(out)))
    }
}

impl Connection for NullConnection {
    fn run<'c>(&'c mut self, _: Request<'c>) -> BoxFuture<'c, Result<Outcome>> {
        self.done(self.in_transaction, Outcome::default())
    }

    fn run_batch<'c>(
        &'c mut self,
        _: &'c str,
        _: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        unsupported()
    }

    fn prepare<'c>(&'c mut self, _: &'c str) -> BoxFuture<'c, Result<Prepared>> {
        unsupported()
    }

    fn start_stream<'c>(&'c mut self, _: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>> {
        unsupported()
    }

    fn poll_batch(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Batch>>> {
        Poll::Ready(Ok(None))
    }

    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>> {
        self.done(self.in_transaction, ())
    }

    fn begin_with<'c>(
        &'c mut self,
        _: &'c Begin,
        _: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>> {
        self.done(true, Outcome::default())
    }

    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>> {
        self.done(false, CommitOutcome::Committed)
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<()>> {
        self.done(false, ())
    }

    fn savepoint<'c>(&'c mut self, _: Savepoint<'c>) -> BoxFuture<'c, Result<()>> {
        self.done(true, ())
    }

    fn status(&self) -> Status {
        match self.in_transaction {
            true => Status::InTransaction,
            false => Status::Idle,
        }
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn settle(&mut self) -> BoxFuture<'_, Result<()>> {
        self.done(self.in_transaction, ())
    }

    fn ping(&mut self) -> BoxFuture<'_, Result<()>> {
        self.done(self.in_transaction, ())
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>> {
        self.done(self.in_transaction, Reset::Done)
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(ready(Ok(())))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
