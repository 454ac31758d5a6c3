//! Acquiring: the lock-free way first, then the queue.

use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::core::{Core, Filled, Held, signal};
use crate::create::Creation;
use crate::error::{AcquireError, Phase, Timeout};
use crate::events::{DestroyReason, Event, Hook};
use crate::hint;
use crate::log;
use crate::manager::Manager;
use crate::slot::{self, Slot};
use crate::state::{Arrival, Looked, Patience};
use crate::waiters::WaiterKey;

impl<M: Manager> Core<M> {
    /// Takes an idle resource without the lock: the one this thread used last,
    /// else the one that was not used for longest. Finds nothing while somebody
    /// waits, the breaker is not closed, the pool is, or anybody watches.
    #[inline]
    fn take_unlocked(&self, caller: &'static Location<'static>) -> Option<&Slot<Filled<M>>> {
        let slot = match hint::last_slot(self) {
            Some(slot) if slot.take() => slot,
            _ => self.take_oldest()?,
        };
        slot.note_holder(caller, self.runtime.coarse_now());
        Some(slot)
    }

    #[cold]
    fn take_oldest(&self) -> Option<&Slot<Filled<M>>> {
        // Nothing is idle then, and looking would only disturb the holders.
        if self.signals() & signal::QUEUED != 0 {
            return None;
        }
        loop {
            let (_, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| {
                    let word = slot.word();
                    word.phase() == slot::Phase::Idle && !word.summoned()
                })
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to somebody who took it: look again.
            if slot.take() {
                hint::used(self, slot);
                return Some(slot);
            }
        }
    }

    /// Acquires; the slot is leased to the caller, who owns it. `None` if it
    /// would not wait and there is nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the queue, it passes on what it was given; dropped in the
    /// acquire hook, the resource is destroyed.
    #[inline]
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
        patience: Patience,
    ) -> Result<Option<&Slot<Filled<M>>>, AcquireError<M::Error>> {
        let mut wait = None;
        let mut taken = self.take_unlocked(caller).map(|slot| (slot, false));
        loop {
            let (slot, fresh) = match taken {
                Some(taken) => taken,
                None => {
                    let wait = Wait::begin(&mut wait, self, caller, timeout, patience);
                    // A cancel here drops `wait`, which leaves the queue and
                    // passes on what it was given.
                    match poll_fn(|cx| wait.poll(cx)).await? {
                        Some(taken) => taken,
                        None => return Ok(None),
                    }
                }
            };
            if fresh && let Some(wait) = &mut wait {
                wait.served(slot);
                return Ok(Some(slot));
            }
            // A cancel here drops `unchecked`, which destroys the resource.
            let mut unchecked = Unchecked { core: self, slot };
            let answer =
                if let Some(answer) = self.call_plain_before_acquire(unchecked.resource()) {
                    answer
                } else {
                    let mut hook = pin!(self.call_before_acquire(unchecked.resource()));
                    poll_fn(|cx| match hook.as_mut().poll(cx) {
                        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
                        Poll::Pending => Wait::begin(&mut wait, self, caller, timeout, patience)
                            .check_deadline(cx),
                    })
                    .await?
                };
            match answer {
                Ok(()) => {
                    let slot = unchecked.passed();
                    match &mut wait {
                        Some(wait) => wait.served(slot),
                        None => slot.count_lease(),
                    }
                    return Ok(Some(slot));
                }
                Err(refusal) => {
                    let index = slot.index();
                    unchecked.passed();
                    let held = Held::new(self, index);
                    let condemned = held.condemn(DestroyReason::AcquireRejected);
                    if let Some(error) = refusal {
                        self.hook_failed(index, Hook::BeforeAcquire, error);
                    }
                    let wait = Wait::begin(&mut wait, self, caller, timeout, patience);
                    // Back in the queue first, so that the place it frees comes to us.
                    let again = poll_fn(|cx| Poll::Ready(wait.again(cx))).await;
                    condemned.destroy_in_background();
                    taken = again?;
                }
            }
        }
    }

    /// Tells whom it concerns that a hook failed with an error.
    pub(crate) fn hook_failed(&self, index: usize, hook: Hook, error: Arc<str>) {
        let resource = self.state().metas[index].id;
        log::hook_failed(self.name(), resource, &error);
        self.tell(&Event::HookFailed {
            resource,
            hook,
            error,
        });
    }
}

