//! Running statements.
//!
//! One without parameters is sent as text, which takes one round trip; one with parameters is prepared,
//! kept, and answered in binary.

use std::borrow::Cow;
use std::sync::Arc;

use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Params, QueryResult};

use super::connection::MysqlConnection;
use super::error;
use super::param;
use super::statement::Statement;
use super::types::Layout;
use crate::driver::{Batch, BatchBuilder, Outcome, Param, Prepared, Request, Status};
use crate::{Error, Result};

/// What came of a statement, besides what the connection keeps of it.
#[derive(Debug, Default)]
struct Gathered {
    rows: Option<BatchBuilder>,
    /// How many rows came last, wanted or not.
    count: u64,
    /// What the rows look like.
    layout: Option<Arc<Layout>>,
    /// Rows could not be kept. They were read all the same.
    wrong: Option<Error>,
}

/// How an answer is read.
struct Reading<'l> {
    /// Rows are wanted.
    rows: bool,
    /// It is of several statements: the last one counts.
    script: bool,
    /// What the rows looked like the last time.
    known: Option<&'l Arc<Layout>>,
    is_utc: bool,
}

impl MysqlConnection {
    /// Runs a statement, or a script.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has to be settled, which gives it up.
    pub(super) async fn execute(&mut self, request: Request<'_>) -> Result<Outcome> {
        let kept = match request.script {
            true => None,
            false => self.cache.get(request.sql),
        };
        let outcome = match kept {
            None if request.params.is_empty() => self.execute_text(&request).await?,
            kept => self.execute_prepared(&request, kept).await?,
        };
        self.warnings = outcome.warnings;
        if outcome.warnings > 0 && tracing::enabled!(tracing::Level::WARN) {
            self.log_warnings().await?;
        }
        Ok(outcome)
    }

    async fn execute_text(&mut self, request: &Request<'_>) -> Result<Outcome> {
        self.check_size(request.sql.len(), 0)?;
        let reading = self.reading(request, None);
        self.depart().await?;
        let answer = match self.wire()?.query_iter(request.sql).await {
            Ok(result) => gather(result, reading).await,
            Err(wrong) => Err(wrong),
        };
        let gathered = self.land(answer).await?;
        self.outcome(request.sql, gathered)
    }

    /// A kept statement that the server does not know any more, or wants prepared again, is run once more
    /// where nothing depends on it.
    async fn execute_prepared(
        &mut self,
        request: &Request<'_>,
        kept: Option<Statement>,
    ) -> Result<Outcome> {
        let was_idle = self.status == Status::Idle;
        let was_kept = kept.is_some();
        let done = self.run_prepared(request, kept).await;
        match done {
            Err(wrong) if was_kept && is_stale(&wrong) => {
                self.forget(request.sql).await?;
                match was_idle {
                    true => self.run_prepared(request, None).await,
                    false => Err(wrong),
                }
            }
            done => done,
        }
    }

    async fn run_prepared(
        &mut self,
        request: &Request<'_>,
        kept: Option<Statement>,
    ) -> Result<Outcome> {
        let params = param::to_raw(request.params, self.session.is_utc)?;
        self.check_size(request.sql.len(), param::size_of(&params))?;
        let is_one_shot = !request.cache || !self.cache.is_on();
        let is_new = kept.is_none();
        let statement = match kept {
            Some(statement) => statement,
            None => self.make_statement(request.sql, !is_one_shot).await?,
        };
        let wanted = usize::from(statement.handle.num_params());
        let outcome = match wanted == params.len() {
            true => self.exchange(request, &statement, params).await,
            // The client library would hang up over it.
            false => Err(error::wrong_count(wanted, params.len())),
        };
        if is_new && is_one_shot && !self.is_broken {
            self.close_statement(statement).await?;
        }
        outcome
    }

    /// Runs a statement that the server knows.
    async fn exchange(
        &mut self,
        request: &Request<'_>,
        statement: &Statement,
        params: Vec<mysql_async::Value>,
    ) -> Result<Outcome> {
        let reading = self.reading(request, Some(&statement.layout));
        self.depart().await?;
        let params = match params.is_empty() {
            true => Params::Empty,
            false => Params::Positional(params),
        };
        let answer = match self.wire()?.exec_iter(&statement.handle, params).await {
            Ok(result) => gather(result, reading).await,
            Err(wrong) => Err(wrong),
        };
        let gathered = self.land(answer).await?;
        if let Some(layout) = &gathered.layout
            && !Arc::ptr_eq(layout, &statement.layout)
        {
            self.cache.set_layout(request.sql, layout);
        }
        self.outcome(request.sql, gathered)
    }

