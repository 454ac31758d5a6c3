//! Who revokes a reservation, and when: a waiter that was woken and is not polled in time loses
//! its resource, or its offer to create one, while somebody else waits.

use std::time::{Duration, Instant};

use super::Locked;
use crate::core::slot::SlotState;
use crate::core::waiters::{Outcome, Revoked, WaiterKey};

/// The shortest and the longest patience.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// How many times the usual delay a waiter may take.
const TIMES: u32 = 4;

/// The smoothed time from the wake of a waiter to its poll. Late polls count like all others, so
/// that the patience grows until polls are in time.
#[derive(Debug, Default)]
pub(crate) struct WakeToPoll {
    nanos: u64,
}

impl WakeToPoll {
    /// Records that a waiter was polled this long after its wake.
    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        // By the coarse clock nearly all polls follow at once.
        if nanos | self.nanos != 0 {
            self.smooth(nanos);
        }
    }

    #[cold]
    fn smooth(&mut self, nanos: u64) {
        // A quarter each: a few samples are enough, up and down. Rounded so that the average
        // returns to zero.
        if nanos > self.nanos {
            self.nanos += (nanos - self.nanos) / 4;
        } else {
            self.nanos -= (self.nanos - nanos).div_ceil(4);
        }
    }

    /// Returns how long a woken waiter may take before its reservation is revoked.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_nanos(self.nanos)
            .saturating_mul(TIMES)
            .clamp(BOUNDS.0, BOUNDS.1)
    }
}

impl<T, F> Locked<'_, T, F> {
    /// Has maintenance look at a new reservation when the patience is over.
    pub(super) fn schedule_revocation(&mut self) {
        if self.state.revoke_at.is_none() {
            let patience = self.state.wake_to_poll.patience();
            self.state.revoke_at = self.clock.now().checked_add(patience);
            if let Some(at) = self.state.revoke_at {
                self.call_maintenance(at);
            }
        }
    }

    /// Revokes the reservations that were not collected in time, while somebody is in the queue.
    /// A waiter that loses its reservation gets nothing until it is polled.
    pub(crate) fn revoke_uncollected(&mut self) {
        let now = self.clock.now();
        let is_due = self.state.revoke_at.is_some_and(|at| at <= now);
        if !is_due && !self.state.has_overdue {
            return;
        }
        self.state.revoke_at = None;
        self.state.has_overdue = false;
        let patience = self.state.wake_to_poll.patience();
        let coarse = self.clock.coarse_now();
        let mut next: Option<Instant> = None;
        for (index, slot) in self.slots.iter() {
            let word = slot.word();
            match word.state() {
                SlotState::Reserved => {}
                SlotState::Idle | SlotState::Leased => {
                    self.state.forget_collected(slot);
                    continue;
                }
                SlotState::Vacant | SlotState::Creating => continue,
            }
            let meta = &mut self.state.metas[index];
            let Some(key) = meta.reserved_for else {
                continue;
            };
            // A hand-off reads only the coarse clock. If that stands still, the precise clock
            // tells for how long maintenance has seen this reservation.
            if meta.seen.0 != word.mark() {
                meta.seen = (word.mark(), now);
            }
            let seen_for = now.saturating_duration_since(meta.seen.1);
            let granted = self.state.waiters.get(key).map(|waiter| waiter.granted);
            let granted_for = coarse.saturating_sub(granted.unwrap_or(coarse));
            let left = patience.saturating_sub(seen_for.max(Duration::from_nanos(granted_for)));
            if !left.is_zero() {
                let over = now.checked_add(left);
                next = [next, over].into_iter().flatten().min();
            } else if self.state.waiters.waiting() == 0 {
                // Nobody else wants the resource: the next waiter to queue revokes it.
                self.state.has_overdue = true;
            } else if let Some((slot, fresh)) = self.take_back(key) {
                self.mark_revoked(key, Revoked::Late);
                self.state.counters.revoked += 1;
                self.serve_next(slot, fresh);
            }
        }
        let since = [self.state.revoke_at, next];
        self.state.revoke_at = since.into_iter().flatten().min();
        self.offer_free_slots();
        self.check();
    }

    /// Revokes the offers that waiters have not used in time, while somebody in the queue has
    /// none. The patience is that of reservations.
    pub(super) fn revoke_offers(&mut self) {
        let now = self.clock.now();
        let patience = self.state.wake_to_poll.patience();
        while self.state.first_without_creation().is_some()
            && let Some((key, since)) = self.state.claims.overdue_offer(patience, now)
        {
            let waited = nanos(now.saturating_duration_since(since));
            let granted = self.clock.coarse_now().saturating_sub(waited);
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                waiter.granted = granted;
            }
            self.give_up_creation(key);
            self.mark_revoked(key, Revoked::Late);
            self.state.counters.revoked += 1;
            self.offer_slots();
        }
    }

    /// Revokes the reservation of the youngest waiter, younger than `than`. The waiter queues
    /// again when it is polled. Returns the slot, and whether its resource is fresh.
    pub(super) fn revoke_youngest(&mut self, than: Option<WaiterKey>) -> Option<(usize, bool)> {
        if self.uncollected() == 0 {
            return None;
        }
        loop {
            let key = self.state.waiters.youngest_reserved(than)?;
            // A waiter that collects at this moment has no entry any more: look again.
            if let Some(reserved) = self.take_back(key) {
                self.mark_revoked(key, Revoked::InTime);
                return Some(reserved);
            }
        }
    }

    /// Takes a reserved slot back from its waiter. `None`: nothing is reserved, or the waiter has
    /// just collected it, and then its entry is gone.
    pub(super) fn take_back(&mut self, key: WaiterKey) -> Option<(usize, bool)> {
        let Outcome::Resource { slot, fresh } = self.state.waiters.get(key)?.outcome else {
            return None;
        };
        let index = slot as usize;
        if !self.slots.at(index).take_back() {
            self.state.forget_collected(self.slots.at(index));
            return None;
        }
        self.state.metas[index].reserved_for = None;
        self.state.waiters.retract(key);
        Some((index, fresh))
    }

    /// Notes that a waiter lost its reservation or its offer. It queues again when it is polled;
    /// its wake for the reservation causes that poll.
    pub(super) fn mark_revoked(&mut self, key: WaiterKey, revoked: Revoked) {
        self.state.waiters.unlink_key(key);
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            waiter.revoked = revoked;
        }
    }

    /// Counts the reservations that have not been collected. Drops the entries of waiters that
    /// have collected theirs.
    fn uncollected(&mut self) -> usize {
        let mut uncollected = 0;
        for (_, slot) in self.slots.iter() {
            match slot.word().state() {
                SlotState::Reserved => uncollected += 1,
                SlotState::Idle | SlotState::Leased => self.state.forget_collected(slot),
                // The entry was dropped when the resource left.
                SlotState::Vacant | SlotState::Creating => {}
            }
        }
        uncollected
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    // Good for 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_delay_within_its_bounds() {
        let mut delay = WakeToPoll::default();
        assert_eq!(delay.patience(), Duration::from_millis(50));
        for _ in 0..50 {
            delay.record(1_100_000_000);
        }
        let patience = delay.patience();
        assert!(patience > Duration::from_millis(4300), "{patience:?}");
        for _ in 0..50 {
            delay.record(u64::MAX);
        }
        assert_eq!(delay.patience(), Duration::from_secs(5));
        for _ in 0..200 {
            delay.record(0);
        }
        assert_eq!(delay.nanos, 0);
    }
}
