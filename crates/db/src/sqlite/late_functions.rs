//! Functions and collations that are added while connections are open.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Sqlite;
use super::error;
use super::functions::Functions;
use super::session::Session;
use crate::Result;

/// Functions, aggregates and collations that are added while the database is open.
///
/// Every connection of the handle knows them from its next statement on. A function with the name and the number of arguments of
/// an earlier one replaces it, and so does a collation.
///
/// # Examples
///
/// ```
/// use cenote::Db;
/// use cenote::sqlite::{LateFunctions, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// let late = LateFunctions::new();
/// let driver = Sqlite::new().late_functions(&late);
/// let dsn = "sqlite:file:late-doc?mode=memory&cache=shared";
/// let db = Db::builder_with(driver, dsn).open().await?;
/// db.exec("CREATE TABLE t (n)", ()).await?;
///
/// late.add(Sqlite::new().function("double", 1, true, |args| Ok(args.get::<i64>(0)? * 2)))?;
/// let doubled: i64 = db.query_scalar_one("SELECT double(21)", ()).await?;
/// assert_eq!(doubled, 42);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct LateFunctions {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Each addition, in order.
    additions: Mutex<Vec<Functions>>,
    /// The number of additions. Release pairs with the Acquire of `lacks`: a session that sees the number finds the addition.
    count: AtomicU64,
}

impl LateFunctions {
    /// Returns an empty set.
    pub fn new() -> Self {
        LateFunctions::default()
    }

    /// Adds the functions, aggregates and collations of a driver.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config) if the driver has two of the same name, or an impossible name. Then nothing is added.
    pub fn add(&self, driver: Sqlite) -> Result<()> {
        driver.functions.check()?;
        let mut additions = self.additions();
        additions.push(driver.functions);
        self.shared
            .count
            .store(additions.len() as u64, Ordering::Release);
        Ok(())
    }

    fn additions(&self) -> MutexGuard<'_, Vec<Functions>> {
        let additions = &self.shared.additions;
        additions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a session with this many additions lacks one.
    #[inline]
    fn lacks(&self, known: u64) -> bool {
        self.shared.count.load(Ordering::Acquire) != known
    }
}

impl fmt::Debug for LateFunctions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&*self.additions()).finish()
    }
}

impl Session {
    /// Registers what was added since the last call.
    #[inline]
    pub(super) fn register_late_functions(&self) -> Result<()> {
        match &self.late_functions {
            Some(late) if late.lacks(self.known_additions.get()) => self.register_additions(late),
            _ => Ok(()),
        }
    }

    #[cold]
    fn register_additions(&self, late: &LateFunctions) -> Result<()> {
        let additions = late.additions();
        let known = usize::try_from(self.known_additions.get()).unwrap_or(usize::MAX);
        for added in additions.iter().skip(known) {
            self.note_functions();
            added
                .register_on(&self.db, &self.alarm)
                .map_err(error::from_sqlite)?;
            self.known_additions.set(self.known_additions.get() + 1);
        }
        Ok(())
    }
}
