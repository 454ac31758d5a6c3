//! The acquire hook: how an acquire runs it on a resource, and what guards the resource meanwhile.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::acquire::{Acquire, Acquired, Answered, Stage};
use crate::core::slot::Slot;
use crate::core::state::{AcquireMode, Arrival, Progress};
use crate::core::waiters::WaiterKey;
use crate::core::{Core, Filled, Held, signal};
use crate::error::Phase;
use crate::hooks::{Check, Refusal};
use crate::info::Info;
use crate::lease::Handout;
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Hook};
use crate::observe::text::human;
use crate::runtime::PollTimer;
use crate::user_code::{Caught, Contained, caught_check, into_answer};

/// A resource in its acquire hook. The hook borrows the resource, so it comes first: fields are
/// dropped in order.
pub(crate) struct Checking<'p, M: Manager, H> {
    pub(crate) hook: H,
    pub(crate) unchecked: Unchecked<'p, M>,
    /// The acquire's entry, once the hook is pending and there is a deadline.
    pub(crate) key: Option<WaiterKey>,
    /// What few acquires need.
    pub(crate) extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub(crate) struct Extra {
    /// The time limit of the hook.
    pub(crate) limit: PollTimer,
}

impl<'p, M: Manager, H> Checking<'p, M, H> {
    /// Takes out everything but the hook.
    pub(crate) fn take(&mut self) -> (Unchecked<'p, M>, Option<WaiterKey>) {
        (self.unchecked.take_over(), self.key)
    }
}

/// A guard of a resource that has not passed the acquire hook. Dropping the guard destroys the
/// resource, because the hook was cut off and its state is unknown.
pub(crate) struct Unchecked<'p, M: Manager> {
    core: &'p Arc<Core<M>>,
    slot: Option<&'p Slot<Filled<M>>>,
}

impl<'p, M: Manager> Unchecked<'p, M> {
    /// Guards a slot that the caller has taken.
    #[inline]
    pub(crate) fn new(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        let slot = Some(slot);
        Unchecked { core, slot }
    }

    /// Returns the resource, and what the pool knows about it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&'p mut M::Resource, Info<'p>) {
        let slot = self.slot.expect("a guard has a slot");
        // SAFETY: this guard owns the slot. It is asked once, for the hook, which is dropped before
        // the guard.
        let filled = unsafe { slot.value_mut() };
        let filled = filled.expect("a taken slot has a resource");
        let info = Info::new(&filled.origin, slot);
        (&mut filled.resource, info)
    }

    /// Notes that the pool holds the resource.
    pub(crate) fn note_pool(&self) {
        if let Some(slot) = self.slot {
            slot.note_pool();
        }
    }

    /// Moves the responsibility to a new guard.
    pub(crate) fn take_over(&mut self) -> Self {
        let (core, slot) = (self.core, self.slot.take());
        Unchecked { core, slot }
    }

    pub(crate) fn slot(&self) -> Option<&'p Slot<Filled<M>>> {
        self.slot
    }

    /// Takes the slot out of the guard and ends its responsibility.
    #[inline]
    pub(crate) fn take(&mut self) -> &'p Slot<Filled<M>> {
        self.slot.take().expect("it is taken out once")
    }
}

impl<M: Manager> Drop for Unchecked<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            drop(Held::new(self.core, slot.index()));
        }
    }
}

/// Overwrites a stage that is being dropped, even if the drop panics.
struct Leave<'a, 'p, M: Manager, H>(&'a mut ManuallyDrop<Stage<'p, M, H>>);

impl<M: Manager, H> Drop for Leave<'_, '_, M, H> {
    #[inline]
    fn drop(&mut self) {
        *self.0 = ManuallyDrop::new(Stage::Done);
    }
}

