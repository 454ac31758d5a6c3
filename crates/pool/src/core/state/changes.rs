//! What changes the whole pool: closing, resizing, dooming, the breaker.

use super::{KeeperCall, Meta, Turn};
use crate::breaker::BreakerState;
use crate::core::slot::Phase;
use crate::core::waiters::Outcome;
use crate::observe::events::{DestroyReason, Event};

impl<T, F> Turn<'_, T, F> {
    /// Closes: fails every waiter and takes out everything idle, oldest first.
    pub(crate) fn close(&mut self) -> bool {
        if self.state.closed {
            return false;
        }
        // The idle ones first: what `fail_all` frees goes out after them.
        for index in self.idle_oldest_first() {
            if self.take_this(index) {
                self.condemn(index, DestroyReason::Closed);
            }
        }
        self.state.closed = true;
        self.note(|| Event::Closed);
        self.fail_all(|| Outcome::Closed);
        // Flags the leased ones; those that came back meanwhile go out too.
        for (index, slot) in self.slots.iter() {
            if slot.summon() == Phase::Idle && slot.take_locked() {
                self.condemn(index, DestroyReason::Closed);
            }
        }
        self.wake_onlookers();
        self.note_if_drained();
        if self.state.keeper.is_some() {
            self.after.keeper = KeeperCall::Ring;
        }
        self.check();
        true
    }

    /// Another maximum.
    pub(crate) fn resize(&mut self, max: usize) {
        self.state.max = max;
        if self.state.total - self.state.condemned > max {
            for index in self.idle_oldest_first() {
                if self.state.total - self.state.condemned <= max {
                    break;
                }
                if self.take_this(index) {
                    self.condemn(index, DestroyReason::Shrunk);
                }
            }
            // Reservations that nobody has collected, the last to arrive first.
            while self.state.total - self.state.condemned > max
                && let Some((index, _)) = self.unreserve_youngest(None)
            {
                self.slots.at(index).set(Phase::Leased, true);
                self.condemn(index, DestroyReason::Shrunk);
            }
            // Places that nobody has begun to create in.
            for key in self.state.waiters.keys() {
                if self.state.total - self.state.condemned > max
                    && let Some(place) = self.state.waiters.take_place(key)
                {
                    self.unclaim(place);
                }
            }
            // The rest goes when it comes back.
            for (index, slot) in self.slots.iter() {
                if slot.summon() == Phase::Idle
                    && self.state.total - self.state.condemned > max
                    && self.take_this(index)
                {
                    self.condemn(index, DestroyReason::Shrunk);
                }
            }
        }
        self.state.rewatch(self.slots);
        self.settle();
        self.check();
    }

    /// Marks the resources for which `doom` has a reason: the idle ones go now,
    /// the others when they come back.
    pub(crate) fn doom(&mut self, doom: impl Fn(&Meta) -> Option<DestroyReason>) {
        for (index, slot) in self.slots.iter() {
            let Some(meta) = self.state.metas.get_mut(index) else {
                continue;
            };
            if matches!(slot.word().phase(), Phase::Vacant | Phase::Creating) {
                continue;
            }
            let Some(reason) = doom(meta) else { continue };
            meta.doomed = Some(reason);
            slot.summon();
            slot.summon_reserved();
            if self.take_this(index) {
                self.condemn(index, reason);
            }
        }
        self.check();
    }

    /// Moves the breaker.
    pub(crate) fn move_breaker(&mut self, to: BreakerState, by_hand: bool) {
        let from = self.state.breaker.state();
        if self.state.breaker.transition(to, self.clock.now(), by_hand) {
            self.note(|| Event::BreakerChanged { from, to });
        }
        if let Some(due) = self.state.breaker.next_due() {
            self.call_keeper(due);
        }
        self.state.rewatch(self.slots);
        if to == BreakerState::Inactive {
            self.fail_all(|| Outcome::Unavailable);
        }
        self.check();
    }

    /// A probe ended well, badly, or without a verdict.
    pub(crate) fn end_probe(&mut self, probe: Option<u64>, good: Option<bool>) {
        let next = probe.and_then(|probe| self.state.breaker.probe_ended(probe, good));
        if let Some(to) = next {
            self.move_breaker(to, false);
        }
    }
}
