//! Prepared statements that keep their connection.

use std::fmt;
use std::future::Future;
use std::panic::Location;

use crate::api::executor::CallOptions;
use crate::api::stream::RowStream;
use crate::binding::{PinGuard, PinKind, Position};
use crate::call::op::Prepare;
use crate::call::route::Route;
use crate::call::{Call, Hold, Target};
use crate::coroutine::seen;
use crate::driver::{Outcome, Prepared};
use crate::sql::Class;
use crate::types::params::{IntoParams, Params};
use crate::types::row::{Column, Row};
use crate::{DeserializeOwned, Result, from_row};

/// A prepared statement.
///
/// It keeps its connection while it lives: in a coroutine, everything that does with the same
/// `Db` runs there, too. It may outlive its coroutine and its `Db`; its connection goes
/// back once, when it is dropped.
pub struct Statement {
    pin: PinGuard,
    /// Where it runs, if it was prepared by a transaction or a connection; else in the
    /// frame of each call.
    position: Option<Position>,
    sql: String,
    prepared: Prepared,
    /// The options that it was prepared with: its tag is part of what the driver keeps it under.
    options: CallOptions,
}

impl Call<'_> {
    /// Prepares a statement and pins the connection.
    pub(crate) async fn prepare(self, sql: &str) -> Result<Statement> {
        let done = self.prepare_text(sql).await;
        self.note(&done);
        done
    }

    /// Pins the connection that a statement is to live on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is pinned.
    pub(crate) async fn statement_place(&self) -> Result<Route> {
        let pin = self.pinned(PinKind::Statement).await?;
        // A cancel from here on drops the pin, and with it the connection if it was taken for this.
        let turn = pin.bound().turn(&self.position(), self.site).await?;
        Ok(Route::pinned_turn(turn, pin))
    }

    async fn prepare_text(&self, sql: &str) -> Result<Statement> {
        self.check_here()?;
        let plan = self.plan(sql)?;
        let mut prepare = Prepare(plan.sql());
        // SQLite runs some pragmas when it prepares them.
        let class = Class {
            touches_session: plan.class.touches_session,
            survives_reset: plan.class.survives_reset,
            ..Class::NO_SQL
        };
        let (route, prepared) = self.send(Hold::Statement, &class, &mut prepare).await?;
        let Route::ConnectionTurn(turn, Some(pin)) = route else {
            unreachable!("a statement pins its connection");
        };
        drop(turn);
        Ok(Statement {
            pin,
            position: match &self.target {
                Target::Bound(_, position) => Some(position.clone()),
                _ => None,
            },
            sql: sql.to_owned(),
            options: CallOptions {
                no_cache: false,
                ..self.options.as_deref().copied().unwrap_or_default()
            },
            prepared: plan.located(prepared)?,
        })
    }
}

impl Statement {
    #[track_caller]
    fn call(&self) -> Call<'_> {
        let seen = seen();
        let position = self.position.clone();
        let position = position.unwrap_or_else(|| Position::Frame(seen.frame().cloned()));
        Call {
            target: Target::Bound(self.pin.bound(), position),
            seen,
            site: Location::caller(),
            options: self.options.boxed(),
        }
    }

    /// The SQL it was prepared from.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// How many parameters it takes.
    pub fn param_count(&self) -> usize {
        self.prepared.params
    }

    /// The columns of its rows; none if it gives no rows.
    pub fn columns(&self) -> &[Column] {
        self.prepared.columns.as_slice()
    }

    /// Runs it, and says how many rows it changed.
    ///
    /// # Cancel safety
    ///
    /// As [`Db::exec`](crate::Db::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::exec`](crate::Db::exec); [`Kind::TransactionEnded`](crate::Kind::TransactionEnded) if its coroutine ended with its
    /// transaction open.
    #[track_caller]
    pub fn exec<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Outcome>> + Send + 'a {
        self.call().exec(&self.sql, params.into_params())
    }

    /// Runs it with many sets of parameters; the affected rows are added up.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`exec`](Statement::exec).
    #[track_caller]
    pub fn exec_many<'a, P: IntoParams<'a>>(
        &'a self,
        sets: impl IntoIterator<Item = P>,
    ) -> impl Future<Output = Result<Outcome>> + Send + 'a {
        let sets: Result<Vec<Params<'a>>> = sets.into_iter().map(P::into_params).collect();
        self.call().exec_many(&self.sql, sets)
    }

    /// Runs it and gives all its rows.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`exec`](Statement::exec).
    #[track_caller]
    pub fn query<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send + 'a {
        self.call().query(&self.sql, params.into_params())
    }

    /// Runs it and gives its only row.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::query_one`](crate::Db::query_one).
    #[track_caller]
    pub fn query_one<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Row>> + Send + 'a {
        self.call().query_one(&self.sql, params.into_params())
    }

    /// Runs it and gives its row, if there is one.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::query_opt`](crate::Db::query_opt).
    #[track_caller]
    pub fn query_opt<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Option<Row>>> + Send + 'a {
        self.call().query_opt(&self.sql, params.into_params())
    }

    /// Runs it and reads its rows into a type of yours.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::query_as`](crate::Db::query_as).
    #[track_caller]
    pub fn query_as<'a, T: DeserializeOwned>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Vec<T>>> + Send + 'a {
        let query = self.call().query(&self.sql, params.into_params());
        async move { query.await?.iter().map(from_row).collect() }
    }

    /// Runs it and gives its rows one by one.
    ///
    /// # Cancel safety
    ///
    /// As [`exec`](Statement::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::stream`](crate::Db::stream).
    #[track_caller]
    pub fn stream<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<RowStream>> + Send + 'a {
        self.call().stream(&self.sql, params.into_params(), Ok)
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Statement")
            .field("sql", &self.sql)
            .field("params", &self.prepared.params)
            .finish_non_exhaustive()
    }
}
