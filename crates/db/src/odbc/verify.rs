//! Checks a session: its character sets, and whether it is still the session that was opened.
//!
//! MySQL and MariaDB get both checks, PostgreSQL the first. SQLite always uses UTF-8; other databases are not checked.

use super::config::MYSQL;
use super::error::Vendor;
use super::execute::gather;
use super::handle::Cancel;
use super::session::Session;
use crate::{Error, Kind, Result};

/// A variable with the session's connection id; a new session does not have it. Some drivers silently open a new session when
/// one is lost, and the rest of a transaction would run outside of it.
const OWN_NUMBER: &str = "@`cenote session`";

/// The text of the error that a COMMIT in another session raises.
const ANOTHER_SESSION: &str = "cenote: another session";

impl Session {
    /// Checks a new session.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] if it would misread texts.
    pub(super) fn verify_new(&mut self) -> Result<()> {
        if self.can.vendor == Vendor::Mysql {
            let own = self.ask(&format!(
                "SELECT CONCAT_WS(' ', {OWN_NUMBER} := CONNECTION_ID(), VERSION())"
            ))?;
            self.can.commits_if = own.to_ascii_lowercase().contains("mariadb");
        }
        self.is_reading_unsure = true;
        self.check_reading()
    }

    /// Refuses to run anything in a session in which the database reads texts differently than this client, or whose rows are
    /// not UTF-8.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`], or an error of the query that checks.
    pub(super) fn check_reading(&mut self) -> Result<()> {
        if self.is_reading_unsure {
            self.misread = self.ask_reading()?;
            self.is_reading_unsure = false;
        }
        match &self.misread {
            None => Ok(()),
            Some(how) => {
                let message = format!(
                    "the session has {how}, in which texts or rows would be misread: nothing is run in \
                     it. Have the data source use UTF-8, with CHARSET=utf8mb4 for MariaDB's driver and the \
                     Unicode driver of PostgreSQL"
                );
                Err(Error::new(Kind::Config, message))
            }
        }
    }

    /// Returns the setting under which texts or rows would be misread.
    fn ask_reading(&mut self) -> Result<Option<String>> {
        match self.can.vendor {
            Vendor::Mysql => {
                let said = self.ask(
                    "SELECT CONCAT_WS(' ', @@character_set_client, \
                     COALESCE(@@character_set_results, 'NULL'), @@sql_mode)",
                )?;
                let mut words = said.split(' ');
                let mut next = || words.next().unwrap_or_default();
                let (client, results, mode) = (next(), next(), next());
                let is_utf8 = |name: &str| matches!(name, "utf8mb4" | "utf8mb3" | "utf8");
                // Other dialects assume nothing about the sql_mode.
                let is_read_otherwise = std::ptr::eq(self.config.dialect, &MYSQL)
                    && ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES"]
                        .iter()
                        .any(|other| mode.contains(other));
                Ok(if !is_utf8(client) {
                    Some(format!("character_set_client = {client}"))
                } else if !is_utf8(results) {
                    Some(format!("character_set_results = {results}"))
                } else if is_read_otherwise {
                    Some(format!("sql_mode = {mode}"))
                } else {
                    None
                })
            }
            Vendor::Postgres => {
                let said = self.ask("SELECT current_setting('client_encoding')")?;
                // Under SQL_ASCII the server converts nothing.
                let is_right = ["UTF8", "UNICODE", "SQL_ASCII"].contains(&&*said);
                Ok((!is_right).then(|| format!("client_encoding = {said}")))
            }
            Vendor::Sqlite | Vendor::SqlServer | Vendor::Other => Ok(None),
        }
    }

    /// Checks that the session is still the one that was opened.
    ///
    /// # Errors
    ///
    /// It is another one, or the check failed. The connection is not used again.
    pub(super) fn check_same(&mut self) -> Result<()> {
        if self.can.vendor != Vendor::Mysql {
            return Ok(());
        }
        let asked = self.ask(&format!(
            "SELECT CASE WHEN {OWN_NUMBER} = CONNECTION_ID() THEN 'same' ELSE 'other' END"
        ));
        match asked {
            Ok(same) if same == "same" => Ok(()),
            Ok(_) => Err(self.another_session()),
            Err(error) => {
                self.broken = true;
                Err(error)
            }
        }
    }

    /// Commits in the session that was opened, or not at all.
    ///
    /// # Errors
    ///
    /// An error of the database. In another session, the outcome of the transaction is unknown, and the connection is
    /// not used again.
    pub(super) fn commit_in_same(&mut self) -> Result<()> {
        if self.can.vendor == Vendor::Mysql && self.can.commits_if {
            // One statement, so that the driver cannot reconnect between check and commit.
            let commit = format!(
                "BEGIN NOT ATOMIC IF {OWN_NUMBER} = CONNECTION_ID() THEN COMMIT; \
                 ELSE SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{ANOTHER_SESSION}'; END IF; END"
            );
            let done = self.uncancelled(&commit);
            return done.map_err(|error| match error.message().contains(ANOTHER_SESSION) {
                true => self.another_session(),
                false => error,
            });
        }
        self.check_same()?;
        let done = self.connection.commit();
        done.map_err(|error| self.note_failure(error))?;
        self.check_same()
    }

    fn another_session(&mut self) -> Error {
        self.broken = true;
        let message = "the ODBC driver has opened a new session by itself after it had lost the connection: \
                       what was run since then ran outside of the transaction, and may have been committed. \
                       Switch its automatic reconnect off";
        Error::new(Kind::ConnectionLost, message)
    }

    /// Returns the first value of a query, as text. It cannot be cancelled.
    fn ask(&mut self, sql: &str) -> Result<String> {
        let mut statement = self.statement()?;
        let done = statement
            .execute(Cancel::NEVER, Some(sql), &[])
            .and_then(|()| gather(&mut statement, Cancel::NEVER, true, true));
        let rows = self.outcome(done)?.rows;
        let row = rows.and_then(crate::driver::Batch::into_first);
        row.map_or_else(|| Ok(String::new()), |row| row.get::<String>(0))
    }
}

/// Whether a text may change how the session reads texts and sends rows: it names such a setting, or executes another text.
pub(super) fn may_change_reading(sql: &str) -> bool {
    const NAMES: [&str; 7] = [
        "names",
        "character",
        "charset",
        "encoding",
        "sql_mode",
        "execute",
        "call",
    ];
    crate::sql::contains_any(sql, &NAMES)
}
