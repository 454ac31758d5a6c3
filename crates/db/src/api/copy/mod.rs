//! COPY of PostgreSQL: data from and to the program, much faster than statement by statement.
//!
//! The driver contract knows nothing of COPY: these calls find the PostgreSQL driver behind it.

mod copy_in;
mod copy_out;
mod rows;

pub use self::copy_in::CopyIn;
pub use self::copy_out::CopyOut;

use crate::call::{Call, Text};
use crate::driver::{BoxFuture, Connection, Dialect};
use crate::postgres::PostgresConnection;
use crate::sql::{ClientCopy, Statements};
use crate::types::params::Params;
use crate::{Error, Kind, Result};

/// Writes the COPY methods of a type that has `fn call(&self) -> Call<'_>`: see `sql_methods`.
macro_rules! copy_methods {
    ($here:literal, ($($receiver:tt)+), $self:ident, $($outlives:tt)*) => {
        /// Starts a `COPY … FROM STDIN`, to which [`CopyIn::send`](crate::postgres::CopyIn::send) sends data. PostgreSQL
        /// only; see [the guide](crate::guide::copy).
        #[doc = $here]
        ///
        /// Outside of a transaction the COPY has a connection of its own. On a pinned connection, such as that of a
        /// transaction, it occupies the connection until its end: another call there fails with
        /// [`Kind::Busy`](crate::Kind::Busy). The time limit of a statement applies to the start, to each `send` and to
        /// `finish`.
        ///
        /// # Cancel safety
        ///
        /// Dropped, nothing is stored. A transaction around it can then only be rolled back.
        ///
        /// # Errors
        ///
        /// As `exec`. [`Kind::Unsupported`](crate::Kind::Unsupported) if the SQL is not one COPY from STDIN, or the
        /// database is not PostgreSQL.
        #[track_caller]
        pub fn copy_in<'a>(
            $($receiver)+,
            sql: &'a str,
        ) -> impl Future<Output = $crate::Result<$crate::postgres::CopyIn>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().copy_in(sql)
        }

        /// Copies rows into these columns of a table, and returns their number. Other columns get their defaults.
        /// PostgreSQL only; see [the guide](crate::guide::copy).
        #[doc = $here]
        ///
        /// The rows are what parameters of a statement can be: tuples, vectors, [`named!`](crate::named) with the names
        /// of the columns. The iterator runs while the data is sent, so it need not fit into memory. Values are sent in
        /// binary: a value must have the type of its column, because the server converts nothing.
        ///
        /// `table` is `table` or `schema.table`. Names are taken as they are, as in double quotes: the case matters. Put a
        /// part that contains a dot in double quotes.
        ///
        /// All rows are stored or none.
        ///
        /// # Cancel safety
        ///
        /// As `exec`. Dropped before the iterator has ended, nothing is stored.
        ///
        /// # Errors
        ///
        /// As `exec`. If a row is wrong, [`Error::row`](crate::Error::row) is its index, and
        /// [`Error::column`](crate::Error::column) the column, where exactly one is wrong; its kind is
        /// [`Kind::Type`](crate::Kind::Type) if the value cannot be sent.
        /// [`Kind::Unsupported`](crate::Kind::Unsupported) if the database is not PostgreSQL.
        #[track_caller]
        pub fn copy_in_rows<'a, 'r: 'a>(
            $($receiver)+,
            table: &'a str,
            columns: &'a [&'a str],
            rows: impl IntoIterator<Item: $crate::IntoParams<'r>, IntoIter: Send + 'a>,
        ) -> impl Future<Output = $crate::Result<u64>> + Send + 'a
        where
            $($outlives)*
        {
            let mut rows = rows.into_iter();
            let next = move || rows.next().map($crate::IntoParams::into_params);
            $self.call().copy_in_rows(table, columns, Box::new(next))
        }

        /// Starts a `COPY … TO STDOUT`, whose data the returned stream gives as it arrives. PostgreSQL only; see
        /// [the guide](crate::guide::copy).
        #[doc = $here]
        ///
        /// On a pinned connection, such as that of a transaction, the COPY occupies the connection until its end:
        /// another call there fails with [`Kind::Busy`](crate::Kind::Busy).
        ///
        /// # Cancel safety
        ///
        /// As `exec`.
        ///
        /// # Errors
        ///
        /// As `exec`. [`Kind::Unsupported`](crate::Kind::Unsupported) if the SQL is not one COPY to STDOUT, or the
        /// database is not PostgreSQL.
        #[track_caller]
        pub fn copy_out<'a>(
            $($receiver)+,
            sql: &'a str,
        ) -> impl Future<Output = $crate::Result<$crate::postgres::CopyOut>> + Send + 'a
        where
            $($outlives)*
        {
            $self.call().copy_out(sql)
        }
    };
}

pub(crate) use copy_methods;

/// The direction of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Call<'_> {
    /// Refuses a database without COPY, before a connection is taken.
    fn check_copies(&self) -> Result<()> {
        match self.shared().dialect.name == Dialect::POSTGRES.name {
            true => Ok(()),
            false => Err(no_copy()),
        }
    }

    /// Scans the text of a COPY in this direction.
    fn copy_text<'t>(&self, sql: &'t str, wanted: Direction) -> Result<Text<'t>> {
        self.check_copies()?;
        let text = self.text(sql, Ok(Params::Positional(Vec::new())))?;
        let is_one = text.class().statements == Statements::One;
        let found = text.class().resolved.copies.filter(|_| is_one);
        let message = match (wanted, found) {
            (Direction::In, Some(ClientCopy::In))
            | (Direction::Out, Some(ClientCopy::Out { .. })) => return Ok(text),
            (Direction::In, Some(ClientCopy::Out { .. })) => {
                "this COPY sends data to the client: use copy_out"
            }
            (Direction::Out, Some(ClientCopy::In)) => {
                "this COPY takes data from the client: use copy_in"
            }
            (Direction::In, None) => {
                "copy_in takes one COPY .. FROM STDIN; a COPY from a file or program of the server, like every other \
                 statement, runs with exec"
            }
            (Direction::Out, None) => {
                "copy_out takes one COPY .. TO STDOUT; a COPY to a file or program of the server, like every other \
                 statement, runs with exec"
            }
        };
        Err(Error::new(Kind::Unsupported, message))
    }
}

/// Returns the connection of the PostgreSQL driver.
fn own(connection: &mut dyn Connection) -> Result<&mut PostgresConnection> {
    let own = connection.as_any().downcast_mut();
    // The dialect is PostgreSQL's, so a sandbox is around its driver.
    own.ok_or_else(|| {
        let message = "a sandbox runs no COPY from or to the client: use exec_many and stream, or a database for this test";
        Error::new(Kind::Unsupported, message)
    })
}

/// Calls the PostgreSQL driver, or fails.
fn on_own<'c, T: Send + 'c>(
    connection: &'c mut dyn Connection,
    call: impl FnOnce(&'c mut PostgresConnection) -> BoxFuture<'c, Result<T>>,
) -> BoxFuture<'c, Result<T>> {
    match own(connection) {
        Ok(own) => call(own),
        Err(error) => Box::pin(std::future::ready(Err(error))),
    }
}

#[cold]
fn no_copy() -> Error {
    let message = "COPY needs the PostgreSQL driver: with this database, use exec_many to insert rows and stream to \
                   read them";
    Error::new(Kind::Unsupported, message)
}
