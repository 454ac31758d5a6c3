//! BEGIN, COMMIT, ROLLBACK and savepoints.

use super::connect::DIALECT;
use super::connection::{Flight, PostgresConnection, quoted};
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
        if self.status != Status::Idle {
            let message = "there is a transaction already on this connection";
            return Err(Error::new(Kind::NestedBegin, message));
        }
        let sql = begin_sql(begin);
        match first {
            Some(first) if !first.script => self.execute(Some(sql), first).await,
            Some(script) => {
                // It could commit, and begin again: so that has to be known before.
                self.command(sql).await?;
                self.execute(None, script).await
            }
            None => {
                self.command(sql).await?;
                Ok(Outcome::default())
            }
        }
    }

    pub(super) async fn commit_transaction(&mut self) -> Result<CommitOutcome> {
        let answer: Answer = self.command("COMMIT").await?;
        match (answer.committed, answer.rolled_back) {
            (true, _) => Ok(CommitOutcome::Committed),
            (_, true) => Ok(CommitOutcome::RolledBack),
            // An answer to something else: nobody may take it for money that has moved.
            (false, false) => Err(self.wire.garbage("it did not say what came of a COMMIT")),
        }
    }

    pub(super) async fn roll_back_transaction(&mut self) -> Result<()> {
        if self.flight == Flight::Nothing && self.status == Status::Idle {
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

/// What to say if this text was to commit a transaction that had failed: the server
/// rolls it back, and calls that no error.
pub(super) fn check_committed(answer: &mut Answer, before: Status, sql: &str) {
    if !answer.rolled_back || before != Status::Failed {
        return;
    }
    let verb = class(&DIALECT, sql).verb;
    if !matches!(verb, Some(Keyword::Rollback | Keyword::Abort)) {
        let message = "the server rolled the transaction back, because it had failed before";
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
