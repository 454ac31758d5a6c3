//! A `Db` for tests of applications: everything that runs through it is rolled back at the end.
//!
//! ```text
//! Db (unpooled) ──> SandboxTemplate ──> SandboxConnection ──> the driver's connection
//!                   opens one, once      BEGIN      -> SAVEPOINT
//!                                        COMMIT     -> RELEASE
//!                                        ROLLBACK   -> ROLLBACK TO
//! ```
//!
//! The sandbox is a driver around the driver. So the layer above is the one of production: coroutines, guards, lazy
//! transactions, `after_commit`, streams and statements work as they do there. Nothing here ever sends a COMMIT.

mod connection;
mod template;
mod text;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::api::builder::Builder;
use crate::api::db::Db;
use crate::driver::Isolation;
use crate::{Error, Kind, Result};

use self::template::SandboxDriver;

/// How long [`Sandbox::finish`] waits for calls that still run.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// A [`Db`] whose changes are all rolled back at the end: for tests of applications.
///
/// [`Builder::sandbox`] opens it. Give the code under test a clone of [`db`](Sandbox::db): it needs no change. All its calls
/// run on one connection, inside a transaction that is never committed. The transactions of the code under test are savepoints
/// in it: a commit keeps their changes until the end of the sandbox, a rollback undoes them. The guide has
/// [the whole picture](crate::guide::testing), with a table of what differs from production.
///
/// - **Concurrent tasks take turns**, because there is one connection. A task that holds a transaction blocks the others
///   until it ends; a wait that cannot end is an error ([`Kind::SelfDeadlock`], or [`Kind::Timeout`] after the
///   [`acquire_timeout`](Builder::acquire_timeout), with the lines that hold the connection).
/// - **Spawned tasks need permission**: see [`allow_spawned`](Sandbox::allow_spawned).
/// - **It fails closed.** If the connection is lost, or the server ends the transaction, every later call fails and says
///   so: no call runs outside of the sandbox.
///
/// Dropped, also by a panic, the sandbox is rolled back. [`finish`](Sandbox::finish) also waits for the rollback.
///
/// # Examples
///
/// ```
/// use cenote::Db;
///
/// /// Code under test. It knows nothing of sandboxes.
/// async fn register(db: &Db, name: &str) -> cenote::Result<()> {
///     db.transaction(async || {
///         db.exec("INSERT INTO customer (name) VALUES (?)", (name,)).await?;
///         Ok(())
///     })
///     .await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let dir = tempfile::tempdir().expect("a folder");
/// # let dsn = format!("sqlite:{}", dir.path().join("shop.db").display());
/// # let setup = Db::open(&dsn).await?;
/// # setup.exec("CREATE TABLE customer (name TEXT UNIQUE)", ()).await?;
/// let sandbox = Db::builder(&dsn).sandbox().await?;
/// let db = sandbox.db();
/// register(db, "Ada").await?;
/// assert!(register(db, "Ada").await.is_err_and(|error| error.is_unique_violation()));
/// assert_eq!(db.query_as_one::<i64>("SELECT count(*) FROM customer", ()).await?, 1);
///
/// sandbox.finish().await?;
/// # assert_eq!(setup.query_as_one::<i64>("SELECT count(*) FROM customer", ()).await?, 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a sandbox that is dropped is rolled back"]
pub struct Sandbox {
    db: Db,
    rules: Arc<Rules>,
}

impl Sandbox {
    /// Returns the handle of the sandbox. Clones of it are in the sandbox, too.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Lets spawned tasks use the sandbox.
    ///
    /// Without it, only the task that opened the sandbox may: a call of any other task is refused with
    /// [`Kind::Unsupported`]. A spawned task shares the connection, so its calls run between those of the test, and a task
    /// that outlives the test finds the handle closed. That is worth a line in the test. Tests that serve real HTTP
    /// connections need it as well, because the server spawns a task for each.
    pub fn allow_spawned(&self) -> &Self {
        // Release pairs with the acquire in `check_caller`.
        self.rules.spawned.store(true, Ordering::Release);
        self
    }

