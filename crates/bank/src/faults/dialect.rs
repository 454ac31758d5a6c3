//! The SQL of faults and inspections for each kind of database.

use cenote::{Connection, Db, Result};

/// The application name of the clients' sessions on PostgreSQL.
pub(crate) const SESSIONS: &str = "cenote-chaos";

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

/// The clients' sessions, as the server reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backends {
    /// The number of sessions.
    pub(crate) total: i64,
    /// The number of sessions that run a statement or have an open transaction.
    pub(crate) busy: i64,
}

impl Dialect {
    /// Returns the dialect of a driver; `None` if faults do not support it.
    pub(crate) fn of(driver: &str) -> Option<Self> {
        match driver {
            "sqlite" => Some(Dialect::Sqlite),
            "pgsql" | "postgres" | "postgresql" => Some(Dialect::Postgres),
            "mysql" | "mariadb" => Some(Dialect::MySql),
            _ => None,
        }
    }

    /// Whether there is a server, whose sessions can be killed.
    pub(crate) fn has_server(self) -> bool {
        self != Dialect::Sqlite
    }

    /// Returns the SQL that reads the mark of this session.
    pub(crate) fn look(self) -> &'static str {
        match self {
            Dialect::Sqlite => {
                "SELECT substr(max(name), 15) FROM temp.sqlite_master WHERE name LIKE 'cenote_marker_%'"
            }
            Dialect::Postgres => "SELECT current_setting('cenote.marker', true)",
            Dialect::MySql => "SELECT CAST(@cenote_marker AS CHAR)",
        }
    }

    /// Returns the SQL that sets the mark of this session.
    pub(crate) fn mark(self, number: i64) -> String {
        match self {
            Dialect::Sqlite => format!("CREATE TEMP TABLE cenote_marker_{number} (n INTEGER)"),
            Dialect::Postgres => format!("SET cenote.marker = '{number}'"),
            Dialect::MySql => format!("SET @cenote_marker = {number}"),
        }
    }

    /// Returns the ids of the clients' sessions.
    async fn sessions(self, observer: &Db) -> Result<Vec<i64>> {
        match self {
            Dialect::Sqlite => Ok(Vec::new()),
            Dialect::Postgres => {
                let sql = "SELECT pid::int8 FROM pg_stat_activity WHERE application_name = ? \
                           AND datname = current_database() ORDER BY backend_start, pid";
                observer.query_as(sql, (SESSIONS,)).await
            }
            Dialect::MySql => {
                let sql = "SELECT id FROM information_schema.processlist \
                           WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY id";
                observer.query_as(sql, ()).await
            }
        }
    }

    /// Kills the clients' sessions whose index is picked, and returns how many.
    pub(crate) async fn kill(self, observer: &Db, picks: impl Fn(usize) -> bool) -> Result<usize> {
        let sessions = self.sessions(observer).await?;
        let picked = sessions.iter().enumerate().filter(|(at, _)| picks(*at));
        let mut killed = 0;
        for (_, session) in picked {
            let done = match self {
                Dialect::Postgres => {
                    let sql = "SELECT pg_terminate_backend(?::int4)";
                    observer.query(sql, (*session,)).await.map(drop)
                }
                _ => observer
                    .exec(&format!("KILL {session}"), ())
                    .await
                    .map(drop),
            };
            // The session may have ended meanwhile.
            killed += usize::from(done.is_ok());
        }
        Ok(killed)
    }

    /// Returns the number of the clients' sessions.
    pub(crate) async fn backends(self, observer: &Db) -> Result<Backends> {
        let (total, busy) = match self {
            Dialect::Sqlite => (0, 0),
            Dialect::Postgres => {
                let sql = "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') \
                           FROM pg_stat_activity WHERE application_name = ? \
                           AND datname = current_database()";
                observer.query_as_one(sql, (SESSIONS,)).await?
            }
            Dialect::MySql => {
                let total = self.sessions(observer).await?.len();
                let sql = "SELECT COUNT(*) FROM information_schema.innodb_trx";
                let busy = observer.query_as_one(sql, ()).await?;
                (i64::try_from(total).unwrap_or(i64::MAX), busy)
            }
        };
        Ok(Backends { total, busy })
    }

    /// Returns how many prepared statements the server keeps for this connection, if it reports that.
    pub(crate) async fn prepared(self, connection: &Connection) -> Result<Option<i64>> {
        match self {
            Dialect::Postgres => {
                let sql = "SELECT count(*) FROM pg_prepared_statements";
                connection.query_as_one(sql, ()).await.map(Some)
            }
            Dialect::Sqlite | Dialect::MySql => Ok(None),
        }
    }

    /// Returns how many prepared statements the server keeps in all, if it reports that.
    pub(crate) async fn prepared_by_all(self, observer: &Db) -> Result<Option<i64>> {
        match self {
            Dialect::MySql => {
                let sql = "SELECT CAST(variable_value AS SIGNED) FROM \
                           information_schema.global_status \
                           WHERE variable_name = 'PREPARED_STMT_COUNT'";
                observer.query_as_opt(sql, ()).await
            }
            Dialect::Sqlite | Dialect::Postgres => Ok(None),
        }
    }
}
