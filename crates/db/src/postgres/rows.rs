//! Writes the sets of a plain INSERT as statements of many rows, which cost the server a third of single ones.
//!
//! ```text
//! [SAVEPOINT]  Parse of the INSERT  check  Bind, Execute of one with many rows …  [RELEASE]  Sync
//! ```
//!
//! The result must be the same as if each set ran alone. [`RowInsert`] admits only `INSERT INTO t VALUES ($1, …)`. The rest
//! depends on the table, which the check asks the catalog about. It runs after the Parse has locked the table, so that
//! no trigger can appear afterwards, and before the first row. It fails the batch for a table
//!
//! - with rules, row security, partitions, or triggers: they run once for each statement, or see its other rows. Foreign
//!   keys are allowed, except to the table itself: a row could refer to a later one;
//! - with a function or type of the application's in a default, a constraint or an index: a stable function
//!   sees the table as it was before the statement;
//! - in a transaction whose snapshot is older than the lock.
//!
//! If anything fails, the server undoes the batch, or the client goes back to the savepoint, and the sets run one by one:
//! so an error is that of a single set, and names it.

use std::sync::Arc;

use super::batch::CHUNK;
use super::connect::DIALECT;
use super::connection::PostgresConnection;
use super::error;
use super::execute::StatementRef;
use super::param::{bind, bind_rows, need_types};
use super::protocol::answer::Answer;
use super::protocol::frontend::{bind_head, close_statement, parse, undo_batch};
use super::statement::{ALL_TEXT, Statement};
use crate::Result;
use crate::driver::{Outcome, Param, Status, Value};
use crate::sql::RowInsert;

/// Fewer sets are sent one by one.
pub(super) const FEWEST: usize = 64;

/// How many rows the statements have. They are kept prepared: the server soon stops to plan them anew.
const ROWS: [usize; 2] = [512, FEWEST];

/// A Bind has at most this many parameters.
const MOST_PARAMS: usize = 65_535;

/// The name of the check. It is closed in the batch that prepares it.
const CHECK_NAME: &str = "cenote_check";

/// Fails with a division by zero unless the table `$1` is plain, and returns no row otherwise.
const CHECK: &str = "\
SELECT 1 WHERE 1 / (\
SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c \
WHERE c.oid = pg_catalog.to_regclass($1) \
AND c.relkind = 'r' AND NOT c.relhasrules AND NOT c.relrowsecurity AND NOT c.relispartition \
AND pg_catalog.current_setting('transaction_isolation') = 'read committed' \
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_trigger g \
WHERE g.tgrelid = c.oid AND NOT (g.tgisinternal AND g.tgconstraint <> 0)) \
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k \
WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.confrelid = c.oid) \
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a \
JOIN pg_catalog.pg_type y ON y.oid = a.atttypid \
WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
AND a.atttypid >= 16384 AND y.typtype <> 'e') \
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend d \
JOIN (SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, oid FROM pg_catalog.pg_attrdef WHERE adrelid = c.oid \
UNION ALL SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, oid FROM pg_catalog.pg_constraint WHERE conrelid = c.oid \
UNION ALL SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, indexrelid FROM pg_catalog.pg_index WHERE indrelid = c.oid\
) of (class, id) ON d.classid = of.class AND d.objid = of.id \
WHERE d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass))\
) = 0";

const DIVISION_BY_ZERO: &str = "22012";

/// How the sets are written.
struct Rows<'s> {
    sql: &'s str,
    table: &'s str,
    /// The statements with their numbers of rows, the largest first; the last has one row.
    statements: Vec<(usize, Arc<Statement>)>,
    /// A transaction is open: its savepoint undoes the sets.
    has_savepoint: bool,
}

impl PostgresConnection {
    /// Inserts the sets in statements of many rows. `None` if that is not the same, or if it failed and was undone: then
    /// the sets have to run one by one.
    pub(super) async fn insert_rows(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
    ) -> Result<Option<Outcome>> {
        if self.singly.as_deref() == Some(sql) || sets.iter().any(|set| need_types(set)) {
            return Ok(None);
        }
        let Some(insert) = RowInsert::of(&DIALECT, sql) else {
            return Ok(None);
        };
        let single = self.prepared(sql).await?;
        let width = single.params.len();
        if width == 0 || sets[0].len() != width {
            return Ok(None);
        }
        let mut statements = Vec::new();
        let fits = |rows: &usize| *rows <= sets.len() && rows * width <= MOST_PARAMS;
        for rows in ROWS.into_iter().filter(fits) {
            let many = self.prepared(&insert.with_rows(rows, width)).await?;
            let types = std::iter::repeat_n(&single.params, rows).flatten();
            if !many.params.iter().eq(types) {
                return Ok(None);
            }
            statements.push((rows, many));
        }
        statements.push((1, single));
        // A small cache may have evicted the first statements again.
        let mut is_kept = |(_, statement): &(usize, Arc<Statement>)| {
            let kept = self.cache.get(&statement.sql);
            kept.is_some_and(|kept| kept.name == statement.name)
        };
        if statements.len() == 1 || !statements.iter().all(&mut is_kept) {
            return Ok(None);
        }
        let rows = Rows {
            sql,
            table: insert.table,
            statements,
            has_savepoint: self.status != Status::Idle,
        };
        let mark = self.wire.mark();
        if let Err(wrong) = self.queue_head(&rows) {
            self.wire.undo(mark);
            return Err(wrong);
        }
        // If the server skips its Close, or this future is dropped, the next call closes it.
        self.cache.unwanted.clear();
        self.cache.unwanted.push(CHECK_NAME.to_owned());
        let mut answer = Answer::new(false).adding_up();
        self.send_rows(&rows, sets, &mut answer).await?;
        if answer.is_fine() {
            self.cache.unwanted.retain(|name| name != CHECK_NAME);
            return answer.outcome(self.warnings_so_far()).map(Some);
        }
        self.undo_rows(&rows, answer).await?;
        Ok(None)
    }

