//! Transactions that own what they need, and nest as savepoints.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use cenote::{CallOptions, Coroutine, CoroutineId, Db, Executor, Isolation, Transaction};
use sea_orm::{
    AccessMode, ConnectionTrait, DbBackend, DbErr, ExecResult, IsolationLevel, QueryResult,
    Statement, StreamTrait, TransactionError, TransactionOptions, TransactionSession,
    TransactionTrait,
};

use crate::connection::{BoxFuture, Calls, OrmDb, OrmStream, run_statements};
use crate::error::{db_err, refused};
use crate::rows::RowReader;

/// A transaction of SeaORM on a [`cenote::Db`], or a savepoint in one. Dropping it rolls back.
///
/// A transaction inside another one is a savepoint. If a savepoint is dropped, the next statement of the
/// transaction around it first rolls back to it. If that transaction was begun by `Db` and the rollback cannot
/// be completed in the drop, the transaction around it can no longer be committed.
pub struct OrmTransaction {
    /// `None` once it is committed or rolled back.
    shared: Option<Arc<Shared>>,
    reader: RowReader,
    /// The number of the savepoint, if it is one.
    savepoint: Option<u64>,
}

/// A transaction with all savepoints in it.
struct Shared {
    on: On,
    /// Numbers the savepoints.
    savepoints: AtomicU64,
    /// The oldest savepoint that was dropped and is not rolled back yet. Its rollback includes all that were
    /// set after it.
    dropped: Mutex<Option<u64>>,
}

enum On {
    /// Begun here. Outside of a coroutine the transaction has one of its own, which ends after it.
    Own(Transaction<'static>, Option<Coroutine>),
    /// A savepoint in a transaction of the coroutine.
    Ambient(Db, Option<CoroutineId>),
}

impl Shared {
    fn new(on: On) -> Arc<Self> {
        Arc::new(Shared {
            on,
            savepoints: AtomicU64::new(1),
            dropped: Mutex::default(),
        })
    }

    fn executor(&self) -> Result<Executor<'_>, DbErr> {
        match &self.on {
            On::Own(transaction, _) => Ok(Executor::from(transaction)),
            On::Ambient(db, coroutine)
                if cenote::current() == *coroutine && db.in_transaction() =>
            {
                Ok(Executor::from(db))
            }
            On::Ambient(..) => Err(refused(
                "the transaction belongs to another coroutine: use it where it was begun",
            )),
        }
    }

    async fn run(&self, sql: &str) -> Result<(), DbErr> {
        // Names of savepoints seldom come back, so that their statements would only fill the cache.
        let on = self.executor()?.with(CallOptions::new().no_cache());
        on.exec(sql, ()).await.map(drop).map_err(db_err)
    }

    /// Rolls back the savepoints that were dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped meanwhile, cenote refuses all further statements of the transaction.
    async fn settle(&self) -> Result<(), DbErr> {
        let oldest = *self.dropped();
        match oldest {
            Some(oldest) => self.roll_back_to(oldest).await,
            None => Ok(()),
        }
    }

    /// Undoes a savepoint and all that were set after it.
    async fn roll_back_to(&self, savepoint: u64) -> Result<(), DbErr> {
        let name = self.name_of(savepoint);
        self.run(&format!("ROLLBACK TO SAVEPOINT {name}")).await?;
        self.run(&format!("RELEASE SAVEPOINT {name}")).await?;
        self.dropped().take_if(|dropped| *dropped >= savepoint);
        Ok(())
    }

    /// The name includes the address, because several of these may be in one transaction of `Db`.
    fn name_of(&self, savepoint: u64) -> String {
        format!(
            "cenote_orm_{:x}_{savepoint}",
            std::ptr::from_ref(self).addr()
        )
    }

    fn dropped(&self) -> MutexGuard<'_, Option<u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn set_savepoint(self: &Arc<Self>, reader: RowReader) -> Result<OrmTransaction, DbErr> {
        self.settle().await?;
        let savepoint = self.savepoints.fetch_add(1, Ordering::Relaxed);
        self.run(&format!("SAVEPOINT {}", self.name_of(savepoint)))
            .await?;
        Ok(OrmTransaction {
            shared: Some(Arc::clone(self)),
            reader,
            savepoint: Some(savepoint),
        })
    }
}

/// Begins a transaction, or a savepoint if one is open in the coroutine.
pub(crate) async fn begin(
    orm: &OrmDb,
    options: TransactionOptions,
) -> Result<OrmTransaction, DbErr> {
    let (db, reader) = (orm.db(), orm.reader());
    if db.in_transaction() {
        outermost_only(options)?;
        let shared = Shared::new(On::Ambient(db.clone(), cenote::current()));
        return shared.set_savepoint(reader).await;
    }
    let own = cenote::current().is_none().then(Coroutine::new);
    let begun = {
        // Made in its first poll: a call belongs to the coroutine in which it is made.
        let mut begin = pin!(async { begin_with(db, options).await });
        poll_fn(|cx| match &own {
            Some(coroutine) => coroutine.enter(|| begin.as_mut().poll(cx)),
            None => begin.as_mut().poll(cx),
        })
        .await
    };
    let transaction = begun.map_err(db_err)?;
    Ok(OrmTransaction {
        shared: Some(Shared::new(On::Own(transaction, own))),
        reader,
        savepoint: None,
    })
}

