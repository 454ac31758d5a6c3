//! The session, brought back to what it was after connecting.

use super::connection::MysqlConnection;
use super::wire::caught;
use crate::Result;
use crate::driver::Reset;

impl MysqlConnection {
    /// In two round trips: the server forgets everything but the database, and is told what the DSN says.
    pub(super) async fn reset_session(&mut self) -> Result<Reset> {
        self.depart().await?;
        let answer = caught(self.wire()?.reset()).await;
        let is_reset = match self.land(answer).await {
            Ok(is_reset) => is_reset,
            Err(error) if self.is_broken => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "a session could not be reset and is replaced");
                false
            }
        };
        // The server has forgotten them.
        drop(self.cache.take_all());
        if !is_reset {
            return Ok(Reset::Replace);
        }
        self.depart().await?;
        let session = std::sync::Arc::clone(&self.session);
        let answer = caught(session.restore(self.wire()?)).await;
        self.is_utc = session.is_utc;
        (self.misreads, self.is_reading_unsure) = (None, false);
        let facts = match self.land(answer).await {
            Ok(facts) => facts,
            Err(error) if self.is_broken => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "a session could not be restored and is replaced");
                return Ok(Reset::Replace);
            }
        };
        // A role, and a database where the DSN names none, cannot be taken back.
        Ok(match facts == self.facts {
            true => Reset::Done,
            false => Reset::Replace,
        })
    }
}
