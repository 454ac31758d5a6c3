//! Calls to a driver's connection as values, so that one function can fly them all.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::SharedRuntime;
use crate::driver::{
    Begin, BoxFuture, Columns, CommitOutcome, Connection, Outcome, Param, Prepared, Request,
    Savepoint,
};
use crate::link::Link;
use crate::{Error, Kind, Result};

/// A call to a driver's connection.
pub(crate) trait Op: Send + Sync {
    type Out: Send;

    /// Nothing that matters is changed by it, answered or not: dropped, it dooms no transaction.
    const HARMLESS: bool = false;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Self::Out>>;
}

/// Makes a call and waits for its answer, for at most so long.
///
/// # Cancel safety
///
/// Dropped, or late, the link is unsettled.
pub(crate) async fn fly<O: Op>(
    link: &mut Link,
    op: &O,
    site: &'static Location<'static>,
    runtime: &SharedRuntime,
    limit: Option<Duration>,
) -> Result<O::Out> {
    if limit.is_none() {
        return fly_unlimited(link, op, site).await;
    }
    if O::HARMLESS {
        link.harmless();
    }
    let mut flight = link.depart(site);
    let answer = runtime.within(limit, op.start(flight.connection())).await;
    match answer {
        Some(answer) => {
            flight.land();
            answer
        }
        None => {
            let message = format!("ran longer than {:?}", limit.unwrap_or_default());
            Err(Error::new(Kind::StatementTimeout, message).at(site))
        }
    }
}

/// Makes a call and waits for its answer, however long it takes.
///
/// # Cancel safety
///
/// Dropped, the link is unsettled.
pub(crate) async fn fly_unlimited<O: Op>(
    link: &mut Link,
    op: &O,
    site: &'static Location<'static>,
) -> Result<O::Out> {
    if O::HARMLESS {
        link.harmless();
    }
    let mut flight = link.depart(site);
    let answer = op.start(flight.connection()).await;
    flight.land();
    answer
}

pub(crate) struct Run<'a>(pub(crate) Request<'a>);

impl Op for Run<'_> {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.run(self.0)
    }
}

pub(crate) struct RunBatch<'a> {
    pub(crate) sql: &'a str,
    pub(crate) sets: &'a [Vec<Param<'a>>],
}

impl Op for RunBatch<'_> {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.run_batch(self.sql, self.sets)
    }
}

pub(crate) struct Prepare<'a>(pub(crate) &'a str);

impl Op for Prepare<'_> {
    type Out = Prepared;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Prepared>> {
        on.prepare(self.0)
    }
}

pub(crate) struct StartStream<'a>(pub(crate) Request<'a>);

impl Op for StartStream<'_> {
    type Out = Arc<Columns>;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Arc<Columns>>> {
        on.start_stream(self.0)
    }
}

pub(crate) struct BeginWith<'a> {
    pub(crate) begin: Begin,
    pub(crate) first: Option<Request<'a>>,
}

impl Op for BeginWith<'_> {
    type Out = Outcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Outcome>> {
        on.begin_with(&self.begin, self.first)
    }
}

pub(crate) struct Commit;

impl Op for Commit {
    type Out = CommitOutcome;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<CommitOutcome>> {
        on.commit()
    }
}

pub(crate) struct Rollback;

impl Op for Rollback {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.rollback()
    }
}

pub(crate) struct AtSavepoint<'a>(pub(crate) Savepoint<'a>);

impl Op for AtSavepoint<'_> {
    type Out = ();

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.savepoint(self.0)
    }
}

pub(crate) struct Ping;

impl Op for Ping {
    type Out = ();

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<()>> {
        on.ping()
    }
}
