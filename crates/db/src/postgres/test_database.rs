//! A database for one test, copied from a template.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::api::builder::Builder;
use crate::api::connection::Connection;
use crate::api::db::Db;
use crate::migrate::Migrations;
use crate::{Error, Kind, Result};

/// How long [`TestDatabase::finish`] waits for calls that still run.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// PostgreSQL's longest name has 63 bytes; this is what the rest of the name leaves.
const LONGEST_TEST: usize = 23;

/// How many characters of its number a copy is named after.
const LONGEST_NUMBER: usize = 16;

/// A PostgreSQL database of its own for one test, with the schema of the migrations: for tests that a
/// [`Sandbox`](crate::Sandbox) cannot run, because they need real commits, several connections or serializable
/// transactions.
///
/// The first test migrates a template database; each test gets a copy of it, which takes some 10 ms. The template is named
/// after the migrations, so a changed migration makes a new template; one that was not used for a week is removed. The copy is removed by
/// [`finish`](TestDatabase::finish), or when the value is dropped, also by a panic. What a killed run has left is
/// removed by the next run: an advisory lock shows which copies are in use.
///
/// The user of the DSN needs the right to create databases. PostgreSQL 13 or later.
///
/// # Examples
///
/// ```no_run
/// use cenote::postgres::TestDatabase;
///
/// # async fn test() -> cenote::Result<()> {
/// let database = TestDatabase::create(
///     "postgres://postgres@localhost/postgres",
///     &cenote::migrate::embed!("docs/migrations"),
/// )
/// .await?;
/// let db = database.db();
/// // … the test …
/// # let _ = db;
/// database.finish().await
/// # }
/// ```
#[derive(Debug)]
pub struct TestDatabase {
    db: Db,
    /// Has the lock that shows that the database is in use.
    server: Server,
    copy: Copy,
}

impl TestDatabase {
    /// Creates a database on the server of this DSN, named after the running test. The DSN's own database stays as it is.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the database is removed, now or by the next run.
    ///
    /// # Errors
    ///
    /// The server refuses; a migration fails; [`Kind::Unsupported`] for a DSN of another database.
    pub async fn create(dsn: &str, migrations: &Migrations) -> Result<TestDatabase> {
        let server = Server::connect(dsn).await?;
        if is_first_of(&CLEANED, &server.prefix("test")) {
            server.remove_leftovers().await?;
        }
        let template = server.template_name(migrations);
        let copy = Copy {
            dsn: dsn.to_owned(),
            name: server.copy_name(),
            is_removed: false,
        };
        // The lock first: every process that sees the database then finds it locked.
        server.lock(&copy.name).await?;
        server.make_template(dsn, &template, migrations).await?;
        // A cancel from here on drops `copy`, which removes the database.
        server.copy(&template, &copy.name).await?;
        let db = on_database(dsn, &copy.name).open().await?;
        Ok(TestDatabase { db, server, copy })
    }

    /// Returns a handle of the database, with the defaults of a [`Builder`].
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns a builder for more handles of the database.
    pub fn builder(&self) -> Builder {
        on_database(&self.copy.dsn, &self.copy.name)
    }

    /// Returns the name of the database.
    pub fn name(&self) -> &str {
        &self.copy.name
    }

    /// Closes the handle and removes the database, and waits for both.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the database is removed nevertheless.
    ///
    /// # Errors
    ///
    /// A call still runs after five seconds (the message names its line), or the server refuses.
    pub async fn finish(mut self) -> Result<()> {
        let closed = self.db.close_and_drain(FINISH_WITHIN).await;
        self.server.remove(&self.copy.name).await?;
        self.copy.is_removed = true;
        self.server.close().await?;
        closed
    }
}

/// A database that has to be removed.
struct Copy {
    dsn: String,
    name: String,
    is_removed: bool,
}

impl fmt::Debug for Copy {
    /// Leaves the DSN out, which may have a password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Copy")
            .field("name", &self.name)
            .field("is_removed", &self.is_removed)
            .finish_non_exhaustive()
    }
}

impl Drop for Copy {
    /// Removes the database on a thread of its own, because the executor of a test that has failed is about to end.
    fn drop(&mut self) {
        if self.is_removed {
            return;
        }
        let (dsn, name) = (
            std::mem::take(&mut self.dsn),
            std::mem::take(&mut self.name),
        );
        let removing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(Error::other)?;
            runtime.block_on(async {
                let server = Server::connect(&dsn).await?;
                server.remove(&name).await?;
                server.close().await
            })
        });
        match removing.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a test database was not removed; the next run removes it");
            }
            Err(_) => tracing::warn!("a test database was not removed: its thread panicked"),
        }
    }
}

/// Scopes whose leftovers this program has removed.
static CLEANED: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Templates that this program has found or made.
static MIGRATED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes a name. Returns whether it is new.
fn is_first_of(names: &Mutex<Vec<String>>, name: &str) -> bool {
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !names.iter().any(|of| of == name);
    if is_new {
        names.push(name.to_owned());
    }
    is_new
}

fn is_noted(names: &Mutex<Vec<String>>, name: &str) -> bool {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    names.iter().any(|of| of == name)
}

fn on_database(dsn: &str, name: &str) -> Builder {
    Db::builder(dsn).option("dbname", name)
}

/// A connection to the DSN's own database, which creates and removes the others.
#[derive(Debug)]
struct Server {
    handle: Db,
    connection: Connection,
    /// The number of the DSN's own database: part of all names, because advisory locks belong to a database.
    scope: i64,
}

