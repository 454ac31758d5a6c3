//! Acquiring: the lock-free way first, then the queue.

use std::future::poll_fn;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::core::{Core, Held};
use crate::create::Creation;
use crate::error::{AcquireError, Phase, Timeout};
use crate::events::{DestroyReason, Event, Hook};
use crate::hint;
use crate::log;
use crate::manager::Manager;
use crate::slot;
use crate::state::{Arrival, Entered, Looked, Patience};
use crate::waiters::{Position, WaiterKey};

impl<M: Manager> Core<M> {
    /// Takes an idle resource without the lock: the one this thread used last,
    /// else the one that was not used for longest. Finds nothing while somebody
    /// waits, the breaker is not closed, the pool is, or anybody watches.
    #[inline]
    pub(crate) fn take_unlocked(&self, caller: &'static Location<'static>) -> Option<usize> {
        if let Some(index) = hint::last_slot(self.id)
            && let Some(slot) = self.slots.get(index)
            && slot.take()
        {
            self.note_holder(slot, caller);
            return Some(index);
        }
        self.take_oldest(caller)
    }

    fn take_oldest(&self, caller: &'static Location<'static>) -> Option<usize> {
        loop {
            let (index, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| {
                    let word = slot.word();
                    word.phase() == slot::Phase::Idle && !word.summoned()
                })
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to somebody who took it: look again.
            if slot.take() {
                self.note_holder(slot, caller);
                hint::used(self.id, index);
                return Some(index);
            }
        }
    }

