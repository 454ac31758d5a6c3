//! Who joins the queue, and where: new acquires at the back, waiters that had been served with
//! something unfit at their former position.
//!
//! Every join is [`Waiters::insert`] and [`Waiters::link`]. Two paths lead to them: [`Locked::enter`],
//! which decides everything, and [`State::join`], the short path of a full pool with a queue,
//! which leaves out the steps that [`State::allows_short_paths`] has ruled out.
//!
//! [`Waiters::insert`]: crate::core::waiters::Waiters::insert
//! [`Waiters::link`]: crate::core::waiters::Waiters::link

use std::num::NonZeroU64;
use std::task::Waker;

use super::{AcquireMode, Arrival, Locked, PolledWaker, Progress, State};
use crate::acquire::wait::Wait;
use crate::breaker::{Admission, BreakerState};
use crate::core::slot::SlotState;
use crate::core::waiters::{Newcomer, Outcome, Position, WaiterKey};

impl<F> State<F> {
    /// Joins the back of the queue, if nothing else is to be decided. `None`: nothing has changed,
    /// and [`Locked::enter`] has to decide.
    #[inline(always)]
    pub(crate) fn join(&mut self, wait: &Wait, waker: &mut Option<Waker>) -> Option<WaiterKey> {
        let deadline = wait.deadline();
        if !self.short_paths
            || self.waiters.waiting() == 0
            || self.waiters.without_creation() >= self.max_waiting
            || deadline.is_some_and(|deadline| !self.maintenance_comes_before(deadline))
        {
            return None;
        }
        let key = self.waiters.insert(Newcomer {
            caller: wait.caller,
            began: wait.began(),
            deadline,
            serial: None,
            waker: waker.take(),
            counted: true,
            probe: None,
        });
        self.waiters.link(key, Position::Back);
        self.counters.waited += 1;
        Some(key)
    }
}

impl<T, F> Locked<'_, T, F> {
    /// Serves an acquire that arrives, or lets it wait.
    pub(crate) fn enter(&mut self, arrival: &Arrival, waker: &mut PolledWaker<'_>) -> Progress<F> {
        if self.state.closed {
            return Progress::Closed;
        }
        self.restart_maintenance();
        // An acquire whose resource the hook refused was admitted before.
        let is_open = self.state.breaker.state() == BreakerState::Open;
        let probe = if arrival.refused && !is_open {
            None
        } else {
            match self.state.breaker.admit(|| self.clock.now()) {
                Admission::Refused => return self.unavailable(),
                Admission::Free => None,
                Admission::Probe(probe) => Some(probe),
            }
        };
        if let Some(slot) = self.take_idle(arrival.hint) {
            if probe.is_some() {
                self.state.metas[slot].probe = probe;
            }
            return Progress::Taken {
                slot,
                fresh: false,
                serial: None,
            };
        }
        match arrival.mode {
            AcquireMode::Queue => {}
            AcquireMode::Create
                if self.state.may_create(self.clock.now())
                    && self.state.first_without_creation().is_none() => {}
            AcquireMode::Idle | AcquireMode::Create => {
                self.end_probe(probe, None);
                return Progress::Exhausted;
            }
        }
        let newcomer = Newcomer {
            waker: waker.take(),
            probe: probe.and_then(NonZeroU64::new),
            ..arrival.newcomer()
        };
        let key = self.admit_waiter(newcomer);
        if arrival.mode == AcquireMode::Create {
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                waiter.only_own_creation = true;
            }
            self.offer_slot(key);
        } else {
            self.queue(key, Position::Back);
            if !arrival.refused
                && let Some(full) = self.turn_away(key)
            {
                return full;
            }
        }
        self.progress(key, arrival.caller, waker)
    }

    /// Turns a newcomer away that would have to wait for others, if the queue is full.
    fn turn_away(&mut self, key: WaiterKey) -> Option<Progress<F>> {
        let limit = self.state.max_waiting;
        let waiting = self.state.waiters.without_creation();
        if waiting <= limit || !self.state.waiters.get(key)?.lacks_everything() {
            return None;
        }
        self.state.counters.rejected += 1;
        self.leave(key);
        Some(Progress::QueueFull {
            waiting: waiting - 1,
            limit,
        })
    }

    /// Queues an acquire again whose resource the hook refused. `None`: the pool was closed or its
    /// breaker opened meanwhile, and the acquire has to enter anew.
    pub(crate) fn queue_refused(
        &mut self,
        arrival: &Arrival,
        waker: &mut Option<Waker>,
    ) -> Option<WaiterKey> {
        if self.state.closed || self.state.breaker.state() == BreakerState::Open {
            return None;
        }
        let newcomer = Newcomer {
            waker: waker.take(),
            ..arrival.newcomer()
        };
        let key = self.admit_waiter(newcomer);
        self.queue_again(key, arrival.serial.is_some());
        Some(key)
    }

    /// Adds an entry for an acquire whose hook is pending. Only its deadline counts.
    pub(crate) fn admit_checking(&mut self, arrival: &Arrival) -> WaiterKey {
        let key = self.admit_waiter(arrival.newcomer());
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            waiter.checking = true;
        }
        key
    }

    /// Adds an entry that is not queued yet.
    fn admit_waiter(&mut self, newcomer: Newcomer) -> WaiterKey {
        let deadline = newcomer.deadline;
        let key = self.state.waiters.insert(newcomer);
        if let Some(deadline) = deadline {
            self.call_maintenance(deadline);
        }
        key
    }

    /// Queues a waiter and serves it, if anything is available.
    fn queue(&mut self, key: WaiterKey, position: Position) {
        // While somebody waits, every leased slot is flagged already (I2).
        let is_first = self.state.waiters.waiting() == 0;
        self.state.waiters.link(key, position);
        if is_first {
            self.flag_leases_for_queue();
            if self.state.has_overdue {
                self.revoke_uncollected();
            }
        }
        self.offer_free_slots();
        self.check();
    }

    /// Queues a waiter again that was served with something unfit: at its former position, or at
    /// the front if it had been served without queueing.
    pub(super) fn queue_again(&mut self, key: WaiterKey, was_queued: bool) {
        let position = match was_queued {
            true => Position::Arrival,
            false => Position::Front,
        };
        self.queue(key, position);
        let waiter = self.state.waiters.get(key);
        let waits = waiter.is_some_and(|waiter| matches!(waiter.outcome, Outcome::Waiting));
        if waits
            && was_queued
            && let Some((slot, fresh)) = self.revoke_youngest(Some(key))
        {
            // A younger waiter had a reservation, which is due to this one.
            self.serve_next(slot, fresh);
            self.offer_free_slots();
            self.check();
        }
    }

    /// Flags every leased slot, and serves the queue with those that turn out to be idle: they
    /// came back after the acquire had looked.
    fn flag_leases_for_queue(&mut self) {
        for (index, slot) in self.slots.iter() {
            if slot.set_must_lock() == SlotState::Idle && slot.take_locked() {
                self.state.forget_idle(index);
                slot.note_pool();
                self.serve_next(index, false);
            }
            if self.state.waiters.waiting() == 0 {
                break;
            }
        }
    }
}
