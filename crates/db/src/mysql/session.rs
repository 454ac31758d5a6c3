//! The settings of every session, after connecting and after a reset, and the facts that a session reports.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::config::dialect;
use super::engine::Engine;
use super::param::{quoted_name, quoted_text, text_literal};
use crate::driver::Dialect;
use crate::{Error, Kind, Result};

/// The SQL that sets every session up.
#[derive(Debug)]
pub(super) struct Session {
    /// For a new session.
    set_up: String,
    /// After a reset, which keeps the database and discards the rest.
    restore: String,
    /// The time zone is UTC.
    pub(super) is_utc: bool,
}

/// Facts that a session reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) sql_mode: String,
    /// The server's limit for one packet.
    pub(super) max_packet: u64,
    database: Option<String>,
    role: Option<String>,
    /// Identifies the server.
    server: String,
    pub(super) engine: Engine,
    /// It is MariaDB, which has GTIDs of its own kind.
    pub(super) has_gtids: bool,
    charsets: Charsets,
    /// The dialect of the session's `sql_mode`.
    pub(super) dialect: &'static Dialect,
}

/// The character sets of a session, for texts and for rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Charsets {
    pub(super) client: String,
    /// `None` if rows are not converted.
    pub(super) results: Option<String>,
}

impl Charsets {
    /// Selects both, in two columns.
    pub(super) const ASK: &str =
        "CAST(@@character_set_client AS CHAR), CAST(@@character_set_results AS CHAR)";

    /// Returns the variable, and its value, under which texts or rows would be misread. In GBK, Shift-JIS and Big5 a
    /// backslash can be the second half of a character, which hides quotes; in Latin-1 an `é` becomes `Ã©`.
    pub(super) fn misread(&self) -> Option<(&'static str, &str)> {
        let results = self.results.as_deref().unwrap_or("NULL");
        [
            ("character_set_client", &*self.client),
            ("character_set_results", results),
        ]
        .into_iter()
        .find(|(_, charset)| !matches!(*charset, "utf8mb4" | "utf8mb3" | "utf8"))
    }
}

impl Facts {
    /// Checks that the session reads texts by this dialect and sends rows in UTF-8.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`] with the setting that differs.
    pub(super) fn check(&self, expected: &'static Dialect) -> Result<()> {
        if self.dialect != expected {
            let message = format!(
                "the server's sql_mode makes it read quotes or backslashes otherwise than expected; \
                 tell it in the DSN: sql_mode={}",
                self.sql_mode
            );
            return Err(Error::new(Kind::Config, message));
        }
        if let Some((variable, charset)) = self.charsets.misread() {
            let message = format!(
                "the session was set up with {variable} = {charset}, in which texts and rows would be \
                 misread: only utf8mb4 and utf8mb3 are right; take set.{variable} out of the DSN"
            );
            return Err(Error::new(Kind::Config, message));
        }
        Ok(())
    }
}

/// An expression that identifies the server.
const SERVER: &str = "CONCAT_WS(':', @@hostname, @@port, @@server_id)";

/// A server between two restarts: connection ids are valid only in it.
#[derive(Clone, Debug)]
pub(super) struct Running {
    server: String,
    /// The start time in seconds, by the server's clock.
    started: i64,
}

impl Running {
    /// Asks the server.
    pub(super) async fn ask(conn: &mut Conn) -> mysql_async::Result<Self> {
        // MySQL and MariaDB have it in tables of different names, but both have SHOW.
        let uptime: Option<(String, i64)> =
            conn.query_first("SHOW GLOBAL STATUS LIKE 'Uptime'").await?;
        let now: Option<(String, i64)> = conn
            .query_first(format!("SELECT {SERVER}, UNIX_TIMESTAMP()"))
            .await?;
        let (server, now) = now.unwrap_or_default();
        let (_, uptime) = uptime.unwrap_or_default();
        Ok(Running {
            server,
            started: now.saturating_sub(uptime),
        })
    }

    /// Whether it is the same server without a restart. Its two clocks may differ by a second.
    pub(super) fn is_still(&self, now: &Running) -> bool {
        self.server == now.server && self.started.abs_diff(now.started) <= 1
    }
}

type Row = (
    String,
    u64,
    Option<String>,
    Option<String>,
    String,
    String,
    String,
    Option<String>,
);

