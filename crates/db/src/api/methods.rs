//! The methods of everything that SQL can be run on, written once.

/// Writes the methods of a type that has `fn call(&self) -> Call<'_>`. `$here` says in the documentation where they
/// run. An `Executor` is taken by value, so that a call on a temporary one can be awaited later.
macro_rules! sql_methods {
    ($here:literal) => {
        sql_methods!($here, (&'a self), self,);

        /// Returns an [`Executor`](crate::Executor) whose calls run here with these options.
        pub fn with(&self, options: $crate::CallOptions) -> $crate::Executor<'_> {
            $crate::Executor::from(self).with(options)
        }
    };
    ($here:literal, ($($receiver:tt)+), $self:ident, $($outlives:tt)*) => {
        #[cfg(feature = "postgres")]
        $crate::api::copy::copy_methods!($here, ($($receiver)+), $self, $($outlives)*);

        /// Runs SQL and returns the number of rows it changed. Discards rows that the SQL returns.
        #[doc = $here]
        ///
        /// `?` and `:name` are placeholders with every driver. A script of several statements takes no parameters.
        ///
        /// # Cancel safety
        ///
        /// Dropped while it runs, the statement is cancelled. Whether it took effect is unknown, so a transaction
        /// around it can only be rolled back.
        ///
        /// # Errors
        ///
        /// The database reports an error, the parameters do not fit the SQL, or no connection is free in time.
        #[track_caller]
        #[inline(always)]
        pub fn exec<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Outcome>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().exec(sql, params.into_params())
        }

        /// Runs one statement with each set of parameters, in order, and returns the sum of the rows they changed.
        #[doc = $here]
        ///
        /// The sets are taken from the iterator in chunks of at most 8,192 sets and about 1 MiB while earlier ones are
        /// already written, so an input of any length needs little memory. See the guide on
        /// [bulk loading](crate::guide::bulk_loading).
        ///
        /// All sets take effect, or none, on every driver. Outside of a transaction, the call is a transaction of its own.
        /// In a transaction, a call that fails dooms it ([`Kind::Doomed`](crate::Kind::Doomed)): it can only be rolled
        /// back. To go on after such an error, put the call into a nested transaction. Tables without transactions, such
        /// as MyISAM's, keep the sets before the failed one.
        ///
        /// The iterator runs between the chunks, while the connection is held. It should not use the same `Db`: whether
        /// such a call belongs to the transaction depends on the number of sets.
        ///
        /// # Cancel safety
        ///
        /// Dropped, the running statement is cancelled and the call's transaction rolled back, also if the iterator panics.
        /// A transaction around it can only be rolled back.
        ///
        /// # Errors
        ///
        /// As `exec`. The first error ends the call; [`Error::set_index`](crate::Error::set_index) is the index of the
        /// failed set, counted from 0.
        #[track_caller]
        #[inline(always)]
        pub fn exec_many<'a, P: $crate::IntoParams<'a> + 'a>(
            $($receiver)+,
            sql: &'a str,
            sets: impl IntoIterator<Item = P, IntoIter: Send + 'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Outcome>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().exec_many(sql, $crate::call::many::Sets::of_iterator(sets))
        }

        /// Runs one statement with each set of parameters of a stream, in order, and returns the sum of the rows they changed.
        #[doc = $here]
        ///
        /// As `exec_many`. An error of the stream ends the call like the error of a set. The call waits for the stream between
        /// the chunks and holds its connection meanwhile, except before the first chunk.
        ///
        /// # Cancel safety
        ///
        /// As `exec_many`.
        ///
        /// # Errors
        ///
        /// As `exec_many`, and those of the stream.
        #[track_caller]
        #[inline(always)]
        pub fn exec_many_stream<'a, P: $crate::IntoParams<'a> + 'a>(
            $($receiver)+,
            sql: &'a str,
            sets: impl ::futures_core::Stream<Item = $crate::Result<P>> + Send + 'a,
        ) -> impl Future<Output = $crate::Result<$crate::Outcome>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().exec_many(sql, $crate::call::many::Sets::of_stream(sets))
        }

        /// Runs one statement with each set of parameters and returns the rows of all of them, in the order of the sets: for
        /// `INSERT … RETURNING`.
        #[doc = $here]
        ///
        /// As `exec_many`, but all rows are kept in memory.
        ///
        /// # Cancel safety
        ///
        /// As `exec_many`.
        ///
        /// # Errors
        ///
        /// As `exec_many`.
        #[track_caller]
        #[inline(always)]
        pub fn query_many<'a, P: $crate::IntoParams<'a> + 'a>(
            $($receiver)+,
            sql: &'a str,
            sets: impl IntoIterator<Item = P, IntoIter: Send + 'a>,
        ) -> impl Future<Output = $crate::Result<Vec<$crate::Row>>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().query_many(sql, $crate::call::many::Sets::of_iterator(sets))
        }

        /// Returns an empty batch: several statements that PostgreSQL runs in one round trip.
        #[doc = $here]
        ///
        /// Takes no connection. See [`StatementBatch`](crate::StatementBatch) and the [guide](crate::guide::batches).
        #[track_caller]
        pub fn batch<'a>($($receiver)+) -> $crate::StatementBatch<'a>
        where
            $($outlives)*
        {
            $crate::StatementBatch::new($self.call())
        }

        /// Runs a query and returns all its rows.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`.
        #[track_caller]
        #[inline(always)]
        pub fn query<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<$crate::Row>>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().query(sql, params.into_params())
        }

        /// Runs a query and returns its only row.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; [`Kind::NoRows`](crate::Kind::NoRows) or
        /// [`Kind::TooManyRows`](crate::Kind::TooManyRows) if there is not exactly one row.
        #[track_caller]
        #[inline(always)]
        pub fn query_one<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Row>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().query_one(sql, params.into_params())
        }

        /// Runs a query and returns its only row, or `None` if there is none.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; [`Kind::TooManyRows`](crate::Kind::TooManyRows) if there are several rows.
        #[track_caller]
        #[inline(always)]
        pub fn query_opt<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<$crate::Row>>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().query_opt(sql, params.into_params())
        }

        /// Runs a query and reads its rows into a serde type: structs and maps by the names
        /// of the columns, tuples by their order; see [`from_row`](crate::from_row). For the values of a single column
        /// use `query_scalar`.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; [`Kind::Type`](crate::Kind::Type) and
        /// [`Kind::Column`](crate::Kind::Column) if the rows do not fit the type.
        #[track_caller]
        #[inline(always)]
        pub fn query_as<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<T>>> + Send + 'a
        where
            $($outlives)*
        {
            let query = $self.call().query_unread(sql, params.into_params());
            async move { query.await?.all() }
        }

        /// Runs a query and reads its only row into a type of yours.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `query_one` and `query_as`.
        #[track_caller]
        #[inline(always)]
        pub fn query_as_one<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<T>> + Send + 'a
        where
            $($outlives)*
        {
            let query = $self.call().query_unread(sql, params.into_params());
            async move { query.await?.one() }
        }

        /// Runs a query and reads its only row into a type of yours; `None` if there is none.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `query_opt` and `query_as`.
        #[track_caller]
        #[inline(always)]
        pub fn query_as_opt<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<T>>> + Send + 'a
        where
            $($outlives)*
        {
            let query = $self.call().query_unread(sql, params.into_params());
            async move { query.await?.opt() }
        }

        /// Runs a query of one column and returns the value of each row.
        #[doc = $here]
        ///
        /// This is `query_as::<(T,)>` without the tuple: `T` is the value, whatever its type. An array is a `Vec`, bytes
        /// are a `Vec<u8>`, a JSON document is a struct or a `serde_json::Value`.
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `query_as`; [`Kind::Column`](crate::Kind::Column) if the rows do not have exactly one column.
        #[track_caller]
        #[inline(always)]
        pub fn query_scalar<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<T>>> + Send + 'a
        where
            $($outlives)*
        {
            let rows = $self.query_as::<(T,)>(sql, params);
            async move { Ok(rows.await?.into_iter().map(|(value,)| value).collect()) }
        }

        /// Runs a query that has exactly one row of one column, and returns its value.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `query_one` and `query_scalar`.
        #[track_caller]
        #[inline(always)]
        pub fn query_scalar_one<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<T>> + Send + 'a
        where
            $($outlives)*
        {
            let row = $self.query_as_one::<(T,)>(sql, params);
            async move { row.await.map(|(value,)| value) }
        }

        /// Runs a query that has one row of one column or none, and returns its value. `Some(None)` is a row with a NULL,
        /// for `T = Option<U>`.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `query_opt` and `query_scalar`.
        #[track_caller]
        #[inline(always)]
        pub fn query_scalar_opt<'a, T: $crate::DeserializeOwned>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<T>>> + Send + 'a
        where
            $($outlives)*
        {
            let row = $self.query_as_opt::<(T,)>(sql, params);
            async move { Ok(row.await?.map(|(value,)| value)) }
        }

        /// Runs a query and returns a stream of its rows as they arrive. No more than a few rows are kept ready.
        #[doc = $here]
        ///
        /// On a pinned connection, such as that of a transaction, the stream occupies the connection until its last
        /// row: another call on it fails with [`Kind::Busy`](crate::Kind::Busy). A stream that is dropped early does
        /// not abort its transaction.
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`.
        #[track_caller]
        #[inline(always)]
        pub fn stream<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::RowStream>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().stream(sql, params.into_params(), Ok)
        }

        /// Runs a query and returns a stream that reads each row into a type of yours, as `query_as` does.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `stream`. A row that does not fit the type is an error of the stream at that row.
        #[track_caller]
        #[inline(always)]
        pub fn stream_as<'a, T: $crate::DeserializeOwned + 'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::RowStream<T>>> + Send + 'a
        where
            $($outlives)*
        {
            let params = params.into_params();
            $self.call().stream(sql, params, |row| $crate::from_row(&row))
        }

        /// Runs SQL and returns all that came of it: columns, also of an empty result, rows, the number of changed
        /// rows and the last inserted id. One round trip, like `query`.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`.
        #[track_caller]
        #[inline(always)]
        pub fn run<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Outcome>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().run_with_rows(sql, params.into_params())
        }

        /// Runs SQL and returns the outcome of each of its statements, or each result set of a procedure, in order.
        #[doc = $here]
        ///
        /// Every driver of this crate returns all outcomes of a script. A procedure returns several result sets with
        /// MySQL and MariaDB, natively and by ODBC; natively it ends with an outcome without columns. There,
        /// `rows_affected` of a statement in a script that returns rows is 0.
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`. The first error ends the call; what ran before it took effect unless a transaction was open.
        /// [`Kind::Unsupported`](crate::Kind::Unsupported) for a script with a driver of your own that has no `run_all`.
        #[track_caller]
        #[inline(always)]
        pub fn run_all<'a>(
            $($receiver)+,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<$crate::Outcome>>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().run_all(sql, params.into_params())
        }

        /// Prepares a statement and pins its connection while the statement lives.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// Dropped, nothing has happened.
        ///
        /// # Errors
        ///
        /// The database rejects the SQL, or no connection is free in time.
        #[track_caller]
        #[inline(always)]
        pub fn prepare<'a>(
            $($receiver)+,
            sql: &'a str,
        ) -> impl Future<Output = $crate::Result<$crate::Statement>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().prepare(sql)
        }
    };
}

pub(crate) use sql_methods;
