//! Whether a transaction is still the one that it was.
//!
//! A text can end it and open another, as a procedure can, and the server's flags are the same before and after. So
//! a savepoint is set before such a text, as a witness. If it is gone afterwards, so is the transaction; then all is rolled
//! back, so that nothing goes on as if it were the same one. That is for transactions that were begun by the layer: one that the
//! text of a statement has begun is the business of such texts.
//!
//! To hear the witness is to release it, and with it go the savepoints that were set after it: those of a procedure end
//! with the procedure.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError};

use super::connection::{MysqlConnection, status_of};
use super::dropped_call::ask;
use super::error;
use super::wire::caught;
use crate::Result;
use crate::driver::Status;

const SET: &str = "SAVEPOINT `cenote witness`";
const RELEASE: &str = "RELEASE SAVEPOINT `cenote witness`";
const NO_SUCH_SAVEPOINT: u16 = 1305;

impl MysqlConnection {
    /// Sets the witness, if there is a transaction that this text may end without saying so. Says whether it is
    /// set: where there can be no savepoint, as in a global transaction, there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has to be settled, which gives it up.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) async fn set_witness(&mut self, sql: &str) -> Result<bool> {
        let is_guarded = self.is_ours && self.status == Status::InTransaction;
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

    /// Hears the witness that was set before a text that has been run: there is no transaction any more if it is not
    /// the same one.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the connection has to be settled, which gives it up.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub(super) async fn hear_witness(&mut self) -> Result<()> {
        if self.is_broken || self.status != Status::InTransaction {
            return Ok(());
        }
        let warnings = self.warnings;
        self.depart().await?;
        match caught(hear(self.wire()?)).await {
            Ok(status) => {
                self.status = status;
                self.warnings = warnings;
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => {
                self.lose();
                Err(error::lost(wrong))
            }
        }
    }
}

/// Hears the witness; gives the transaction's status.
pub(super) async fn hear(conn: &mut Conn) -> mysql_async::Result<Status> {
    match conn.query_drop(RELEASE).await {
        Err(ClientError::Server(said)) if said.code == NO_SUCH_SAVEPOINT => {
            conn.query_drop("ROLLBACK").await?;
        }
        // It tells nothing.
        Err(ClientError::Server(_)) => return ask(conn).await,
        released => released?,
    }
    Ok(status_of(conn).unwrap_or(Status::Unknown))
}
