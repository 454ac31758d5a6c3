//! Several statements of one task in one round trip.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::Call;
use crate::call::batch::Statement;
use crate::call::read;
use crate::driver::Outcome;
use crate::types::params::IntoParams;
use crate::types::row::Row;
use crate::{DeserializeOwned, Error, Kind, Result};

/// Several statements of one task: PostgreSQL runs those of a transaction, and neighbours that only read, in one round trip;
/// other databases run one after the other.
///
/// Add statements, [`run`](StatementBatch::run) the batch, and take the result of each:
///
/// ```
/// use cenote::Db;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = Db::open("sqlite:file:batch-doc?mode=memory&cache=shared").await?;
/// # db.exec("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price INTEGER NOT NULL)", ()).await?;
/// # db.exec("INSERT INTO item VALUES (1, 'pen', 150), (2, 'ink', 900)", ()).await?;
/// let mut batch = db.batch();
/// let name = batch.query_scalar_one::<String>("SELECT name FROM item WHERE id = ?", (1,));
/// let cheap = batch.query_as::<(i64, String)>("SELECT id, name FROM item WHERE price < ?", (500,));
/// let raised = batch.exec("UPDATE item SET price = price + 10", ());
///
/// let mut results = batch.run().await?;
/// assert_eq!(results.take(name)?, "pen");
/// assert_eq!(results.take(cheap)?, [(1, "pen".to_owned())]);
/// assert_eq!(results.take(raised)?.rows_affected, 2);
/// # Ok(()) }
/// ```
///
/// The statements run in the order in which they were added, on one connection.
///
/// | where | an error of one statement |
/// |---|---|
/// | outside of a transaction | concerns that statement only: each is a transaction of its own |
/// | in a transaction | the statements behind it do not run: their result is [`Kind::NotRun`] |
///
/// A batch takes single statements: no scripts, no transaction control, and nothing that only changes the session. To make
/// the statements of a batch take effect together, run it in a [transaction](crate::Db::transaction). One statement with
/// many sets of parameters is a case for [`exec_many`](crate::Db::exec_many). A batch has at most 1,024 statements and 16 MiB of
/// texts and parameters; all results are kept in memory.
///
/// The [guide](crate::guide::batches) explains round trips, errors and lost connections.
#[must_use = "a batch does nothing until it is run"]
pub struct StatementBatch<'a> {
    call: Call<'a>,
    statements: Vec<Statement<'a>>,
    id: u64,
}

/// A statement of a [`StatementBatch`]: [`BatchResults::take`] returns its result, a `T`.
pub struct BatchEntry<T> {
    batch: u64,
    index: usize,
    read: fn(Outcome) -> Result<T>,
    result: PhantomData<fn() -> T>,
}

/// The results of a [`StatementBatch`], one for each statement.
#[must_use = "each statement has a result of its own, which may be an error"]
pub struct BatchResults<'a> {
    call: Call<'a>,
    batch: u64,
    results: Vec<(&'a str, Option<Result<Outcome>>)>,
}

