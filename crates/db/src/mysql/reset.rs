//! Resets the session to its state after connecting.

use super::connection::MysqlConnection;
use super::wire::caught;
use crate::Result;
use crate::driver::Reset;

impl MysqlConnection {
    /// Resets the session in two round trips: the server discards everything but the database; then the DSN's settings are
    /// applied again.
    pub(super) async fn reset_session(&mut self) -> Result<Reset> {
        self.begin_call().await?;
        let answer = caught(self.wire()?.reset()).await;
        let is_reset = match self.end_call(answer).await {
            Ok(is_reset) => is_reset,
            Err(error) if self.is_broken => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "replacing a connection whose session cannot be reset");
                false
            }
        };
        // The server has deallocated them.
        drop(self.cache.take_all());
        if !is_reset {
            return Ok(Reset::Replace);
        }
        self.begin_call().await?;
        let session = std::sync::Arc::clone(&self.session);
        let answer = caught(session.restore(self.wire()?)).await;
        self.is_utc = session.is_utc;
        (self.misreads, self.is_reading_unsure) = (None, false);
        let facts = match self.end_call(answer).await {
            Ok(facts) => facts,
            Err(error) if self.is_broken => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "replacing a connection whose session cannot be restored");
                return Ok(Reset::Replace);
            }
        };
        // A role cannot be undone, and neither can a database if the DSN names none.
        Ok(match facts == self.facts {
            true => Reset::Done,
            false => Reset::Replace,
        })
    }
}
