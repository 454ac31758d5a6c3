//! Scripts: several statements in one text, in one round trip, by the simple protocol.

use super::connect::DIALECT;
use super::connection::{InFlight, PostgresConnection};
use super::error;
use super::protocol::answer::Answer;
use super::transaction::check_committed;
use crate::Result;
use crate::driver::{Outcome, Request, Status};
use crate::sql;

impl PostgresConnection {
    /// Runs a script and collects the server's answer in `answer`.
    pub(super) async fn run_script(
        &mut self,
        request: &Request<'_>,
        before: Status,
        answer: Answer,
    ) -> Result<Answer> {
        if !request.params.is_empty() {
            return Err(error::wrong_count(0, request.params.len()));
        }
        if self.cache.is_on() {
            self.expect_text(&sql::class(&DIALECT, request.sql));
        }
        let mut answer = self.simple(request.sql, answer).await?;
        check_committed(&mut answer, before, request.sql);
        Ok(answer)
    }

    /// Runs a statement or a script and returns the outcome of each statement.
    pub(super) async fn execute_all(&mut self, request: Request<'_>) -> Result<Vec<Outcome>> {
        if !request.script {
            return Ok(vec![self.execute(None, request).await?]);
        }
        self.begin_call(InFlight::Statement)?;
        let done = self.script_in_call(&request).await;
        self.finish_call(done)
    }

    async fn script_in_call(&mut self, request: &Request<'_>) -> Result<Vec<Outcome>> {
        let answer = Answer::of_each();
        let mut answer = self.run_script(request, self.status, answer).await?;
        let mut outcomes = Vec::new();
        for finished in answer.finished()? {
            let mut outcome = finished.outcome;
            if !finished.layout.unknown.is_empty() {
                let layout = &finished.layout;
                self.look_up_types_of(layout, &mut outcome).await?;
            }
            outcomes.push(outcome);
        }
        // The server does not report which statement a warning belongs to.
        if let Some(last) = outcomes.last_mut() {
            last.warnings = self.warnings_so_far();
        }
        Ok(outcomes)
    }
}
