//! What a server says about its load: how many sessions work or wait, and for what; how many connections it has left.

use cenote::{Db, Result};

use crate::limit::Activity;
use crate::scheduled::Scheduled;

/// Asks a server. Other databases say nothing: what is unknown stays unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    Postgres,
    MySql,
    Sqlite,
    Other,
}

/// What only grows in a server, for rates.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counters {
    /// Committed transactions (PostgreSQL), or statements (MySQL).
    pub(crate) work: f64,
    /// Blocks or pages that were read from the disk.
    pub(crate) reads: f64,
}

impl Dialect {
    pub(crate) fn of(db: &Db) -> Self {
        match db.driver_name() {
            "pgsql" => Dialect::Postgres,
            "mysql" => Dialect::MySql,
            "sqlite" => Dialect::Sqlite,
            _ => Dialect::Other,
        }
    }

    /// Returns the statement that makes a session read-only, or `None` if there is none.
    pub(crate) fn read_only(self) -> Option<&'static str> {
        match self {
            Dialect::Postgres => Some("SET default_transaction_read_only = on"),
            Dialect::MySql => Some("SET SESSION TRANSACTION READ ONLY"),
            Dialect::Sqlite => Some("PRAGMA query_only = on"),
            Dialect::Other => None,
        }
    }

    /// Returns what the sessions do at this moment, without the one that asks. `None` if the server does not say.
    pub(crate) async fn activity(self, db: &Db) -> Result<Option<Activity>> {
        let mut activity = Activity::default();
        match self {
            Dialect::Postgres => {
                let sql = "SELECT coalesce(wait_event_type, ''), coalesce(wait_event, ''), count(*) \
                           FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() \
                           AND datname = current_database() GROUP BY 1, 2";
                let rows: Vec<(String, String, i64)> = db.query_as(sql, ()).await?;
                for (kind, event, count) in rows {
                    *of_postgres(&mut activity, &kind, &event) += float(count);
                }
            }
            Dialect::MySql => {
                let sql = "SELECT coalesce(state, ''), count(*) FROM information_schema.processlist \
                           WHERE command NOT IN ('Sleep', 'Daemon', 'Binlog Dump') AND id <> connection_id() \
                           AND user <> 'system user' GROUP BY 1";
                let rows: Vec<(String, i64)> = db.query_as(sql, ()).await?;
                for (state, count) in rows {
                    *of_mysql(&mut activity, &state) += float(count);
                }
                // Sessions that wait for a row have the state of the statement.
                let rows = status(db, &["Innodb_row_lock_current_waits"]).await?;
                let waiting = rows[0].unwrap_or(0.0).min(activity.cpu);
                activity.cpu -= waiting;
                activity.locks += waiting;
            }
            Dialect::Sqlite | Dialect::Other => return Ok(None),
        }
        Ok(Some(activity))
    }

    /// Looks at the processors' time of all sessions but the one that asks. `None` if the server runs on another machine.
    pub(crate) async fn scheduled(self, db: &Db) -> Result<Option<Scheduled>> {
        let (sql, programs): (_, &[&str]) = match self {
            Dialect::Postgres => (
                "SELECT pid::int8 FROM pg_stat_activity WHERE backend_type = 'client backend' \
                 AND datname = current_database() AND pid <> pg_backend_pid()",
                &["postgres"],
            ),
            // MySQL's process list has no threads of the operating system, MariaDB's has.
            Dialect::MySql => (
                "SELECT tid FROM information_schema.processlist WHERE command <> 'Daemon' \
                 AND id <> connection_id() AND user <> 'system user'",
                &["mariadbd", "mysqld"],
            ),
            Dialect::Sqlite | Dialect::Other => return Ok(None),
        };
        let threads: Vec<(i64,)> = db.query_as(sql, ()).await?;
        let threads = threads.into_iter().map(|(id,)| u32::try_from(id));
        let threads = threads.collect::<std::result::Result<Vec<_>, _>>();
        Ok(threads.ok().and_then(|it| Scheduled::of(it, programs)))
    }

    /// Returns what the server has counted. `None` if it does not say.
    pub(crate) async fn counters(self, db: &Db) -> Result<Option<Counters>> {
        match self {
            Dialect::Postgres => {
                let sql = "SELECT xact_commit::float8, blks_read::float8 FROM pg_stat_database \
                           WHERE datname = current_database()";
                let row: Option<(f64, f64)> = db.query_as_opt(sql, ()).await?;
                Ok(row.map(|(work, reads)| Counters { work, reads }))
            }
            Dialect::MySql => {
                match status(db, &["Questions", "Innodb_buffer_pool_reads"]).await?[..] {
                    [Some(work), Some(reads)] => Ok(Some(Counters { work, reads })),
                    _ => Ok(None),
                }
            }
            Dialect::Sqlite | Dialect::Other => Ok(None),
        }
    }

    /// Returns how many more connections the server accepts. `None` if it does not say, or has no such limit.
    pub(crate) async fn connections_left(self, db: &Db) -> Result<Option<usize>> {
        let left = match self {
            Dialect::Postgres => {
                let sql = "SELECT current_setting('max_connections')::int8 \
                           - current_setting('superuser_reserved_connections')::int8 \
                           - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')";
                db.query_as_one(sql, ()).await.map(|left: i64| left)?
            }
            Dialect::MySql => {
                let most: i64 = db.query_as_one("SELECT @@max_connections", ()).await?;
                let [Some(in_use)] = status(db, &["Threads_connected"]).await?[..] else {
                    return Ok(None);
                };
                most - whole(in_use)
            }
            Dialect::Sqlite | Dialect::Other => return Ok(None),
        };
        Ok(Some(usize::try_from(left).unwrap_or(0)))
    }
}

