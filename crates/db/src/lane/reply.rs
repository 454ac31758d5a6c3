//! The place where a member of a lane finds its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Lane;
use crate::driver::SharedAnswer;
use crate::sync::{Mutex, MutexGuard};

/// Where the lane puts the answer of a read.
#[derive(Debug, Default)]
pub(super) struct Reply(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    answer: Option<SharedAnswer>,
    waker: Option<Waker>,
    /// Nobody waits any more.
    is_abandoned: bool,
}

impl Reply {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the answer here, and returns who is to be woken. Returns the answer if nobody waits for it: it is dropped without
    /// a lock.
    pub(super) fn give(&self, answer: SharedAnswer) -> (Option<Waker>, Option<SharedAnswer>) {
        let mut state = self.lock();
        if state.is_abandoned {
            return (None, Some(answer));
        }
        state.answer = Some(answer);
        (state.waker.take(), None)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<SharedAnswer> {
        let mut waker = None;
        loop {
            let mut state = self.lock();
            if let Some(answer) = state.answer.take() {
                return Poll::Ready(answer);
            }
            let known = state.waker.as_ref();
            if known.is_some_and(|known| known.will_wake(cx.waker())) {
                return Poll::Pending;
            }
            if waker.is_some() {
                let old = std::mem::replace(&mut state.waker, waker);
                drop(state);
                drop(old);
                return Poll::Pending;
            }
            // A waker is cloned and dropped without the lock.
            drop(state);
            waker = Some(cx.waker().clone());
        }
    }

    /// Ends the wait. Returns whether the answer had not arrived, and what is to be dropped without a lock.
    pub(super) fn abandon(&self) -> (bool, impl Sized + use<>) {
        let mut state = self.lock();
        state.is_abandoned = true;
        let (waker, answer) = (state.waker.take(), state.answer.take());
        (answer.is_none(), (waker, answer))
    }
}

/// A read that is in flight in a lane.
///
/// # Cancel safety
///
/// Dropped, its answer is discarded; if nobody else waits for the connection, the read is cancelled.
pub(crate) struct Member {
    pub(super) lane: Arc<Lane>,
    pub(super) reply: Arc<Reply>,
    pub(super) is_answered: bool,
}

impl Member {
    /// Returns the shard in which the time of the read is recorded.
    pub(crate) fn timings_shard(&self) -> usize {
        self.lane.timings_shard
    }
}

impl Future for Member {
    type Output = SharedAnswer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SharedAnswer> {
        let polled = self.reply.poll(cx);
        self.is_answered |= polled.is_ready();
        polled
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.is_answered {
            self.lane.leave(&self.reply);
        }
    }
}
