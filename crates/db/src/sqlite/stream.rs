//! Sends the rows of a statement batch by batch.

use rusqlite::Statement;

use super::session::Session;
use super::statement::{OwnedRequest, check_count};
use super::types::{columns_of, push_row};
use crate::driver::worker::stream::{Outlet, Started};
use crate::{Error, Kind, Result};

impl Session {
    /// Runs a statement and sends its rows batch by batch, as fast as the receiver takes them, until the receiver is
    /// dropped.
    pub(super) fn stream(&self, request: &OwnedRequest, mut outlet: Outlet) -> Result<()> {
        if request.script {
            let message = "a script of several statements has no rows to stream";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let mut statement = self.statement(&request.sql, request.cache)?;
        check_count(&statement, request.params.len())?;
        self.bind(&mut statement, &request.params)?;
        self.note_run(&statement);
        self.before_run(&statement, &request.sql, request.sql.class())?;
        // A statement that writes runs to its end even if nobody wants its rows: only then are its changes complete.
        let writes = !statement.readonly();
        let started = |statement: &Statement<'_>| Started {
            // The columns are certain now: see `columns_of`.
            columns: columns_of(statement),
            status: self.status(),
            read_only: !writes,
        };
        self.each_row(&mut statement, |row| {
            outlet.start(|| started(row.as_ref()));
            Ok(outlet.push(|rows| push_row(rows, row))? || writes)
        })?;
        outlet.start(|| started(&statement));
        outlet.flush();
        Ok(())
    }
}
