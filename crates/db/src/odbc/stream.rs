//! Row streams: the thread sends batches to the caller.

use std::sync::Arc;

use super::handle::{Cancel, Next, OdbcError, Stmt};
use super::rows::Shape;
use super::session::{OwnedRequest, Session};
use crate::driver::Columns;
use crate::driver::worker::stream::{Outlet, Started};
use crate::sql::Class;
use crate::{Error, Kind, Result};

impl Session {
    /// Runs a statement and sends its rows in batches, as fast as the caller takes them, until the caller drops
    /// the stream.
    pub(super) fn stream(&mut self, request: &OwnedRequest, outlet: Outlet) -> Result<()> {
        if request.script {
            let message = "a script of several statements cannot be streamed; stream one statement";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let class = self.check(&request.sql)?;
        let done = self.send_rows(request, &class, outlet);
        self.heed_ddl(&request.sql, done)
    }

    fn send_rows(&mut self, request: &OwnedRequest, class: &Class, outlet: Outlet) -> Result<()> {
        let (mut statement, was_kept) =
            self.prepared_for(&request.sql, request.params.len(), request.cache)?;
        let status = self.status();
        let read_only = class.pure_read && !self.transaction.is_open();
        let run = |statement: &mut Stmt, cancel: Cancel<'_>| {
            statement.execute(cancel, None, &request.params)
        };
        let mut begun = run(&mut statement, self.cancel());
        if was_kept && self.is_stale(class, &begun) {
            self.discard(statement);
            statement = self.prepare_anew(&request.sql)?;
            begun = run(&mut statement, self.cancel());
        }
        begun.map_err(|error| self.note_failure(error))?;
        let sent = send(&mut statement, self.cancel(), outlet, |columns| Started {
            columns,
            status,
            read_only,
        });
        // The next user of the statement must not find its rows.
        let done = sent.and_then(|sent| statement.close().map(|()| sent));
        let sent = done.map_err(|error| self.note_failure(error))?;
        self.keep(request, statement);
        sent
    }
}

/// Sends the rows of the first result to the caller.
fn send(
    statement: &mut Stmt,
    cancel: Cancel<'_>,
    mut outlet: Outlet,
    started: impl FnOnce(Arc<Columns>) -> Started,
) -> Result<Result<()>, OdbcError> {
    let shape = Shape::of(statement)?;
    let columns = Arc::clone(&shape.columns);
    outlet.start(|| started(columns));
    if shape.columns.is_empty() {
        return Ok(Ok(()));
    }
    while let Next::There = statement.fetch(cancel)? {
        let mut sent = Ok(());
        let pushed = outlet.push(|rows| match shape.push(statement, rows) {
            Ok(done) => done,
            Err(error) => {
                sent = Err(error);
                Err(Error::new(Kind::Database, "the row cannot be read"))
            }
        });
        sent?;
        match pushed {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
    outlet.flush();
    Ok(Ok(()))
}