impl<'p, M, F, H, L> Acquire<'p, M, F, H, L>
where
    M: Manager,
    F: Fn(&'p M, &'p mut M::Resource, Info<'p>) -> H,
    H: Future<Output = Result<bool, M::Error>>,
    L: Handout<'p, M>,
{
    /// Runs the hook on a resource. Returns the resource's slot if the hook accepts it at once.
    #[inline]
    pub(super) fn check_at_once(
        &mut self,
        slot: &'p Slot<Filled<M>>,
        cx: &mut Context<'_>,
    ) -> Option<&'p Slot<Filled<M>>> {
        let core = self.core;
        let mut unchecked = Unchecked::new(core, slot);
        match &core.hooks.before_acquire {
            None => {
                let make = || {
                    let (resource, info) = unchecked.parts();
                    (self.make_hook)(&core.manager, resource, info)
                };
                let hook = match Caught::new(make) {
                    Ok(hook) => hook,
                    Err(panic) => {
                        self.refuse(unchecked.take(), Some(panic), cx);
                        return None;
                    }
                };
                self.go_to(Stage::Checking(Checking {
                    hook,
                    unchecked,
                    key: None,
                    extra: None,
                }));
            }
            Some(Check::Sync(check)) => {
                let answer = caught_check(|| check(unchecked.parts().0));
                return match answer {
                    Ok(_) => self.pass_if_open(unchecked),
                    Err(refusal) => {
                        self.refuse(unchecked.take(), refusal, cx);
                        None
                    }
                };
            }
            Some(Check::Async(check)) => match Caught::new(|| {
                let (resource, info) = unchecked.parts();
                check(resource, info)
            }) {
                Ok(hook) => {
                    self.go_to(Stage::CheckingBoxed(Checking {
                        hook,
                        unchecked,
                        key: None,
                        extra: None,
                    }));
                }
                Err(panic) => {
                    self.refuse(unchecked.take(), Some(panic), cx);
                    return None;
                }
            },
        }
        self.poll_hook(cx)
    }

    /// Polls the current hook. Returns the slot if it accepts; if it refuses, the stage changes.
    #[inline]
    pub(super) fn poll_hook(&mut self, cx: &mut Context<'_>) -> Option<&'p Slot<Filled<M>>> {
        let Stage::Checking(checking) = &mut *self.stage else {
            return self.poll_boxed_hook(cx);
        };
        // SAFETY: pinned with `self`, see `poll`.
        let hook = unsafe { Pin::new_unchecked(&mut checking.hook) };
        match hook.poll(cx) {
            Poll::Pending => None,
            // The usual case.
            Poll::Ready(Ok(Ok(true))) if checking.key.is_none() && checking.extra.is_none() => {
                let slot = checking.unchecked.take();
                // SAFETY: dropped in place and once, because another stage is written right after.
                // The drop does not panic: `Caught` contains panics, and nothing else is left.
                unsafe { std::ptr::drop_in_place(&raw mut checking.hook) };
                self.stage = ManuallyDrop::new(Stage::Done);
                Some(slot)
            }
            Poll::Ready(answer) => self.answered(into_answer(answer), cx),
        }
    }

    /// Handles a hook that is pending after its first poll.
    #[inline(never)]
    pub(super) fn hook_waits(&mut self, cx: &mut Context<'_>) -> Option<Poll<Acquired<L, M>>> {
        let slot = match &*self.stage {
            Stage::Checking(checking) => checking.unchecked.slot(),
            Stage::CheckingBoxed(checking) => checking.unchecked.slot(),
            _ => None,
        };
        // The hook's time is not part of the time from wake to poll.
        if let Some(slot) = slot
            && self.serial.is_some()
        {
            self.core.note_collected(slot);
        }
        self.wait_in_hook(cx)
    }

    #[inline(never)]
    fn poll_boxed_hook(&mut self, cx: &mut Context<'_>) -> Option<&'p Slot<Filled<M>>> {
        let Stage::CheckingBoxed(checking) = &mut *self.stage else {
            return None;
        };
        let Poll::Ready(answer) = Pin::new(&mut checking.hook).poll(cx) else {
            return None;
        };
        self.answered(answer.unwrap_or_else(|panic| Err(Some(panic))), cx)
    }

    /// Handles the answer of a hook.
    #[inline(never)]
    fn answered(&mut self, answer: Answered, cx: &mut Context<'_>) -> Option<&'p Slot<Filled<M>>> {
        let (mut unchecked, key) = match &mut *self.stage {
            Stage::Checking(checking) => checking.take(),
            Stage::CheckingBoxed(checking) => checking.take(),
            _ => return None,
        };
        self.end_check();
        if let Some(key) = key {
            self.core.locked(|locked| locked.leave(key));
        }
        match answer {
            Ok(_) => self.pass_if_open(unchecked),
            Err(refusal) => {
                self.refuse(unchecked.take(), refusal, cx);
                None
            }
        }
    }

    /// Returns a resource that passed its hook. If the pool was closed meanwhile, it destroys the
    /// resource; the acquire starts again and finds the pool closed.
    pub(super) fn pass_if_open(
        &mut self,
        mut unchecked: Unchecked<'p, M>,
    ) -> Option<&'p Slot<Filled<M>>> {
        let slot = unchecked.take();
        if self.core.signals() & signal::CLOSED == 0 {
            return Some(slot);
        }
        self.go_to(Stage::Start);
        Held::new(self.core, slot.index())
            .into_destroying(DestroyReason::Closed)
            .destroy_in_background();
        None
    }

    /// Destroys a resource that the hook refused. The acquire waits again, ahead of all younger
    /// waiters.
    #[cold]
    fn refuse(&mut self, slot: &Slot<Filled<M>>, refusal: Refusal, cx: &mut Context<'_>) {
        let core = self.core;
        let index = slot.index();
        let destroying = Held::new(core, index).into_destroying(DestroyReason::AcquireRejected);
        if let Some(error) = refusal {
            core.hook_failed(index, Hook::BeforeAcquire, error);
        }
        self.refused = true;
        self.go_to(Stage::Start);
        if L::MODE == AcquireMode::Queue {
            // It queues first, so that it gets the slot that is freed. `poll_slowly` then looks
            // what it has got.
            self.wait.begin(self.core);
            let arrival = Arrival {
                hint: None,
                ..self.arrival()
            };
            let mut waker = Contained::new(Some(cx.waker().clone()));
            let key = core.locked(|locked| locked.queue_refused(&arrival, &mut waker));
            if let Some(key) = key {
                self.go_to(Stage::Queued(key));
            }
        }
        if L::MODE == AcquireMode::Create {
            self.go_to(Stage::Destroying(Box::pin(destroying.destroy_quietly())));
        } else {
            destroying.destroy_in_background();
        }
    }

    /// Drops the hook in place, and with it what is still in the stage.
    #[inline]
    pub(super) fn end_check(&mut self) {
        let leave = Leave(&mut self.stage);
        // SAFETY: dropped in place, because the hook is pinned, and once, because `leave` writes
        // another stage whatever happens.
        unsafe { ManuallyDrop::drop(leave.0) };
    }

    pub(super) fn is_checking(&self) -> bool {
        matches!(*self.stage, Stage::Checking(_) | Stage::CheckingBoxed(_))
    }

    /// Lets a pending hook wait, within the deadline and its own time limit. `None`: the limit has
    /// passed, the resource was refused, and the acquire continues with another one.
    pub(super) fn wait_in_hook(&mut self, cx: &mut Context<'_>) -> Option<Poll<Acquired<L, M>>> {
        self.wait.begin(self.core);
        if self.deadline_passes(cx) {
            // Destroys the resource, whose state is unknown.
            self.end_check();
            let error = self.wait.timed_out(self.core, Phase::Checking);
            return Some(Poll::Ready(Err(error)));
        }
        let core = self.core;
        let (unchecked, extra) = match &mut *self.stage {
            Stage::Checking(checking) => (&checking.unchecked, &mut checking.extra),
            Stage::CheckingBoxed(checking) => (&checking.unchecked, &mut checking.extra),
            _ => return Some(Poll::Pending),
        };
        // Nobody holds the resource until the hook has accepted it.
        unchecked.note_pool();
        let Some(limit) = core.config.before_acquire_timeout else {
            return Some(Poll::Pending);
        };
        let timer = &mut extra.get_or_insert_with(Box::default).limit;
        if !timer.is_over(&**core.runtime, limit, cx) {
            return Some(Poll::Pending);
        }
        let why = format!(
            "took longer than the before_acquire timeout of {}",
            human(limit)
        );
        self.answered(Err(Some(why.into())), cx);
        None
    }

    /// Returns whether the deadline has passed while the hook was pending.
    fn deadline_passes(&mut self, cx: &mut Context<'_>) -> bool {
        if self.wait.deadline().is_none() {
            return false;
        }
        let (core, arrival) = (self.core, self.arrival());
        let key = match &mut *self.stage {
            Stage::Checking(checking) => &mut checking.key,
            Stage::CheckingBoxed(checking) => &mut checking.key,
            _ => return false,
        };
        let key = *key.get_or_insert_with(|| core.locked(|locked| locked.admit_checking(&arrival)));
        matches!(self.poll_waiter(key, cx), Progress::TimedOut { .. })
    }
}
