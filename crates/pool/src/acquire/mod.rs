//! Acquiring: an idle resource without the lock (`idle.rs`), else the queue; then
//! the acquire hook (`check.rs`).

pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod idle;
pub(crate) mod wait;

use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::acquire::check::{Checking, Extra, Unchecked};
use crate::acquire::create::Creation;
use crate::acquire::wait::Wait;
use crate::core::slot::Slot;
use crate::core::state::{Arrival, Looked, Offered, Patience};
use crate::core::waiters::WaiterKey;
use crate::core::{Core, CreateFailure, Filled, Held, signal};
use crate::error::{AcquireError, Phase};
use crate::hooks::{BoxFuture, Check, Refusal};
use crate::info::Info;
use crate::lease::Handout;
use crate::manager::{Manager, Verdict};
use crate::observe::events::{DestroyReason, Hook};
use crate::runtime::Task;
use crate::user_code::{Caught, Contained, caught_check, into_answer};

impl<M: Manager> Core<M> {
    /// Acquires, and hands out whatever kind of lease the caller wants.
    ///
    /// # Cancel safety
    ///
    /// Dropped in the queue, it passes on what it was given; dropped in the
    /// acquire hook, the resource is destroyed.
    #[inline]
    pub(crate) fn acquire<'p, L: Handout<'p, M> + 'p>(
        self: &'p Arc<Self>,
        caller: &'static Location<'static>,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Acquired<L, M>> + Send + 'p {
        Acquire {
            core: self,
            wait: Wait::new(caller, timeout),
            serial: None,
            refused: false,
            stage: ManuallyDrop::new(Stage::Start),
            make_hook: |manager: &'p M, resource: &'p mut M::Resource, info: Info<'p>| {
                manager.before_acquire(resource, info)
            },
            _hands_out: PhantomData::<fn() -> L>,
        }
    }
}

/// What an acquire ends with.
pub(crate) type Acquired<T, M> = Result<T, AcquireError<<M as Manager>::Error>>;

/// The future of an acquire. It is written by hand because it lies in every task
/// that waits, and an `async` block with the same steps takes several times as much.
///
/// ```text
/// Start ──idle──> Checking ──yes──> lease
///   │ ^             │ │ ^
///   │ └──refused────┘ │ │ reserved
///   └─────> Queued ───┼─┘
///              └fresh─┴──> lease
/// ```
struct Acquire<'p, M: Manager, F, H, L> {
    core: &'p Arc<Core<M>>,
    wait: Wait,
    /// Its number in the order of arrival, if it has been in the queue.
    serial: Option<u32>,
    /// The acquire hook refused what it was served with.
    refused: bool,
    /// Dropped by hand, because nearly always there is nothing to drop, and the
    /// compiler would look for it in every task that has just been served.
    stage: ManuallyDrop<Stage<'p, M, H>>,
    make_hook: F,
    _hands_out: PhantomData<fn() -> L>,
}

/// How far an acquire has come.
enum Stage<'p, M: Manager, H> {
    Start,
    Queued(WaiterKey),
    /// In the manager's own hook, which is pinned here.
    Checking(Checking<'p, M, Caught<H>>),
    /// In an async closure that overrides it.
    CheckingBoxed(Checking<'p, M, Caught<BoxFuture<'p, Answered>>>),
    /// One that never queues waits for its refused resource's place to be free.
    Destroying(Task),
    Done,
}

type Answered = Result<Verdict, Refusal>;

/// Writes another stage over one that is being dropped, even if the drop panics.
struct Leave<'a, 'p, M: Manager, H>(&'a mut ManuallyDrop<Stage<'p, M, H>>);

impl<M: Manager, H> Drop for Leave<'_, '_, M, H> {
    #[inline]
    fn drop(&mut self) {
        *self.0 = ManuallyDrop::new(Stage::Done);
    }
}