    /// Acquires; the slot is leased to the caller, who owns it.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the queue, it passes on what it was given; dropped in the
    /// acquire hook, the resource is destroyed.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
        patience: Patience,
    ) -> Result<Option<usize>, AcquireError<M::Error>> {
        let arrival = Arrival {
            caller,
            timeout,
            hint: None,
            position: Position::Back,
            patience,
        };
        let mut wait = Wait {
            core: self,
            arrival,
            key: None,
            began: None,
        };
        let mut taken = self.take_unlocked(caller).map(|index| (index, false));
        loop {
            let (index, fresh) = match taken.take() {
                Some(taken) => taken,
                // A cancel here drops `wait`, which leaves the queue and passes
                // on what it was given.
                None => match poll_fn(|cx| wait.poll(cx)).await? {
                    Some(taken) => taken,
                    None => return Ok(None),
                },
            };
            let mut held = Held::new(self, index);
            if fresh {
                wait.finish(&mut held);
                return Ok(Some(held.into_index()));
            }
            // A cancel here drops `held`, which destroys the resource.
            match wait.check(&mut held).await? {
                Ok(()) => {
                    wait.finish(&mut held);
                    return Ok(Some(held.into_index()));
                }
                Err(refusal) => {
                    let condemned = held.condemn(DestroyReason::AcquireRejected);
                    if let Some(error) = refusal {
                        self.hook_failed(index, Hook::BeforeAcquire, error);
                    }
                    // Back in the queue first, so that the place it frees comes to us.
                    let again = wait.again();
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

/// An acquire that could not be served without the lock. Dropping it leaves the
/// queue.
struct Wait<'a, M: Manager> {
    core: &'a Arc<Core<M>>,
    arrival: Arrival,
    key: Option<WaiterKey>,
    /// When it came by the lock first.
    began: Option<Instant>,
}

type Taken = (usize, bool);

impl<M: Manager> Wait<'_, M> {
    /// Waits for a slot; `None` if it would not wait and there is none.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Taken>, AcquireError<M::Error>>> {
        let core = self.core;
        let key = match self.key {
            Some(key) => key,
            None => match self.enter() {
                Entered::Taken(slot) => return Poll::Ready(Ok(Some((slot, false)))),
                Entered::Queued(key) => *self.key.insert(key),
                Entered::Exhausted => return Poll::Ready(Ok(None)),
                Entered::Closed => return Poll::Ready(Err(AcquireError::Closed)),
                Entered::Unavailable => return Poll::Ready(Err(AcquireError::Unavailable)),
            },
        };
        loop {
            let looked = core.turn(|turn| turn.look(key, cx.waker()));
            let error = match looked {
                Looked::Waiting { .. } => return Poll::Pending,
                Looked::Taken { slot, fresh } => return Poll::Ready(Ok(Some((slot, fresh)))),
                Looked::Create(index) => {
                    // Counts on its own from here on; then see what came of it.
                    Creation::new(core, index, Some(key)).start();
                    continue;
                }
                Looked::Failed(failure) => failure.into_error(),
                Looked::Closed => AcquireError::Closed,
                Looked::Unavailable => AcquireError::Unavailable,
                Looked::TimedOut => self.timeout(Phase::Waiting),
            };
            self.key = None;
            drop(core.turn(|turn| turn.leave(key)));
            return Poll::Ready(Err(error));
        }
    }

    fn enter(&mut self) -> Entered {
        let core = self.core;
        core.consider_recovery();
        self.arrival.hint = hint::last_slot(core.id);
        let now = core.now();
        self.began.get_or_insert(now);
        core.turn(|turn| turn.enter(&self.arrival))
    }

    /// Runs the acquire hook, within the deadline.
    async fn check(
        &mut self,
        held: &mut Held<M, &Arc<Core<M>>>,
    ) -> Result<Result<(), Option<Arc<str>>>, AcquireError<M::Error>> {
        let core = self.core;
        let began = core.histograms.is_some().then(|| core.now());
        let mut hook = pin!(core.call_before_acquire(held.resource()));
        let answer = poll_fn(|cx| {
            if let Poll::Ready(answer) = hook.as_mut().poll(cx) {
                return Poll::Ready(Ok(answer));
            }
            // Only a hook that waits needs an entry, for its deadline.
            let key = match self.key {
                Some(key) => key,
                None if self.arrival.timeout.is_none() => return Poll::Pending,
                None => {
                    let now = core.now();
                    self.began.get_or_insert(now);
                    let key = core.turn(|turn| {
                        let key = turn.admit_waiter(&self.arrival, None);
                        if let Some(waiter) = turn.state.waiters.get_mut(key) {
                            waiter.checking = true;
                        }
                        key
                    });
                    *self.key.insert(key)
                }
            };
            match core.turn(|turn| turn.look(key, cx.waker())) {
                Looked::TimedOut => Poll::Ready(Err(self.timeout(Phase::Checking))),
                _ => Poll::Pending,
            }
        })
        .await;
        if let (Some(histograms), Some(began)) = (&core.histograms, began) {
            let took = core.now().saturating_duration_since(began);
            histograms.check.record(took);
        }
        answer
    }

    /// The hook refused the resource: waits again, ahead of all who came later.
    fn again(&mut self) -> Result<Option<Taken>, AcquireError<M::Error>> {
        let core = self.core;
        // One that found its resource without the lock came when nobody waited,
        // so it too was there before everybody who may be in the queue by now.
        self.arrival.position = Position::Front;
        match self.key {
            Some(key) if self.arrival.patience == Patience::Queue => {
                core.turn(|turn| turn.requeue(key));
            }
            // One that never queues looks anew for what there is.
            Some(key) => {
                self.key = None;
                drop(core.turn(|turn| turn.leave(key)));
            }
            None if self.arrival.patience == Patience::Queue => match self.enter() {
                Entered::Taken(slot) => return Ok(Some((slot, false))),
                Entered::Queued(key) => self.key = Some(key),
                Entered::Exhausted => {}
                Entered::Closed => return Err(AcquireError::Closed),
                Entered::Unavailable => return Err(AcquireError::Unavailable),
            },
            None => {}
        }
        Ok(None)
    }

    /// The acquire is served.
    fn finish(&mut self, held: &mut Held<M, &Arc<Core<M>>>) {
        let core = held.core();
        let index = held.index();
        let slot = core.slots.at(index);
        slot.count_lease();
        let Some(began) = self.began else { return };
        core.note_holder(slot, self.arrival.caller);
        hint::used(core.id, index);
        let now = core.now();
        let waited = now.saturating_duration_since(began);
        if let Some(histograms) = &core.histograms {
            histograms.wait.record(waited);
        }
        let caller = self.arrival.caller;
        let key = self.key.take();
        let left = core.turn(|turn| {
            let left = key.and_then(|key| turn.leave(key));
            let resource = turn.state.metas[index].id;
            turn.note(|| Event::Acquired {
                resource,
                caller,
                waited,
            });
            left
        });
        drop(left);
        if core
            .config
            .slow_acquire_warning
            .is_some_and(|slow| waited >= slow)
        {
            log::slow_acquire(core.name(), waited, caller);
        }
    }

    /// The story of a deadline that passed.
    fn timeout(&self, phase: Phase) -> AcquireError<M::Error> {
        let core = self.core;
        let now = core.now();
        let mut holders = core.holders();
        holders.truncate(3);
        let caller = self.arrival.caller;
        let timeout = core.turn(|turn| {
            turn.state.counters.timed_out += 1;
            let creating = self
                .key
                .and_then(|key| turn.state.waiters.get(key))
                .is_some_and(|waiter| waiter.job);
            let phase = match phase {
                Phase::Waiting if creating => Phase::Creating,
                phase => phase,
            };
            turn.note(|| Event::TimedOut { caller, phase });
            Timeout {
                phase,
                waited: now.saturating_duration_since(self.began.unwrap_or(now)),
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
        let left = self.core.turn(|turn| {
            let waiter = turn.state.waiters.get(key);
            if waiter.is_some_and(|waiter| !waiter.checking) {
                turn.state.counters.cancelled += 1;
            }
            turn.leave(key)
        });
        drop(left);
    }
}
