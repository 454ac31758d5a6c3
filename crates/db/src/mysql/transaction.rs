//! BEGIN, COMMIT, ROLLBACK and savepoints.

use mysql_async::prelude::Queryable;

use super::connection::MysqlConnection;
use super::param::quoted_name;
use super::positions::EndPosition;
use super::wire::caught;
use crate::driver::{Begin, CommitOutcome, Isolation, Outcome, Request, Savepoint, Status};
use crate::{Error, Kind, Result};

impl MysqlConnection {
    /// Runs a command of the driver's own, of one or several statements.
    pub(super) async fn command(&mut self, sql: &str) -> Result<()> {
        self.begin_call().await?;
        let answer = caught(self.wire()?.query_drop(sql)).await;
        self.end_call(answer).await
    }

    pub(super) async fn begin_transaction(
        &mut self,
        begin: &Begin,
        first: Option<Request<'_>>,
    ) -> Result<Outcome> {
        if self.status != Status::Idle {
            // The server would silently commit the open transaction.
            let message = "a transaction is already open on this connection; use a savepoint";
            return Err(Error::new(Kind::NestedBegin, message));
        }
        begin.check_not_deferrable()?;
        self.positions.end = EndPosition::NotWanted;
        self.command(begin_sql(begin)).await?;
        self.begun_by_layer = true;
        self.begun_read_only = begin.read_only;
        match first {
            Some(first) => self.execute(first).await,
            None => Ok(Outcome::default()),
        }
    }

    pub(super) async fn commit_transaction(&mut self) -> Result<CommitOutcome> {
        if self.status == Status::Idle && !self.in_flight && !self.is_broken {
            // The server accepts a COMMIT without a transaction, and how the transaction ended is unknown.
            let message = "there is no transaction to commit: the server has ended it";
            return Err(Error::new(Kind::NoTransaction, message));
        }
        match self.takes_position() {
            true => self.commit_with_position().await?,
            false => self.command("COMMIT").await?,
        }
        Ok(CommitOutcome::Committed)
    }

    pub(super) async fn roll_back_transaction(&mut self) -> Result<()> {
        if self.status == Status::Idle && !self.in_flight && !self.is_broken {
            return Ok(());
        }
        self.command("ROLLBACK").await
    }

    pub(super) async fn at_savepoint(&mut self, step: Savepoint<'_>) -> Result<()> {
        let sql = match step {
            Savepoint::Set(name) => format!("SAVEPOINT {}", quoted_name(name)),
            Savepoint::Release(name) => format!("RELEASE SAVEPOINT {}", quoted_name(name)),
            Savepoint::RollBack(name) => {
                let name = quoted_name(name);
                format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")
            }
        };
        self.command(&sql).await
    }
}

/// Returns the SQL of BEGIN. Both servers apply the level to the next transaction only.
fn begin_sql(begin: &Begin) -> &'static str {
    match (begin.isolation, begin.read_only) {
        (None, false) => "START TRANSACTION",
        (None, true) => "START TRANSACTION READ ONLY",
        (Some(Isolation::ReadUncommitted), false) => {
            "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION"
        }
        (Some(Isolation::ReadUncommitted), true) => {
            "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION READ ONLY"
        }
        (Some(Isolation::ReadCommitted), false) => {
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION"
        }
        (Some(Isolation::ReadCommitted), true) => {
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ ONLY"
        }
        (Some(Isolation::RepeatableRead), false) => {
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION"
        }
        (Some(Isolation::RepeatableRead), true) => {
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY"
        }
        (Some(Isolation::Serializable), false) => {
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION"
        }
        (Some(Isolation::Serializable), true) => {
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION READ ONLY"
        }
    }
}
