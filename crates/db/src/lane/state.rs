//! The reads in flight on one shared connection, and the connection.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::reply::Reply;
use super::short::{TextId, is_long};
use crate::binding::Lease;
use crate::driver::{Request, SharedAnswer};

/// How many reads may be in flight on one connection. A lane of the model is soon full.
pub(super) const MOST: usize = if cfg!(loom) { 2 } else { 32 };

/// How long the oldest read may take, beyond the round trip, until those behind it run elsewhere. It counts from the answer
/// before it: a full lane that makes progress sends nobody away.
const PATIENCE: Duration = Duration::from_millis(10);

/// A lane of this age lets no more reads in, so that its connection goes through the pool now and then.
const LONGEST_LIFE: Duration = Duration::from_secs(1);

/// What a lane's lock protects.
pub(super) struct State {
    /// `None` when the lane has ended.
    lease: Option<Lease>,
    /// The reads in flight, in order.
    queue: VecDeque<Entry>,
    /// How many of them somebody waits for.
    live: usize,
    /// Lets no more reads in.
    is_closed: bool,
    /// Whether the lane is among those that are about to give their connections back.
    closing: Closing,
    /// An answer has said that the session changed.
    has_changed: bool,
    /// Wakes the drainer.
    drainer: Option<Waker>,
    /// The drainer was woken, and has not run since.
    is_due: bool,
    /// Reads were pushed that the drainer has not sent.
    is_unsent: bool,
    opened: Instant,
    /// When the last answer was complete.
    answered: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    NotYet,
    Counted,
    /// Counted no more: it has ended, or its oldest read is blocked.
    Over,
}

struct Entry {
    /// `None` if the read has left the lane.
    reply: Option<Arc<Reply>>,
    text: TextId,
    pushed: Instant,
}

/// What follows when the lock is released.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) wakers: Vec<Waker>,
    /// Answers that nobody waits for.
    unread: Vec<SharedAnswer>,
    /// How many reads were answered.
    pub(super) answered: u64,
    /// The texts that ran, with their service times.
    pub(super) runs: Vec<(TextId, Duration)>,
    /// The texts that have changed the session.
    pub(super) barred: Vec<TextId>,
    /// The connection of a lane that has ended.
    pub(super) lease: Option<Lease>,
    /// The lane that has ended was counted as closing.
    pub(super) was_closing: bool,
}

/// What the drainer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Lets other tasks run, and goes on.
    Yield,
    /// Waits for the socket, for a read, or until a read leaves.
    Wait { leaves: Option<Instant> },
    /// The lane has ended.
    End,
}

/// What has come of an attempt to join a lane.
pub(super) enum Push {
    Done {
        wake: Option<Waker>,
    },
    /// The lane lets nobody in.
    Closed,
    /// The read needs a connection for itself.
    Refused,
}

impl Deferred {
    pub(super) fn drop_unread(&mut self) {
        self.unread.clear();
    }
}

