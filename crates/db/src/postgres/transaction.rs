//! BEGIN, COMMIT, ROLLBACK and savepoints.

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection, quoted};
use super::protocol::answer::Answer;
use crate::driver::{Begin, CommitOutcome, Isolation, Outcome, Request, Savepoint, Status};
use crate::sql::{Keyword, class};
use crate::{Error, Kind, Result};

impl PostgresConnection {
    pub(super) async fn begin_transaction(
        &mut self,
        begin: &Begin,
        first: Option<Request<'_>>,
    ) -> Result<Outcome> {
        self.check_idle()?;
        self.begun_read_only = Some(begin.read_only);
        let sql = begin_sql(begin);
        match first {
            Some(first) if !first.script => self.execute(Some(sql), first).await,
            Some(script) => {
                // It could contain COMMIT and BEGIN, so the BEGIN must be answered first.
                self.command(sql).await?;
                self.execute(None, script).await
            }
            None => {
                self.command(sql).await?;
                Ok(Outcome::default())
            }
        }
    }

    pub(super) async fn begin_transaction_with_pipeline(
        &mut self,
        begin: &Begin,
        requests: &[Request<'_>],
    ) -> Result<Vec<Result<Outcome>>> {
        self.check_idle()?;
        self.begun_read_only = Some(begin.read_only);
        self.execute_pipeline(Some(begin_sql(begin)), requests, true)
            .await
    }

    /// Refuses to begin a transaction inside of another.
    fn check_idle(&self) -> Result<()> {
        if self.status == Status::Idle {
            return Ok(());
        }
        let message = "a transaction is already open on this connection; use a savepoint";
        Err(Error::new(Kind::NestedBegin, message))
    }

    pub(super) async fn commit_transaction(&mut self) -> Result<CommitOutcome> {
        let answer: Answer = match self.position.is_wanted() {
            false => self.command("COMMIT").await?,
            true => self.command_with_position("COMMIT").await?,
        };
        match (answer.committed, answer.rolled_back) {
            (true, _) => Ok(CommitOutcome::Committed),
            (_, true) => Ok(CommitOutcome::RolledBack),
            // The answer to another statement: it must not count as a successful COMMIT.
            (false, false) => Err(self.wire.garbage("a COMMIT without its command tag")),
        }
    }

    pub(super) async fn roll_back_transaction(&mut self) -> Result<()> {
        if self.in_flight == InFlight::Nothing && self.status == Status::Idle {
            return Ok(());
        }
        self.command("ROLLBACK").await.map(drop)
    }

    pub(super) async fn at_savepoint(&mut self, step: Savepoint<'_>) -> Result<()> {
        let sql = match step {
            Savepoint::Set(name) => format!("SAVEPOINT {}", quoted(name)),
            Savepoint::Release(name) => format!("RELEASE SAVEPOINT {}", quoted(name)),
            Savepoint::RollBack(name) => {
                let name = quoted(name);
                format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
            }
        };
        self.command(&sql).await.map(drop)
    }
}

/// Turns the answer into an error if this text was to commit a failed transaction: the server rolls it back without an
/// error.
pub(super) fn check_committed(answer: &mut Answer, before: Status, sql: &str) {
    if !answer.rolled_back || before != Status::Failed {
        return;
    }
    let verb = class(&DIALECT, sql).verb;
    if !matches!(verb, Some(Keyword::Rollback | Keyword::Abort)) {
        let message =
            "the server rolled the transaction back, because a statement in it had failed";
        answer.wrong = Some(Error::new(Kind::RolledBack, message));
    }
}

fn begin_sql(begin: &Begin) -> &'static str {
    if begin.deferrable {
        return "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE";
    }
    match (begin.isolation, begin.read_only) {
        (None, false) => "BEGIN",
        (None, true) => "BEGIN READ ONLY",
        (Some(Isolation::ReadUncommitted), false) => "BEGIN ISOLATION LEVEL READ UNCOMMITTED",
        (Some(Isolation::ReadUncommitted), true) => {
            "BEGIN ISOLATION LEVEL READ UNCOMMITTED READ ONLY"
        }
        (Some(Isolation::ReadCommitted), false) => "BEGIN ISOLATION LEVEL READ COMMITTED",
        (Some(Isolation::ReadCommitted), true) => "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY",
        (Some(Isolation::RepeatableRead), false) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        (Some(Isolation::RepeatableRead), true) => {
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        }
        (Some(Isolation::Serializable), false) => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        (Some(Isolation::Serializable), true) => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    }
}
