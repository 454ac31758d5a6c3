//! Transactions of the code under test, as savepoints of the transaction that is never committed.

use super::{SandboxConnection, Step, command};
use crate::driver::{Begin, CommitOutcome, Isolation, Request, Savepoint, Status};
use crate::sandbox::text::Family;
use crate::{Error, Kind, Result};

impl SandboxConnection {
    /// Begins the transaction that is never committed, unless it is open.
    pub(super) async fn begin_outermost(&mut self) -> Result<()> {
        if self.begun {
            return self.finish_statement().await;
        }
        // A dropped call may have begun it.
        if self.inner.status() == Status::Idle {
            let begin = Begin {
                isolation: self.rules.isolation,
                ..Begin::default()
            };
            self.inner.begin_with(&begin, None).await?;
        }
        if self.family == Family::Postgres {
            let request = Request::new(HAS_DEFERRABLE, &[]);
            let rows = self.inner.run(request).await?.into_rows();
            let found = rows.first().map(|row| row.get(0)).transpose()?;
            self.has_deferrable = found.unwrap_or_default();
        }
        self.begun = true;
        Ok(())
    }

    /// Prepares a call: outside of a transaction of the code under test, it gets a savepoint of its own where an error
    /// would abort the whole sandbox.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the savepoint may be set, which does no harm.
    pub(super) async fn enter(&mut self) -> Result<()> {
        self.begin_outermost().await?;
        if self.transaction.is_some() || !self.family.aborts() {
            return Ok(());
        }
        let level = self.new_level(false);
        let name = &self.statement.insert(level).name;
        let set = self.inner.savepoint(Savepoint::Set(name)).await;
        self.lost_at(set)?;
        if let Some(level) = &mut self.statement {
            level.step = Step::Open;
        }
        Ok(())
    }

    /// Ends a call that was answered.
    ///
    /// # Cancel safety
    ///
    /// Dropped, [`settle`](Connection::settle) ends the savepoint.
    pub(super) async fn leave<T>(&mut self, mut answer: Result<T>) -> Result<T> {
        if self.inner.is_broken() {
            return answer;
        }
        if self.statement.is_some() && answer.is_ok() {
            answer = self.check_constraints().await.and(answer);
        }
        if answer.is_err() {
            self.roll_back_statement().await?;
        }
        self.finish_statement().await?;
        self.still_inside(answer)
    }

    /// Checks deferred constraints, as a commit does, and defers again those that are deferred from the start.
    pub(super) async fn check_constraints(&mut self) -> Result<()> {
        if !self.has_deferrable {
            return Ok(());
        }
        let check = command("SET CONSTRAINTS ALL IMMEDIATE");
        self.inner.run(check).await?;
        self.inner.run(command(DEFER_AGAIN)).await.map(drop)
    }

    pub(super) async fn roll_back_statement(&mut self) -> Result<()> {
        let Some(level) = &mut self.statement else {
            return Ok(());
        };
        level.step = Step::RollingBack;
        let back = self.inner.savepoint(Savepoint::RollBack(&level.name)).await;
        self.statement = None;
        self.lost_at(back)
    }

    /// Ends the savepoint of a statement, also one that a stream or a dropped call has left.
    pub(super) async fn finish_statement(&mut self) -> Result<()> {
        let Some(level) = &mut self.statement else {
            return Ok(());
        };
        if self.inner.status() == Status::Failed {
            return self.roll_back_statement().await;
        }
        if level.step == Step::Open {
            level.step = Step::Releasing;
            let released = self.inner.savepoint(Savepoint::Release(&level.name)).await;
            self.statement = None;
            return self.lost_at(released);
        }
        self.statement = None;
        Ok(())
    }

    /// Begins a transaction of the code under test.
    pub(super) async fn begin_transaction(&mut self, begin: &Begin) -> Result<()> {
        if self.transaction.is_some() {
            let message = "a transaction is already open on this connection; use a savepoint";
            return Err(Error::new(Kind::NestedBegin, message));
        }
        self.check_isolation(begin)?;
        self.begin_outermost().await?;
        let level = self.new_level(begin.read_only);
        let name = &self.transaction.insert(level).name;
        let set = self.inner.savepoint(Savepoint::Set(name)).await;
        if let Err(error) = set {
            self.transaction = None;
            return self.lost_at(Err(error));
        }
        if let Some(level) = &mut self.transaction {
            level.step = Step::Open;
        }
        if begin.read_only && self.family == Family::Postgres {
            // The server restores the outer mode with the end of the savepoint.
            self.inner.run(command("SET TRANSACTION READ ONLY")).await?;
        }
        Ok(())
    }

