//! What a worker needs besides if some calls run in place, or are waited for there.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::coop::unconstrained;

use super::{Session, Worker};

impl<S: Session> Worker<S> {
    /// Begins a call that runs right here: its number, and the session. `None` if that is lent.
    pub(crate) fn call_here(&mut self) -> Option<(u64, &mut S)> {
        let session = self.session.as_deref_mut()?;
        self.call += 1;
        Some((self.call, session))
    }

    /// Looks whether the session has come home, or is lost, without waiting.
    pub(crate) fn is_home(&mut self) -> bool {
        // By itself, not by a poll: a task that has used up its budget gets nothing by that.
        match self.home.try_recv() {
            Ok(session) => self.session = Some(session),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.lost |= self.session.is_none(),
        }
        self.session.is_some() || self.lost
    }

    /// Blocks this thread until the session has come home, or for so long; now and then for less. Unlike a
    /// thread that looks again and again, one that sleeps leaves its processor to whoever it waits for.
    pub(crate) fn doze(&mut self, longest: Duration) {
        thread_local! {
            static ALARM: Waker = Waker::from(Arc::new(Alarm(std::thread::current())));
        }
        let is_set = ALARM.try_with(|alarm| {
            // A task that has used up its budget would be told to come back later.
            let home = unconstrained(poll_fn(|cx| self.poll_home(cx)));
            pin!(home)
                .poll(&mut Context::from_waker(alarm))
                .is_pending()
        });
        match is_set {
            Ok(true) => std::thread::park_timeout(longest),
            Ok(false) => {}
            // The thread is ending.
            Err(_) => std::thread::yield_now(),
        }
    }

    /// The session, unless it is lent.
    pub(crate) fn session_mut(&mut self) -> Option<&mut S> {
        self.session.as_deref_mut()
    }

    /// Gives the thread away, for somebody who wants to see it end.
    pub(crate) fn take_thread(&mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}

/// Wakes a thread that dozes.
struct Alarm(Thread);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
