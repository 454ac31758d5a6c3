//! The session, brought back to what it was after connecting.

use super::answer::Answer;
use super::connection::{Flight, PostgresConnection};
use crate::Result;
use crate::driver::Reset;

/// All that `DISCARD ALL` does except for prepared statements and their plans, which are ours.
const KEEPING_STATEMENTS: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; \
                                  UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); \
                                  DISCARD TEMP; DISCARD SEQUENCES";

impl PostgresConnection {
    /// In one round trip. What the DSN set is part of what the server goes back to.
    pub(super) async fn reset_session(&mut self) -> Result<Reset> {
        self.begin_call(Flight::Brief)?;
        let sql = match self.session.has_foreign_statements() {
            true => "DISCARD ALL",
            false => KEEPING_STATEMENTS,
        };
        let done = self.simple(sql, Answer::new(false)).await;
        let mut answer = self.finish_call(done)?;
        if let Some(error) = answer.error() {
            tracing::debug!(%error, "a session could not be reset and is replaced");
            return Ok(Reset::Replace);
        }
        self.session.note_reset();
        self.cache.note_reset();
        Ok(Reset::Done)
    }
}
