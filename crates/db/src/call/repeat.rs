//! Sends a request, and repeats a call whose connection was lost. [`Call::may_repeat`] is the one rule for that.

use std::sync::Arc;
use std::time::Duration;

use super::op::Op;
use super::route::Route;
use super::{Call, Hold, Target};
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::sql::Class;
use crate::{Error, Result};

/// A connection that was dead when it was taken fails within this time.
const DEAD_AFTER: Duration = Duration::from_millis(100);

impl Call<'_> {
    /// Sends a request on the connection that it has to run on, and cleans up what it leaves there.
    pub(crate) async fn send_and_finish<O: Op>(&self, class: &Class, op: &mut O) -> Result<O::Out> {
        let (route, answer) = self.send(Hold::Call, class, op).await?;
        route.finish(class, self.shared(), self.site, answer).await
    }

    /// Sends a request on the connection that it has to run on. If that connection is lost and the
    /// request cannot have run, sends it once more on another.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the request is sent, nothing has happened. Dropped after that, the request is settled before the
    /// connection is used again.
    pub(crate) async fn send<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
    ) -> Result<(Route, Result<O::Out>)> {
        let (route, answer) = self.send_once(hold, class, op).await?;
        self.repeat_if_lost(hold, class, op, route, answer).await
    }

    pub(super) async fn send_once<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
    ) -> Result<(Route, Result<O::Out>)> {
        let mut route = match hold {
            Hold::Call => self.route(class).await?,
            Hold::Stream => self.stream_place(class).await?,
            Hold::Statement => self.statement_place().await?,
        };
        op.set_unpinned(route.is_unpinned());
        if hold == Hold::Stream
            && let Route::ConnectionTurn(turn, _) = &mut route
        {
            turn.begin_now(self).await?;
            turn.set_streaming();
        }
        let answer = route.send(op, class, self).await;
        Ok((route, answer))
    }

    /// Repeats a call whose connection was lost, if nothing depends on that connection and the call
    /// [may be repeated](Call::may_repeat). Returns the route and the answer of the last attempt.
    pub(super) async fn repeat_if_lost<O: Op>(
        &self,
        hold: Hold,
        class: &Class,
        op: &mut O,
        mut route: Route,
        answer: Result<O::Out>,
    ) -> Result<(Route, Result<O::Out>)> {
        let took = match &answer {
            Ok(_) => return Ok((route, answer)),
            Err(_) => route.connection().in_use_for(),
        };
        // A call on a connection that the program holds can run on no other.
        let is_free = !matches!(self.target, Target::Bound(..));
        match &answer {
            Err(lost)
                if self.may_repeat(class, lost, took) && is_free && route.is_exchangeable() =>
            {
                drop(route);
                self.send_once(hold, class, op).await
            }
            _ => Ok((route, answer)),
        }
    }

    /// Returns whether a call may be repeated: its connection was lost, and the server cannot have run
    /// the call; or the connection broke as soon as it was used, without an error of the server, and the call
    /// is a read whose every function is known to change nothing. No other call is repeated.
    ///
    /// Also reports a loss to the pool: it checks the idle connections, and the second attempt uses a connection that was
    /// opened since, or has answered since.
    pub(crate) fn may_repeat(&self, class: &Class, error: &Error, took: Duration) -> bool {
        let Some(handle) = self.handle().filter(|_| error.is_connection_lost()) else {
            return false;
        };
        handle.pool.manager().note_loss();
        // What broke this connection may have broken the idle ones as well.
        handle.pool.check_idle();
        // A server that reports why, or ends a call that has run for a while, may want to stop the call.
        if !self.may_move() {
            return false;
        }
        let is_silent = error.sql_state().is_none() && error.code().is_none() && took <= DEAD_AFTER;
        (class.pure_read && is_silent) || error.was_never_sent()
    }

    /// Replaces a connection that was lost before anything ran on it.
    pub(crate) async fn reconnect(&self, lost: &mut PooledConnection) -> Result<()> {
        match self.handle() {
            Some(handle) => {
                let limit = handle.shared.acquire_timeout;
                handle.pool.manager().reconnect(lost, limit).await
            }
            None => Ok(()),
        }
    }

    /// Returns the handle of the connection, unless the program has dropped the handle.
    fn handle(&self) -> Option<Arc<Handle>> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => Some(Arc::clone(handle)),
            Target::Bound(bound, _) => bound.shared().handle(),
        }
    }
}
