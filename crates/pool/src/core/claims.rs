//! Claimed places: each has a creation under way, or a waiter that may begin one.
//!
//! ```text
//! offered to a waiter ──> begun ──ended──> free
//!                           │ its acquire has left, or was served by another
//!                           v
//!             refill ──> alone ──1 s──> stale ──ended──> free
//! ```
//!
//! A creation whose acquire has gone goes on and serves the queue, so it counts
//! for the queue and for the limit on creations; but only for a second: one that
//! hangs must not keep others from creating. Its place it keeps until it ends.

use std::time::{Duration, Instant};

use crate::core::state::narrow;
use crate::core::waiters::WaiterKey;

/// How long a creation counts that no acquire waits for.
pub(crate) const ALONE_COUNTS_FOR: Duration = Duration::from_secs(1);

/// Names one claim of a place among all of them.
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
enum Stage {
    Free,
    /// A waiter may create here, and was woken for it then.
    Offered(WaiterKey, Instant),
    /// An acquire waits for it.
    Begun,
    /// Nobody does. Counts until then.
    Alone(Instant),
    /// Counts for nothing but its place.
    Stale,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    serial: u32,
    stage: Stage,
    /// The acquire that began the creation; `None` for the pool's own.
    starter: Option<WaiterKey>,
    began: Option<Instant>,
    /// When the creation has taken too long.
    ends: Option<Instant>,
}

/// A creation that has taken too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    pub(crate) key: ClaimKey,
    pub(crate) starter: Option<WaiterKey>,
    pub(crate) began: Instant,
}

/// The claimed places of a pool, by slot.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_slot: Vec<Claim>,
    serial: u32,
    /// Claimed places.
    count: usize,
    /// Of these: alone, begun by an acquire, and still counted for the queue.
    orphans: usize,
    /// Of these: stale.
    stale: usize,
    /// When the first of those alone is stale.
    due: Option<Instant>,
}

impl Claims {
    /// How many places are claimed.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many count for the limit on creations.
    pub(crate) fn counted(&self) -> usize {
        self.count - self.stale
    }

    /// How many creations serve the queue, beside those of the waiters in it.
    pub(crate) fn orphans(&self) -> usize {
        self.orphans
    }

    /// When fewer count than now.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    fn claim(&mut self, slot: usize, stage: Stage) {
        let claim = Claim {
            serial: self.serial.wrapping_add(1),
            stage,
            starter: None,
            began: None,
            ends: None,
        };
        self.serial = claim.serial;
        if self.by_slot.len() <= slot {
            let stage = Stage::Free;
            self.by_slot.resize(slot + 1, Claim { stage, ..claim });
        }
        debug_assert_eq!(
            self.by_slot[slot].stage,
            Stage::Free,
            "one place, one claim"
        );
        self.by_slot[slot] = claim;
        self.count += 1;
    }

    /// Claims a place for a waiter to create in.
    pub(crate) fn offer(&mut self, slot: usize, to: WaiterKey, now: Instant) {
        self.claim(slot, Stage::Offered(to, now));
    }

    /// Claims a place for a creation that the pool itself begins.
    pub(crate) fn begin_alone(
        &mut self,
        slot: usize,
        now: Instant,
        ends: Option<Instant>,
    ) -> ClaimKey {
        self.claim(slot, Stage::Begun);
        self.leave_alone(slot, now);
        self.note_begin(slot, now, ends)
    }

    /// The waiter that was offered a place begins to create in it.
    pub(crate) fn begin(&mut self, slot: usize, now: Instant, ends: Option<Instant>) -> ClaimKey {
        let claim = &mut self.by_slot[slot];
        if let Stage::Offered(to, _) = claim.stage {
            claim.starter = Some(to);
        }
        claim.stage = Stage::Begun;
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

    /// The waiters that were offered a place and have not begun to use it, and since
    /// when.
    fn offered(&self) -> impl Iterator<Item = (WaiterKey, Instant)> {
        self.by_slot.iter().filter_map(|claim| match claim.stage {
            Stage::Offered(to, since) => Some((to, since)),
            _ => None,
        })
    }

    /// A waiter that has not begun to use its place in so much time, and since when it
    /// has it.
    pub(crate) fn overdue_offer(
        &self,
        patience: Duration,
        now: Instant,
    ) -> Option<(WaiterKey, Instant)> {
        self.offered()
            .find(|&(_, since)| now.saturating_duration_since(since) >= patience)
    }

    /// A waiter that came later than this one and has not begun to use its place.
    pub(crate) fn offered_after(&self, key: WaiterKey) -> Option<WaiterKey> {
        let mut offered = self.offered().map(|(to, _)| to);
        offered.find(|to| to.is_after(key))
    }

    /// When the oldest offer is this old.
    pub(crate) fn next_offer_over(&self, patience: Duration) -> Option<Instant> {
        if self.count == 0 {
            return None;
        }
        let oldest = self.offered().map(|(_, since)| since).min()?;
        oldest.checked_add(patience)
    }

    /// Since when a waiter has been offered this place.
    pub(crate) fn offered_since(&self, slot: usize) -> Option<Instant> {
        match self.by_slot.get(slot)?.stage {
            Stage::Offered(_, since) => Some(since),
            _ => None,
        }
    }

    /// The acquire that waited for the creation in this place does so no more.
    pub(crate) fn orphan(&mut self, slot: usize, now: Instant) {
        debug_assert_eq!(self.by_slot[slot].stage, Stage::Begun);
        self.orphans += 1;
        self.leave_alone(slot, now);
    }

    fn leave_alone(&mut self, slot: usize, now: Instant) {
        let until = now + ALONE_COUNTS_FOR;
        self.by_slot[slot].stage = Stage::Alone(until);
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
    }

    /// Counts those no more that have been alone for too long.
    pub(crate) fn age(&mut self, now: Instant) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.due = None;
        for claim in &mut self.by_slot {
            let Stage::Alone(until) = claim.stage else {
                continue;
            };
            if until <= now {
                claim.stage = Stage::Stale;
                self.stale += 1;
                self.orphans -= usize::from(claim.starter.is_some());
            } else {
                self.due = Some(self.due.map_or(until, |due| due.min(until)));
            }
        }
    }

    /// Whether this claim still stands. If not, its place has gone to another.
    pub(crate) fn stands(&self, key: ClaimKey) -> bool {
        let claim = self.by_slot.get(key.slot());
        claim.is_some_and(|claim| claim.serial == key.serial && claim.stage != Stage::Free)
    }

    /// A claim ends: a resource is in the place, or it is free.
    pub(crate) fn end(&mut self, slot: usize) {
        let claim = &mut self.by_slot[slot];
        match claim.stage {
            Stage::Alone(_) => self.orphans -= usize::from(claim.starter.is_some()),
            Stage::Stale => self.stale -= 1,
            _ => {}
        }
        claim.stage = Stage::Free;
        claim.ends = None;
        self.count -= 1;
    }

    /// A creation that has taken too long, if there is one.
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

    /// When the next creation has taken too long.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        match self.count {
            0 => None,
            _ => self.by_slot.iter().filter_map(|claim| claim.ends).min(),
        }
    }
}