/// Returns these figures of `SHOW GLOBAL STATUS`.
async fn status(db: &Db, names: &[&str]) -> Result<Vec<Option<f64>>> {
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        let sql = format!("SHOW GLOBAL STATUS LIKE '{name}'");
        let row: Option<(String, String)> = db.query_as_opt(&sql, ()).await?;
        values.push(row.and_then(|(_, value)| value.parse().ok()));
    }
    Ok(values)
}

/// Where a session of PostgreSQL counts, by what it waits for.
fn of_postgres<'a>(activity: &'a mut Activity, kind: &str, event: &str) -> &'a mut f64 {
    match (kind, event) {
        ("", _) => &mut activity.cpu,
        ("IO", _) | ("LWLock", "WALWrite" | "WALBufMapping") => &mut activity.disk,
        ("IPC", "SyncRep") => &mut activity.disk,
        ("Lock" | "LWLock" | "BufferPin", _) => &mut activity.locks,
        ("Timeout", _) => &mut activity.sleeping,
        _ => &mut activity.other,
    }
}

/// Where a session of MySQL or MariaDB counts, by its state.
fn of_mysql<'a>(activity: &'a mut Activity, state: &str) -> &'a mut f64 {
    let state = state.to_ascii_lowercase();
    match state.as_str() {
        "user sleep" => &mut activity.sleeping,
        "user lock" | "locked" | "system lock" => &mut activity.locks,
        _ if state.starts_with("waiting for") && state.contains("lock") => &mut activity.locks,
        _ if state.contains("commit") || state.contains("sync") => &mut activity.disk,
        _ if state.contains("net") => &mut activity.other,
        _ => &mut activity.cpu,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of sessions")]
fn float(number: i64) -> f64 {
    number as f64
}

#[allow(clippy::cast_possible_truncation, reason = "a number of connections")]
fn whole(number: f64) -> i64 {
    number as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_count_where_they_wait() {
        let mut seen = Activity::default();
        for (kind, event) in [
            ("", ""),
            ("Lock", "transactionid"),
            ("LWLock", "BufferContent"),
            ("LWLock", "WALWrite"),
            ("IO", "DataFileRead"),
            ("Timeout", "PgSleep"),
            ("Client", "ClientWrite"),
        ] {
            *of_postgres(&mut seen, kind, event) += 1.0;
        }
        let expected = Activity {
            cpu: 1.0,
            locks: 2.0,
            disk: 2.0,
            sleeping: 1.0,
            other: 1.0,
        };
        assert_eq!(seen, expected);
        let mut seen = Activity::default();
        for state in [
            "Sending data",
            "User lock",
            "Waiting for table metadata lock",
            "Commit",
            "User sleep",
            "Writing to net",
        ] {
            *of_mysql(&mut seen, state) += 1.0;
        }
        assert_eq!(
            seen,
            Activity {
                disk: 1.0,
                ..expected
            }
        );
    }
}
