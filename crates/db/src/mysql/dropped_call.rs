//! The guard of calls under way, and what is done when one was dropped.
//!
//! The client library leaves a connection on which a future was dropped as it is: the next call is
//! answered with what the dropped one asked for, in silence. So every call here sets a flag before it
//! touches the wire and clears it when it has been answered. A flag that is found set means that the
//! connection is never used again: its socket is closed, and its query is killed on the server by a
//! second, short connection, which waits until the server is done with it.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as ClientError};

use super::cancel::Kill;
use super::connection::{MysqlConnection, status_of};
use super::error;
use super::wire::{Wire, caught};
use crate::driver::Status;
use crate::{Error, Kind, Result};

impl MysqlConnection {
    /// A call begins: from here on until it [lands](MysqlConnection::land) a cancel costs the connection.
    ///
    /// # Errors
    ///
    /// It cannot be used, or not now. Then nothing has been sent of the call.
    pub(super) async fn depart(&mut self) -> Result<()> {
        self.take_off()?;
        match self.is_unproven {
            true => Box::pin(self.prove()).await,
            false => Ok(()),
        }
    }

    /// The same but for the ping of one that [may have gone](MysqlConnection::prove).
    #[inline]
    pub(super) fn take_off(&mut self) -> Result<()> {
        if self.is_broken || self.in_flight || self.stream.is_some() {
            return Err(self.unfit());
        }
        // Whoever begins one says so.
        self.is_ours &= self.status != Status::Idle;
        self.warnings = 0;
        self.in_flight = true;
        Ok(())
    }

    /// Why it cannot be used, or not now.
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

    /// Asks whether the other side is still there.
    pub(super) async fn prove(&mut self) -> Result<()> {
        if let Err(wrong) = caught(self.wire()?.ping()).await {
            self.lose();
            return Err(error::lost_idle(wrong));
        }
        self.is_unproven = false;
        Ok(())
    }

    /// The client's connection, of a call that has departed.
    pub(super) fn wire(&mut self) -> Result<&mut Wire> {
        self.wire.as_mut().ok_or_else(error::broken)
    }

    /// The call has been answered, in one way or another: the status is what the server says. After an error
    /// it says nothing, and is asked.
    pub(super) async fn land<T>(&mut self, answer: mysql_async::Result<T>) -> Result<T> {
        match answer {
            Ok(done) if self.has_landed() => Ok(done),
            Ok(done) => Box::pin(self.ask()).await.map(|()| done),
            Err(wrong) => Err(Box::pin(self.land_badly(wrong)).await),
        }
    }

    /// The call has been answered with an OK, which has the status in it.
    #[inline]
    pub(super) fn has_landed(&mut self) -> bool {
        let Some(status) = self.wire.as_deref().and_then(status_of) else {
            return false;
        };
        self.status = status;
        self.in_flight = false;
        true
    }

    #[cold]
    async fn land_badly(&mut self, wrong: ClientError) -> Error {
        match wrong {
            ClientError::Server(said) => {
                let said = error::from_server(said);
                match self.ask().await {
                    Ok(()) => said,
                    Err(_) => error::closed_by(said),
                }
            }
            wrong => {
                self.lose();
                error::lost(wrong)
            }
        }
    }

    /// Asks the server whether there is a transaction: a ping is answered with that.
    async fn ask(&mut self) -> Result<()> {
        let asked = ask(self.wire()?).await;
        match asked {
            Ok(status) => {
                self.status = status;
                self.in_flight = false;
                Ok(())
            }
            Err(wrong) => {
                self.lose();
                Err(error::lost(wrong))
            }
        }
    }

    /// The other side has gone: there is nothing to kill.
    pub(super) fn lose(&mut self) {
        self.wire = None;
        self.stream = None;
        self.in_flight = false;
        self.is_broken = true;
        self.status = Status::Unknown;
    }

    /// Ends an open stream; gives the connection up if a call was dropped on it.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the next one goes on where it was.
    ///
    /// # Errors
    ///
    /// The connection was given up.
    pub(super) async fn settle_all(&mut self) -> Result<()> {
        if self.in_flight || self.kill.is_some() {
            self.give_up().await;
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

    /// Closes the socket and kills what still runs on the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the next one goes on where it was; so does dropping the connection.
    pub(super) async fn give_up(&mut self) {
        if !self.is_broken {
            self.lose();
            self.kill = Some(Kill::new(&self.options, self.id, &self.running));
        }
        if let Some(kill) = &mut self.kill {
            kill.await;
            self.kill = None;
        }
    }

    pub(super) async fn say_goodbye(mut self: Box<Self>) -> Result<()> {
        if self.in_flight || self.stream.is_some() || self.kill.is_some() {
            self.give_up().await;
        }
        if let Some(wire) = self.wire.take() {
            // The other side may have gone first: then it is closed, as it should be.
            let _ = wire.part().await;
        }
        Ok(())
    }
}

impl Drop for MysqlConnection {
    /// What still runs on the server is killed, where there is an executor to do it.
    fn drop(&mut self) {
        let left_behind = self.in_flight || self.stream.is_some();
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

/// Asks the server whether there is a transaction.
pub(super) async fn ask(conn: &mut Conn) -> mysql_async::Result<Status> {
    caught(conn.ping()).await?;
    Ok(status_of(conn).unwrap_or(Status::Unknown))
}
