//! A `DatabaseConnection`, for code that names this type.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use cenote::CoroutineId;
use sea_orm::{
    ConnectionTrait, DatabaseConnection, DbErr, ProxyDatabaseTrait, ProxyExecResult, ProxyRow,
    Statement, TransactionSession, TransactionTrait,
};

use crate::connection::{Calls, OrmDb};
use crate::error::db_err;
use crate::transaction::OrmTransaction;

impl OrmDb {
    /// Returns a `DatabaseConnection` that runs its statements on this handle, for code that names that type.
    ///
    /// It goes through SeaORM's proxy, which has limits that [`OrmDb`] itself does not have:
    ///
    /// - The proxy cannot report that BEGIN or COMMIT failed. The failure is logged, and the next statement of
    ///   the same task or coroutine returns it.
    /// - A transaction belongs to the task or coroutine that began it, and must be used and ended there.
    /// - Isolation levels and access modes are ignored.
    /// - `stream` fails: SeaORM's proxy has no streams.
    pub fn database_connection(&self) -> DatabaseConnection {
        let proxy = Proxy {
            orm: self.clone(),
            owners: Mutex::default(),
        };
        let proxy: Arc<Box<dyn ProxyDatabaseTrait>> = Arc::new(Box::new(proxy));
        let backend = self.get_database_backend();
        let connection = sea_orm::ProxyDatabaseConnection::new(backend, proxy);
        sea_orm::DatabaseConnectionType::ProxyDatabaseConnection(Arc::new(connection)).into()
    }
}

/// Who began a transaction: the proxy's calls do not tell.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Coroutine(CoroutineId),
    Task(tokio::task::Id),
    Thread(ThreadId),
}

impl Owner {
    fn current() -> Self {
        if let Some(coroutine) = cenote::current() {
            return Owner::Coroutine(coroutine);
        }
        match tokio::task::try_id() {
            Some(task) => Owner::Task(task),
            None => Owner::Thread(std::thread::current().id()),
        }
    }
}

#[derive(Default)]
struct Open {
    /// The transaction and the savepoints in it; `None` where BEGIN failed.
    levels: Vec<Option<Arc<OrmTransaction>>>,
    /// What the proxy could not report.
    failed: Option<DbErr>,
}

struct Proxy {
    orm: OrmDb,
    owners: Mutex<HashMap<Owner, Open>>,
}

impl Proxy {
    fn owners(&self) -> MutexGuard<'_, HashMap<Owner, Open>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the innermost transaction of the caller, or the failure that could not be reported.
    fn current(&self) -> Result<Option<Arc<OrmTransaction>>, DbErr> {
        let mut owners = self.owners();
        let owner = Owner::current();
        let Some(open) = owners.get_mut(&owner) else {
            return Ok(None);
        };
        if open.levels.iter().any(Option::is_none) {
            let error = open.failed.clone();
            return Err(error
                .unwrap_or_else(|| DbErr::Custom("the transaction could not begin".to_owned())));
        }
        if let Some(error) = open.failed.take() {
            if open.levels.is_empty() {
                owners.remove(&owner);
            }
            return Err(error);
        }
        Ok(open.levels.last().cloned().flatten())
    }

    /// Removes the innermost transaction of the caller.
    fn pop(&self) -> Option<OrmTransaction> {
        let mut owners = self.owners();
        let owner = Owner::current();
        let open = owners.get_mut(&owner)?;
        let level = open.levels.pop();
        if open.levels.is_empty() && open.failed.is_none() {
            owners.remove(&owner);
        }
        level.flatten().and_then(Arc::into_inner)
    }

    fn note(&self, what: &str, error: DbErr) {
        tracing::error!(%error, "{what} failed, which SeaORM's proxy cannot report");
        self.owners().entry(Owner::current()).or_default().failed = Some(error);
    }
}

#[async_trait::async_trait]
impl ProxyDatabaseTrait for Proxy {
    async fn query(&self, statement: Statement) -> Result<Vec<ProxyRow>, DbErr> {
        let reader = self.orm.reader();
        let rows = match self.current()? {
            Some(transaction) => transaction.rows(statement).await?,
            None => {
                let on = self.orm.db().into();
                Calls { on, reader }.rows(statement).await?
            }
        };
        rows.iter().map(|row| reader.read(row)).collect()
    }

    async fn execute(&self, statement: Statement) -> Result<ProxyExecResult, DbErr> {
        let done = match self.current()? {
            Some(transaction) => transaction.execute_raw(statement).await?,
            None => self.orm.execute_raw(statement).await?,
        };
        Ok(done.into())
    }

    async fn begin(&self) {
        let begun = match self.current() {
            Ok(Some(transaction)) => transaction.begin().await,
            Ok(None) => self.orm.begin().await,
            Err(error) => Err(error),
        };
        let level = match begun {
            Ok(transaction) => Some(Arc::new(transaction)),
            Err(error) => {
                self.note("BEGIN", error);
                None
            }
        };
        let mut owners = self.owners();
        owners
            .entry(Owner::current())
            .or_default()
            .levels
            .push(level);
    }

    async fn commit(&self) {
        if let Some(transaction) = self.pop()
            && let Err(error) = transaction.commit().await
        {
            self.note("COMMIT", error);
        }
    }

    async fn rollback(&self) {
        if let Some(transaction) = self.pop()
            && let Err(error) = transaction.rollback().await
        {
            self.note("ROLLBACK", error);
        }
    }

    fn start_rollback(&self) {
        drop(self.pop());
    }

    async fn ping(&self) -> Result<(), DbErr> {
        self.orm.db().ping().await.map_err(db_err)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.orm).finish()
    }
}
