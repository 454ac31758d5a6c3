//! Explicit connections, and pins.

use std::fmt;
use std::future::Future;
use std::panic::Location;

use crate::Result;
use crate::api::methods::sql_methods;
use crate::api::transaction::Transaction;
use crate::api::transaction_options::TransactionOptions;
use crate::binding::{Caller, PinGuard};
use crate::call::{Call, Target};
use crate::coroutine::call_context;

/// A connection that is independent of coroutines: its calls run there and nowhere else. The connection goes back when
/// this handle and everything made from it are dropped. See [`Db::connection`](crate::Db::connection).
pub struct Connection {
    pin: PinGuard,
}

impl Connection {
    pub(crate) fn new(pin: PinGuard) -> Self {
        Connection { pin }
    }

    #[track_caller]
    pub(crate) fn call(&self) -> Call<'_> {
        Call {
            target: Target::Bound(self.pin.bound(), Caller::Frame(None)),
            context: call_context(),
            site: Location::caller(),
            options: None,
        }
    }

    sql_methods!("Runs on this connection, in the transaction that is open there, if any.");

    /// Begins a transaction on this connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the transaction is rolled back before the connection is used again.
    ///
    /// # Errors
    ///
    /// The database refuses, or the connection is lost.
    #[track_caller]
    pub fn begin(&mut self) -> impl Future<Output = Result<Transaction<'_>>> + Send {
        self.transaction_options().begin()
    }

    /// Returns the options of a transaction on this connection, to be set before it begins.
    pub fn transaction_options(&mut self) -> TransactionOptions<&mut Connection> {
        TransactionOptions::new().at(self)
    }

    /// Asks the driver's connection.
    #[cfg(all(feature = "migrate", feature = "postgres"))]
    pub(crate) async fn ask_driver<T>(
        &self,
        ask: impl FnOnce(&mut dyn std::any::Any) -> T,
    ) -> Result<T> {
        let call = self.call();
        let turn = self.pin.bound().turn(&Caller::Frame(None), call.site);
        // A cancel gives the turn back.
        let mut turn = turn.await?;
        Ok(ask(turn.connection().driver().as_any()))
    }

    /// Returns whether a transaction is open on this connection.
    pub fn in_transaction(&self) -> bool {
        self.pin.bound().in_transaction()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Connection")
            .field(self.pin.bound())
            .finish()
    }
}

/// Pins a connection to the coroutine until this guard is dropped: see [`Db::pin`](crate::Db::pin).
#[derive(Debug)]
#[must_use = "a pin that is dropped pins nothing"]
pub struct Pinned {
    _pin: PinGuard,
}

impl Pinned {
    pub(crate) fn new(pin: PinGuard) -> Self {
        Pinned { _pin: pin }
    }
}
