//! Claimed slots: each has a creation under way, or a waiter that may begin one.
//!
//! ```text
//! offered to a waiter ──> begun ──ended──> free
//!                           │ its acquire has left, or was served otherwise
//!                           v
//!             refill ──> alone ──1 s──> stale ──ended──> free
//! ```
//!
//! A creation whose acquire has left continues and serves the queue, so it counts for the queue and
//! for the creation limit; but only for a second, because a creation that hangs must not keep others
//! from creating. It keeps its slot until it ends.

use std::time::{Duration, Instant};

use crate::core::state::narrow;
use crate::core::waiters::WaiterKey;

/// How long a creation counts for which no acquire waits.
pub(crate) const ALONE_COUNTS_FOR: Duration = Duration::from_secs(1);

/// Identifies one claim of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClaimKey {
    slot: u32,
    serial: u32,
}

impl ClaimKey {
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClaimStage {
    Free,
    /// A waiter may create here, and was woken at this time.
    Offered(WaiterKey, Instant),
    /// An acquire waits for it.
    Begun,
    /// No acquire waits for it. It counts until this time.
    Alone(Instant),
    /// It occupies its slot and counts for nothing else.
    Stale,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    serial: u32,
    stage: ClaimStage,
    /// The acquire that began the creation; `None` if the pool did.
    starter: Option<WaiterKey>,
    began: Option<Instant>,
    /// When the creation exceeds the create timeout.
    ends: Option<Instant>,
}

/// A creation that exceeds the create timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    pub(crate) key: ClaimKey,
    pub(crate) starter: Option<WaiterKey>,
    pub(crate) began: Instant,
}

/// The claimed slots of a pool.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_slot: Vec<Claim>,
    serial: u32,
    /// The number of claimed slots.
    count: usize,
    /// Of these: begun by an acquire, alone, and still counted for the queue.
    orphans: usize,
    /// Of these: stale.
    stale: usize,
    /// When the next of those alone becomes stale.
    due: Option<Instant>,
}

impl Claims {
    /// Returns the number of claimed slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns how many count for the creation limit.
    pub(crate) fn counted(&self) -> usize {
        self.count - self.stale
    }

