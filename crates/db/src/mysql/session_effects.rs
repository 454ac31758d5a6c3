//! What a text may have done to the session.

use mysql_async::prelude::Queryable;

use super::config::dialect;
use super::connection::MysqlConnection;
use super::session::{Charsets, is_utc};
use super::wire::caught;
use crate::sql::{class, contains_any};
use crate::{Error, Kind, Result};

impl MysqlConnection {
    /// Whether the text may change the session.
    pub(super) fn may_touch_session(&self, sql: &str) -> bool {
        class(self.facts.dialect, sql).touches_session
    }

    /// Does what has to be done after a text that may have changed the session.
    pub(super) async fn note_touch(&mut self, sql: &str) -> Result<()> {
        self.forget_kept().await?;
        if self.is_broken || !may_change_reading(sql) {
            return Ok(());
        }
        // If asking fails, the next one asks.
        self.is_reading_unsure = true;
        self.look_at_session().await
    }

    /// Has the server forget the statements that are kept. They go on in the database and under the
    /// `sql_mode` that they were prepared in, and what has just been run may have changed those.
    pub(super) async fn forget_kept(&mut self) -> Result<()> {
        for statement in self.cache.take_all() {
            if self.is_broken {
                break;
            }
            self.close_statement(statement).await?;
        }
        Ok(())
    }

    /// Rows are about to be streamed by a text that may change the session: nobody knows when it has.
    pub(super) fn expect_touch(&mut self, sql: &str) {
        self.is_reading_unsure |= may_change_reading(sql);
    }

    /// Refuses to run anything in a session in which the server does not read in a text what is read in it here.
    ///
    /// Statements that are kept need no such check: there are none after a text that may have changed the session.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has to be settled, which gives it up.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`], and what becomes of asking.
    pub(super) async fn check_reading(&mut self) -> Result<()> {
        if self.is_reading_unsure {
            Box::pin(self.look_at_session()).await?;
        }
        match self.misreads {
            Some(wrong) => Err(wrong.error()),
            None => Ok(()),
        }
    }

    /// Asks the session how it reads what it is given.
    async fn look_at_session(&mut self) -> Result<()> {
        const ASK: &str = "CAST(@@time_zone AS CHAR), CAST(@@sql_mode AS CHAR)";
        self.depart().await?;
        let ask = format!("SELECT {ASK}, {}", Charsets::ASK);
        let asked = caught(self.wire()?.query_first(ask)).await;
        let told: Option<(String, String, String, Option<String>)> = self.land(asked).await?;
        let (zone, mode, client, results) = told.unwrap_or_default();
        // What is a moment in one session's clock is none in another's.
        self.is_utc = is_utc(&zone);
        self.misreads = if dialect(&mode) != self.facts.dialect {
            Some(Misread::Mode)
        } else {
            let charsets = Charsets { client, results };
            charsets
                .misread()
                .map(|(variable, _)| Misread::Charset(variable))
        };
        self.is_reading_unsure = false;
        Ok(())
    }
}

/// By which of its variables a session reads texts, or gives rows, otherwise than they are read here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Misread {
    Mode,
    Charset(&'static str),
}

impl Misread {
    pub(super) fn error(self) -> Error {
        let message = match self {
            Misread::Mode => "the sql_mode of this session was changed, and now makes the server read \
                              quotes or backslashes otherwise than expected: nothing is run in it. Set \
                              the mode in the DSN"
                .to_owned(),
            Misread::Charset(variable) => format!(
                "the {variable} of this session was changed to one in which texts and rows are misread: \
                 nothing is run in it. Only utf8mb4 and utf8mb3 are right"
            ),
        };
        Error::new(Kind::Config, message)
    }
}

/// Whether a text may change how the server reads what it is given: it names such a setting, or runs a text that is not to be
/// seen. A routine keeps its `sql_mode` and `character_set_client` to itself; rows in another character set tell so themselves.
fn may_change_reading(sql: &str) -> bool {
    const NAMES: [&str; 6] = [
        "time_zone",
        "sql_mode",
        "names",
        "character",
        "charset",
        "execute",
    ];
    contains_any(sql, &NAMES)
}
