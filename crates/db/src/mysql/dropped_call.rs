//! The in-flight flag of each call, and what happens after a dropped call.
//!
//! The client library does not notice a dropped future: the next call silently gets the dropped call's answer. So every call
//! sets a flag before it uses the wire, and clears it when the answer is complete. If the flag is still set, the connection
//! is never used again. The driver closes its socket and kills its query through a second, short connection, which waits
//! until the server has removed the thread.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError};

use super::cancel::Kill;
use super::connection::{MysqlConnection, status_of};
use super::error;
use super::positions::Positions;
use super::wire::{Wire, caught};
use crate::driver::Status;
use crate::{Error, Kind, Result};

impl MysqlConnection {
    /// Begins a call, with a ping first if the connection was idle. Until [`end_call`](Self::end_call), dropping the
    /// call's future costs the connection.
    ///
    /// # Errors
    ///
    /// The connection is broken or busy. Nothing of the call has been sent.
    pub(super) async fn begin_call(&mut self) -> Result<()> {
        self.begin_without_ping()?;
        match self.needs_ping {
            true => Box::pin(self.ping_first()).await,
            false => Ok(()),
        }
    }

    /// Begins a call without the ping.
    #[inline]
    pub(super) fn begin_without_ping(&mut self) -> Result<()> {
        if self.is_broken || self.in_flight || self.stream.is_some() || self.positions.is_due() {
            return Err(self.unfit());
        }
        // `begin_transaction` sets it again.
        self.begun_by_layer &= self.status != Status::Idle;
        self.begun_read_only &= self.begun_by_layer;
        self.warnings = 0;
        self.in_flight = true;
        Ok(())
    }

    /// Returns why the connection cannot be used now.
    #[cold]
    fn unfit(&self) -> Error {
        if self.is_broken {
            return error::broken();
        }
        let message = match self.stream {
            Some(_) => "a row stream is open on this connection; end it first",
            None => "an earlier call was dropped on this connection; settle it first",
        };
        Error::new(Kind::Busy, message)
    }

    /// Pings the server before a call.
    pub(super) async fn ping_first(&mut self) -> Result<()> {
        self.note_checking(true);
        if let Err(wrong) = caught(self.wire()?.ping()).await {
            return Err(self.lose(error::lost_idle(wrong)));
        }
        self.note_checking(false);
        self.needs_ping = false;
        Ok(())
    }

    /// Notes in the switch that nothing of the call has been sent so far, or that something will be.
    fn note_checking(&self, is_checking: bool) {
        if let Some(host) = &self.host {
            host.switch.set_checking(is_checking);
        }
    }

    /// Returns the client library's connection.
    pub(super) fn wire(&mut self) -> Result<&mut Wire> {
        self.wire.as_mut().ok_or_else(error::broken)
    }

    /// Ends a call that the server has answered, and takes the transaction status from the answer. An error contains
    /// no status, so the server is asked.
    pub(super) async fn end_call<T>(&mut self, answer: mysql_async::Result<T>) -> Result<T> {
        match answer {
            Ok(done) if self.end_ok_call() => Ok(done),
            Ok(done) => Box::pin(self.ask()).await.map(|()| done),
            Err(wrong) => Err(Box::pin(self.end_failed_call(wrong)).await),
        }
    }

    /// Ends a call whose answer is an OK with the status. Returns false if there is none.
    #[inline]
    pub(super) fn end_ok_call(&mut self) -> bool {
        let Some(status) = self.wire.as_deref().and_then(status_of) else {
            return false;
        };
        self.status = status;
        self.in_flight = false;
        true
    }

    #[cold]
    async fn end_failed_call(&mut self, wrong: ClientError) -> Error {
        match wrong {
            ClientError::Server(said) => {
                let said = error::from_server(said, self.engine);
                self.suspect_by(&said);
                match self.ask().await {
                    Ok(()) => error::open_outcome(said),
                    Err(_) => error::closed_by(said),
                }
            }
            wrong => self.lose(error::lost(wrong)),
        }
    }

    /// Asks the server for the transaction status, by a ping.
    async fn ask(&mut self) -> Result<()> {
        let asked = ask(self.wire()?).await;
        match asked {
            Ok(status) => {
                self.status = status;
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => Err(self.lose(error::lost(wrong))),
        }
    }

    /// Marks the connection as lost. Kills nothing on the server.
    pub(super) fn mark_lost(&mut self) {
        self.wire = None;
        self.stream = None;
        self.in_flight = false;
        self.positions = Positions::NONE;
        self.is_broken = true;
        self.status = Status::Unknown;
    }

    /// Ends an open stream. Closes the connection if a call was dropped on it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the next call continues where this one stopped.
    ///
    /// # Errors
    ///
    /// The connection was closed.
    pub(super) async fn settle_all(&mut self) -> Result<()> {
        if self.in_flight || self.positions.is_due() || self.kill.is_some() {
            self.close_and_kill().await;
            return Err(error::dropped());
        }
        if self.is_broken {
            return Err(error::broken());
        }
        self.close_stream().await?;
        match self.is_broken {
            true => Err(error::dropped()),
            false => Ok(()),
        }
    }

    /// Closes the socket and kills the query that still runs on the server.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the next call continues the kill; so does dropping the connection.
    pub(super) async fn close_and_kill(&mut self) {
        if !self.is_broken {
            self.mark_lost();
            self.kill = Some(Kill::new(&self.options, self.id, &self.running));
        }
        if let Some(kill) = &mut self.kill {
            kill.await;
            self.kill = None;
        }
    }

    pub(super) async fn disconnect(mut self: Box<Self>) -> Result<()> {
        if self.is_cut() {
            // Its host hangs, or is demoted: nobody waits for it. The drop kills what still runs there.
            return Ok(());
        }
        let left_behind = self.in_flight || self.stream.is_some() || self.positions.is_due();
        if left_behind || self.kill.is_some() {
            self.close_and_kill().await;
        }
        if let Some(wire) = self.wire.take() {
            // Fails if the server has closed it first.
            let _ = wire.disconnect().await;
        }
        Ok(())
    }
}

impl Drop for MysqlConnection {
    /// Kills the query that still runs on the server, if there is an executor for that.
    fn drop(&mut self) {
        let left_behind = self.in_flight || self.stream.is_some() || self.positions.is_due();
        let kill = match self.kill.take() {
            None if left_behind => Some(Kill::new(&self.options, self.id, &self.running)),
            kill => kill,
        };
        if let Some(kill) = kill
            && let Ok(executor) = tokio::runtime::Handle::try_current()
        {
            executor.spawn(kill);
        }
    }
}

/// Asks the server for the transaction status.
pub(super) async fn ask(conn: &mut Conn) -> mysql_async::Result<Status> {
    caught(conn.ping()).await?;
    Ok(status_of(conn).unwrap_or(Status::Unknown))
}