    /// Returns how many creations serve the queue, besides those of the waiters in it.
    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// Returns when the next creation stops counting.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn claim(&mut self, slot: usize, stage: ClaimStage) {
        let claim = Claim {
            serial: self.serial.wrapping_add(1),
            stage,
            starter: None,
            began: None,
            ends: None,
        };
        self.serial = claim.serial;
        if self.by_slot.len() <= slot {
            let stage = ClaimStage::Free;
            self.by_slot.resize(slot + 1, Claim { stage, ..claim });
        }
        debug_assert_eq!(
            self.by_slot[slot].stage,
            ClaimStage::Free,
            "one slot, one claim"
        );
        self.by_slot[slot] = claim;
        self.count += 1;
    }

    /// Claims a slot for a waiter to create in.
    pub(crate) fn offer(&mut self, slot: usize, to: WaiterKey, now: Instant) {
        self.claim(slot, ClaimStage::Offered(to, now));
    }

    /// Claims a slot for a creation that the pool itself begins.
    pub(crate) fn begin_alone(
        &mut self,
        slot: usize,
        now: Instant,
        ends: Option<Instant>,
    ) -> ClaimKey {
        self.claim(slot, ClaimStage::Begun);
        self.leave_alone(slot, now);
        self.note_begin(slot, now, ends)
    }

    /// Notes that the waiter that was offered a slot begins to create in it.
    pub(crate) fn begin(&mut self, slot: usize, now: Instant, ends: Option<Instant>) -> ClaimKey {
        let claim = &mut self.by_slot[slot];
        if let ClaimStage::Offered(to, _) = claim.stage {
            claim.starter = Some(to);
        }
        claim.stage = ClaimStage::Begun;
        self.note_begin(slot, now, ends)
    }

    fn note_begin(&mut self, slot: usize, now: Instant, ends: Option<Instant>) -> ClaimKey {
        let claim = &mut self.by_slot[slot];
        claim.began = Some(now);
        claim.ends = ends;
        ClaimKey {
            slot: narrow(slot),
            serial: claim.serial,
        }
    }

    /// Returns the waiters with an unused offer, and since when they have it.
    fn offered(&self) -> impl Iterator<Item = (WaiterKey, Instant)> {
        self.by_slot.iter().filter_map(|claim| match claim.stage {
            ClaimStage::Offered(to, since) => Some((to, since)),
            _ => None,
        })
    }

    /// Returns a waiter that has not used its offer within the patience, and since when it has it.
    pub(crate) fn overdue_offer(
        &self,
        patience: Duration,
        now: Instant,
    ) -> Option<(WaiterKey, Instant)> {
        self.offered()
            .find(|&(_, since)| now.saturating_duration_since(since) >= patience)
    }

    /// Returns a younger waiter with an unused offer.
    pub(crate) fn offered_after(&self, key: WaiterKey) -> Option<WaiterKey> {
        let mut offered = self.offered().map(|(to, _)| to);
        offered.find(|to| to.is_after(key))
    }

    /// Returns when the patience for the oldest offer is over.
    pub(crate) fn next_offer_over(&self, patience: Duration) -> Option<Instant> {
        if self.count == 0 {
            return None;
        }
        let oldest = self.offered().map(|(_, since)| since).min()?;
        oldest.checked_add(patience)
    }

    /// Returns since when a slot has been on offer.
    pub(crate) fn offered_since(&self, slot: usize) -> Option<Instant> {
        match self.by_slot.get(slot)?.stage {
            ClaimStage::Offered(_, since) => Some(since),
            _ => None,
        }
    }

    /// Notes that the acquire no longer waits for the creation in this slot.
    pub(crate) fn orphan(&mut self, slot: usize, now: Instant) {
        debug_assert_eq!(self.by_slot[slot].stage, ClaimStage::Begun);
        self.orphans += 1;
        self.leave_alone(slot, now);
    }

    fn leave_alone(&mut self, slot: usize, now: Instant) {
        let until = now + ALONE_COUNTS_FOR;
        self.by_slot[slot].stage = ClaimStage::Alone(until);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    /// Stops counting the creations that have been alone for too long.
    pub(crate) fn age(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for claim in &mut self.by_slot {
            let ClaimStage::Alone(until) = claim.stage else {
                continue;
            };
            if until <= now {
                claim.stage = ClaimStage::Stale;
                self.stale += 1;
                self.orphans -= usize::from(claim.starter.is_some());
            } else {
                self.due = Some(self.due.map_or(until, |due| due.min(until)));
            }
        }
    }

    /// Returns whether this claim still stands. If not, its slot went to another.
    pub(crate) fn stands(&self, key: ClaimKey) -> bool {
        let claim = self.by_slot.get(key.slot());
        claim.is_some_and(|claim| claim.serial == key.serial && claim.stage != ClaimStage::Free)
    }

    /// Ends a claim: a resource is in the slot, or the slot is free.
    pub(crate) fn end(&mut self, slot: usize) {
        let claim = &mut self.by_slot[slot];
        match claim.stage {
            ClaimStage::Alone(_) => self.orphans -= usize::from(claim.starter.is_some()),
            ClaimStage::Stale => self.stale -= 1,
            _ => {}
        }
        claim.stage = ClaimStage::Free;
        claim.ends = None;
        self.count -= 1;
    }

    /// Returns a creation that exceeds the create timeout, if there is one.
    pub(crate) fn overdue(&self, now: Instant) -> Option<Overdue> {
        let mut claims = self.by_slot.iter().zip(0..);
        claims.find_map(|(claim, slot)| {
            claim.ends.filter(|&ends| ends <= now)?;
            let serial = claim.serial;
            Some(Overdue {
                key: ClaimKey { slot, serial },
                starter: claim.starter,
                began: claim.began?,
            })
        })
    }

    /// Returns when the next creation exceeds the create timeout.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        match self.count {
            0 => None,
            _ => self.by_slot.iter().filter_map(|claim| claim.ends).min(),
        }
    }
}
