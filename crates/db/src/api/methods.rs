//! The methods that everything has that SQL can be run on. Written once.

/// The methods of a type that has `fn call(&self) -> Call<'_>`, with what to say about
/// where they run.
macro_rules! sql_methods {
    ($here:literal) => {
        /// Runs SQL and says how many rows it changed.
        #[doc = $here]
        ///
        /// `?` and `:name` are placeholders with every driver; a script of several statements
        /// may be given if there are no parameters.
        ///
        /// # Cancel safety
        ///
        /// Dropped while it runs, it is cancelled; whether it took effect nobody knows, so a
        /// transaction around it can only be rolled back.
        ///
        /// # Errors
        ///
        /// What the database says, parameters that do not fit, no free connection in time.
        #[track_caller]
        #[inline(always)]
        pub fn exec<'a>(
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Executed>> + Send + 'a {
            self.call().exec(sql, params.into_params())
        }

        /// Runs one statement with many sets of parameters, in as few round trips as
        /// there can be; the affected rows are added up.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; it stops at the first.
        #[track_caller]
        #[inline(always)]
        pub fn exec_many<'a, P: $crate::IntoParams<'a>>(
            &'a self,
            sql: &'a str,
            sets: impl IntoIterator<Item = P>,
        ) -> impl Future<Output = $crate::Result<$crate::Executed>> + Send + 'a {
            let sets = sets.into_iter().map(P::into_params).collect();
            self.call().exec_many(sql, sets)
        }

        /// Runs a query and gives all its rows.
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<$crate::Row>>> + Send + 'a {
            self.call().query(sql, params.into_params())
        }

        /// Runs a query that has exactly one row.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; [`Kind::NoRows`](crate::Kind::NoRows) and
        /// [`Kind::TooManyRows`](crate::Kind::TooManyRows) besides.
        #[track_caller]
        #[inline(always)]
        pub fn query_one<'a>(
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::Row>> + Send + 'a {
            self.call().query_one(sql, params.into_params())
        }

        /// Runs a query that has one row or none.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`; [`Kind::TooManyRows`](crate::Kind::TooManyRows) besides.
        #[track_caller]
        #[inline(always)]
        pub fn query_opt<'a>(
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<$crate::Row>>> + Send + 'a {
            self.call().query_opt(sql, params.into_params())
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<T>>> + Send + 'a {
            let query = self.call().query(sql, params.into_params());
            async move { query.await?.iter().map($crate::from_row).collect() }
        }

        /// Runs a query that has exactly one row, and reads that into a type of yours.
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<T>> + Send + 'a {
            let query = self.call().query_one(sql, params.into_params());
            async move { $crate::from_row(&query.await?) }
        }

        /// Runs a query that has one row or none, and reads that into a type of yours.
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<T>>> + Send + 'a {
            let query = self.call().query_opt(sql, params.into_params());
            async move { query.await?.as_ref().map($crate::from_row).transpose() }
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Vec<T>>> + Send + 'a {
            let rows = self.query_as::<(T,)>(sql, params);
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<T>> + Send + 'a {
            let row = self.query_as_one::<(T,)>(sql, params);
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<Option<T>>> + Send + 'a {
            let row = self.query_as_opt::<(T,)>(sql, params);
            async move { Ok(row.await?.map(|(value,)| value)) }
        }

        /// Runs a query and gives its rows one by one, as they arrive: no more than a few
        /// are ever kept ready.
        #[doc = $here]
        ///
        /// While it is open in a transaction or on a pinned connection, that connection is
        /// its own: another call on it is [`Kind::Busy`](crate::Kind::Busy). Dropping it early never
        /// aborts a transaction.
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
            &'a self,
            sql: &'a str,
            params: impl $crate::IntoParams<'a>,
        ) -> impl Future<Output = $crate::Result<$crate::RowStream>> + Send + 'a {
            self.call().stream(sql, params.into_params())
        }

        /// Prepares a statement, which keeps its connection while it lives.
        #[doc = $here]
        ///
        /// # Cancel safety
        ///
        /// Dropped, nothing has happened.
        ///
        /// # Errors
        ///
        /// What the database says to the SQL.
        #[track_caller]
        #[inline(always)]
        pub fn prepare<'a>(
            &'a self,
            sql: &'a str,
        ) -> impl Future<Output = $crate::Result<$crate::Statement>> + Send + 'a {
            self.call().prepare(sql)
        }
    };
}

pub(crate) use sql_methods;
