//! What a text may have changed in the session.

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

    /// Clears the cache and checks the session after a text that may have changed it.
    pub(super) async fn note_touch(&mut self, sql: &str) -> Result<()> {
        self.forget_kept().await?;
        if self.is_broken || !may_change_reading(sql) {
            return Ok(());
        }
        // If the check fails, the next call repeats it.
        self.is_reading_unsure = true;
        self.check_session().await
    }

    /// Closes the cached statements on the server. They keep the database and the `sql_mode` of their preparation, which
    /// the last text may have changed.
    pub(super) async fn forget_kept(&mut self) -> Result<()> {
        for statement in self.cache.take_all() {
            if self.is_broken {
                break;
            }
            self.close_statement(statement).await?;
        }
        Ok(())
    }

    /// Notes a stream of a text that may change the session at any time while it runs.
    pub(super) fn expect_touch(&mut self, sql: &str) {
        self.is_reading_unsure |= may_change_reading(sql);
    }

    /// Refuses to run anything in a session in which the server reads texts differently than this client.
    ///
    /// Cached statements need no check: a text that may change the session clears the cache.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`], or an error of the query that checks.
    pub(super) async fn check_reading(&mut self) -> Result<()> {
        if self.is_reading_unsure {
            Box::pin(self.check_session()).await?;
        }
        match self.misreads {
            Some(wrong) => Err(wrong.error()),
            None => Ok(()),
        }
    }

    /// Asks the session for its time zone, `sql_mode` and character sets.
    async fn check_session(&mut self) -> Result<()> {
        const ASK: &str = "CAST(@@time_zone AS CHAR), CAST(@@sql_mode AS CHAR)";
        self.begin_call().await?;
        let ask = format!("SELECT {ASK}, {}", Charsets::ASK);
        let asked = caught(self.wire()?.query_first(ask)).await;
        let told: Option<(String, String, String, Option<String>)> = self.end_call(asked).await?;
        let (zone, mode, client, results) = told.unwrap_or_default();
        // Columns of TIMESTAMP have another type in another time zone.
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

/// The variable under which a session reads texts, or sends rows, differently than this client expects.
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

/// Whether a text may change how the server reads texts: it names such a setting, or executes another text. A routine has
/// its own `sql_mode` and `character_set_client`; rows in another character set say so in their columns.
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