    /// Returns the prepared statement of a text.
    async fn prepared(&mut self, sql: &str) -> Result<Arc<Statement>> {
        match self.statement_ref(sql, true)? {
            StatementRef::Known(statement) => Ok(statement),
            by => match self.prepare_with(None, sql, by).await? {
                Ok(statement) => Ok(statement),
                Err(mut refused) => Err(refused.error().unwrap_or_else(error::broken)),
            },
        }
    }

    /// Appends what precedes the rows: the savepoint, a Parse that locks the table, and the check.
    fn queue_head(&mut self, rows: &Rows<'_>) -> Result<()> {
        for name in &self.cache.unwanted {
            close_statement(self.wire.outbox(), name)?;
            self.wire.ask().closes += 1;
        }
        if rows.has_savepoint {
            self.queue_command("SAVEPOINT cenote_rows")?;
        }
        let out = self.wire.outbox();
        parse(out, "", rows.sql)?;
        parse(out, CHECK_NAME, CHECK)?;
        let table = [Param::Value(Value::Text(rows.table.into()))];
        bind(out, &bind_head(CHECK_NAME), None, &table, ALL_TEXT)?;
        self.wire.ask().parses += 2;
        self.queue_execute();
        close_statement(self.wire.outbox(), CHECK_NAME)?;
        self.wire.ask().closes += 1;
        Ok(())
    }

    /// Appends a command without parameters.
    fn queue_command(&mut self, sql: &str) -> Result<()> {
        let out = self.wire.outbox();
        parse(out, "", sql)?;
        bind(out, &bind_head(""), None, &[], ALL_TEXT)?;
        self.wire.ask().parses += 1;
        self.queue_execute();
        Ok(())
    }

    /// Sends the rows with their Sync, and reads the answer.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the batch has no Sync, or no answer; settling undoes it, or ends it.
    async fn send_rows(
        &mut self,
        rows: &Rows<'_>,
        sets: &[Vec<Param<'_>>],
        answer: &mut Answer,
    ) -> Result<()> {
        let types = rows.statements.last().map(|(_, single)| &single.params[..]);
        let mut rest = sets;
        while !rest.is_empty() && answer.report.is_none() {
            let fits = |(rows, _): &&(usize, Arc<Statement>)| *rows <= rest.len();
            let Some((count, statement)) = rows.statements.iter().find(fits) else {
                break;
            };
            let (some, others) = rest.split_at(*count);
            rest = others;
            let out = self.wire.outbox();
            if bind_rows(out, &statement.bind_head, types, some, ALL_TEXT).is_err() {
                // The server undoes the rows before. Run one by one, the sets give the error of the right one.
                undo_batch(self.wire.outbox())?;
                self.wire.ask().parses += 1;
                break;
            }
            self.queue_execute();
            if self.wire.unsent() >= CHUNK {
                self.send_part(answer).await?;
            }
        }
        if rows.has_savepoint {
            self.queue_command("RELEASE SAVEPOINT cenote_rows")?;
        }
        self.wire.sync();
        self.receive(answer).await
    }

    /// Undoes a batch that failed: in a transaction the client does, otherwise the server has.
    ///
    /// # Errors
    ///
    /// The transaction had failed before.
    async fn undo_rows(&mut self, rows: &Rows<'_>, mut answer: Answer) -> Result<()> {
        let before_check = u64::from(rows.has_savepoint);
        let is_refused = answer.completed == before_check;
        let report = answer.report.as_ref();
        if is_refused && report.is_some_and(|report| &*report.state == DIVISION_BY_ZERO) {
            self.singly = Some(rows.sql.into());
        }
        if !rows.has_savepoint {
            return Ok(());
        }
        if answer.completed == 0 {
            return Err(answer.error().unwrap_or_else(error::broken));
        }
        let back = "ROLLBACK TO SAVEPOINT cenote_rows; RELEASE SAVEPOINT cenote_rows";
        let mut undone = self.simple(back, Answer::new(false)).await?;
        undone.error().map_or(Ok(()), Err)
    }
}
