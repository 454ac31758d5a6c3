//! `ConnectionTrait`, `TransactionTrait` and `StreamTrait` for a `Db`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use cenote::{Db, Executor, Row, RowStream};
use futures_core::Stream;
use sea_orm::{
    AccessMode, ConnectionTrait, DbBackend, DbErr, ExecResult, IsolationLevel, ProxyExecResult,
    QueryResult, Statement, StreamTrait, TransactionError, TransactionOptions, TransactionSession,
    TransactionTrait,
};

use crate::bind::params;
use crate::casts::with_casts;
use crate::error::{db_err, refused};
use crate::rows::{RowReader, RowTypes};
use crate::transaction::{self, OrmTransaction};

/// A [`Db`] for SeaORM: entities and queries take a reference to it where they take a
/// `&DatabaseConnection`.
///
/// Every call follows the rules of `Db`: inside a transaction closure or a coroutine it runs in the transaction
/// that is open there, whether SeaORM or `Db` began it.
///
/// | SeaORM | runs |
/// |---|---|
/// | a query | like a call of `Db` |
/// | `begin` | [`Db::begin`], also outside of a coroutine; a savepoint if a transaction is open |
/// | `transaction` | `begin` and `commit` around the closure, in a coroutine: calls of `Db` in the closure run in it, too |
/// | `stream` | [`Db::stream`]: rows arrive while they are read, and the stream holds the connection |
#[derive(Clone, Debug)]
pub struct OrmDb {
    db: Db,
    reader: RowReader,
}

impl OrmDb {
    /// Wraps a handle.
    ///
    /// # Errors
    ///
    /// Fails for databases other than PostgreSQL, MySQL and MariaDB. SQLite: SeaORM and cenote need different
    /// versions of the same C library, which cannot be linked into one program.
    pub fn new(db: Db) -> Result<Self, DbErr> {
        let backend = match db.system_name() {
            "postgresql" => DbBackend::Postgres,
            "mysql" | "mariadb" => DbBackend::MySql,
            other => {
                return Err(refused(&format!(
                    "cenote-sea-orm supports PostgreSQL, MySQL and MariaDB, not {other}"
                )));
            }
        };
        let types = RowTypes::default();
        let reader = RowReader { backend, types };
        Ok(OrmDb { db, reader })
    }

    /// Reads timestamps with a time zone as `DateTimeUtc`. Default: `DateTimeWithTimeZone`.
    #[must_use]
    pub fn utc_timestamps(mut self) -> Self {
        self.reader.types.utc = true;
        self
    }

    /// Returns the wrapped handle.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Asks the database for an answer, as `DatabaseConnection::ping` does.
    ///
    /// # Cancel safety
    ///
    /// As a call of [`Db`].
    ///
    /// # Errors
    ///
    /// No connection answered.
    pub async fn ping(&self) -> Result<(), DbErr> {
        self.db.ping().await.map_err(db_err)
    }

    /// Closes the handle and all its clones, as `DatabaseConnection::close` does: see [`Db::close`].
    ///
    /// # Cancel safety
    ///
    /// As [`Db::close`].
    ///
    /// # Errors
    ///
    /// As [`Db::close`].
    pub async fn close(self) -> Result<(), DbErr> {
        self.db.close().await.map_err(db_err)
    }

    pub(crate) fn reader(&self) -> RowReader {
        self.reader
    }

    fn calls(&self) -> Calls<'_> {
        Calls {
            on: Executor::from(&self.db),
            reader: self.reader,
        }
    }
}

/// Statements of SeaORM on a `Db` or a transaction.
pub(crate) struct Calls<'e> {
    pub(crate) on: Executor<'e>,
    pub(crate) reader: RowReader,
}

impl Calls<'_> {
    pub(crate) async fn execute(self, statement: Statement) -> Result<ExecResult, DbErr> {
        let (sql, params) = self.parts(statement)?;
        let outcome = self.on.exec(&sql, params).await.map_err(db_err)?;
        Ok(exec_result(&outcome))
    }

    pub(crate) async fn execute_unprepared(self, sql: &str) -> Result<ExecResult, DbErr> {
        let outcome = self.on.exec(sql, ()).await.map_err(db_err)?;
        Ok(exec_result(&outcome))
    }

    pub(crate) async fn rows(self, statement: Statement) -> Result<Vec<Row>, DbErr> {
        let (sql, params) = self.parts(statement)?;
        self.on.query(&sql, params).await.map_err(db_err)
    }

    pub(crate) async fn query_one(
        self,
        statement: Statement,
    ) -> Result<Option<QueryResult>, DbErr> {
        let reader = self.reader;
        let rows = self.rows(statement).await?;
        rows.first()
            .map(|row| Ok(reader.read(row)?.into()))
            .transpose()
    }

    pub(crate) async fn query_all(self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let reader = self.reader;
        let rows = self.rows(statement).await?;
        rows.iter()
            .map(|row| Ok(reader.read(row)?.into()))
            .collect()
    }

    pub(crate) async fn stream<'s>(self, statement: Statement) -> Result<OrmStream<'s>, DbErr> {
        let (sql, params) = self.parts(statement)?;
        let rows = self.on.stream(&sql, params).await.map_err(db_err)?;
        Ok(OrmStream {
            rows: Box::pin(rows),
            reader: self.reader,
            _of: std::marker::PhantomData,
        })
    }

    fn parts(&self, statement: Statement) -> Result<(String, cenote::Params<'static>), DbErr> {
        let values = statement
            .values
            .unwrap_or_else(|| sea_orm::Values(Vec::new()));
        let sql = match self.reader.backend {
            DbBackend::Postgres => with_casts(statement.sql, &values.0),
            _ => statement.sql,
        };
        let params = params(values).map_err(db_err)?;
        Ok((sql, params))
    }
}

