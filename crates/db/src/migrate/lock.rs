//! One program migrates at a time: the lock of each database.

use crate::{Connection, Result};

/// What keeps other programs from migrating the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// An advisory lock of PostgreSQL.
    Postgres,
    /// A named lock of MySQL and MariaDB.
    Mysql,
    /// None. The transaction of each migration records it first, so that a second program
    /// waits there, and then finds it applied. SQLite's write lock does the same.
    PerMigration,
}

/// The key of the advisory lock: "cenote" and "mg" in ASCII.
const KEY: i64 = 0x6365_6e6f_7465_6d67;
/// Named locks belong to the server, not to a database; names have at most 64 characters.
const NAME: &str = "CONCAT('cenote.migrate.', MD5(COALESCE(DATABASE(), '')))";

impl Lock {
    pub(super) fn of(driver: &str) -> Self {
        match driver {
            "pgsql" => Lock::Postgres,
            "mysql" => Lock::Mysql,
            _ => Lock::PerMigration,
        }
    }

    /// Waits until no other program migrates.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock goes with the reset of the session before anybody else gets the connection.
    pub(super) async fn take(self, connection: &Connection) -> Result<()> {
        let mut is_first = true;
        while !self.try_take(connection).await? {
            if is_first {
                tracing::info!("another program migrates the database; waiting for it");
                is_first = false;
            }
        }
        Ok(())
    }

    async fn try_take(self, connection: &Connection) -> Result<bool> {
        match self {
            Lock::PerMigration => Ok(true),
            Lock::Postgres => {
                let sql = format!("SELECT pg_try_advisory_lock({KEY})");
                if connection.query_as_one(&sql, ()).await? {
                    return Ok(true);
                }
                // Not pg_advisory_lock: CREATE INDEX CONCURRENTLY waits for the snapshots of all
                // others, and a wait for the lock would hold one until that index is built.
                connection.exec("SELECT pg_sleep(0.1)", ()).await?;
                Ok(false)
            }
            Lock::Mysql => {
                let sql = format!("SELECT GET_LOCK({NAME}, 1)");
                let taken: Option<i64> = connection.query_as_one(&sql, ()).await?;
                Ok(taken == Some(1))
            }
        }
    }

    /// Lets the next program migrate.
    pub(super) async fn release(self, connection: &Connection) -> Result<()> {
        let sql = match self {
            Lock::PerMigration => return Ok(()),
            Lock::Postgres => format!("SELECT pg_advisory_unlock({KEY})"),
            Lock::Mysql => format!("SELECT RELEASE_LOCK({NAME})"),
        };
        connection.exec(&sql, ()).await.map(drop)
    }
}
