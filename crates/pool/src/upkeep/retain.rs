//! Evicting resources by a predicate.
//!
//! [`Pool::retain`] makes every resource *unjudged*. An unjudged resource that is idle or comes back is
//! set aside under the lock ([`Locked::set_aside_unjudged`]), judged after the unlock, and then given to the
//! oldest waiter or destroyed. While any resource is unjudged the pool is watched (I4).

use std::sync::Arc;

use crate::core::slot::SlotState;
use crate::core::state::Locked;
use crate::core::{Core, Held, signal};
use crate::info::Info;
use crate::manager::{Manager, Verdict};
use crate::observe::events::{DestroyReason, Hook};
use crate::pool::Pool;
use crate::user_code::{Contained, caught_check, drop_contained};

/// A predicate: whether a resource may stay.
type Keep<M> = dyn Fn(&<M as Manager>::Resource, Info<'_>) -> bool + Send + Sync;

/// The predicates that some resources have not passed yet, with their numbers. Locked under the state's
/// lock only.
pub(crate) type Predicates<M> = Vec<(u64, Arc<Keep<M>>)>;

impl<M: Manager> Pool<M> {
    /// Evicts the resources for which `keep` returns `false`. The pool refills to its minimum.
    ///
    /// The idle resources are judged before this returns, the others when they come back. Resources that
    /// are being created, or are created later, are not judged. The predicate runs outside every lock; a
    /// panic counts as `false`. Until every resource has been judged, acquires and releases take the pool's
    /// lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # use cenote_pool::Pool;
    /// # use std::{convert::Infallible, time::Duration};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::from_fn(|| async { Ok::<_, Infallible>(()) }).build()?;
    /// pool.retain(|_, info| info.age() < Duration::from_secs(3600) && info.uses() < 10_000);
    /// # Ok(()) }
    /// ```
    pub fn retain(&self, keep: impl Fn(&M::Resource, Info<'_>) -> bool + Send + Sync + 'static) {
        let core = &self.core;
        let mut keep: Contained<Option<Arc<Keep<M>>>> = Contained::new(Some(Arc::new(keep)));
        core.locked(|locked| {
            if locked.state.closed {
                return;
            }
            locked.state.retains += 1;
            let number = locked.state.retains;
            let keep = keep.take().map(|keep| (number, keep));
            core.predicates.lock().extend(keep);
            locked.begin_to_judge();
        });
        core.forget_predicates();
    }
}

impl<T, F> Locked<'_, T, F> {
    /// Sets every idle resource aside to be judged, and flags the others (I4).
    fn begin_to_judge(&mut self) {
        self.state.judging = true;
        self.state.update_watch_flags(self.slots);
        for index in self.idle_oldest_first() {
            let mark = self.slots.at(index).word().mark();
            let (seen, since) = self.state.metas[index].seen;
            if self.take_this(index) {
                self.release_unused(index);
                // Being judged does not end the time that it has been idle.
                if seen == mark {
                    let mark = self.slots.at(index).word().mark_when_idle();
                    self.state.metas[index].seen = (mark, since);
                }
            }
        }
        self.check();
    }

    /// Sets a slot in hand aside if its resource is unjudged. It is judged after the unlock.
    #[inline]
    pub(crate) fn set_aside_unjudged(&mut self, index: usize) -> bool {
        if !self.state.judging || self.state.metas[index].judged == self.state.retains {
            return false;
        }
        let slot = self.slots.at(index);
        slot.set(SlotState::Leased, true);
        slot.note_pool();
        self.deferred.rare().unjudged.push(index);
        true
    }
}

impl<M: Manager> Core<M> {
    /// Judges a resource that was set aside.
    pub(crate) fn judge(self: &Arc<Self>, index: usize) {
        let mut held = Held::new(self, index);
        // On a closed pool only destructors run.
        if self.signals() & signal::CLOSED == 0 {
            let (reached, keeps) = self.predicates_for(index);
            let (_, resource, info) = held.parts();
            let resource = &*resource;
            let answer = keeps.into_iter().try_for_each(|keep| {
                let keep = Contained::new(keep);
                caught_check(|| match keep(resource, info) {
                    true => Ok(Verdict::Keep),
                    false => Err(None),
                })
                .map(drop)
            });
            if let Err(refusal) = answer {
                let destroying = held.into_destroying(DestroyReason::Evicted);
                if let Some(error) = refusal {
                    self.hook_failed(index, Hook::Retain, error);
                }
                destroying.destroy_in_background();
                return;
            }
            self.state().metas[index].judged = reached;
        }
        held.give_back();
        self.forget_predicates();
    }

    /// Returns the predicates that a resource has to pass, and the number of the last one.
    fn predicates_for(&self, index: usize) -> (u64, Vec<Arc<Keep<M>>>) {
        let state = self.state();
        let judged = state.metas[index].judged;
        let predicates = self.predicates.lock();
        let missing = predicates.iter().filter(|(number, _)| *number > judged);
        let keeps = missing.map(|(_, keep)| Arc::clone(keep)).collect();
        (state.retains, keeps)
    }

    /// Drops the predicates that every resource has passed.
    pub(crate) fn forget_predicates(&self) {
        let spent: Vec<_> = {
            let mut state = self.state();
            if !state.judging {
                return;
            }
            let slots = self.slots.iter();
            let filled = slots.filter(|(_, slot)| {
                !matches!(slot.word().state(), SlotState::Vacant | SlotState::Creating)
            });
            let passed = filled.map(|(index, _)| state.metas[index].judged).min();
            let passed = passed.unwrap_or(u64::MAX);
            let mut predicates = self.predicates.lock();
            let spent = predicates.extract_if(.., |(number, _)| *number <= passed);
            let spent = spent.collect();
            if predicates.is_empty() {
                state.judging = false;
                state.update_watch_flags(&self.slots);
                self.publish_signals(&mut state);
            }
            spent
        };
        spent.into_iter().for_each(drop_contained);
    }
}
