//! The task that drives the socket of a lane, so that no read depends on the future of another one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use cenote_pool::Task;

use super::Lane;
use super::state::{Deferred, Next};

/// How often the drainer of an empty lane lets other tasks run before the lane ends: those that it has just woken may read
/// again.
const LINGERS: u32 = if cfg!(loom) { 1 } else { 3 };

/// The task of a lane. Dropped, the lane ends, and its reads run elsewhere.
pub(super) struct Drainer {
    lane: Arc<Lane>,
    waker: Option<Waker>,
    /// Other tasks were let run since reads were pushed.
    has_yielded: bool,
    /// Several callers got their answers last time, and may be about to read again.
    has_woken: bool,
    lingered: u32,
    timer: Option<Task>,
    /// Kept for its capacity.
    deferred: Deferred,
}

impl Drainer {
    pub(super) fn new(lane: Arc<Lane>) -> Self {
        Drainer {
            lane,
            waker: None,
            has_yielded: false,
            has_woken: false,
            lingered: 0,
            timer: None,
            deferred: Deferred::default(),
        }
    }

    /// Sends and receives.
    fn take_turn(&mut self, cx: &mut Context<'_>) -> Next {
        let known = self.waker.as_ref();
        let mut waker = None;
        if !known.is_some_and(|known| known.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            waker.clone_from(&self.waker);
        }
        let next = self.take_turn_locked(cx, &mut waker);
        self.lane.finish(&mut self.deferred);
        next
    }

    fn take_turn_locked(&mut self, cx: &mut Context<'_>, waker: &mut Option<Waker>) -> Next {
        let (lanes, least) = (&self.lane.lanes, self.lane.lanes.least_round_trip());
        let now = || lanes.runtime.now();
        let mut state = self.lane.lock();
        if state.lease().is_none() || self.lane.state.is_poisoned() {
            state.end(now(), least, &mut self.deferred);
            return Next::End;
        }
        state.begin_turn(waker);
        let has_company = self.has_woken || state.in_flight() > 1;
        if state.is_unsent() && has_company && !self.has_yielded {
            self.has_yielded = true;
            state.set_due();
            return Next::Yield;
        }
        self.has_yielded = false;
        let answered = state.receive(cx, least, now, &mut self.deferred);
        self.has_woken = answered > 1;
        state.close_if_wanted(|| lanes.expected_waiters(self.lane.domain), now);
        self.lane.note(&mut state);
        if !state.is_over() {
            if state.in_flight() > 0 {
                self.lingered = 0;
            }
            return Next::Wait {
                leaves: state.leaves(least),
            };
        }
        self.lingered += 1;
        if !state.is_closed() && self.lingered <= LINGERS {
            self.has_yielded = true;
            state.set_due();
            return Next::Yield;
        }
        state.end(now(), least, &mut self.deferred);
        Next::End
    }

    /// Waits for the time at which a read leaves. Returns true when reads have left.
    fn poll_leaving(&mut self, cx: &mut Context<'_>, leaves: Option<Instant>) -> bool {
        let runtime = &self.lane.lanes.runtime;
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_pending()
        {
            // It may be early: then the next one is set when it is over.
            return false;
        }
        self.timer = None;
        let Some(leaves) = leaves else { return false };
        let now = runtime.now();
        if now < leaves {
            let timer = self.timer.insert(runtime.sleep(leaves));
            return timer.as_mut().poll(cx).is_ready();
        }
        let least = self.lane.lanes.least_round_trip();
        let mut state = self.lane.lock();
        let is_blocked = state.expel(now, least, &mut self.deferred);
        self.lane.note(&mut state);
        if is_blocked {
            self.lane.note_blocked(&mut state);
        }
        drop(state);
        self.lane.finish(&mut self.deferred);
        true
    }
}

impl Future for Drainer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match this.take_turn(cx) {
                Next::End => return Poll::Ready(()),
                Next::Yield => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Next::Wait { leaves } => {
                    if !this.poll_leaving(cx, leaves) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.lane.end();
        // If the driver has panicked, callers whose answers were there are not woken yet.
        self.lane.finish(&mut self.deferred);
    }
}
