//! Resets the session of a private database.
//!
//! Other databases replace a changed session by a new one. A private database disappears with its connection, so the
//! driver undoes the changes one by one.

use std::time::Duration;

use rusqlite::types::Value as SqlValue;

use super::config::Config;
use super::session::Session;
use super::statement::quoted;
use crate::Result;

/// Pragmas that belong to a connection and can be read.
const PRAGMAS: [&str; 23] = [
    "analysis_limit",
    "automatic_index",
    "cache_size",
    "cache_spill",
    "cell_size_check",
    "checkpoint_fullfsync",
    "defer_foreign_keys",
    "foreign_keys",
    "fullfsync",
    "ignore_check_constraints",
    "journal_size_limit",
    "legacy_alter_table",
    "locking_mode",
    "query_only",
    "read_uncommitted",
    "recursive_triggers",
    "reverse_unordered_selects",
    "secure_delete",
    "synchronous",
    "temp_store",
    "threads",
    "trusted_schema",
    "writable_schema",
];

/// The state of a session after connecting.
#[derive(Debug)]
pub(super) struct Origin {
    pragmas: Vec<(&'static str, String)>,
    configured: Vec<(String, String)>,
    busy_timeout: Duration,
}

impl Origin {
    /// Reads the present state of a session.
    pub(super) fn of(session: &Session, config: &Config) -> Result<Self> {
        let read = |name: &'static str| Ok((name, session.pragma(name)?));
        Ok(Origin {
            pragmas: PRAGMAS.into_iter().map(read).collect::<Result<_>>()?,
            configured: config.pragmas.clone(),
            busy_timeout: config.busy_timeout,
        })
    }

    /// Restores the session. The contents of the database stay.
    pub(super) fn restore(&self, session: &mut Session) -> Result<()> {
        session.wait_for_locks(self.busy_timeout)?;
        // Both would prevent the changes below.
        session.command("PRAGMA query_only = 0")?;
        session.command("PRAGMA foreign_keys = 0")?;
        let attached = "SELECT name FROM pragma_database_list WHERE name NOT IN ('main', 'temp')";
        for name in session.names(attached)? {
            session.command(&format!("DETACH {}", quoted(&name)))?;
        }
        // Indexes disappear with their tables. Triggers first: they may belong to tables that stay.
        for kind in ["trigger", "view", "table"] {
            let temporary = format!(
                "SELECT name FROM temp.sqlite_schema
                 WHERE type = '{kind}' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            );
            for name in session.names(&temporary)? {
                // A virtual table drops its shadow tables.
                session.command(&format!("DROP {kind} IF EXISTS temp.{}", quoted(&name)))?;
            }
        }
        // This pragma cannot be read, so it is set to SQLite's default.
        session.command("PRAGMA case_sensitive_like = 0")?;
        for (name, value) in &self.configured {
            session.set_pragma(name, &SqlValue::Text(value.clone()))?;
        }
        for (name, before) in &self.pragmas {
            if session.pragma(name)? != *before {
                session.set_pragma(name, &SqlValue::Text(before.clone()))?;
            }
        }
        Ok(())
    }
}