    /// Runs a statement with one set of parameters after the other.
    pub(super) async fn execute_batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
    ) -> Result<Outcome> {
        let mut total = Outcome::default();
        for params in sets {
            let mut request = Request::new(sql, params);
            request.rows = false;
            let done = self.execute(request).await?;
            total.affected += done.affected;
            total.last_insert_id = done.last_insert_id.or(total.last_insert_id);
            total.warnings += done.warnings;
        }
        self.warnings = total.warnings;
        Ok(total)
    }

    pub(super) async fn prepare_only(&mut self, sql: &str) -> Result<Prepared> {
        let keeps = self.cache.is_on();
        let statement = match self.cache.get(sql) {
            Some(statement) => statement,
            None => {
                self.check_size(sql.len(), 0)?;
                self.make_statement(sql, keeps).await?
            }
        };
        let params = usize::from(statement.handle.num_params());
        let columns = Arc::clone(&statement.layout.columns);
        if !keeps {
            self.close_statement(statement).await?;
        }
        Ok(Prepared::new(params, columns))
    }

    /// Has the server prepare a statement.
    pub(super) async fn make_statement(&mut self, sql: &str, keeps: bool) -> Result<Statement> {
        let is_utc = self.session.is_utc;
        if keeps && let Some(oldest) = self.cache.make_room() {
            self.close_statement(oldest).await?;
        }
        let status = self.status;
        self.depart().await?;
        // The client library looks for `:name` of its own, and takes what stands in quotes for one at
        // times. Behind an empty comment it looks for nothing.
        let text = match sql.contains(':') {
            true => Cow::Owned(format!("/**/{sql}")),
            false => Cow::Borrowed(sql),
        };
        let answer = self.wire()?.prep(text).await;
        let handle = match answer {
            Ok(handle) => handle,
            Err(wrong) => return self.land(Err(wrong)).await,
        };
        // What it takes for the server's flags is not: it is the number of the statement.
        self.status = status;
        self.in_flight = false;
        self.prepared += 1;
        let statement = Statement {
            layout: Layout::new(handle.columns(), is_utc),
            handle,
        };
        if keeps {
            self.cache.insert(sql, statement.clone());
        }
        Ok(statement)
    }

    /// Has the server forget a statement. It gives no answer to that.
    async fn close_statement(&mut self, statement: Statement) -> Result<()> {
        self.depart().await?;
        match self.wire()?.close(statement.handle).await {
            Ok(()) => {
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => self.land(Err(wrong)).await,
        }
    }

    async fn forget(&mut self, sql: &str) -> Result<()> {
        match self.cache.remove(sql) {
            Some(statement) => self.close_statement(statement).await,
            None => Ok(()),
        }
    }

    /// Refuses what the server would hang up over.
    pub(super) fn check_size(&self, text: usize, params: u64) -> Result<()> {
        // A few bytes are the protocol's.
        let text = u64::try_from(text).unwrap_or(u64::MAX).saturating_add(16);
        let size = text.max(params.saturating_add(16));
        let limit = self.facts.max_packet;
        match size > limit {
            true => Err(error::too_large(size, limit)),
            false => Ok(()),
        }
    }

    fn reading<'l>(&self, request: &Request<'_>, known: Option<&'l Arc<Layout>>) -> Reading<'l> {
        Reading {
            rows: request.rows,
            script: request.script,
            known,
            is_utc: self.session.is_utc,
        }
    }

    fn outcome(&mut self, sql: &str, gathered: Gathered) -> Result<Outcome> {
        if let Some(wrong) = gathered.wrong {
            return Err(wrong);
        }
        let wire = self.wire()?;
        let id = wire.last_insert_id().filter(|id| *id != 0);
        let rows: Option<Batch> = gathered.rows.map(BatchBuilder::finish);
        let affected = match wire.affected_rows() {
            // With RETURNING the server tells them by giving them.
            0 if gathered.count > 0 && writes(sql) => gathered.count,
            affected => affected,
        };
        Ok(Outcome {
            rows,
            affected,
            last_insert_id: id.and_then(|id| i64::try_from(id).ok()),
            warnings: u64::from(wire.get_warnings()),
        })
    }

    /// Warnings of the last statement, for whoever reads the log.
    #[cold]
    async fn log_warnings(&mut self) -> Result<()> {
        let count = self.warnings;
        self.depart().await?;
        let asked = self.wire()?.query("SHOW WARNINGS LIMIT 10").await;
        let told: Vec<(String, u16, String)> = self.land(asked).await?;
        self.warnings = count;
        for (level, code, message) in told {
            match &*level {
                "Note" => tracing::debug!(code, "MySQL: {message}"),
                _ => tracing::warn!(code, "MySQL: {message}"),
            }
        }
        Ok(())
    }
}

/// The server does not know the statement, or wants it prepared again.
pub(super) fn is_stale(error: &Error) -> bool {
    const STALE: [i64; 3] = [1243, 1615, 2057];
    error.kind() == crate::Kind::Database && error.code().is_some_and(|code| STALE.contains(&code))
}

/// It begins with a word that writes.
fn writes(sql: &str) -> bool {
    let word = sql.trim_start().get(..6);
    let word = word.map(str::to_ascii_uppercase);
    matches!(
        word.as_deref(),
        Some("INSERT" | "DELETE" | "UPDATE" | "REPLAC")
    )
}

/// Reads an answer to its end.
async fn gather<P: Protocol>(
    mut result: QueryResult<'_, '_, P>,
    reading: Reading<'_>,
) -> mysql_async::Result<Gathered> {
    let mut gathered = Gathered::default();
    while let Some(described) = result.columns() {
        if described.is_empty() {
            // CALL ends with one such; a script may have any number.
            if reading.script {
                gathered.rows = None;
            }
            result.next().await?;
            continue;
        }
        let layout = match reading.known {
            Some(known) if known.is_of(&described) => Arc::clone(known),
            _ => Layout::new(described, reading.is_utc),
        };
        let mut rows = BatchBuilder::new(Arc::clone(&layout.columns));
        gathered.count = 0;
        while let Some(row) = result.next().await? {
            gathered.count += 1;
            if reading.rows && gathered.wrong.is_none() {
                gathered.wrong = layout.push(&mut rows, &row).err();
            }
        }
        gathered.rows = reading.rows.then_some(rows);
        gathered.layout = Some(layout);
    }
    // An error of a later statement is given to whoever asks for more.
    result.next().await?;
    Ok(gathered)
}