/// A resource in the acquire hook. Dropping it destroys the resource: the hook
/// was cut off, so its state is unknown.
struct Unchecked<'a, M: Manager> {
    core: &'a Arc<Core<M>>,
    slot: &'a Slot<Filled<M>>,
}

impl<'a, M: Manager> Unchecked<'a, M> {
    fn resource(&mut self) -> &mut M::Resource {
        // SAFETY: this guard owns the slot, and is borrowed mutably.
        let filled = unsafe { self.slot.value_mut() };
        &mut filled.expect("a taken slot has a resource").resource
    }

    fn passed(self) -> &'a Slot<Filled<M>> {
        ManuallyDrop::new(self).slot
    }
}

impl<M: Manager> Drop for Unchecked<'_, M> {
    fn drop(&mut self) {
        drop(Held::new(self.core, self.slot.index()));
    }
}

/// An acquire that could not be served without the lock, or whose hook waits.
/// Dropping it leaves the queue.
struct Wait<'a, M: Manager> {
    core: &'a Arc<Core<M>>,
    arrival: Arrival,
    key: Option<WaiterKey>,
    /// When it began to wait, by the coarse clock; and by the precise one, where
    /// there is a deadline or a histogram.
    began: u64,
    began_precisely: Option<Instant>,
}

/// A slot, and whether its resource is fresh.
type Taken<'a, M> = (&'a Slot<Filled<M>>, bool);

type Acquired<T, M> = Result<T, AcquireError<<M as Manager>::Error>>;

