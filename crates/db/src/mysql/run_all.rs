//! Running a script or a procedure for all of its results.

use mysql_async::QueryResult;
use mysql_async::prelude::{Protocol, Queryable};

use super::connection::MysqlConnection;
use super::decimal;
use super::execute::{Gathered, Reading, Results, gather};
use crate::Result;
use crate::driver::{Outcome, Request};

/// All results of an answer.
#[derive(Default)]
struct All {
    last: Gathered,
    outcomes: Vec<Outcome>,
}

impl Results for All {
    fn last(&mut self) -> &mut Gathered {
        &mut self.last
    }

    fn end_without_rows<P: Protocol>(&mut self, result: &QueryResult<'_, '_, P>) {
        let id = result.last_insert_id().filter(|id| *id != 0);
        self.outcomes.push(Outcome {
            rows_affected: result.affected_rows(),
            last_insert_id: id.and_then(|id| i64::try_from(id).ok()),
            warnings: u64::from(result.warnings()),
            ..Outcome::default()
        });
    }

    fn end_rows(&mut self) {
        if let Some(rows) = self.last.take_rows() {
            self.outcomes.push(Outcome {
                rows: Some(rows),
                ..Outcome::default()
            });
        }
    }
}

impl MysqlConnection {
    /// Runs a text and returns each of its results. A procedure ends with a result of its own, without rows.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    pub(super) async fn execute_all(&mut self, request: Request<'_>) -> Result<Vec<Outcome>> {
        self.check_reading().await?;
        let is_watched = self.set_marker(request.sql).await?;
        let done = self.ask_all(request).await;
        if is_watched {
            self.check_marker().await?;
        }
        done
    }

    async fn ask_all(&mut self, request: Request<'_>) -> Result<Vec<Outcome>> {
        let sql = decimal::with_casts(self.facts.dialect, request.sql, request.params);
        let request = Request {
            sql: &sql,
            ..request
        };
        let mut all = All::default();
        let last = match request.params.is_empty() {
            true => self.ask_text(&request, &mut all).await?,
            false => self.ask_once(&request, &mut all).await?,
        };
        if let [only] = &mut *all.outcomes {
            // For a single statement, the rows of RETURNING count.
            only.rows_affected = last.rows_affected;
            only.last_insert_id = last.last_insert_id;
        }
        Ok(all.outcomes)
    }

    /// Prepares a statement, runs it once, and closes it.
    async fn ask_once(&mut self, request: &Request<'_>, all: &mut All) -> Result<Outcome> {
        self.check_size(request.sql.len(), 0)?;
        let statement = self.make_statement(request.sql, false).await?;
        let done = match self.fit(request, &statement) {
            Ok(params) => {
                let reading = Reading::of(request, None, self.is_utc);
                self.begin_call().await?;
                let asked = self.wire()?.exec_iter(statement.handle.clone(), params);
                let answer = gather(asked, reading, all).await;
                let ended = self.end_script_call(answer).await;
                ended.and_then(|()| self.outcome(statement.writes, all.last()))
            }
            Err(wrong) => Err(wrong),
        };
        if self.is_broken {
            return done;
        }
        if statement.touches_session {
            self.note_touch(request.sql).await?;
        }
        self.close_statement(statement).await?;
        done
    }
}
