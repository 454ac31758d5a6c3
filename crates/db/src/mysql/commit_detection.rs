//! Detects that a text has ended the transaction and begun another one.
//!
//! A procedure can do that, and the server's flags are the same before and after. So the driver sets a savepoint before such
//! a text, as a marker. If the marker is gone afterwards, the transaction is lost; the driver rolls back, so that nothing
//! runs in the new one. This applies to transactions that the layer began, not to those that a text began.
//!
//! Checking the marker releases it, and with it all later savepoints: those that a procedure sets end with the procedure.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError};

use super::connection::{MysqlConnection, status_of};
use super::dropped_call::ask;
use super::error;
use super::wire::caught;
use crate::Result;
use crate::driver::Status;

const SET: &str = "SAVEPOINT `cenote marker`";
const RELEASE: &str = "RELEASE SAVEPOINT `cenote marker`";
const NO_SUCH_SAVEPOINT: u16 = 1305;

impl MysqlConnection {
    /// Sets the marker if this text may end the layer's transaction unnoticed. Returns whether it is set: an XA
    /// transaction has no savepoints.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) async fn set_marker(&mut self, sql: &str) -> Result<bool> {
        let is_guarded = self.begun_by_layer && self.status == Status::InTransaction;
        if !is_guarded || !self.may_end_unseen(sql) {
            return Ok(false);
        }
        match self.command(SET).await {
            Err(lost) if self.is_broken => Err(lost),
            set => Ok(set.is_ok()),
        }
    }

    fn may_end_unseen(&self, sql: &str) -> bool {
        let class = crate::sql::class(self.facts.dialect, sql);
        class.touches_session && class.transaction.is_none()
    }

    /// Checks the marker after the text has run. If it is gone, rolls back: the transaction is lost.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) async fn check_marker(&mut self) -> Result<()> {
        if self.is_broken || self.status != Status::InTransaction {
            return Ok(());
        }
        let warnings = self.warnings;
        self.begin_call().await?;
        match caught(release_marker(self.wire()?)).await {
            Ok(status) => {
                self.status = status;
                self.warnings = warnings;
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => {
                self.mark_lost();
                Err(error::lost(wrong))
            }
        }
    }
}

/// Releases the marker and returns the transaction status.
pub(super) async fn release_marker(conn: &mut Conn) -> mysql_async::Result<Status> {
    match conn.query_drop(RELEASE).await {
        Err(ClientError::Server(said)) if said.code == NO_SUCH_SAVEPOINT => {
            conn.query_drop("ROLLBACK").await?;
        }
        // An error contains no status.
        Err(ClientError::Server(_)) => return ask(conn).await,
        released => released?,
    }
    Ok(status_of(conn).unwrap_or(Status::Unknown))
}