    /// Refuses a level that the sandbox's transaction does not have.
    pub(super) fn check_isolation(&self, begin: &Begin) -> Result<()> {
        let default = match self.family {
            Family::Postgres | Family::Other => Isolation::ReadCommitted,
            Family::Mysql => Isolation::RepeatableRead,
            Family::Sqlite => Isolation::Serializable,
        };
        let has = self.rules.isolation.unwrap_or(default);
        let wants = match begin.deferrable {
            true => Some(Isolation::Serializable),
            false => begin.isolation,
        };
        match wants {
            Some(wants) if strictness(wants) > strictness(has) => {
                let message = format!(
                    "this transaction asks for {wants:?}, and the sandbox around it has {has:?}: open the sandbox with \
                     Builder::sandbox_at(Isolation::{wants:?})"
                );
                Err(Error::new(Kind::Unsupported, message))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn commit_transaction(&mut self) -> Result<CommitOutcome> {
        if self.transaction.is_none() {
            let message = "there is no transaction to commit";
            return Err(Error::new(Kind::NoTransaction, message));
        }
        if self.inner.status() == Status::Failed {
            self.roll_back_transaction().await?;
            return Ok(CommitOutcome::RolledBack);
        }
        if let Err(error) = self.check_constraints().await {
            if !self.inner.is_broken() {
                self.roll_back_transaction().await?;
            }
            return Err(error);
        }
        let Some(level) = &mut self.transaction else {
            unreachable!("looked up above");
        };
        level.step = Step::Releasing;
        let released = self.inner.savepoint(Savepoint::Release(&level.name)).await;
        self.transaction = None;
        self.lost_at(released)?;
        self.still_inside(Ok(CommitOutcome::Committed))
    }

    pub(super) async fn roll_back_transaction(&mut self) -> Result<()> {
        let Some(level) = &mut self.transaction else {
            return Ok(());
        };
        let was = level.step;
        let is_failed = self.inner.status() == Status::Failed;
        let may_be_gone = match was {
            Step::Open => false,
            // Nothing has run in it; or it was released, and its outcome is unknown to the caller.
            Step::Setting | Step::Releasing => {
                if !is_failed {
                    self.transaction = None;
                    return self.still_inside(Ok(()));
                }
                false
            }
            // PostgreSQL's driver waits for a dropped rollback. The others answer a second one with an error at most.
            Step::RollingBack if self.family.aborts() && !is_failed => {
                self.transaction = None;
                return self.still_inside(Ok(()));
            }
            Step::RollingBack => true,
        };
        level.step = Step::RollingBack;
        let back = self.inner.savepoint(Savepoint::RollBack(&level.name)).await;
        self.transaction = None;
        match may_be_gone && !self.inner.is_broken() {
            true => self.still_inside(Ok(())),
            false => {
                self.lost_at(back)?;
                self.still_inside(Ok(()))
            }
        }
    }
}

/// Asks whether any constraint can be deferred.
const HAS_DEFERRABLE: &str =
    "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint WHERE condeferrable)";

/// Defers the constraints again that are deferred from the start, in the schemas that the user may name. They are looked up
/// each time, because the test may have dropped some. If another session drops one meanwhile, they are deferred one by one.
/// A privilege is null if its table is gone, also one that a strict isolation level still shows.
const DEFER_AGAIN: &str = "DO LANGUAGE plpgsql $cenote$ DECLARE names pg_catalog.text[]; one pg_catalog.text; BEGIN \
     SELECT pg_catalog.array_agg(pg_catalog.format('%I.%I', n.nspname, c.conname)) INTO names \
     FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace \
     WHERE c.condeferred AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') \
     AND pg_catalog.has_table_privilege(c.conrelid, 'SELECT') IS NOT NULL \
     AND NOT pg_catalog.pg_is_other_temp_schema(n.oid); \
     IF names IS NULL THEN RETURN; END IF; \
     BEGIN \
       EXECUTE 'SET CONSTRAINTS ' || pg_catalog.array_to_string(names, ', ') || ' DEFERRED'; \
     EXCEPTION WHEN undefined_object OR invalid_schema_name THEN \
       FOREACH one IN ARRAY names LOOP \
         BEGIN \
           EXECUTE 'SET CONSTRAINTS ' || one || ' DEFERRED'; \
         EXCEPTION WHEN undefined_object OR invalid_schema_name THEN NULL; \
         END; \
       END LOOP; \
     END; END $cenote$";

fn strictness(isolation: Isolation) -> u8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
        Isolation::RepeatableRead => 2,
        Isolation::Serializable => 3,
    }
}