/// The number of the next batch. Relaxed: it orders nothing.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl<'a> StatementBatch<'a> {
    pub(crate) fn new(call: Call<'a>) -> Self {
        StatementBatch {
            call,
            statements: Vec::new(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn add<T>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
        wants_rows: bool,
        read: fn(Outcome) -> Result<T>,
    ) -> BatchEntry<T> {
        let index = self.statements.len();
        self.statements.push(Statement {
            sql,
            params: params.into_params(),
            wants_rows,
        });
        BatchEntry {
            batch: self.id,
            index,
            read,
            result: PhantomData,
        }
    }

    /// Adds SQL whose result is the number of rows it changed; as [`Db::exec`](crate::Db::exec).
    pub fn exec(&mut self, sql: &'a str, params: impl IntoParams<'a>) -> BatchEntry<Outcome> {
        self.add(sql, params, false, Ok)
    }

    /// Adds a query whose result is all its rows; as [`Db::query`](crate::Db::query).
    pub fn query(&mut self, sql: &'a str, params: impl IntoParams<'a>) -> BatchEntry<Vec<Row>> {
        self.add(sql, params, true, |outcome| Ok(outcome.into_rows()))
    }

    /// Adds a query whose result is its only row; as [`Db::query_one`](crate::Db::query_one).
    pub fn query_one(&mut self, sql: &'a str, params: impl IntoParams<'a>) -> BatchEntry<Row> {
        self.add(sql, params, true, read::only_row)
    }

    /// Adds a query whose result is its only row, or `None`; as [`Db::query_opt`](crate::Db::query_opt).
    pub fn query_opt(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<Option<Row>> {
        self.add(sql, params, true, read::at_most_one)
    }

    /// Adds a query whose rows are read into a serde type; as [`Db::query_as`](crate::Db::query_as).
    pub fn query_as<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<Vec<T>> {
        self.add(sql, params, true, read::all)
    }

    /// Adds a query whose only row is read into a serde type; as [`Db::query_as_one`](crate::Db::query_as_one).
    pub fn query_as_one<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<T> {
        self.add(sql, params, true, read::one)
    }

    /// Adds a query whose row, if there is one, is read into a serde type; as
    /// [`Db::query_as_opt`](crate::Db::query_as_opt).
    pub fn query_as_opt<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<Option<T>> {
        self.add(sql, params, true, read::opt)
    }

    /// Adds a query of one column whose result is the value of each row; as
    /// [`Db::query_scalar`](crate::Db::query_scalar).
    pub fn query_scalar<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<Vec<T>> {
        self.add(sql, params, true, |outcome| {
            let rows = read::all::<(T,)>(outcome)?;
            Ok(rows.into_iter().map(|(value,)| value).collect())
        })
    }

    /// Adds a query whose result is its only value; as [`Db::query_scalar_one`](crate::Db::query_scalar_one).
    pub fn query_scalar_one<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<T> {
        self.add(sql, params, true, |outcome| {
            read::one::<(T,)>(outcome).map(|(value,)| value)
        })
    }

    /// Adds a query whose result is its value, if there is a row; as
    /// [`Db::query_scalar_opt`](crate::Db::query_scalar_opt).
    pub fn query_scalar_opt<T: DeserializeOwned>(
        &mut self,
        sql: &'a str,
        params: impl IntoParams<'a>,
    ) -> BatchEntry<Option<T>> {
        self.add(sql, params, true, |outcome| {
            Ok(read::opt::<(T,)>(outcome)?.map(|(value,)| value))
        })
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether there is no statement. Such a batch takes no connection.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Runs the statements in order and returns the result of each.
    ///
    /// The batch runs where it was made: [`Db::batch`](crate::Db::batch) in the transaction of the coroutine, if there is one.
    /// A time limit counts for the whole batch.
    ///
    /// If the connection is lost, the statements whose answers had arrived keep their results. A statement that may have run has
    /// [`Kind::ConnectionLost`]; so may the first of those that have not run, and the others have [`Kind::NotRun`]. A batch of which nothing has run, or one of pure
    /// reads without an answer, is repeated as a [single call](crate::Db::exec) would be.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the running statement is cancelled. Outside of a transaction, the statements before it took effect, it did or
    /// did not, and those behind it do not run; some reads may, until they are cancelled in turn. Which statement it was is
    /// unknown. A transaction around the batch can only be rolled back.
    ///
    /// # Errors
    ///
    /// Nothing has run: the parameters of a statement do not fit its SQL ([`Kind::Parameters`]), a statement is not allowed in a
    /// batch ([`Kind::Unsupported`]), the batch is too large ([`Kind::Parameters`]), no connection is free in time. Or the
    /// connection was lost before the first answer ([`Kind::ConnectionLost`]), or the time limit has passed
    /// ([`Kind::StatementTimeout`]): then as if the batch was dropped. Errors of the database are those of their statements:
    /// see [`BatchResults::take`] and [`BatchResults::check`].
    pub fn run(self) -> impl Future<Output = Result<BatchResults<'a>>> + Send {
        let StatementBatch {
            call,
            statements,
            id,
        } = self;
        async move {
            let texts: Vec<&str> = statements.iter().map(|it| it.sql).collect();
            let results = match statements.is_empty() {
                true => Vec::new(),
                false => call.run_statements(statements).await?,
            };
            let results = texts.into_iter().zip(results.into_iter().map(Some));
            Ok(BatchResults {
                results: results.collect(),
                call,
                batch: id,
            })
        }
    }
}

impl BatchResults<'_> {
    /// Takes the result of a statement.
    ///
    /// # Errors
    ///
    /// The error of the statement; [`Kind::NotRun`] if it did not run; as the method that added it, if its rows do not fit;
    /// [`Kind::Parameters`] for an entry of another batch.
    pub fn take<T>(&mut self, entry: BatchEntry<T>) -> Result<T> {
        let own = (entry.batch == self.batch).then_some(entry.index);
        let place = own.and_then(|index| self.results.get_mut(index));
        let Some((sql, result)) = place.and_then(|(sql, it)| Some((*sql, it.take()?))) else {
            let message = "this entry belongs to another batch: take the results from the batch that it was added to";
            return Err(Error::new(Kind::Parameters, message));
        };
        let read = result.and_then(entry.read);
        read.map_err(|error| self.call.named(Some(sql), error))
    }

    /// Returns the first error of a statement whose result was not taken.
    ///
    /// # Errors
    ///
    /// That error.
    pub fn check(&self) -> Result<()> {
        let mut left = self
            .results
            .iter()
            .filter_map(|(_, result)| result.as_ref());
        match left.find_map(|result| result.as_ref().err()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns the results that were not taken, in the order of the statements.
    pub fn into_outcomes(self) -> Vec<Result<Outcome>> {
        self.results.into_iter().filter_map(|(_, it)| it).collect()
    }
}

impl fmt::Debug for StatementBatch<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without texts and parameters, which hold the application's data.
        out.debug_struct("StatementBatch")
            .field("statements", &self.statements.len())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BatchEntry<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("BatchEntry").field(&self.index).finish()
    }
}

impl fmt::Debug for BatchResults<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.results.iter().filter(|(_, it)| it.is_some()).count();
        out.debug_struct("BatchResults")
            .field("left", &left)
            .finish_non_exhaustive()
    }
}
