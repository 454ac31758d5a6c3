//! One program migrates at a time: the lock of each database.

use crate::{Connection, Result};

/// What keeps other programs from migrating the same database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// An advisory lock of PostgreSQL.
    Postgres,
    /// A named lock of MySQL and MariaDB, by its name: a migration may change the database that it is made of.
    Mysql(String),
    /// None. The transaction of each migration records it first, so that a second program
    /// waits there, and then finds it applied. SQLite's write lock does the same.
    PerMigration,
    /// The same, because a pooler is between here and the server. It may give each transaction another session: a lock
    /// of the session could stay behind, where nobody releases it.
    Pooler,
}

/// The key of the advisory lock: "cenote" and "mg" in ASCII.
const KEY: i64 = 0x6365_6e6f_7465_6d67;
/// Named locks belong to the server, not to a database; names have at most 64 characters.
const NAME: &str = "CONCAT('cenote.migrate.', MD5(COALESCE(DATABASE(), '')))";

impl Lock {
    /// Returns the lock of the database that a connection leads to.
    pub(super) async fn of(driver: &str, connection: &Connection) -> Result<Self> {
        Ok(match driver {
            "pgsql" if is_behind_pooler(connection).await? => Lock::Pooler,
            "pgsql" => Lock::Postgres,
            "mysql" => {
                let sql = format!("SELECT {NAME}");
                Lock::Mysql(connection.query_as_one(&sql, ()).await?)
            }
            _ => Lock::PerMigration,
        })
    }

    /// Waits until no other program migrates.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock goes with the reset of the session before anybody else gets the connection.
    pub(super) async fn take(&self, connection: &Connection) -> Result<()> {
        let mut is_first = true;
        while !self.try_take(connection).await? {
            if is_first {
                tracing::info!("another program migrates the database; waiting for it");
                is_first = false;
            }
        }
        Ok(())
    }

    async fn try_take(&self, connection: &Connection) -> Result<bool> {
        match self {
            Lock::PerMigration | Lock::Pooler => Ok(true),
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
            Lock::Mysql(name) => {
                let taken: Option<i64> = connection
                    .query_as_one("SELECT GET_LOCK(?, 1)", (name,))
                    .await?;
                Ok(taken == Some(1))
            }
        }
    }

    /// Lets the next program migrate.
    pub(super) async fn release(&self, connection: &Connection) -> Result<()> {
        match self {
            Lock::PerMigration | Lock::Pooler => Ok(()),
            Lock::Postgres => {
                // A migration may have changed the search path.
                let sql = format!("SELECT pg_catalog.pg_advisory_unlock({KEY})");
                connection.exec(&sql, ()).await.map(drop)
            }
            Lock::Mysql(name) => {
                let released = connection.exec("SELECT RELEASE_LOCK(?)", (name,)).await;
                released.map(drop)
            }
        }
    }
}

/// Returns whether a pooler, such as PgBouncer, is between this connection and the server: at the login it names
/// another process than the one that runs statements.
#[cfg(feature = "postgres")]
async fn is_behind_pooler(connection: &Connection) -> Result<bool> {
    let running: i32 = connection
        .query_as_one("SELECT pg_catalog.pg_backend_pid()", ())
        .await?;
    let named = connection
        .ask_driver(|driver| {
            let ours = driver.downcast_mut::<crate::postgres::PostgresConnection>();
            ours.map(|it| it.process_id())
        })
        .await?;
    Ok(named.is_some_and(|named| named != running))
}

#[cfg(not(feature = "postgres"))]
async fn is_behind_pooler(_connection: &Connection) -> Result<bool> {
    Ok(false)
}
