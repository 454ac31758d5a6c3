//! The bounded buffer of one listener.
//!
//! It holds events in order. Where a notification is lost, the buffer has one Gap:
//!
//! - If the buffer is full, it drops the newest and all that follow until the program has read the Gap. The
//!   Gap comes last then, so what is dropped lies exactly there.
//! - Gaps that meet become one: no notification is between them.
//!
//! So there are never more events than the limit, and one Gap.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Event, GapCause};
use crate::{Error, Result};

/// How much a mailbox holds. One event fits always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            events: 1024,
            bytes: 4 * 1024 * 1024,
        }
    }
}

/// Wakers to wake without a lock.
pub(super) type Wakes = smallvec::SmallVec<[Waker; 4]>;

pub(super) struct Mailbox {
    content: Mutex<Content>,
}

struct Content {
    limits: Limits,
    events: VecDeque<Event>,
    bytes: usize,
    /// The buffer was full, and the Gap at its end is not read yet.
    drops: bool,
    phase: Phase,
    waker: Option<Waker>,
}

enum Phase {
    /// The server has not acknowledged the channels yet.
    Joining,
    Ready,
    /// Nothing more arrives. The error is returned once, after the events.
    Ended(Option<Error>),
}

impl Mailbox {
    pub(super) fn new(limits: Limits) -> Self {
        Mailbox {
            content: Mutex::new(Content {
                limits,
                events: VecDeque::new(),
                bytes: 0,
                drops: false,
                phase: Phase::Joining,
                waker: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Nothing that can panic runs under this lock.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a notification, or a Gap if there is no room.
    pub(super) fn push(&self, event: Event, wakes: &mut Wakes) {
        let mut content = self.lock();
        if content.push(event) {
            wakes.extend(content.waker.take());
        }
    }

    pub(super) fn push_gap(&self, cause: GapCause, wakes: &mut Wakes) {
        let mut content = self.lock();
        if content.push_gap(cause) {
            wakes.extend(content.waker.take());
        }
    }

    /// Notes that the server has acknowledged the channels.
    pub(super) fn set_ready(&self, wakes: &mut Wakes) {
        let mut content = self.lock();
        if let Phase::Joining = content.phase {
            content.phase = Phase::Ready;
            wakes.extend(content.waker.take());
        }
    }

    /// Ends the listener with this error, after the events that are here.
    pub(super) fn end(&self, error: Error, wakes: &mut Wakes) {
        let mut content = self.lock();
        if !matches!(content.phase, Phase::Ended(_)) {
            content.phase = Phase::Ended(Some(error));
            wakes.extend(content.waker.take());
        }
    }

    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll(cx, |content| match &mut content.phase {
            Phase::Joining => None,
            Phase::Ready => Some(Ok(())),
            Phase::Ended(error) => Some(error.take().map_or(Ok(()), Err)),
        })
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        self.poll(cx, |content| match content.pop() {
            Some(event) => Some(Some(Ok(event))),
            None => match &mut content.phase {
                Phase::Ended(error) => Some(error.take().map(Err)),
                Phase::Joining | Phase::Ready => None,
            },
        })
    }

    /// Returns the number of events that wait to be read.
    pub(super) fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// Waits until `look` finds something. Wakers are cloned and dropped without the lock.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Content) -> Option<T>,
    ) -> Poll<T> {
        if let Some(found) = look(&mut self.lock()) {
            return Poll::Ready(found);
        }
        let waker = cx.waker().clone();
        let mut content = self.lock();
        let found = look(&mut content);
        let old = match found {
            Some(_) => Some(waker),
            None => content.waker.replace(waker),
        };
        drop(content);
        drop(old);
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Content {
    /// Returns whether the program has something new to read.
    fn push(&mut self, event: Event) -> bool {
        if self.drops {
            return false;
        }
        let cost = cost(&event);
        let is_full = self.events.len() >= self.limits.events
            || self.bytes.saturating_add(cost) > self.limits.bytes;
        if is_full && !self.events.is_empty() {
            self.drops = true;
            return self.push_gap(GapCause::Overflow);
        }
        self.bytes += cost;
        self.events.push_back(event);
        true
    }

    fn push_gap(&mut self, cause: GapCause) -> bool {
        if let Some(Event::Gap { .. }) = self.events.back() {
            return false;
        }
        self.events.push_back(Event::Gap { cause });
        true
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= cost(&event);
        if self.events.is_empty() {
            // The last event was the Gap, if anything was dropped.
            self.drops = false;
        }
        Some(event)
    }
}

/// Returns what an event counts for: its texts and its place. A Gap is free, because there is always room for one.
fn cost(event: &Event) -> usize {
    match event {
        Event::Notification {
            channel, payload, ..
        } => size_of::<Event>() + channel.len() + payload.len(),
        Event::Gap { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    fn numbered(number: u64) -> Event {
        Event::Notification {
            channel: Arc::from("c"),
            payload: Arc::from(number.to_string()),
            pid: 1,
        }
    }

    fn mailbox(events: usize, bytes: usize) -> Mailbox {
        let mailbox = Mailbox::new(Limits { events, bytes });
        mailbox.set_ready(&mut Wakes::new());
        mailbox
    }

    /// Returns the number of a notification, `Err` with the cause of a Gap, or `None` if there is nothing.
    fn next(mailbox: &Mailbox) -> Option<Result<u64, String>> {
        let mut cx = Context::from_waker(Waker::noop());
        match mailbox.poll_next(&mut cx) {
            Poll::Ready(Some(Ok(Event::Notification { payload, .. }))) => {
                Some(Ok(payload.parse().unwrap()))
            }
            Poll::Ready(Some(Ok(Event::Gap { cause }))) => Some(Err(cause.to_string())),
            Poll::Ready(other) => panic!("{other:?}"),
            Poll::Pending => None,
        }
    }

    #[test]
    fn overflow_drops_the_newest_and_one_gap_stands_there() {
        let mailbox = mailbox(2, usize::MAX);
        let wakes = &mut Wakes::new();
        for number in 0..10 {
            mailbox.push(numbered(number), wakes);
        }
        assert_eq!(mailbox.len(), 3);
        assert_eq!(next(&mailbox), Some(Ok(0)));
        mailbox.push(numbered(10), wakes);
        assert_eq!(next(&mailbox), Some(Ok(1)));
        mailbox.push(numbered(11), wakes);
        assert_eq!(next(&mailbox), Some(Err("buffer full".to_owned())));
        mailbox.push(numbered(12), wakes);
        assert_eq!(next(&mailbox), Some(Ok(12)));
        assert_eq!(next(&mailbox), None);
    }

    #[test]
    fn bytes_are_limited_and_one_event_always_fits() {
        let one = cost(&numbered(0));
        let wakes = &mut Wakes::new();
        let tiny = mailbox(100, 1);
        tiny.push(numbered(0), wakes);
        tiny.push(numbered(1), wakes);
        assert_eq!(next(&tiny), Some(Ok(0)));
        assert!(next(&tiny).unwrap().is_err());
        let two = mailbox(100, 2 * one);
        for number in 0..3 {
            two.push(numbered(number), wakes);
        }
        assert_eq!(two.len(), 3);
    }

    #[test]
    fn gaps_that_meet_are_one() {
        let mailbox = mailbox(10, usize::MAX);
        let wakes = &mut Wakes::new();
        mailbox.push(numbered(1), wakes);
        mailbox.push_gap(GapCause::Replaced, wakes);
        mailbox.push_gap(GapCause::NotText, wakes);
        mailbox.push(numbered(2), wakes);
        assert_eq!(next(&mailbox), Some(Ok(1)));
        assert_eq!(next(&mailbox), Some(Err("connection replaced".to_owned())));
        assert_eq!(next(&mailbox), Some(Ok(2)));
    }

    #[test]
    fn end_comes_once_and_after_the_events() {
        let mailbox = mailbox(10, usize::MAX);
        let wakes = &mut Wakes::new();
        mailbox.push(numbered(1), wakes);
        mailbox.end(Error::new(Kind::Closed, "first"), wakes);
        mailbox.end(Error::new(Kind::Other, "second"), wakes);
        assert_eq!(next(&mailbox), Some(Ok(1)));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Err(end))) = mailbox.poll_next(&mut cx) else {
            panic!("no error");
        };
        assert_eq!(end.message(), "first");
        for _ in 0..2 {
            assert!(matches!(mailbox.poll_next(&mut cx), Poll::Ready(None)));
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Lose,
        Read,
    }

    proptest! {
        /// A model that remembers what was lost where.
        #[test]
        fn number_is_missing_only_where_a_gap_stands(
            limit in 1_usize..6,
            steps in prop::collection::vec(
                prop_oneof![4 => Just(Step::Push), 1 => Just(Step::Lose), 3 => Just(Step::Read)],
                0..200,
            ),
        ) {
            let mailbox = mailbox(limit, usize::MAX);
            let wakes = &mut Wakes::new();
            let (mut sent, mut expected, mut read) = (0, 0, VecDeque::new());
            let all = steps.iter().chain(std::iter::repeat_n(&Step::Read, limit + 1));
            for step in all {
                match step {
                    Step::Push => {
                        mailbox.push(numbered(sent), wakes);
                        sent += 1;
                    }
                    // A notification that the connection lost.
                    Step::Lose => {
                        sent += 1;
                        mailbox.push_gap(GapCause::Replaced, wakes);
                    }
                    Step::Read => read.extend(next(&mailbox)),
                }
                prop_assert!(mailbox.len() <= limit + 1);
            }
            let mut after_gap = false;
            for event in read {
                match event {
                    Ok(number) => {
                        prop_assert!(number == expected || after_gap && number > expected);
                        expected = number + 1;
                        after_gap = false;
                    }
                    Err(_) => after_gap = true,
                }
            }
            prop_assert!(expected == sent || after_gap);
        }
    }
}
