//! What the actor and the inspector say to each kind of database.

use cenote::{Connection, Db, Result};

/// How the sessions of the bank are called on a server that knows names.
pub(crate) const SESSIONS: &str = "cenote-chaos";

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
    MySql,
}

/// What a server says of the sessions of the bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backends {
    /// All that there are.
    pub(crate) total: i64,
    /// Those that do something, or have a transaction open.
    pub(crate) busy: i64,
}

impl Dialect {
    /// By the name of its driver; `None` for one that is not known here.
    pub(crate) fn of(driver: &str) -> Option<Self> {
        match driver {
            "sqlite" => Some(Dialect::Sqlite),
            "pgsql" | "postgres" | "postgresql" => Some(Dialect::Postgres),
            "mysql" | "mariadb" => Some(Dialect::MySql),
            _ => None,
        }
    }

    /// Whether there is a server, with sessions that can be ended.
    pub(crate) fn has_server(self) -> bool {
        self != Dialect::Sqlite
    }

    /// The mark of this session, if somebody has set one.
    pub(crate) fn look(self) -> &'static str {
        match self {
            Dialect::Sqlite => {
                "SELECT substr(max(name), 15) FROM temp.sqlite_master WHERE name LIKE 'cenote_marker_%'"
            }
            Dialect::Postgres => "SELECT current_setting('cenote.marker', true)",
            Dialect::MySql => "SELECT CAST(@cenote_marker AS CHAR)",
        }
    }

    /// Sets the mark of this session.
    pub(crate) fn mark(self, number: i64) -> String {
        match self {
            Dialect::Sqlite => format!("CREATE TEMP TABLE cenote_marker_{number} (n INTEGER)"),
            Dialect::Postgres => format!("SET cenote.marker = '{number}'"),
            Dialect::MySql => format!("SET @cenote_marker = {number}"),
        }
    }

    /// The sessions of the bank, but not the office's.
    async fn sessions(self, office: &Db) -> Result<Vec<i64>> {
        match self {
            Dialect::Sqlite => Ok(Vec::new()),
            Dialect::Postgres => {
                let sql = "SELECT pid::int8 FROM pg_stat_activity WHERE application_name = ? \
                           AND datname = current_database() ORDER BY backend_start, pid";
                office.query_as(sql, (SESSIONS,)).await
            }
            Dialect::MySql => {
                let sql = "SELECT id FROM information_schema.processlist \
                           WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY id";
                office.query_as(sql, ()).await
            }
        }
    }

    /// Ends some sessions of the bank, those at these places, and says how many.
    pub(crate) async fn kill(self, office: &Db, picks: impl Fn(usize) -> bool) -> Result<usize> {
        let sessions = self.sessions(office).await?;
        let picked = sessions.iter().enumerate().filter(|(at, _)| picks(*at));
        let mut killed = 0;
        for (_, session) in picked {
            let done = match self {
                Dialect::Postgres => {
                    let sql = "SELECT pg_terminate_backend(?::int4)";
                    office.query(sql, (*session,)).await.map(drop)
                }
                _ => office.exec(&format!("KILL {session}"), ()).await.map(drop),
            };
            // It may have gone by itself meanwhile.
            killed += usize::from(done.is_ok());
        }
        Ok(killed)
    }

    /// What the server says of the sessions of the bank.
    pub(crate) async fn backends(self, office: &Db) -> Result<Backends> {
        let (total, busy) = match self {
            Dialect::Sqlite => (0, 0),
            Dialect::Postgres => {
                let sql = "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') \
                           FROM pg_stat_activity WHERE application_name = ? \
                           AND datname = current_database()";
                office.query_as_one(sql, (SESSIONS,)).await?
            }
            Dialect::MySql => {
                let total = self.sessions(office).await?.len();
                let sql = "SELECT COUNT(*) FROM information_schema.innodb_trx";
                let busy = office.query_as_one(sql, ()).await?;
                (i64::try_from(total).unwrap_or(i64::MAX), busy)
            }
        };
        Ok(Backends { total, busy })
    }

    /// How many prepared statements the server keeps for this connection; `None` where it does not
    /// tell.
    pub(crate) async fn prepared(self, connection: &Connection) -> Result<Option<i64>> {
        match self {
            Dialect::Postgres => {
                let sql = "SELECT count(*) FROM pg_prepared_statements";
                connection.query_as_one(sql, ()).await.map(Some)
            }
            Dialect::Sqlite | Dialect::MySql => Ok(None),
        }
    }

    /// How many prepared statements the server keeps for everybody; `None` where it does not tell.
    pub(crate) async fn prepared_by_all(self, office: &Db) -> Result<Option<i64>> {
        match self {
            Dialect::MySql => {
                let sql = "SELECT CAST(variable_value AS SIGNED) FROM \
                           information_schema.global_status \
                           WHERE variable_name = 'PREPARED_STMT_COUNT'";
                office.query_as_opt(sql, ()).await
            }
            Dialect::Sqlite | Dialect::Postgres => Ok(None),
        }
    }
}