fn begin_with(
    db: &Db,
    options: TransactionOptions,
) -> impl Future<Output = cenote::Result<Transaction<'static>>> + Send + '_ {
    let mut begin = db.transaction_options();
    if let Some(level) = options.isolation_level {
        begin = begin.isolation(match level {
            IsolationLevel::ReadUncommitted => Isolation::ReadUncommitted,
            IsolationLevel::ReadCommitted => Isolation::ReadCommitted,
            IsolationLevel::RepeatableRead => Isolation::RepeatableRead,
            IsolationLevel::Serializable => Isolation::Serializable,
        });
    }
    if options.access_mode == Some(AccessMode::ReadOnly) {
        begin = begin.read_only();
    }
    begin.begin()
}

fn outermost_only(options: TransactionOptions) -> Result<(), DbErr> {
    match options == TransactionOptions::default() {
        true => Ok(()),
        false => Err(refused(
            "only the outermost transaction has an isolation level and an access mode",
        )),
    }
}

impl OrmTransaction {
    pub(crate) fn reader(&self) -> RowReader {
        self.reader
    }

    fn shared(&self) -> &Arc<Shared> {
        let shared = self.shared.as_ref();
        shared.expect("it ends when it is committed or rolled back")
    }

    async fn calls(&self) -> Result<Calls<'_>, DbErr> {
        let shared = self.shared();
        shared.settle().await?;
        Ok(Calls {
            on: shared.executor()?,
            reader: self.reader,
        })
    }

    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<cenote::Row>, DbErr> {
        self.calls().await?.rows(statement).await
    }

    async fn begin_on(&self, options: TransactionOptions) -> Result<OrmTransaction, DbErr> {
        outermost_only(options)?;
        self.shared().set_savepoint(self.reader).await
    }

    /// Takes the transaction itself. Fails if a savepoint in it still lives.
    fn into_own(mut self) -> Result<(Transaction<'static>, Option<Coroutine>), DbErr> {
        let shared = self.shared.take().map(Arc::try_unwrap);
        match shared {
            Some(Ok(Shared {
                on: On::Own(transaction, coroutine),
                ..
            })) => Ok((transaction, coroutine)),
            _ => Err(refused(
                "a transaction inside this one is still open: commit or roll it back first",
            )),
        }
    }
}

#[async_trait::async_trait]
impl TransactionSession for OrmTransaction {
    async fn commit(mut self) -> Result<(), DbErr> {
        let shared = Arc::clone(self.shared());
        shared.settle().await?;
        if let Some(savepoint) = self.savepoint {
            let name = shared.name_of(savepoint);
            shared.run(&format!("RELEASE SAVEPOINT {name}")).await?;
            self.shared = None;
            return Ok(());
        }
        drop(shared);
        let (transaction, coroutine) = self.into_own()?;
        let committed = transaction.commit().await.map_err(db_err);
        drop(coroutine);
        committed
    }

    async fn rollback(mut self) -> Result<(), DbErr> {
        if let Some(savepoint) = self.savepoint.take() {
            let shared = self.shared.take();
            let shared = shared.expect("it ends when it is committed or rolled back");
            let oldest = *shared.dropped();
            let oldest = oldest.map_or(savepoint, |dropped| dropped.min(savepoint));
            return shared.roll_back_to(oldest).await;
        }
        let (transaction, coroutine) = self.into_own()?;
        let rolled_back = transaction.rollback().await.map_err(db_err);
        drop(coroutine);
        rolled_back
    }
}

impl Drop for OrmTransaction {
    fn drop(&mut self) {
        let (Some(shared), Some(savepoint)) = (self.shared.take(), self.savepoint.take()) else {
            // The outermost transaction rolls itself back.
            return;
        };
        if let On::Own(..) = &shared.on {
            let mut dropped = shared.dropped();
            *dropped = Some(dropped.map_or(savepoint, |oldest| oldest.min(savepoint)));
            return;
        }
        // Nobody else knows of the savepoint. A call that is dropped half-way dooms the transaction around it,
        // so that what should have been rolled back is never committed.
        let rollback = pin!(shared.roll_back_to(savepoint));
        let _ = rollback.poll(&mut Context::from_waker(Waker::noop()));
    }
}

impl fmt::Debug for OrmTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrmTransaction")
            .field("savepoint", &self.savepoint)
            .finish_non_exhaustive()
    }
}

run_statements!(OrmTransaction, |this| this.calls().await?);
