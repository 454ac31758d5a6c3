//! Sends rows in COPY's binary format.
//!
//! Outside of a transaction the look-up of the types and the COPY share a transaction, which the same round trips begin and
//! commit: nobody can change the type of a column in between, which would make the server misread the values.

use std::future::poll_fn;

use postgres_types::Type;

use super::super::connection::{InFlight, PostgresConnection, quoted};
use super::super::error;
use super::super::execute::StatementRef;
use super::super::lookup::DEEPEST;
use super::super::protocol::answer::Answer;
use super::{CHUNK, value};
use crate::driver::{BoxFuture, Param, Status};
use crate::types::params::Params;
use crate::{Error, Kind, Result};

/// The beginning of binary data: the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The end of binary data, where the number of a row's values would be.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// Rows to copy, one after the other. `None` after the last. Their values may live longer than their source.
pub(crate) type Rows<'i, 'r> = Box<dyn FnMut() -> Option<Result<Params<'r>>> + Send + 'i>;

/// A COPY of rows into a table.
#[derive(Debug)]
pub(crate) struct CopyRows<'a> {
    columns: &'a [&'a str],
    /// The columns as SQL.
    listed: String,
    /// The table as SQL.
    table: String,
}

impl<'a> CopyRows<'a> {
    /// Into these columns of a table, which may have its schema before it.
    ///
    /// # Errors
    ///
    /// The name of the table is malformed, or there are no columns.
    pub(crate) fn new(table: &str, columns: &'a [&'a str]) -> Result<Self> {
        if columns.is_empty() {
            let message = "copy_in_rows needs the names of the columns, and got none";
            return Err(Error::new(Kind::Parameters, message));
        }
        let table = quoted_table(table).ok_or_else(|| {
            let message = format!(
                "{table:?} is no name of a table: write table or schema.table, and put a part that contains a dot in \
                 double quotes"
            );
            Error::new(Kind::Parameters, message)
        })?;
        let listed: Vec<_> = columns.iter().map(|column| quoted(column)).collect();
        Ok(CopyRows {
            columns,
            listed: listed.join(", "),
            table,
        })
    }

    /// Returns the COPY.
    pub(crate) fn sql(&self) -> String {
        let CopyRows { table, listed, .. } = self;
        format!("COPY {table} ({listed}) FROM STDIN (FORMAT binary)")
    }

    /// Returns a query with the same columns.
    fn query(&self) -> String {
        let CopyRows { table, listed, .. } = self;
        format!("SELECT {listed} FROM {table}")
    }

    /// Writes a row.
    fn write(&self, out: &mut Vec<u8>, types: &[Type], row: Params<'_>) -> Result<()> {
        let values = match row {
            Params::Positional(values) if values.len() == types.len() => values,
            Params::Positional(values) => {
                let (given, wanted) = (values.len(), types.len());
                let message = format!("{given} values for {wanted} columns");
                return Err(Error::new(Kind::Parameters, message));
            }
            Params::Named(values) => self.by_column(values)?,
        };
        // A table has at most 1,600 columns.
        let count = i16::try_from(values.len());
        let count = count.map_err(|_| Error::new(Kind::Parameters, "too many columns"))?;
        out.extend_from_slice(&count.to_be_bytes());
        for (n, (param, wanted)) in values.iter().zip(types).enumerate() {
            if let Err(wrong) = value::write(out, param, wanted) {
                return Err(Error::new(Kind::Type, wrong).in_column(self.columns[n]));
            }
        }
        Ok(())
    }

    /// Returns the values in the order of the columns.
    fn by_column<'r>(
        &self,
        values: Vec<(std::borrow::Cow<'r, str>, Param<'r>)>,
    ) -> Result<Vec<Param<'r>>> {
        if let Some((name, _)) = values
            .iter()
            .find(|(name, _)| !self.columns.contains(&&**name))
        {
            let message = format!("a value was given for {name}, which is none of the columns");
            return Err(Error::new(Kind::Parameters, message));
        }
        let mut values: Vec<_> = values
            .into_iter()
            .map(|(name, param)| (name, Some(param)))
            .collect();
        let mut value_of = |column: &str| {
            let (_, value) = values.iter_mut().find(|(name, _)| name == column)?;
            value.take()
        };
        let bound = self.columns.iter().map(|column| {
            value_of(column).ok_or_else(|| {
                let message = format!("no value was given for the column {column}");
                Error::new(Kind::Parameters, message).in_column(column)
            })
        });
        bound.collect()
    }
}

/// Returns `table` or `schema.table` with each part in quotes. A part that is in quotes already may contain dots.
fn quoted_table(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    let mut rest = name;
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
            Some(inside) => unquoted(inside)?,
        };
        if part.is_empty() {
            return None;
        }
        parts.push(quoted(&part));
        if after.is_empty() {
            return (parts.len() <= 2).then(|| parts.join("."));
        }
        rest = after.strip_prefix('.')?;
    }
}

