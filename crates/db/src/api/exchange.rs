//! What a stream or a COPY holds from its start to its end.

use std::panic::Location;
use std::sync::Arc;

use crate::binding::{LastCall, TransactionEffect};
use crate::call::route::Route;
use crate::pooled::connection::PooledConnection;
#[cfg(feature = "postgres")]
use crate::pooled::shared::TimeLimit;
use crate::sql::CachedScan;
use crate::{Error, Result};

/// The connection of a stream or a COPY, and the call that has started it.
pub(crate) struct Exchange {
    /// `None` after the end or an error.
    route: Option<Route>,
    /// Of the call, for errors.
    scan: Arc<CachedScan>,
    site: &'static Location<'static>,
}

impl Exchange {
    pub(crate) fn new(
        route: Route,
        scan: &Arc<CachedScan>,
        site: &'static Location<'static>,
    ) -> Self {
        Exchange {
            route: Some(route),
            scan: Arc::clone(scan),
            site,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.route.is_none()
    }

    /// Returns the connection; `None` after the end.
    ///
    /// # Errors
    ///
    /// The transaction was lost meanwhile, perhaps because it exceeded its time.
    pub(crate) fn connection(&mut self) -> Result<Option<&mut PooledConnection>> {
        if let Some(Route::ConnectionTurn(turn, _)) = &self.route
            && let Some(lost) = turn.bound().why_lost()
        {
            // The next user of the connection settles what is left.
            self.route = None;
            return Err(self.named(lost));
        }
        Ok(self.route.as_mut().map(Route::connection))
    }

    /// Returns the SQL and the line of the call.
    #[cfg(feature = "postgres")]
    pub(crate) fn call(&self) -> (String, &'static Location<'static>) {
        (self.scan.sql().to_owned(), self.site)
    }

    /// Returns how long a request may take: its own limit, or what is left of the transaction's time.
    #[cfg(feature = "postgres")]
    pub(crate) fn limit(&self, own: Option<TimeLimit>) -> Option<TimeLimit> {
        match &self.route {
            Some(route) => route.limit(own),
            None => own,
        }
    }

    /// Ends with an error of a request that took too long. The next user of the connection settles the request.
    #[cfg(feature = "postgres")]
    #[cold]
    pub(crate) fn give_up(&mut self, late: Error) -> Error {
        let late = match self.route.take() {
            Some(route) => route.late(late),
            None => late,
        };
        self.named(late)
    }

    /// Ends with an error of the server, which names the call.
    #[cold]
    pub(crate) fn fail(&mut self, mut error: Error) -> Error {
        let bound = match &self.route {
            Some(Route::ConnectionTurn(turn, _)) => Some(Arc::clone(turn.bound())),
            _ => None,
        };
        self.end(false);
        self.scan.relocate(&mut error);
        let mut error = self.named(error);
        if let Some(bound) = bound {
            bound.explain_abort(&mut error);
        }
        error
    }

    /// Adds the call to an error.
    #[cold]
    pub(crate) fn named(&self, mut error: Error) -> Error {
        self.scan.set_call(&mut error, self.site);
        error
    }

    /// Gives the connection back after the last answer of the server.
    pub(crate) fn end(&mut self, succeeded: bool) {
        let Some(mut route) = self.route.take() else {
            return;
        };
        let class = route.connection().stream().copied();
        let effect = class.and_then(|class| TransactionEffect::of(&class, succeeded));
        let last = class.map(|class| LastCall::of(&class, succeeded));
        route.connection().end_stream();
        if !succeeded {
            route.connection().note_error();
        }
        if let Route::ConnectionTurn(turn, _) = &mut route {
            turn.observe(Some(self.site), effect, last);
        }
    }
}
