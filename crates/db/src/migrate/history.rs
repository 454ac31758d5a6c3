//! The table that records which migrations are applied: the one of refinery.

use std::time::{SystemTime, UNIX_EPOCH};

use super::files::{Migration, Migrations};
use crate::{Connection, Outcome, Result, Violation};

/// A row of the history.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) version: i64,
    pub(super) name: String,
    pub(super) applied_on: String,
    pub(super) checksum: String,
}

/// Returns the history, or `None` if its table does not exist.
pub(super) async fn read(connection: &Connection, table: &str) -> Result<Option<Vec<Recorded>>> {
    type Columns = (i64, Option<String>, Option<String>, Option<String>);
    let sql = format!("SELECT version, name, applied_on, checksum FROM {table} ORDER BY version");
    let rows = match connection.query_as::<Columns>(&sql, ()).await {
        Ok(rows) => rows,
        Err(error) if error.violation() == Some(Violation::Undefined) => return Ok(None),
        Err(error) => return Err(error),
    };
    let recorded = rows
        .into_iter()
        .map(|(version, name, on, checksum)| Recorded {
            version,
            name: name.unwrap_or_default(),
            applied_on: on.unwrap_or_default(),
            checksum: checksum.unwrap_or_default(),
        });
    Ok(Some(recorded.collect()))
}

/// Returns the history, and creates its table if it does not exist.
pub(super) async fn read_or_create(
    connection: &Connection,
    migrations: &Migrations,
) -> Result<Vec<Recorded>> {
    let table = migrations.history_table();
    if let Some(recorded) = read(connection, table).await? {
        return Ok(recorded);
    }
    let short = |migration: &Migration| i32::try_from(migration.version()).is_ok();
    // As wide as in refinery, which reads the table, too.
    let version = match migrations.iter().all(short) {
        true => "INTEGER",
        false => "BIGINT",
    };
    let create = format!(
        "CREATE TABLE {table} (version {version} NOT NULL PRIMARY KEY, name VARCHAR(255), \
         applied_on VARCHAR(255), checksum VARCHAR(255))"
    );
    let created = connection.exec(&create, ()).await;
    // Where there is no lock another program may have been faster.
    match (read(connection, table).await?, created) {
        (Some(recorded), _) => Ok(recorded),
        (None, Err(refused)) => Err(refused),
        (None, Ok(_)) => Ok(Vec::new()),
    }
}

/// Returns the name of the table that means the same whatever a migration sets: with its schema on PostgreSQL, with its
/// database on MySQL.
pub(super) async fn qualified(
    connection: &Connection,
    driver: &str,
    table: &str,
) -> Result<String> {
    let sql = match driver {
        "pgsql" => {
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.oid = pg_catalog.to_regclass(?)"
        }
        "mysql" if !table.contains('.') => {
            "SELECT CONCAT('`', REPLACE(DATABASE(), '`', '``'), '`.', ?)"
        }
        _ => return Ok(table.to_owned()),
    };
    let name: Option<Option<String>> = connection.query_as_opt(sql, (table,)).await?;
    Ok(name.flatten().unwrap_or_else(|| table.to_owned()))
}

/// Returns the statement that records a migration as applied now.
pub(super) fn record(table: &str) -> String {
    format!("INSERT INTO {table} (version, name, applied_on, checksum) VALUES (?, ?, ?, ?)")
}

/// The values for [`record`].
pub(super) fn values(migration: &Migration) -> (i64, &str, String, String) {
    let checksum = migration.checksum().to_string();
    (migration.version(), migration.name(), now(), checksum)
}

/// Whether a migration is applied.
pub(super) async fn has(connection: &Connection, table: &str, version: i64) -> Result<bool> {
    let sql = format!("SELECT version FROM {table} WHERE version = ?");
    let found = connection.query_opt(&sql, (version,)).await?;
    Ok(found.is_some())
}

/// Whether recording failed because another program has recorded the same migration.
pub(super) fn was_recorded(done: &Result<Outcome>) -> bool {
    done.as_ref().is_err_and(crate::Error::is_unique_violation)
}

/// The time now in UTC, as RFC 3339.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    rfc3339(since.unwrap_or_default().as_secs())
}

fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have the leap day at their end; 1970 is 719,468 days after 1 March 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
