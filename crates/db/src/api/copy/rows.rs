//! A COPY of rows, as one call.

use std::sync::{Mutex, PoisonError};

use super::on_own;
use crate::call::Call;
use crate::call::op::Op;
use crate::driver::{BoxFuture, Connection};
use crate::postgres::copy::{CopyRows, Rows};
use crate::types::params::Params;
use crate::{Error, Kind, Result};

/// Copies rows into a table.
struct CopyInRows<'a, 'i, 'r> {
    copy: &'a CopyRows<'a>,
    sql: &'a str,
    /// Taken when the server waits for rows. Until then the call can be repeated on another connection.
    rows: Mutex<Option<Rows<'i, 'r>>>,
}

impl Op for CopyInRows<'_, '_, '_> {
    type Out = u64;

    fn start<'c>(&'c self, on: &'c mut dyn Connection) -> BoxFuture<'c, Result<u64>> {
        on_own(on, |own| {
            Box::pin(async move {
                let started = own.start_copy_rows(self.copy, self.sql).await?;
                let rows = self
                    .rows
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let Some(mut rows) = rows else {
                    let message = "the connection was lost while rows were sent";
                    return Err(Error::new(Kind::ConnectionLost, message));
                };
                own.send_copy_rows(self.copy, started, &mut rows).await
            })
        })
    }

    fn sql(&self) -> &str {
        self.sql
    }

    fn rows(out: &u64) -> Option<u64> {
        Some(*out)
    }
}

impl Call<'_> {
    pub(crate) async fn copy_in_rows(
        self,
        table: &str,
        columns: &[&str],
        rows: Rows<'_, '_>,
    ) -> Result<u64> {
        let copy = match CopyRows::new(table, columns) {
            Ok(copy) => copy,
            Err(wrong) => return self.ended(None, Err(wrong)),
        };
        let sql = copy.sql();
        let done = self.send_copy_rows(&copy, &sql, rows).await;
        let mut done = self.ended(Some(&sql), done);
        if let Err(error) = &mut done
            && let Some(bound) = self.lookup()
        {
            // A row that could not be sent has aborted the transaction, as an error of the server does.
            bound.explain_abort(error);
        }
        done
    }

    async fn send_copy_rows(
        &self,
        copy: &CopyRows<'_>,
        sql: &str,
        rows: Rows<'_, '_>,
    ) -> Result<u64> {
        self.check_copies()?;
        let text = self.text(sql, Ok(Params::Positional(Vec::new())))?;
        let mut op = CopyInRows {
            copy,
            sql: text.scan.sql(),
            rows: Mutex::new(Some(rows)),
        };
        text.located(self.send_and_finish(text.class(), &mut op).await)
    }
}