impl Session {
    pub(super) fn new(
        database: Option<&str>,
        collation: Option<&str>,
        time_zone: Option<&str>,
        sql_mode: Option<&str>,
        settings: &[(String, String)],
    ) -> Self {
        let mut set = "SET NAMES utf8mb4".to_owned();
        if let Some(collation) = collation {
            set += &format!(" COLLATE {}", quoted_text(collation));
        }
        let time_zone = time_zone.unwrap_or("+00:00");
        set += &format!(", time_zone = {}", quoted_text(time_zone));
        if let Some(sql_mode) = sql_mode {
            set += &format!(", sql_mode = {}", quoted_text(sql_mode));
        }
        for (name, value) in settings {
            set += &format!(", SESSION {name} = {}", text_literal(value));
        }
        let tell = format!(
            "SELECT @@sql_mode, CAST(@@max_allowed_packet AS UNSIGNED), DATABASE(), \
             CURRENT_ROLE(), {SERVER}, VERSION(), {}",
            Charsets::ASK
        );
        let go_back = match database {
            Some(database) => format!("USE {}; ", quoted_name(database)),
            None => String::new(),
        };
        Session {
            set_up: format!("{set}; {tell}"),
            restore: format!("{set}; {go_back}{tell}"),
            is_utc: is_utc(time_zone),
        }
    }

    /// Sets a new session up.
    pub(super) async fn set_up(&self, conn: &mut Conn) -> mysql_async::Result<Facts> {
        run(conn, &self.set_up).await
    }

    /// Sets a session up after a reset.
    pub(super) async fn restore(&self, conn: &mut Conn) -> mysql_async::Result<Facts> {
        run(conn, &self.restore).await
    }
}

/// Whether this time zone is UTC.
pub(super) fn is_utc(time_zone: &str) -> bool {
    matches!(time_zone, "+00:00" | "-00:00" | "UTC")
}

/// Runs a script whose last statement selects the facts.
async fn run(conn: &mut Conn, script: &str) -> mysql_async::Result<Facts> {
    let mut result = conn.query_iter(script).await?;
    let mut facts: Vec<Row> = Vec::new();
    while !result.is_empty() {
        facts = result.collect().await?;
    }
    result.drop_result().await?;
    let (sql_mode, max_packet, database, role, server, version, client, results) =
        facts.pop().unwrap_or_default();
    Ok(Facts {
        dialect: dialect(&sql_mode),
        sql_mode,
        max_packet,
        database,
        role,
        server,
        engine: Engine::of(&version),
        has_gtids: version.to_ascii_lowercase().contains("mariadb"),
        charsets: Charsets { client, results },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_applied_at_the_start_and_after_a_reset() {
        let settings = [("innodb_lock_wait_timeout".to_owned(), "5".to_owned())];
        let session = Session::new(Some("sh`op"), None, None, Some("ANSI_QUOTES"), &settings);
        let start = "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = 'ANSI_QUOTES', \
                     SESSION innodb_lock_wait_timeout = 5; ";
        assert!(session.set_up.starts_with(start), "{}", session.set_up);
        let restored = session.restore.strip_prefix(start);
        assert!(restored.is_some_and(|rest| rest.starts_with("USE `sh``op`; SELECT ")));
        assert!(session.is_utc);
    }

    #[test]
    fn only_utf8_is_accepted() {
        let sets = |client: &str, results: Option<&str>| Charsets {
            client: client.to_owned(),
            results: results.map(str::to_owned),
        };
        assert_eq!(sets("utf8mb4", Some("utf8mb3")).misread(), None);
        let misread = [
            (
                sets("gbk", Some("utf8mb4")),
                ("character_set_client", "gbk"),
            ),
            (
                sets("ascii", Some("utf8mb4")),
                ("character_set_client", "ascii"),
            ),
            (
                sets("utf8mb4", Some("latin1")),
                ("character_set_results", "latin1"),
            ),
            (sets("utf8mb4", None), ("character_set_results", "NULL")),
        ];
        for (sets, wrong) in misread {
            assert_eq!(sets.misread(), Some(wrong));
        }
    }

    #[test]
    fn other_time_zone_is_not_taken_for_utc() {
        let session = Session::new(None, None, Some("Europe/Berlin"), None, &[]);
        assert!(!session.is_utc);
        assert!(session.set_up.contains("time_zone = 'Europe/Berlin'"));
        assert!(!session.restore.contains("USE "));
    }
}