impl<'p, M, F, H, L> Future for Acquire<'p, M, F, H, L>
where
    M: Manager,
    F: Fn(&'p M, &'p mut M::Resource, Info<'p>) -> H,
    H: Future<Output = Result<bool, M::Error>>,
    L: Handout<'p, M>,
{
    type Output = Acquired<L, M>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Acquired<L, M>> {
        // SAFETY: the hook inside `stage` is pinned with this struct: it is
        // polled and dropped in place, and never moved.
        let this = unsafe { self.get_unchecked_mut() };
        let taken = match *this.stage {
            Stage::Start => this.core.take_unlocked(),
            Stage::Queued(key) => this.take_reserved(key),
            _ => None,
        };
        if let Some(slot) = taken {
            if let Some(slot) = this.check_at_once(slot, cx) {
                return Poll::Ready(Ok(this.serve(slot)));
            }
            if this.is_checking()
                && let Some(polled) = this.hook_waits(cx)
            {
                return polled;
            }
        } else if this.join_contended(cx) {
            return Poll::Pending;
        }
        this.poll_slowly(cx)
    }
}

impl<'p, M, F, H, L> Acquire<'p, M, F, H, L>
where
    M: Manager,
    F: Fn(&'p M, &'p mut M::Resource, Info<'p>) -> H,
    H: Future<Output = Result<bool, M::Error>>,
    L: Handout<'p, M>,
{
    /// Begins to check a resource; gives it back if the hook says yes at once.
    #[inline]
    fn check_at_once(
        &mut self,
        slot: &'p Slot<Filled<M>>,
        cx: &mut Context<'_>,
    ) -> Option<&'p Slot<Filled<M>>> {
        let core = self.core;
        let mut unchecked = Unchecked::new(core, slot);
        let began = core.histograms.as_ref().map(|_| core.now());
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
                    extra: Extra::new(began),
                }));
            }
            Some(Check::Sync(check)) => {
                let answer = caught_check(|| check(unchecked.parts().0));
                core.note_check(began);
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
                        extra: Extra::new(began),
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

    /// Polls the hook that is under way. If it refuses, the stage is another one.
    #[inline]
    fn poll_hook(&mut self, cx: &mut Context<'_>) -> Option<&'p Slot<Filled<M>>> {
        let Stage::Checking(checking) = &mut *self.stage else {
            return self.poll_boxed_hook(cx);
        };
        // SAFETY: pinned with `self`, see `poll`.
        let hook = unsafe { Pin::new_unchecked(&mut checking.hook) };
        match hook.poll(cx) {
            Poll::Pending => None,
            // Nearly always, and at once.
            Poll::Ready(Ok(Ok(true))) if checking.key.is_none() && checking.extra.is_none() => {
                let slot = checking.unchecked.take();
                // SAFETY: dropped in place and once, because another stage is written right after.
                // The drop does not panic: `Caught` contains that, and nothing else is left.
                unsafe { std::ptr::drop_in_place(&raw mut checking.hook) };
                self.stage = ManuallyDrop::new(Stage::Done);
                Some(slot)
            }
            Poll::Ready(answer) => self.answered(into_answer(answer), cx),
        }
    }

    /// The hook did not answer at once.
    #[inline(never)]
    fn hook_waits(&mut self, cx: &mut Context<'_>) -> Option<Poll<Acquired<L, M>>> {
        let slot = match &*self.stage {
            Stage::Checking(checking) => checking.unchecked.slot(),
            Stage::CheckingBoxed(checking) => checking.unchecked.slot(),
            _ => None,
        };
        // The hook's time is not the time that it took to collect.
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

    /// The hook is done, and the slot is ours.
    #[inline(never)]
    fn answered(&mut self, answer: Answered, cx: &mut Context<'_>) -> Option<&'p Slot<Filled<M>>> {
        let (mut unchecked, key, began) = match &mut *self.stage {
            Stage::Checking(checking) => checking.take(),
            Stage::CheckingBoxed(checking) => checking.take(),
            _ => return None,
        };
        self.end_check();
        if let Some(key) = key {
            self.core.locked(|locked| locked.leave(key));
        }
        self.core.note_check(began);
        match answer {
            Ok(_) => self.pass_if_open(unchecked),
            Err(refusal) => {
                self.refuse(unchecked.take(), refusal, cx);
                None
            }
        }
    }

    /// Gives back a resource that passed its hook, unless the pool was closed meanwhile: then the
    /// resource is destroyed, and the acquire starts again and finds that.
    fn pass_if_open(&mut self, mut unchecked: Unchecked<'p, M>) -> Option<&'p Slot<Filled<M>>> {
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

    /// The hook refused a resource: it goes, and we wait again, ahead of all who
    /// came later.
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
        if L::PATIENCE == Patience::Queue {
            // Into the queue first, so that the place it frees comes to us. What
            // that finds is looked at again by `poll_slowly`.
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
        if L::PATIENCE == Patience::Create {
            self.go_to(Stage::Destroying(Box::pin(destroying.destroy_quietly())));
        } else {
            destroying.destroy_in_background();
        }
    }

    /// Takes what has been reserved for us, if that can be done without the lock.
    #[inline]
    fn take_reserved(&mut self, key: WaiterKey) -> Option<&'p Slot<Filled<M>>> {
        let slot = self.core.collect(key)?;
        self.serial = Some(key.serial());
        // Our entry is the pool's to clear up from here on.
        self.go_to(Stage::Start);
        Some(slot)
    }

    /// Everything but a resource that is idle or reserved for us, and whose hook
    /// says yes at once.
    #[inline(never)]
    fn poll_slowly(&mut self, cx: &mut Context<'_>) -> Poll<Acquired<L, M>> {
        loop {
            let looked = match &*self.stage {
                Stage::Start => {
                    self.wait.begin(self.core);
                    self.core.consider_recovery();
                    let mut waker = Offered::new(cx.waker(), true);
                    let arrival = self.arrival();
                    self.core
                        .locked(|locked| locked.enter(&arrival, &mut waker))
                }
                &Stage::Queued(key) => self.look(key, cx),
                Stage::Checking(_) | Stage::CheckingBoxed(_) => {
                    let passed = self.poll_hook(cx);
                    let unchecked = passed.map(|slot| Unchecked::new(self.core, slot));
                    if let Some(slot) = unchecked.and_then(|it| self.pass_if_open(it)) {
                        return Poll::Ready(Ok(self.serve(slot)));
                    }
                    if self.is_checking()
                        && let Some(polled) = self.wait_in_hook(cx)
                    {
                        return polled;
                    }
                    // Refused: on with the next.
                    continue;
                }
                Stage::Destroying(_) => {
                    if let Stage::Destroying(end) = &mut *self.stage
                        && end.as_mut().poll(cx).is_pending()
                    {
                        return Poll::Pending;
                    }
                    drop(std::mem::replace(&mut *self.stage, Stage::Start));
                    continue;
                }
                Stage::Done => panic!("an acquire is not polled again when it is done"),
            };
            let end = match looked {
                Looked::Waiting(key) | Looked::WakerNeeded(key) => {
                    self.queued(key);
                    return Poll::Pending;
                }
                Looked::Create(key, claim) => {
                    self.queued(key);
                    // Counts on its own from here on; then see what came of it.
                    Creation::new(self.core, claim, Some(key)).start();
                    continue;
                }
                Looked::Taken {
                    slot,
                    fresh,
                    serial,
                } => {
                    self.serial = serial.or(self.serial);
                    self.go_to(Stage::Start);
                    let slot = self.core.slots.at(slot);
                    let checked = match fresh {
                        true => Some(slot),
                        false => self.check_at_once(slot, cx),
                    };
                    if let Some(slot) = checked {
                        return Poll::Ready(Ok(self.serve(slot)));
                    }
                    if self.is_checking()
                        && let Some(polled) = self.wait_in_hook(cx)
                    {
                        return polled;
                    }
                    // Refused: on with the next.
                    continue;
                }
                Looked::Exhausted | Looked::Unavailable => self.nothing(AcquireError::Unavailable),
                Looked::Closed if self.core.is_inherited() => self.nothing(AcquireError::Forked),
                Looked::QueueFull { waiting, limit } => {
                    Err(AcquireError::QueueFull { waiting, limit })
                }
                Looked::Closed => self.nothing(AcquireError::Closed),
                Looked::Failed(failure) => Err(failure.into_error()),
                Looked::TimedOut { creating: true } => {
                    Err(self.wait.timed_out(self.core, Phase::Creating))
                }
                Looked::TimedOut { creating: false } => {
                    Err(self.wait.timed_out(self.core, Phase::Waiting))
                }
            };
            self.go_to(Stage::Done);
            return Poll::Ready(end);
        }
    }

    /// Joins a queue that is there already, if that is all there is to do.
    #[inline]
    fn join_contended(&mut self, cx: &mut Context<'_>) -> bool {
        let queued = signal::QUEUED | signal::REPORTS;
        matches!(*self.stage, Stage::Start)
            && L::PATIENCE == Patience::Queue
            // A breaker that is watched over wants to be asked first.
            && self.core.signals() & queued == signal::QUEUED
            // One that was in the queue before has a place of its own in it.
            && self.serial.is_none()
            && !self.refused
            && self.queue_behind(cx)
    }

    #[inline(never)]
    fn queue_behind(&mut self, cx: &mut Context<'_>) -> bool {
        self.wait.begin(self.core);
        let mut waker = Contained::new(Some(cx.waker().clone()));
        let Some(key) = self.core.queue_behind(self.wait.deadline(), &mut waker) else {
            return false;
        };
        self.go_to(Stage::Queued(key));
        true
    }

    /// It has a place in the queue, and keeps it until the stage is another one.
    fn queued(&mut self, key: WaiterKey) {
        self.go_to(Stage::Queued(key));
    }

    /// Goes on from a stage that holds nothing: there is nothing to drop.
    #[inline]
    fn go_to(&mut self, next: Stage<'p, M, H>) {
        debug_assert!(matches!(
            *self.stage,
            Stage::Start | Stage::Queued(_) | Stage::Done
        ));
        self.stage = ManuallyDrop::new(next);
    }

    /// The hook is over, or cut off: it is dropped where it is, and with it what
    /// is still in the stage.
    #[inline]
    fn end_check(&mut self) {
        let leave = Leave(&mut self.stage);
        // SAFETY: dropped in place, because the hook is pinned, and once, because `leave` writes
        // another stage whatever happens.
        unsafe { ManuallyDrop::drop(leave.0) };
    }

    fn look(&self, key: WaiterKey, cx: &Context<'_>) -> Looked<CreateFailure<M::Error>> {
        let caller = self.wait.caller;
        let looked = self
            .core
            .locked(|locked| locked.look(key, caller, &mut Offered::new(cx.waker(), false)));
        match looked {
            Looked::WakerNeeded(key) => {
                let mut waker = Offered::new(cx.waker(), true);
                self.core
                    .locked(|locked| locked.look(key, caller, &mut waker))
            }
            looked => looked,
        }
    }

    fn is_checking(&self) -> bool {
        matches!(*self.stage, Stage::Checking(_) | Stage::CheckingBoxed(_))
    }

    fn arrival(&self) -> Arrival {
        Arrival {
            caller: self.wait.caller,
            deadline: self.wait.deadline(),
            hint: idle::last_slot(self.core).map(Slot::index),
            patience: L::PATIENCE,
            refused: self.refused,
            serial: self.serial,
        }
    }

    /// The acquire hook waits, within the deadline and its own time limit. `None`: the limit has
    /// passed, so the resource was refused, and the acquire goes on with another one.
    fn wait_in_hook(&mut self, cx: &mut Context<'_>) -> Option<Poll<Acquired<L, M>>> {
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
        // Until the hook is over, the last holder is not the present one.
        unchecked.note_pool();
        let Some(limit) = core.config.before_acquire_timeout else {
            return Some(Poll::Pending);
        };
        let timer = &mut extra.get_or_insert_with(Box::default).limit;
        if !timer.is_over(&**core.runtime, limit, cx) {
            return Some(Poll::Pending);
        }
        let why = format!("it took longer than the before_acquire timeout of {limit:?}");
        self.answered(Err(Some(why.into())), cx);
        None
    }

    /// Whether the deadline passes while the hook waits.
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
        matches!(self.look(key, cx), Looked::TimedOut { .. })
    }

    fn nothing(&self, error: AcquireError<M::Error>) -> Acquired<L, M> {
        L::nothing().ok_or(error)
    }

    /// The acquire has its lease.
    #[inline]
    fn serve(&mut self, slot: &'p Slot<Filled<M>>) -> L {
        self.go_to(Stage::Done);
        slot.count_lease();
        let lease = L::of(self.core, slot);
        if self.wait.has_begun() {
            self.wait.served(self.core, slot);
        } else {
            slot.note_holder(self.wait.caller, self.core.runtime.coarse_now());
        }
        lease
    }
}

impl<M: Manager, F, H, L> Drop for Acquire<'_, M, F, H, L> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.stage, Stage::Start | Stage::Done) {
            self.cancel();
        }
    }
}

impl<M: Manager, F, H, L> Acquire<'_, M, F, H, L> {
    /// It is dropped before it is done.
    #[cold]
    fn cancel(&mut self) {
        let (key, checking) = match &*self.stage {
            Stage::Queued(key) => (Some(*key), false),
            Stage::Checking(checking) => (checking.key, true),
            Stage::CheckingBoxed(checking) => (checking.key, true),
            Stage::Destroying(_) => {
                if let Stage::Destroying(end) = std::mem::replace(&mut *self.stage, Stage::Done) {
                    // Goes on without us.
                    self.core.spawn(end);
                }
                return;
            }
            Stage::Start | Stage::Done => return,
        };
        if let Some(key) = key {
            self.core.locked(|locked| {
                locked.state.counters.cancelled += u64::from(!checking);
                locked.leave(key);
            });
        }
        // A resource in its hook goes with the stage.
        // SAFETY: pinned, so dropped in place; this is called once, by `drop`.
        unsafe { ManuallyDrop::drop(&mut self.stage) };
    }
}
