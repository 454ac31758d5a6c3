//! Which server speaks PostgreSQL's protocol, and the commits whose outcome it leaves open.

use super::connection::PostgresConnection;
use super::error;
use super::protocol::answer::Answer;
use super::startup::Started;
use crate::driver::DatabaseError;
use crate::{Error, Kind};

/// A server that speaks PostgreSQL's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// PostgreSQL, and every server whose codes mean the same.
    Postgres,
    /// CockroachDB reports a commit of unknown outcome by an SQLSTATE.
    Cockroach,
}

impl Engine {
    /// The values of the option `engine`.
    pub(super) const NAMES: [(&'static str, Option<Engine>); 4] = [
        ("auto", None),
        ("postgresql", Some(Engine::Postgres)),
        ("yugabytedb", Some(Engine::Postgres)),
        ("cockroachdb", Some(Engine::Cockroach)),
    ];

    /// Returns the engine that the server says it is.
    pub(super) fn of(started: &Started) -> Self {
        match started.parameter("crdb_version") {
            Some(_) => Engine::Cockroach,
            None => Engine::Postgres,
        }
    }
}

impl PostgresConnection {
    /// Turns an answer that leaves the outcome of its commit open into the error that says so: a confirmation that the
    /// server did not wait for, or CockroachDB's 40003.
    #[cold]
    pub(super) fn check_outcome(&mut self, answer: &mut Answer) {
        self.suspect_by(answer.report.as_deref());
        let is_unconfirmed = std::mem::take(&mut self.unconfirmed);
        let is_ambiguous = |state: &str| self.engine == Engine::Cockroach && state == "40003";
        if let Some(report) = answer.report.take_if(|report| is_ambiguous(&report.state)) {
            let error = error::from_report(*report);
            let message = format!(
                "whether the transaction was committed is unknown: {}",
                error.message()
            );
            answer.wrong = Some(error.wrapped(Kind::OutcomeUnknown, message));
        } else if is_unconfirmed && answer.report.is_none() {
            answer.wrong = Some(unconfirmed());
        }
    }
}

/// Returns the error of a commit that the standbys have not confirmed.
fn unconfirmed() -> Error {
    let message = "the primary committed, but stopped waiting for a standby to confirm the commit: \
                   a failover may lose it";
    let said = DatabaseError::new(message).with_sql_state("01000");
    Error::database(said).wrapped(Kind::OutcomeUnknown, message)
}