impl<'a, M: Manager> Wait<'a, M> {
    /// The deadline is reckoned from the moment an acquire begins to wait.
    #[inline]
    fn begin<'w>(
        wait: &'w mut Option<Self>,
        core: &'a Arc<Core<M>>,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
        patience: Patience,
    ) -> &'w mut Self {
        wait.get_or_insert_with(|| {
            let now = (timeout.is_some() || core.histograms.is_some()).then(|| core.now());
            Wait {
                core,
                arrival: Arrival {
                    caller,
                    deadline: timeout.and_then(|timeout| now?.checked_add(timeout)),
                    hint: None,
                    patience,
                    refused: false,
                    serial: None,
                },
                key: None,
                began: core.runtime.coarse_now(),
                began_precisely: now,
            }
        })
    }

    /// Waits for a slot; `None` if it would not wait and there is none.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Acquired<Option<Taken<'a, M>>, M>> {
        let core = self.core;
        let mut looked = match self.key {
            Some(key) => self.look(key, cx),
            None => {
                core.consider_recovery();
                self.arrival.hint = hint::last_slot(core).map(Slot::index);
                core.turn(|turn| turn.enter(&self.arrival, cx.waker()))
            }
        };
        loop {
            self.key = None;
            return Poll::Ready(match looked {
                Looked::Waiting(key) => {
                    self.key = Some(key);
                    return Poll::Pending;
                }
                Looked::Create(key, index) => {
                    self.key = Some(key);
                    // Counts on its own from here on; then see what came of it.
                    Creation::new(core, index, Some(key)).start();
                    looked = self.look(key, cx);
                    continue;
                }
                Looked::Taken {
                    slot,
                    fresh,
                    serial,
                } => {
                    self.arrival.serial = serial;
                    Ok(Some((core.slots.at(slot), fresh)))
                }
                Looked::Exhausted => Ok(None),
                Looked::Failed(failure) => Err(failure.into_error()),
                Looked::Closed => Err(AcquireError::Closed),
                Looked::Unavailable => Err(AcquireError::Unavailable),
                Looked::TimedOut { creating: false } => Err(self.timed_out(Phase::Waiting)),
                Looked::TimedOut { creating: true } => Err(self.timed_out(Phase::Creating)),
            });
        }
    }

    fn look(
        &mut self,
        key: WaiterKey,
        cx: &mut Context<'_>,
    ) -> Looked<crate::core::CreateFailure<M::Error>> {
        self.core.turn(|turn| turn.look(key, cx.waker()))
    }

    /// The acquire hook waits: minds the deadline meanwhile.
    fn check_deadline<T>(&mut self, cx: &mut Context<'_>) -> Poll<Acquired<T, M>> {
        if self.arrival.deadline.is_none() {
            return Poll::Pending;
        }
        let core = self.core;
        let key = match self.key {
            Some(key) => key,
            None => core.turn(|turn| {
                let key = turn.admit_waiter(&self.arrival);
                if let Some(waiter) = turn.state.waiters.get_mut(key) {
                    waiter.checking = true;
                }
                *self.key.insert(key)
            }),
        };
        match self.look(key, cx) {
            Looked::TimedOut { .. } => {
                self.key = None;
                Poll::Ready(Err(self.timed_out(Phase::Checking)))
            }
            _ => Poll::Pending,
        }
    }

    /// The hook refused the resource: waits again, ahead of all who came later.
    fn again(&mut self, cx: &mut Context<'_>) -> Acquired<Option<Taken<'a, M>>, M> {
        self.leave();
        self.arrival.refused = true;
        if self.arrival.patience != Patience::Queue {
            // It looks anew for what there is, once the place is free.
            return Ok(None);
        }
        match self.poll(cx) {
            Poll::Ready(taken) => taken,
            Poll::Pending => Ok(None),
        }
    }

    /// The acquire has its lease.
    fn served(&mut self, slot: &Slot<Filled<M>>) {
        self.leave();
        let core = self.core;
        let caller = self.arrival.caller;
        slot.count_lease();
        let now = core.runtime.coarse_now();
        slot.note_holder(caller, now);
        hint::used(core, slot);
        let mut waited = Duration::from_nanos(now.saturating_sub(self.began));
        if let (Some(histograms), Some(began)) = (&core.histograms, self.began_precisely) {
            waited = core.now().saturating_duration_since(began);
            histograms.wait.record(waited);
        }
        if core.signals() & signal::OBSERVED != 0 {
            let resource = core.state().metas[slot.index()].id;
            core.tell(&Event::Acquired {
                resource,
                caller,
                waited,
            });
        }
        let slow = core.config.slow_acquire_warning;
        if slow.is_some_and(|slow| waited >= slow) {
            log::slow_acquire(core.name(), waited, caller);
        }
    }

    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.core.turn(|turn| turn.leave(key));
        }
    }

    /// The story of a deadline that passed.
    fn timed_out(&self, phase: Phase) -> AcquireError<M::Error> {
        let core = self.core;
        let mut holders = core.holders();
        holders.truncate(3);
        let caller = self.arrival.caller;
        let timeout = core.turn(|turn| {
            let now = turn.clock.now();
            let began = self.began_precisely.unwrap_or(now);
            turn.state.counters.timed_out += 1;
            turn.note(|| Event::TimedOut { caller, phase });
            Timeout {
                phase,
                waited: now.saturating_duration_since(began),
                status: turn.state.status(turn.slots),
                last_creation_error: turn.state.last_creation_error.clone(),
                oldest_holders: holders,
            }
        });
        AcquireError::Timeout(Box::new(timeout))
    }
}

impl<M: Manager> Drop for Wait<'_, M> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        self.core.turn(|turn| {
            let waiter = turn.state.waiters.get(key);
            if waiter.is_some_and(|waiter| !waiter.checking) {
                turn.state.counters.cancelled += 1;
            }
            turn.leave(key);
        });
    }
}
