//! The release path: without the lock if possible, otherwise with it.

use std::borrow::Borrow;
use std::sync::Arc;

use crate::acquire::idle;
use crate::breaker::Failure;
use crate::core::slot::Slot;
use crate::core::{Core, Filled, Held, signal};
use crate::hooks::Refusal;
use crate::info::Info;
use crate::lease::destroy::run_in_background;
use crate::manager::{Manager, Verdict};
use crate::observe::events::{DestroyReason, Event, Hook};
use crate::upkeep::replace::Replacing;

/// A lease that is being released: a guard of its slot.
pub(crate) struct Return<M: Manager, C: Borrow<Arc<Core<M>>>> {
    held: Held<M, C>,
}

/// What a release still needs.
pub(crate) enum Next<M: Manager, C: Borrow<Arc<Core<M>>>> {
    /// Nothing.
    Done,
    /// The async half of the release hook.
    Recycle(Return<M, C>),
}

/// Runs the release hook, and returns whether the lease may be released without the lock. `Err` has the
/// answer of the hook, if it ran. The caller owns the slot either way.
#[inline]
pub(crate) fn may_return_unlocked<M: Manager>(
    core: &Core<M>,
    slot: &Slot<Filled<M>>,
) -> Result<(), Option<Result<Verdict, Refusal>>> {
    if slot.is_sampled() {
        core.end_sample(slot);
    }
    let flagged = slot.word().must_lock();
    // Only a flagged slot can belong to a closed pool, on which no hook runs.
    if flagged && core.signals() & signal::CLOSED != 0 {
        return Err(None);
    }
    // SAFETY: the caller owns the slot, and the lease is not used any more.
    let filled = unsafe { slot.value_mut() };
    let filled = filled.expect("a leased slot has a resource");
    let info = Info::new(&filled.origin, slot);
    let verdict = core.call_before_release(&mut filled.resource, info);
    if flagged || verdict != Ok(Verdict::Keep) {
        return Err(Some(verdict));
    }
    idle::used(core, slot);
    Ok(())
}

/// The answer of a release hook that ran and kept the resource.
pub(crate) const ASKED_AND_KEPT: Option<Result<Verdict, Refusal>> = Some(Ok(Verdict::Keep));

impl<M: Manager, C: Borrow<Arc<Core<M>>>> Return<M, C> {
    /// Takes responsibility for a leased slot of this pool that the caller owns.
    #[inline]
    pub(crate) fn new(core: C, slot: &Slot<Filled<M>>) -> Self {
        slot.note_pool();
        Return {
            held: Held::new(core, slot.index()),
        }
    }

    /// Releases under the lock, and leaves an async half to the runtime.
    #[inline(never)]
    pub(crate) fn settle_in_background(self, verdict: Option<Result<Verdict, Refusal>>) {
        if let Next::Recycle(back) = self.settle(verdict) {
            back.recycle_in_background();
        }
    }

    /// Releases under the lock. `verdict` is the answer of the release hook, if it ran.
    #[inline]
    pub(crate) fn settle(mut self, verdict: Option<Result<Verdict, Refusal>>) -> Next<M, C> {
        if self.held.core().is_inherited() {
            // It belongs to the parent process.
            self.held.disarm();
            return Next::Done;
        }
        if self.held.core().signals() & signal::CLOSED != 0 {
            let destroying = self.held.into_destroying(DestroyReason::Closed);
            destroying.destroy_in_background();
            return Next::Done;
        }
        let verdict = verdict.unwrap_or_else(|| self.ask());
        match verdict {
            Ok(Verdict::Keep) => self.keep(),
            Ok(Verdict::Later) => return Next::Recycle(self),
            Ok(Verdict::Retire) => self.retire(),
            Ok(Verdict::Discard) => self.reject(None),
            Err(refusal) => self.reject(refusal),
        }
        Next::Done
    }

    fn ask(&mut self) -> Result<Verdict, Refusal> {
        let (core, resource, info) = self.held.parts();
        core.call_before_release(resource, info)
    }

    /// Runs the async half: its first poll here, the others on the runtime. If the runtime drops it, the
    /// resource is destroyed and its slot becomes free.
    pub(crate) fn recycle_in_background(mut self) {
        let core = Arc::clone(self.held.core());
        let held = Held::new(Arc::clone(&core), self.held.disarm());
        run_in_background(&core, Return { held }.recycle());
    }

    /// Runs the async half, then keeps or destroys.
    pub(crate) async fn recycle(mut self) {
        let (core, resource, info) = self.held.parts();
        // A cancel here drops `self`, which destroys the resource.
        match core.call_recycle(resource, info).await {
            Ok(()) => self.keep(),
            Err(refusal) => self.reject(refusal),
        }
    }

    #[inline]
    fn keep(mut self) {
        self.held.core().report(None);
        let index = self.held.disarm();
        let core = self.held.core();
        let slot = core.slots.at(index);
        let signals = core.signals() & (signal::QUEUED | signal::SPARE);
        if signals == signal::QUEUED && core.hand_off(slot) {
            return;
        }
        idle::used(core, slot);
        Self::keep_locked(core, index);
    }

    fn keep_locked(core: &Arc<Core<M>>, index: usize) {
        let replaced = core.locked(|locked| {
            // Written only if there is a probe: other threads read this cache line.
            let meta = &mut locked.state.metas[index];
            let resource = meta.id;
            if let Some(epoch) = meta.probe {
                meta.probe = None;
                locked.end_probe(Some(epoch), Some(true));
            }
            locked.note_frequent(|| Event::Released { resource });
            let replaced = match locked.state.replacing {
                Replacing::Ready => core.replace_in_hand(locked, index),
                _ => None,
            };
            locked.release(index);
            replaced
        });
        if let Some(replaced) = replaced {
            replaced.destroy_in_background();
        }
    }

    /// Destroys a resource that the hook has retired. Its use counts as a success for the breaker, unless
    /// its holder panicked.
    fn retire(self) {
        let core = Arc::clone(self.held.core());
        let index = self.held.index();
        let destroying = self.held.into_destroying(DestroyReason::ReleaseRejected);
        if !std::thread::panicking() {
            core.locked(|locked| {
                let probe = locked.state.metas[index].probe.take();
                locked.end_probe(probe, Some(true));
            });
            core.report(None);
        }
        destroying.destroy_in_background();
    }

    fn reject(self, refusal: Refusal) {
        let core = Arc::clone(self.held.core());
        let index = self.held.index();
        let destroying = self.held.into_destroying(DestroyReason::ReleaseRejected);
        if let Some(error) = &refusal {
            core.hook_failed(index, Hook::BeforeRelease, Arc::clone(error));
        }
        core.locked(|locked| {
            let probe = locked.state.metas[index].probe.take();
            locked.end_probe(probe, Some(false));
        });
        core.report(Some(&Failure::Rejected(refusal)));
        destroying.destroy_in_background();
    }
}
