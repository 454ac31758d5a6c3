//! Ends the calls of a connection whose host was retired.
//!
//! The client library does not expose its socket, so nobody else can shut it down. Instead, each call on a connection with a choice
//! of hosts looks at a switch, too. When the switch is set, the call ends and its future is dropped; the connection is broken from then on,
//! and its socket is closed with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::connection::MysqlConnection;
use crate::driver::{Batch, BoxFuture};
use crate::hosts::Place;
use crate::{Error, Kind, Result};

/// A connection's host, where there is a choice of hosts.
pub(super) struct AtHost {
    pub(super) place: Arc<Place>,
    pub(super) switch: Arc<Switch>,
    /// This server refuses what the connection was opened for, whatever its name says now.
    pub(super) is_demoted: bool,
}

/// Says that a connection is cut.
#[derive(Debug, Default)]
pub(super) struct Switch {
    is_cut: AtomicBool,
    /// The call only asks so far whether the server is there. Relaxed: the task that runs the call reads it, too.
    is_checking: AtomicBool,
    /// The call that runs, or the last one.
    waker: Mutex<Option<Waker>>,
}

impl Switch {
    /// Cuts the connection.
    pub(super) fn cut(&self) {
        // Release pairs with the acquire in `is_cut`. A call registers its waker before it looks.
        self.is_cut.store(true, Ordering::Release);
        let waker = self.waker().take();
        // After the lock: the wake may poll the call at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Notes whether the call only asks so far whether the server is there.
    pub(super) fn set_checking(&self, is_checking: bool) {
        self.is_checking.store(is_checking, Ordering::Relaxed);
    }

    /// Returns whether the connection is cut. If it is not, wakes this task when it is.
    fn poll_is_cut(&self, cx: &Context<'_>) -> bool {
        let is_known = |waker: &Option<Waker>| {
            let waker = waker.as_ref();
            waker.is_some_and(|waker| waker.will_wake(cx.waker()))
        };
        if !is_known(&self.waker()) {
            let waker = cx.waker().clone();
            let before = self.waker().replace(waker);
            // After the lock: the executor may run code of its own.
            drop(before);
        }
        self.is_cut()
    }
}

/// Runs a call until it ends or the connection is cut. Without a switch it is the call itself.
///
/// # Cancel safety
///
/// That of the call.
///
/// # Errors
///
/// [`Kind::ConnectionLost`] if the connection is cut; else the call's own.
#[inline]
pub(super) fn unless_cut<'c, T: 'c>(
    switch: Option<Arc<Switch>>,
    call: BoxFuture<'c, Result<T>>,
) -> BoxFuture<'c, Result<T>> {
    match switch {
        None => call,
        Some(switch) => Box::pin(UnlessCut {
            call,
            switch,
            has_begun: false,
        }),
    }
}

struct UnlessCut<'c, T> {
    call: BoxFuture<'c, Result<T>>,
    switch: Arc<Switch>,
    has_begun: bool,
}

impl<T> Future for UnlessCut<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        if self.switch.poll_is_cut(cx) {
            let is_checking = self.switch.is_checking.load(Ordering::Relaxed);
            return Poll::Ready(Err(match self.has_begun && !is_checking {
                true => cut_midway(),
                false => Place::why_closed(),
            }));
        }
        self.has_begun = true;
        self.call.as_mut().poll(cx)
    }
}

/// Returns the error of a call that was cut.
#[cold]
fn cut_midway() -> Error {
    let message = "the connection was cut, because another host has become the primary and this one no longer has the role \
                   that target_session_attrs demands";
    Error::new(Kind::ConnectionLost, message)
}

impl MysqlConnection {
    /// Returns what cuts the calls of this connection. `None` where there is no choice of hosts.
    #[inline]
    pub(super) fn switch(&self) -> Option<Arc<Switch>> {
        self.host.as_ref().map(|host| Arc::clone(&host.switch))
    }

    /// Returns whether the connection was cut.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.switch.is_cut())
    }

    /// Polls the stream, unless the connection is cut.
    pub(super) fn poll_stream_unless_cut(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Batch>>> {
        if let Some(host) = &self.host
            && host.switch.poll_is_cut(cx)
        {
            self.mark_lost();
            return Poll::Ready(Err(cut_midway()));
        }
        self.poll_stream(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::task::Wake;

    use super::*;

    /// An executor that polls a task where it is woken.
    struct InPlace(Weak<Switch>, AtomicBool);

    impl Wake for InPlace {
        fn wake(self: Arc<Self>) {
            let switch = self.0.upgrade().expect("it is being cut");
            let waker = Waker::from(Arc::clone(&self));
            let is_cut = switch.poll_is_cut(&Context::from_waker(&waker));
            self.1.store(is_cut, Ordering::Relaxed);
        }
    }

    #[test]
    fn cut_may_poll_the_call_at_once() {
        let switch = Arc::new(Switch::default());
        let task = Arc::new(InPlace(Arc::downgrade(&switch), AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&task));
        assert!(!switch.poll_is_cut(&Context::from_waker(&waker)));
        switch.cut();
        assert!(task.1.load(Ordering::Relaxed));
    }
}