fn exec_result(outcome: &cenote::Outcome) -> ExecResult {
    let id = outcome.last_insert_id.and_then(|id| u64::try_from(id).ok());
    ProxyExecResult::new(id.unwrap_or_default(), outcome.rows_affected).into()
}

/// The rows of a query, as they arrive. It holds the connection while it lives.
pub struct OrmStream<'s> {
    rows: Pin<Box<RowStream>>,
    reader: RowReader,
    _of: std::marker::PhantomData<&'s ()>,
}

impl Stream for OrmStream<'_> {
    type Item = Result<QueryResult, DbErr>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.reader;
        let next = self.rows.as_mut().poll_next(cx);
        next.map(|row| row.map(|row| Ok(reader.read(&row.map_err(db_err)?)?.into())))
    }
}

impl fmt::Debug for OrmStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OrmStream").field(&self.rows).finish()
    }
}

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Implements what a handle and a transaction have in common: `calls()` says where statements run.
macro_rules! run_statements {
    ($on:ty, |$this:ident| $calls:expr) => {
        #[async_trait::async_trait]
        impl ConnectionTrait for $on {
            fn get_database_backend(&self) -> DbBackend {
                self.reader().backend
            }

            async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
                let $this = self;
                $calls.execute(statement).await
            }

            async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
                let $this = self;
                $calls.execute_unprepared(sql).await
            }

            async fn query_one_raw(
                &self,
                statement: Statement,
            ) -> Result<Option<QueryResult>, DbErr> {
                let $this = self;
                $calls.query_one(statement).await
            }

            async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
                let $this = self;
                $calls.query_all(statement).await
            }
        }

        impl StreamTrait for $on {
            type Stream<'a> = OrmStream<'a>;

            fn get_database_backend(&self) -> DbBackend {
                self.reader().backend
            }

            fn stream_raw<'a>(
                &'a self,
                statement: Statement,
            ) -> BoxFuture<'a, Result<OrmStream<'a>, DbErr>> {
                Box::pin(async move {
                    let $this = self;
                    $calls.stream(statement).await
                })
            }
        }

        #[async_trait::async_trait]
        impl TransactionTrait for $on {
            type Transaction = OrmTransaction;

            async fn begin(&self) -> Result<OrmTransaction, DbErr> {
                self.begin_with_options(TransactionOptions::default()).await
            }

            async fn begin_with_config(
                &self,
                isolation_level: Option<IsolationLevel>,
                access_mode: Option<AccessMode>,
            ) -> Result<OrmTransaction, DbErr> {
                let options = TransactionOptions {
                    isolation_level,
                    access_mode,
                    sqlite_transaction_mode: None,
                };
                self.begin_with_options(options).await
            }

            async fn begin_with_options(
                &self,
                options: TransactionOptions,
            ) -> Result<OrmTransaction, DbErr> {
                self.begin_on(options).await
            }

            async fn transaction<F, T, E>(&self, callback: F) -> Result<T, TransactionError<E>>
            where
                F: for<'c> FnOnce(&'c OrmTransaction) -> BoxFuture<'c, Result<T, E>> + Send,
                T: Send,
                E: fmt::Display + fmt::Debug + Send,
            {
                self.transaction_with_config(callback, None, None).await
            }

            async fn transaction_with_config<F, T, E>(
                &self,
                callback: F,
                isolation_level: Option<IsolationLevel>,
                access_mode: Option<AccessMode>,
            ) -> Result<T, TransactionError<E>>
            where
                F: for<'c> FnOnce(&'c OrmTransaction) -> BoxFuture<'c, Result<T, E>> + Send,
                T: Send,
                E: fmt::Display + fmt::Debug + Send,
            {
                let body = async move {
                    let begun = self.begin_with_config(isolation_level, access_mode).await;
                    let transaction = begun.map_err(TransactionError::Connection)?;
                    match callback(&transaction).await {
                        Ok(value) => {
                            let committed = transaction.commit().await;
                            committed.map_err(TransactionError::Connection)?;
                            Ok(value)
                        }
                        Err(error) => {
                            let rolled_back = transaction.rollback().await;
                            rolled_back.map_err(TransactionError::Connection)?;
                            Err(TransactionError::Transaction(error))
                        }
                    }
                };
                // In a coroutine, so that calls of `Db` in the closure run in the transaction.
                match cenote::current() {
                    Some(_) => body.await,
                    None => cenote::scope(body).await,
                }
            }
        }
    };
}
pub(crate) use run_statements;

run_statements!(OrmDb, |this| this.calls());

impl OrmDb {
    async fn begin_on(&self, options: TransactionOptions) -> Result<OrmTransaction, DbErr> {
        transaction::begin(self, options).await
    }
}