impl Server {
    async fn connect(dsn: &str) -> Result<Self> {
        let handle = Db::builder(dsn).unpooled().open().await?;
        if handle.driver_name() != "pgsql" {
            let message = "a test database needs a DSN of PostgreSQL";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let connection = handle.connection().await?;
        let sql = "SELECT oid::bigint FROM pg_database WHERE datname = current_database()";
        let scope = connection.query_as_one(sql, ()).await?;
        Ok(Server {
            handle,
            connection,
            scope,
        })
    }

    async fn close(self) -> Result<()> {
        drop(self.connection);
        self.handle.close_and_drain(FINISH_WITHIN).await
    }

    fn prefix(&self, what: &str) -> String {
        format!("cenote_{what}_{}_", self.scope)
    }

    /// Returns the name of a new copy: the test, and a number that no other process has.
    fn copy_name(&self) -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be unique in this process.
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_micros());
        let unique = format!("{:x}{now:x}{n:x}", std::process::id());
        let test = std::thread::current();
        let test = test.name().unwrap_or("test");
        copy_name(&self.prefix("test"), test, &unique)
    }

    fn template_name(&self, migrations: &Migrations) -> String {
        let schema = migrations
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |all: u64, one| {
                (all ^ one.checksum()).wrapping_mul(0x0100_0000_01b3)
            });
        format!("{}{schema:016x}", self.prefix("template"))
    }

    /// Waits for the lock of a database. The lock ends with the connection.
    async fn lock(&self, name: &str) -> Result<()> {
        let sql = "SELECT pg_advisory_lock(hashtextextended($1, 0))";
        self.connection.query(sql, (name,)).await.map(drop)
    }

    async fn unlock(&self, name: &str) -> Result<()> {
        let sql = "SELECT pg_advisory_unlock(hashtextextended($1, 0))";
        self.connection.query(sql, (name,)).await.map(drop)
    }

    async fn try_lock(&self, name: &str) -> Result<bool> {
        let sql = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";
        self.connection.query_as_one(sql, (name,)).await
    }

    /// Returns the databases with this prefix.
    async fn databases(&self, prefix: &str) -> Result<Vec<String>> {
        let sql = "SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)";
        self.connection.query_scalar(sql, (prefix,)).await
    }

    /// Removes the copies whose tests are gone.
    async fn remove_leftovers(&self) -> Result<()> {
        for name in self.databases(&self.prefix("test")).await? {
            if self.try_lock(&name).await? {
                self.remove(&name).await?;
                self.unlock(&name).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<()> {
        self.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            .await
    }

    async fn copy(&self, template: &str, name: &str) -> Result<()> {
        self.run(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .await
    }

    /// Migrates the template, unless that is done. A complete template accepts no connections: PostgreSQL does not
    /// copy a database that has any.
    async fn make_template(&self, dsn: &str, name: &str, migrations: &Migrations) -> Result<()> {
        if is_noted(&MIGRATED, name) {
            return Ok(());
        }
        let all = self.prefix("template");
        self.lock(&all).await?;
        // A cancel from here on closes the connection, which releases the lock.
        self.remove_old_templates(&all).await?;
        if self.databases(name).await?.is_empty() {
            self.run(&format!("CREATE DATABASE {name}")).await?;
            let db = on_database(dsn, name).max(1).open().await?;
            let migrated = db.migrate(migrations).await;
            db.close_and_drain(FINISH_WITHIN).await?;
            if let Err(error) = migrated {
                self.remove(name).await?;
                return Err(error);
            }
            let sql = format!("ALTER DATABASE {name} IS_TEMPLATE true ALLOW_CONNECTIONS false");
            self.run(&sql).await?;
        }
        let now: String = self
            .connection
            .query_as_one("SELECT now()::text", ())
            .await?;
        self.run(&format!("COMMENT ON DATABASE {name} IS '{now}'"))
            .await?;
        self.unlock(&all).await?;
        is_first_of(&MIGRATED, name);
        Ok(())
    }

    /// Removes templates that a killed run has left half done, and those that were not used for a week.
    async fn remove_old_templates(&self, all: &str) -> Result<()> {
        let sql = "SELECT datname::text FROM pg_database WHERE starts_with(datname, $1) AND (NOT datistemplate \
                   OR shobj_description(oid, 'pg_database')::timestamptz < now() - interval '7 days')";
        let old: Vec<String> = self.connection.query_scalar(sql, (all,)).await?;
        for name in old {
            self.run(&format!("ALTER DATABASE {name} IS_TEMPLATE false"))
                .await?;
            self.remove(&name).await?;
        }
        Ok(())
    }

    async fn run(&self, sql: &str) -> Result<()> {
        self.connection.exec(sql, ()).await.map(drop)
    }
}

/// Returns a name of at most 63 bytes, which needs no quotes. A longer one would be cut off by the server.
fn copy_name(prefix: &str, test: &str, unique: &str) -> String {
    let last = test.rsplit("::").next().unwrap_or(test);
    let plain = last
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_');
    let test: String = plain.take(LONGEST_TEST).collect();
    // The last characters of the number are those that change fastest.
    let tail = &unique[unique.len().saturating_sub(LONGEST_NUMBER)..];
    let mut name = format!("{prefix}{test}_{tail}");
    name.make_ascii_lowercase();
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_name_fits_into_an_identifier() {
        let prefix = format!("cenote_test_{}_", u32::MAX);
        let name = copy_name(&prefix, &"a::Long_1ü".repeat(20), &"f".repeat(40));
        assert!(name.len() <= 63, "{name}");
        let name = copy_name(&prefix, &"x".repeat(80), &"f".repeat(40));
        assert_eq!(name.len(), 63, "{name}");
    }
}
