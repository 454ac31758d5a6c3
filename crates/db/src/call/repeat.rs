//! Sends a request, and repeats a call whose connection was lost: the one rule is [`Call::may_repeat`].

use std::sync::Arc;
use std::time::Duration;

use super::op::Op;
use super::route::Route;
use super::{Call, Hold, Target};
use crate::pooled::connection::PooledConnection;
use crate::pooled::handle::Handle;
use crate::sql::Class;
use crate::{Error, Result};

/// A connection that was dead when it was taken says so within this time.
const DEAD_AFTER: Duration = Duration::from_millis(100);

impl Call<'_> {
    /// Sends a request on the connection that it belongs on, and sees to what its answer leaves
    /// behind.
    pub(crate) async fn send_and_finish<O: Op>(&self, class: &Class, op: &mut O) -> Result<O::Out> {
        let (route, answer) = self.send(Hold::Call, class, op).await?;
        route.finish(class, self.shared(), self.site, answer).await
    }

    /// Sends a request on the connection that it belongs on. If that connection is lost and the
    /// request cannot have run, sends it once more on another.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is sent, nothing has happened; after that, it is settled before the
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

    async fn send_once<O: Op>(
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
    /// [may be repeated](Call::may_repeat).
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
            Err(_) => route.link().in_use_for(),
        };
        // Another connection is no use to a call on one that somebody holds.
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

    /// The one rule about repeating a call: its connection was lost, and the server cannot have run
    /// it; or the connection was lost without a word as soon as it was used, and the call is a read
    /// whose every function is known to change nothing. What else may have run is never repeated.
    ///
    /// The second attempt uses a connection that was opened or has answered since.
    pub(crate) fn may_repeat(&self, class: &Class, error: &Error, took: Duration) -> bool {
        let Some(handle) = self.handle().filter(|_| error.is_connection_lost()) else {
            return false;
        };
        handle.pool.manager().note_loss();
        // Whatever took this one may have taken the idle ones as well.
        handle.pool.check_idle();
        // A server that says why, or ends what has run for a while, may have done so to stop it.
        let is_silent = error.sql_state().is_none() && error.code().is_none() && took <= DEAD_AFTER;
        (class.pure_read && is_silent) || error.was_never_sent()
    }

    /// Puts a new connection in the place of one that was lost before anything ran on it.
    pub(crate) async fn reconnect(&self, lost: &mut PooledConnection) -> Result<()> {
        match self.handle() {
            Some(handle) => handle.pool.manager().reconnect(lost).await,
            None => Ok(()),
        }
    }

    /// The handle that its connection is of, if nobody has dropped it.
    fn handle(&self) -> Option<Arc<Handle>> {
        match &self.target {
            Target::Ambient(handle) | Target::Outside(handle) => Some(Arc::clone(handle)),
            Target::Bound(bound, _) => bound.shared().handle(),
        }
    }
}