/// Reads a quoted name after its first quote. Returns the name and the rest behind its last quote.
fn unquoted(inside: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = inside;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Some((name, after)),
        }
    }
}

/// A COPY of rows that the server waits for.
#[derive(Debug)]
pub(crate) struct StartedRows {
    /// The types of the columns.
    types: Vec<Type>,
    /// It has a transaction of its own.
    has_begun: bool,
}

impl PostgresConnection {
    /// Looks up the types of the columns, and starts the COPY. `sql` is [`CopyRows::sql`], perhaps with a tag.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling ends the COPY. Its transaction may be open.
    pub(crate) fn start_copy_rows<'c>(
        &'c mut self,
        copy: &'c CopyRows<'_>,
        sql: &'c str,
    ) -> BoxFuture<'c, Result<StartedRows>> {
        Box::pin(async move {
            self.begin_call(InFlight::Statement)?;
            let has_begun = self.status == Status::Idle;
            match self.start_rows_in_call(copy, sql, has_begun).await {
                Ok(types) => Ok(StartedRows { types, has_begun }),
                Err(error) => {
                    self.end_failed_rows(has_begun).await;
                    self.finish_call(Err(error))
                }
            }
        })
    }

    async fn start_rows_in_call(
        &mut self,
        copy: &CopyRows<'_>,
        sql: &str,
        begins: bool,
    ) -> Result<Vec<Type>> {
        let begin = begins.then_some("BEGIN");
        let unnamed = StatementRef::New(String::new());
        let statement = match self.prepare_with(begin, &copy.query(), unnamed).await? {
            Ok(statement) => statement,
            Err(mut refused) => {
                if let Some(report) = &mut refused.report {
                    // In a text that the caller has not written.
                    report.position = None;
                }
                return Err(refused.error().unwrap_or_else(error::broken));
            }
        };
        for oid in &statement.layout.unknown {
            self.look_up(*oid, DEEPEST).await?;
        }
        let columns = statement.layout.columns.as_slice().iter();
        let types = columns.map(|column| self.type_of(column.type_id)).collect();
        let sent = match begins {
            true => &format!("{sql}; COMMIT"),
            false => sql,
        };
        self.begin_copy(sql, sent).await?;
        Ok(types)
    }

    /// Sends the rows of a COPY that [`start_copy_rows`](Self::start_copy_rows) has started, and ends it. Returns the
    /// number of rows that the server has stored.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling ends the COPY: nothing is stored, unless the last row was sent already.
    ///
    /// # Errors
    ///
    /// A row cannot be sent, or the server refuses one. Nothing is stored.
    pub(crate) async fn send_copy_rows(
        &mut self,
        copy: &CopyRows<'_>,
        started: StartedRows,
        rows: &mut Rows<'_, '_>,
    ) -> Result<u64> {
        let done = self.send_rows_in_call(copy, &started.types, rows).await;
        if done.is_err() {
            self.end_failed_rows(started.has_begun).await;
        }
        self.finish_call(done)
    }

    /// Ends a COPY that has failed, and its own transaction. If that fails, the connection is broken.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling ends the COPY. Its transaction may be open.
    async fn end_failed_rows(&mut self, has_begun: bool) {
        if self.wire.is_broken() {
            return;
        }
        self.in_flight = InFlight::Statement;
        let ended = self.end_open_copy().await;
        let ended = match ended {
            Ok(()) => self.roll_back_leftover(has_begun).await,
            lost => lost,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the connection was lost after a COPY had failed");
        }
    }

    async fn end_open_copy(&mut self) -> Result<()> {
        self.fail_open_copy()?;
        self.receive(&mut Answer::waste()).await?;
        self.copy = None;
        Ok(())
    }

    async fn send_rows_in_call(
        &mut self,
        copy: &CopyRows<'_>,
        types: &[Type],
        rows: &mut Rows<'_, '_>,
    ) -> Result<u64> {
        let mut row = 0;
        let mut is_last = false;
        while !is_last {
            poll_fn(|cx| self.poll_copy_room(cx)).await?;
            self.put_copy_data(|out| {
                let start = out.len();
                if row == 0 {
                    out.extend_from_slice(HEADER);
                }
                while out.len() - start < CHUNK {
                    let Some(values) = rows() else {
                        out.extend_from_slice(&TRAILER);
                        is_last = true;
                        break;
                    };
                    let written = values.and_then(|values| copy.write(out, types, values));
                    written.map_err(|wrong| wrong.in_row(row))?;
                    row += 1;
                }
                Ok(())
            })?;
        }
        self.finish_copy().await
    }
}
