//! Two short cuts, for a pool that is full and has a queue: to join the queue, and
//! to hand a resource over to its head.
//!
//! Both do exactly what a turn would do ([`State::is_ordinary`] says when), only
//! without asking for everything that is not so. Where it is not so, they do
//! nothing, and the caller takes a turn. In a crowd each checkout needs one of
//! each, and the time under the lock is what everybody else waits for.

use std::task::Waker;
use std::time::Instant;

use crate::core::grants::Grant;
use crate::core::slot::{Phase, Slot};
use crate::core::state::narrow;
use crate::core::waiters::{Newcomer, Position, WaiterKey};
use crate::core::{Core, Filled, wake};
use crate::manager::Manager;

impl<M: Manager> Core<M> {
    /// Joins the queue behind those who wait already, and leaves the waker there.
    /// `None`: take a turn.
    #[inline]
    pub(crate) fn queue_behind(
        &self,
        deadline: Option<Instant>,
        waker: &mut Option<Waker>,
    ) -> Option<WaiterKey> {
        let mut state = self.state();
        if !state.ordinary || state.waiters.waiting() == 0 {
            return None;
        }
        if state.waiters.without_creation() >= state.max_waiting {
            return None;
        }
        if deadline.is_some_and(|deadline| !state.maintenance_comes_before(deadline)) {
            return None;
        }
        let key = state.waiters.insert(Newcomer {
            deadline,
            serial: None,
            waker: waker.take(),
            counted: true,
            probe: None,
        });
        state.waiters.link(key, Position::Back);
        state.counters.waited += 1;
        state.check(&self.slots);
        Some(key)
    }

    /// Hands a slot that the caller owns over to the head of the queue.
    /// `false`: take a turn.
    #[inline]
    pub(crate) fn hand_over(&self, slot: &Slot<Filled<M>>) -> bool {
        // Before the lock: others need not wait for us to read it.
        let now = self.runtime.coarse_now();
        let mut guard = self.state();
        let state = &mut *guard;
        // Two at least: so there is a queue afterwards, too, and no signal changes.
        if !state.ordinary || state.waiters.waiting() < 2 {
            return false;
        }
        let meta = &mut state.metas[slot.index()];
        if meta.is_special() || !state.waiters.head_needs_only_a_resource() {
            return false;
        }
        meta.forget_collected(slot, &mut state.waiters, &mut state.wake_to_poll);
        let grant = Grant {
            slot: narrow(slot.index()),
            ticket: slot.set(Phase::Reserved, false).ticket(),
        };
        let Some((key, waker)) = state.waiters.grant_to_head(grant, now) else {
            unreachable!("two wait");
        };
        meta.reserved_for = Some(key);
        state.check(&self.slots);
        drop(guard);
        if let Some(waker) = waker {
            wake(waker);
        }
        true
    }
}