impl State {
    pub(super) fn new(lease: Lease, now: Instant) -> Self {
        State {
            lease: Some(lease),
            queue: VecDeque::with_capacity(MOST),
            live: 0,
            is_closed: false,
            closing: Closing::NotYet,
            has_changed: false,
            drainer: None,
            is_due: true,
            is_unsent: true,
            opened: now,
            answered: now,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Lets no more reads in.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns whether the lane is to be counted as closing.
    pub(super) fn begins_closing(&mut self) -> bool {
        let begins = self.closing == Closing::NotYet;
        if begins {
            self.closing = Closing::Counted;
        }
        begins
    }

    /// Returns whether the lane was counted as closing, and is so no more.
    pub(super) fn ends_closing(&mut self) -> bool {
        std::mem::replace(&mut self.closing, Closing::Over) == Closing::Counted
    }

    /// Notes a read that was pushed to the connection.
    pub(super) fn enter(&mut self, reply: &Arc<Reply>, text: TextId, now: Instant) {
        self.queue.push_back(Entry {
            reply: Some(Arc::clone(reply)),
            text,
            pushed: now,
        });
        self.live += 1;
        self.is_unsent = true;
    }

    /// Pushes a read to the connection.
    pub(super) fn push(
        &mut self,
        request: &Request<'_>,
        site: &'static Location<'static>,
        reply: &Arc<Reply>,
        text: TextId,
        now: Instant,
    ) -> Push {
        let Some(lease) = self.lease.as_mut().filter(|_| !self.is_closed) else {
            return Push::Closed;
        };
        if self.queue.len() >= MOST {
            return Push::Closed;
        }
        match lease.push_shared(request, site) {
            Ok(true) => {
                self.enter(reply, text, now);
                Push::Done { wake: self.wake() }
            }
            Err(_) if lease.is_broken() => {
                self.close();
                Push::Closed
            }
            // After an error, the caller gets that of a run elsewhere.
            Ok(false) | Err(_) => Push::Refused,
        }
    }

    /// Returns the waker of a drainer that was not woken yet.
    fn wake(&mut self) -> Option<Waker> {
        match std::mem::replace(&mut self.is_due, true) {
            false => self.drainer.clone(),
            true => None,
        }
    }

    /// Ends the wait for a read. If nobody waits for any, the lane ends, and the pool settles the connection.
    pub(super) fn leave(&mut self, was_in_flight: bool) -> Option<Waker> {
        self.live -= usize::from(was_in_flight);
        if self.live > 0 || self.queue.is_empty() {
            return None;
        }
        self.close();
        self.wake()
    }

    /// Sets the waker of the drainer, which runs now.
    pub(super) fn begin_turn(&mut self, waker: &mut Option<Waker>) {
        self.is_due = false;
        if waker.is_some() {
            std::mem::swap(&mut self.drainer, waker);
        }
    }

    /// Whether reads were pushed since the last [`receive`](Self::receive).
    pub(super) fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The drainer runs again in any case.
    pub(super) fn set_due(&mut self) {
        self.is_due = true;
    }

    /// Sends, and receives the answers that have arrived. Returns how many callers got one.
    pub(super) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        least: Duration,
        now: impl Fn() -> Instant,
        deferred: &mut Deferred,
    ) -> usize {
        self.is_unsent = false;
        let before = self.live;
        let mut read = None;
        while !self.queue.is_empty() {
            let Some(lease) = &mut self.lease else { break };
            let Poll::Ready(answer) = lease.poll_shared(cx) else {
                break;
            };
            let (is_broken, has_changed) = (lease.is_broken(), lease.note_shared());
            let now = *read.get_or_insert_with(&now);
            let Some(entry) = self.queue.pop_front() else {
                break;
            };
            let began = entry.pushed.max(self.answered);
            let service = now.saturating_duration_since(began).saturating_sub(least);
            self.answered = now;
            deferred.answered += 1;
            // A run that failed proves nothing but that it was long.
            let is_proof = matches!(answer, SharedAnswer::Answered(Ok(_)));
            if is_proof || is_long(service, least) {
                deferred.runs.push((entry.text, service));
            }
            if has_changed && !std::mem::replace(&mut self.has_changed, true) {
                deferred.barred.push(entry.text);
                self.close();
            }
            self.finish(entry, answer, deferred);
            if has_changed {
                // Those behind run in the changed session.
                (0..self.queue.len()).for_each(|at| self.move_away(at, deferred));
            }
            if is_broken {
                // The oldest read may be what has broken the connection; the others run again.
                self.give_up(deferred);
            }
        }
        if self.queue.is_empty()
            && let Some(lease) = &mut self.lease
        {
            lease.end_shared();
        }
        before - self.live
    }

    fn finish(&mut self, entry: Entry, answer: SharedAnswer, deferred: &mut Deferred) {
        let Some(reply) = entry.reply else {
            return deferred.unread.push(answer);
        };
        let (waker, unread) = reply.give(answer);
        self.live -= usize::from(unread.is_none());
        deferred.wakers.extend(waker);
        deferred.unread.extend(unread);
    }

    /// Lets all reads run elsewhere.
    pub(super) fn give_up(&mut self, deferred: &mut Deferred) {
        self.close();
        while let Some(entry) = self.queue.pop_front() {
            self.finish(entry, SharedAnswer::Again, deferred);
        }
    }

    /// Returns when the reads behind the oldest one leave, if there are any.
    pub(super) fn leaves(&self, least: Duration) -> Option<Instant> {
        let oldest = self.queue.front()?;
        let mut behind = self.queue.iter().skip(1);
        behind.find(|entry| entry.reply.is_some())?;
        Some(oldest.pushed.max(self.answered) + PATIENCE + least)
    }

    /// Lets the reads behind the oldest one run elsewhere, if that one takes too long. Returns whether it does.
    pub(super) fn expel(&mut self, now: Instant, least: Duration, deferred: &mut Deferred) -> bool {
        let is_blocked = self.leaves(least).is_some_and(|leaves| leaves <= now);
        if is_blocked {
            (1..self.queue.len()).for_each(|at| self.move_away(at, deferred));
        }
        is_blocked
    }

    /// Lets a read run elsewhere, and discards its answer.
    fn move_away(&mut self, at: usize, deferred: &mut Deferred) {
        let Some(reply) = self.queue.get_mut(at).and_then(|entry| entry.reply.take()) else {
            return;
        };
        self.close();
        let (waker, unread) = reply.give(SharedAnswer::Again);
        self.live -= usize::from(unread.is_none());
        deferred.wakers.extend(waker);
        deferred.unread.extend(unread);
    }

    /// Lets no more reads in if the lane is old or its connection is wanted elsewhere.
    pub(super) fn close_if_wanted(
        &mut self,
        expected: impl Fn() -> usize,
        now: impl FnOnce() -> Instant,
    ) {
        let Some(lease) = self.lease.as_ref().filter(|_| !self.is_closed) else {
            return;
        };
        // Asked again, because a read may have come to the queue between the two counts: it is among the expected ones then.
        let is_wanted = || Lease::is_wanted(lease, expected());
        self.is_closed = lease.is_broken()
            || lease.is_outdated()
            || is_wanted() && is_wanted()
            || now().saturating_duration_since(self.opened) > LONGEST_LIFE;
    }

    /// Whether the lane ends now: it is empty, or nobody waits for what is in flight.
    pub(super) fn is_over(&self) -> bool {
        self.live == 0 && (self.is_closed || self.queue.is_empty())
    }

    /// Ends the lane. The connection goes back to the pool, which settles what is in flight.
    pub(super) fn end(&mut self, now: Instant, least: Duration, deferred: &mut Deferred) {
        self.close();
        // Nobody waits for its answer, which would tell that it was long.
        if let Some(oldest) = self.queue.front() {
            let took = now.saturating_duration_since(oldest.pushed.max(self.answered));
            let service = took.saturating_sub(least);
            if is_long(service, least) {
                deferred.runs.push((oldest.text, service));
            }
        }
        deferred.was_closing |= self.ends_closing();
        deferred.lease = self.lease.take();
        self.give_up(deferred);
    }
}
