//! The requests to replicas, and the question for the primary's position.

use crate::Result;
use crate::call::op::{Commits, Op};
use crate::driver::{BoxFuture, Connection, Dialect, LogPosition, Outcome, ReplicaAnswer, Request};
use crate::sql::CachedScan;

/// What a replica has answered, and what has become of the read behind that.
pub(super) type Answered = (ReplicaAnswer, Option<Result<Outcome>>);

/// A read on a replica that has replayed everything up to a position; without a text, only the question.
pub(super) struct ReadAt<'a> {
    /// `None` while nothing is known about the primary.
    pub(super) wanted: Option<LogPosition>,
    pub(super) verify: bool,
    pub(super) read: Option<(Request<'a>, &'a CachedScan)>,
}

impl Op for ReadAt<'_> {
    type Out = Answered;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<Answered>> {
        let read = self.read.map(|(request, _)| request);
        on.read_at(self.wanted, self.verify, read)
    }

    fn sql(&self) -> &str {
        self.read.map_or("", |(_, scan)| scan.written_sql())
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }

    fn rows((_, read): &Answered) -> Option<u64> {
        let outcome = read.as_ref()?.as_ref().ok()?;
        Some(outcome.rows.as_ref().map_or(0, |rows| rows.len() as u64))
    }

    fn failure((_, read): &Answered) -> Option<&crate::Error> {
        read.as_ref()?.as_ref().err()
    }
}

/// The question how far the primary is.
pub(super) struct AskPosition;

impl Op for AskPosition {
    type Out = LogPosition;

    const HARMLESS: bool = true;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<LogPosition>> {
        on.ask_position()
    }

    fn commits(&self, _: &'static Dialect) -> Commits {
        Commits::Nothing
    }
}