    /// Rolls everything back, closes the connection, and waits until both are done.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the sandbox is rolled back nevertheless.
    ///
    /// # Errors
    ///
    /// A call still runs after five seconds, or a transaction, a statement or a stream is still open; the message names
    /// their lines. They are rolled back nevertheless.
    pub async fn finish(self) -> Result<()> {
        self.db.close_and_drain(FINISH_WITHIN).await
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Clones of the handle may live on: from here on their calls fail. An executor that is shutting down drops the
        // task, which closes the connection as well.
        let db = self.db.clone();
        self.db.spawn_aside(async move {
            if let Err(error) = db.close().await {
                tracing::debug!(%error, "closing a sandbox failed");
            }
        });
    }
}

/// What the connections of a sandbox share. They exist one after the other, never two at a time.
#[derive(Debug)]
struct Rules {
    /// The isolation level of the sandbox, if it is not the database's default.
    isolation: Option<Isolation>,
    /// The task that opened the sandbox; `None` if that was no spawned task, as in `#[tokio::test]`.
    owner: Option<tokio::task::Id>,
    /// Other tasks may use the sandbox.
    spawned: AtomicBool,
    /// The connection was opened: there is no second one.
    opened: AtomicBool,
    /// Why the sandbox is over before its end.
    lost: OnceLock<String>,
}

impl Rules {
    fn check_caller(&self) -> Result<()> {
        // Acquire pairs with the release in `allow_spawned`.
        if self.spawned.load(Ordering::Acquire) || tokio::task::try_id() == self.owner {
            return Ok(());
        }
        let message = "a spawned task has used the Db of a sandbox: permit it with Sandbox::allow_spawned(), or await \
                       the work in the task that opened the sandbox";
        Err(Error::new(Kind::Unsupported, message))
    }

    /// Ends the sandbox: its transaction is gone.
    fn lose(&self, why: impl Into<String>) {
        let _ = self.lost.set(why.into());
    }

    /// Returns the error of every call after the sandbox has lost its transaction.
    fn lost(&self) -> Error {
        let why = self.lost.get().map_or(
            "its connection was lost, or closed to undo what a call left on it",
            String::as_str,
        );
        let message = format!("the sandbox is over: {why}; open a new sandbox");
        Error::new(Kind::TransactionLost, message)
    }
}

impl Builder {
    /// Opens a [`Sandbox`]: a [`Db`] for a test, whose changes are all rolled back at the end. It connects at once.
    ///
    /// A sandbox is [unpooled](Builder::unpooled). A test opens its own: a connection belongs to the executor of the test
    /// that opened it, and `#[tokio::test]` gives each test its own.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// As [`open`](Builder::open); [`Kind::Unsupported`] for ODBC.
    pub async fn sandbox(self) -> Result<Sandbox> {
        self.open_sandbox(None).await
    }

    /// As [`sandbox`](Builder::sandbox), at this isolation level: the code under test may ask for it, and for weaker ones.
    ///
    /// A level belongs to a whole transaction. So in a sandbox a transaction that asks for a stricter level than that of the
    /// sandbox is refused.
    ///
    /// # Cancel safety
    ///
    /// As [`sandbox`](Builder::sandbox).
    ///
    /// # Errors
    ///
    /// As [`sandbox`](Builder::sandbox).
    pub async fn sandbox_at(self, isolation: Isolation) -> Result<Sandbox> {
        self.open_sandbox(Some(isolation)).await
    }

    async fn open_sandbox(self, isolation: Option<Isolation>) -> Result<Sandbox> {
        let rules = Arc::new(Rules {
            isolation,
            owner: tokio::task::try_id(),
            spawned: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            lost: OnceLock::new(),
        });
        let wrap = |driver| SandboxDriver::around(driver, &rules);
        let db = self.unpooled().with_driver_around(wrap)?.open().await?;
        let sandbox = Sandbox { db, rules };
        // A cancel from here on drops the sandbox, which closes it.
        sandbox.db.ping().await?;
        Ok(sandbox)
    }
}
