//! The operations that every program implements.

use std::error::Error;
use std::future::Future;
use std::path::Path;

/// The statements, so that all run the same.
pub mod sql {
    /// One row by its primary key.
    pub const READ: &str = "SELECT id, name, balance FROM account WHERE id = ?";
    /// A scan whose length the parameter sets: every account once for each of the first `?` accounts.
    pub const SCAN: &str = "SELECT sum(a.balance + b.id) FROM account b, account a WHERE b.id <= ?";
    /// Changes one row.
    pub const PUT: &str = "UPDATE account SET balance = balance + 1 WHERE id = ?";
    /// The other half of a transaction.
    pub const TAKE: &str = "UPDATE account SET balance = balance - 1 WHERE id = ?";
}

/// A row of the table.
#[derive(Debug)]
pub struct Account {
    /// The primary key.
    pub id: i64,
    /// A short, owned text, as most programs read it.
    pub name: String,
    /// A number.
    pub balance: i64,
}

/// What `PRAGMA synchronous` is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// Commits do not wait for the disk (in WAL).
    Normal,
    /// Every commit does.
    Full,
}

impl Synchronous {
    /// Returns the value for the pragma.
    pub fn word(self) -> &'static str {
        match self {
            Synchronous::Normal => "normal",
            Synchronous::Full => "full",
        }
    }
}

/// Why a write failed: counted and shown, not fatal.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A library for SQLite.
///
/// All have WAL, a busy time-out of 30 s and foreign keys on, which are the defaults of `Db`.
pub trait Engine: Clone + Send + Sync + Sized + 'static {
    /// What one task uses.
    type Session: Session;

    /// Opens the file.
    fn open(file: &Path, synchronous: Synchronous) -> impl Future<Output = Self> + Send;

    /// Opens a session for one of a few reading tasks.
    fn reader(&self) -> impl Future<Output = Self::Session> + Send;

    /// Opens a session for one of the writing tasks.
    fn writer(&self) -> impl Future<Output = Self::Session> + Send;
}

/// What one task does with SQLite.
pub trait Session: Send + 'static {
    /// Reads a row by [`sql::READ`].
    fn read(&mut self, id: i64) -> impl Future<Output = Account> + Send;

    /// Runs [`sql::SCAN`], or something like it, over the first `limit` accounts.
    fn scan(&mut self, sql: &str, limit: i64) -> impl Future<Output = i64> + Send;

    /// Runs [`sql::PUT`] by itself.
    fn write(&mut self, id: i64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Runs [`sql::TAKE`] and [`sql::PUT`] in a transaction.
    fn transfer(&mut self, from: i64, to: i64) -> impl Future<Output = Result<(), Failure>> + Send;
}
