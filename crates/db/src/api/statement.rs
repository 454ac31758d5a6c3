//! Prepared statements, which pin their connection.

use std::fmt;
use std::future::Future;
use std::panic::Location;

use futures_core::Stream;

use crate::api::executor::CallOptions;
use crate::api::stream::RowStream;
use crate::binding::{Caller, PinGuard, PinKind};
use crate::call::many::Sets;
use crate::call::op::Prepare;
use crate::call::route::Route;
use crate::call::trace::{self, Traced};
use crate::call::{Call, Hold, Target};
use crate::coroutine::call_context;
use crate::driver::{Outcome, Prepared};
use crate::sql::Class;
use crate::types::params::IntoParams;
use crate::types::row::{Column, Row};
use crate::{DeserializeOwned, Result};

/// A prepared statement.
///
/// It pins its connection while it lives: in a coroutine, all calls on the same `Db` run on that connection, too. It may
/// outlive its coroutine and its `Db`. Its connection goes back when it is dropped. Its calls use the
/// [options](crate::CallOptions) that it was prepared with.
pub struct Statement {
    pin: PinGuard,
    /// Where its calls run, if it was prepared by a transaction or a connection. Otherwise each call runs in the
    /// frame that makes it.
    caller: Option<Caller>,
    sql: String,
    prepared: Prepared,
    /// The options that it was prepared with: the tag is part of the driver's cache key.
    options: CallOptions,
}

impl Call<'_> {
    /// Prepares a statement and pins the connection.
    pub(crate) async fn prepare(self, sql: &str) -> Result<Statement> {
        let span = trace::statement_span(self.shared(), self.site, sql);
        let done = Traced::new(span, self.prepare_text(sql), trace::record_result).await;
        self.ended(Some(sql), done)
    }

    /// Pins the connection that a statement is prepared on.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is pinned.
    pub(crate) async fn statement_place(&self) -> Result<Route> {
        let pin = self.pinned(PinKind::Statement).await?;
        // A cancel from here on drops the pin, which gives back a connection that was taken for the statement.
        let turn = pin.bound().turn(&self.caller(), self.site).await?;
        Ok(Route::pinned_turn(turn, pin))
    }

    async fn prepare_text(&self, sql: &str) -> Result<Statement> {
        self.check_here()?;
        let scan = self.cached_scan(sql)?;
        let mut prepare = Prepare(scan.sql(), sql);
        // SQLite runs some pragmas when it prepares them.
        let class = Class {
            touches_session: scan.class.touches_session,
            survives_reset: scan.class.survives_reset,
            ..Class::NO_SQL
        };
        let (route, prepared) = self.send(Hold::Statement, &class, &mut prepare).await?;
        let Route::ConnectionTurn(turn, Some(pin)) = route else {
            unreachable!("a statement pins its connection");
        };
        drop(turn);
        Ok(Statement {
            pin,
            caller: match &self.target {
                Target::Bound(_, caller) => Some(caller.clone()),
                _ => None,
            },
            sql: sql.to_owned(),
            options: CallOptions {
                no_cache: false,
                ..self.options.as_deref().copied().unwrap_or_default()
            },
            prepared: scan.located(prepared)?,
        })
    }
}

impl Statement {
    #[track_caller]
    fn call(&self) -> Call<'_> {
        let context = call_context();
        let caller = self.caller.clone();
        let caller = caller.unwrap_or_else(|| Caller::Frame(context.frame().cloned()));
        Call {
            target: Target::Bound(self.pin.bound(), caller),
            context,
            site: Location::caller(),
            options: self.options.boxed(),
        }
    }

    /// Returns the SQL that it was prepared from.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the number of its parameters.
    pub fn param_count(&self) -> usize {
        self.prepared.params
    }

    /// Returns the columns of its rows; empty if it returns no rows.
    pub fn columns(&self) -> &[Column] {
        self.prepared.columns.as_slice()
    }

    /// Runs it and returns the number of rows it changed.
    ///
    /// # Cancel safety
    ///
    /// As [`Db::exec`](crate::Db::exec).
    ///
    /// # Errors
    ///
    /// As [`Db::exec`](crate::Db::exec); [`Kind::TransactionEnded`](crate::Kind::TransactionEnded) if its coroutine ended
    /// while its transaction was open.
    #[track_caller]
    pub fn exec<'a>(
        &'a self,
        params: impl IntoParams<'a>,
    ) -> impl Future<Output = Result<Outcome>> + Send + 'a {
        self.call().exec(&self.sql, params.into_params())
    }

    /// Runs it with each set of parameters and returns the sum of the rows they changed: see
    /// [`Db::exec_many`](crate::Db::exec_many).
    ///
    /// # Cancel safety
    ///
    /// As [`Db::exec_many`](crate::Db::exec_many).
    ///
    /// # Errors
    ///
    /// As [`Db::exec_many`](crate::Db::exec_many).
    #[track_caller]
    pub fn exec_many<'a, P: IntoParams<'a> + 'a>(
        &'a self,
        sets: impl IntoIterator<Item = P, IntoIter: Send + 'a>,
    ) -> impl Future<Output = Result<Outcome>> + Send + 'a {
        self.call().exec_many(&self.sql, Sets::of_iterator(sets))
    }

    /// Runs it with each set of parameters of a stream: see [`Db::exec_many_stream`](crate::Db::exec_many_stream).
    ///
    /// # Cancel safety
    ///
    /// As [`Db::exec_many`](crate::Db::exec_many).
    ///
    /// # Errors
    ///
    /// As [`Db::exec_many_stream`](crate::Db::exec_many_stream).
    #[track_caller]
    pub fn exec_many_stream<'a, P: IntoParams<'a> + 'a>(
        &'a self,
        sets: impl Stream<Item = Result<P>> + Send + 'a,
    ) -> impl Future<Output = Result<Outcome>> + Send + 'a {
        self.call().exec_many(&self.sql, Sets::of_stream(sets))
    }

    /// Runs it with each set of parameters and returns the rows of all of them: see
    /// [`Db::query_many`](crate::Db::query_many).
    ///
    /// # Cancel safety
    ///
    /// As [`Db::exec_many`](crate::Db::exec_many).
    ///
    /// # Errors
    ///
    /// As [`Db::exec_many`](crate::Db::exec_many).
    #[track_caller]
    pub fn query_many<'a, P: IntoParams<'a> + 'a>(
        &'a self,
        sets: impl IntoIterator<Item = P, IntoIter: Send + 'a>,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send + 'a {
        self.call().query_many(&self.sql, Sets::of_iterator(sets))
    }

    /// Runs it and returns all its rows.
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

    /// Runs it and returns its only row.
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

    /// Runs it and returns its only row, or `None` if there is none.
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
        let query = self.call().query_unread(&self.sql, params.into_params());
        async move { query.await?.all() }
    }

    /// Runs it and returns a stream of its rows.
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
