//! Replacing every resource, while the old ones go on serving.
//!
//! [`Pool::replace_all`] makes every resource outdated. Maintenance has new ones created, one at a time
//! and with the back-off of background creations. A new one waits as the *spare*, which has no slot,
//! until an outdated resource is idle or comes back, and then takes over its slot. So no acquire waits
//! for a replacement or fails because of one.
//!
//! While a spare waits the pool is watched (I4): every release takes the lock and finds the spare.

use std::sync::Arc;
use std::time::Instant;

use crate::acquire::create::NewResource;
use crate::core::backoff::random;
use crate::core::state::{Locked, Meta};
use crate::core::{Core, CreateFailure, Filled, LockedPool};
use crate::info::Origin;
use crate::lease::destroy::Destroying;
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Event};
use crate::observe::log;
use crate::observe::status::CreationError;
use crate::pool::Pool;
use crate::user_code::drop_contained;

/// How far the replacement of one resource has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacing {
    /// Nothing is being replaced.
    No,
    /// The new resource is being created.
    Creating,
    /// The new resource waits as the spare.
    Ready,
}

/// A resource that waits to take over the slot of an outdated one.
pub(crate) struct Spare<M: Manager> {
    resource: M::Resource,
    meta: Meta,
}

impl<M: Manager> Pool<M> {
    /// Replaces every resource. For rotated credentials and fail-overs.
    ///
    /// The pool creates the new resources in the background, one at a time. Each replaces an old one when
    /// that is idle or comes back. The old ones serve until then, so nobody waits for a replacement. If a
    /// creation fails, the pool tries again after a growing pause. There may be one resource more than
    /// [`max`](crate::Builder::max) at a time.
    pub fn replace_all(&self) {
        self.core.locked(|locked| {
            locked.state.generation += 1;
            locked.replace_later();
        });
    }
}

impl<T, F> Locked<'_, T, F> {
    /// Has maintenance replace the outdated resources, when the back-off allows it.
    pub(crate) fn replace_later(&mut self) {
        if self.state.closed {
            return;
        }
        self.state.outdated = true;
        let now = self.clock.now();
        self.call_maintenance(self.state.backoff.background_until(now).unwrap_or(now));
    }

    /// Notes the beginning of a replacement. Returns `false` if none is due.
    pub(crate) fn begin_replacement(&mut self) -> bool {
        let state = &mut *self.state;
        if !state.outdated || state.replacing != Replacing::No {
            return false;
        }
        state.outdated = self
            .slots
            .iter()
            .any(|(index, _)| state.is_outdated(index, self.slots));
        let paused = state.backoff.background_until(self.clock.now()).is_some();
        if !state.outdated || paused {
            return false;
        }
        state.replacing = Replacing::Creating;
        true
    }

    fn end_replacement(&mut self) {
        self.state.replacing = Replacing::No;
        self.state.update_watch_flags(self.slots);
        self.replace_later();
    }
}

/// A replacement that is being created. Dropping it lets another one begin.
pub(crate) struct Replacement<M: Manager> {
    core: Arc<Core<M>>,
    /// The creation has ended, and another replacement may be under way.
    is_over: bool,
}

impl<M: Manager> Replacement<M> {
    /// For the replacement that [`Locked::begin_replacement`] has noted.
    pub(crate) fn new(core: &Arc<Core<M>>) -> Self {
        Replacement {
            core: Arc::clone(core),
            is_over: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let core = &Arc::clone(&self.core);
        let (began, generation) = (core.now(), core.state().generation);
        // A cancel here drops the future of `create`; `self` lets another replacement begin.
        let created = core.call_create().await;
        self.is_over = true;
        match created {
            Ok(resource) => match NewResource::new(core, resource, began, generation) {
                Ok(made) => self.succeeded(made),
                Err(failure) => self.failed(began, failure),
            },
            Err(failure) => self.failed(began, failure),
        }
    }

    fn succeeded(&self, made: NewResource<M>) {
        let core = &self.core;
        let mut made = Some(made);
        core.locked(|locked| {
            if locked.state.closed {
                return;
            }
            if let Some(made) = made.take() {
                locked.state.backoff.succeeded();
                locked.state.last_creation_error = None;
                let (resource, meta) = made.into_parts(locked);
                locked.state.replacing = Replacing::Ready;
                *core.spare.lock() = Some(Spare { resource, meta });
                locked.state.update_watch_flags(locked.slots);
            }
        });
        match made {
            // The pool was closed meanwhile.
            Some(made) => {
                Destroying::without_slot(core, made.resource, None).destroy_in_background()
            }
            None => core.place_spare(),
        }
    }

    fn failed(&self, began: Instant, failure: CreateFailure<M::Error>) {
        let core = &self.core;
        let error = failure.message();
        core.locked(|locked| {
            let now = locked.clock.now();
            let in_a_row = locked.state.backoff.failed(began, now, random());
            locked.state.last_creation_error = Some(CreationError {
                message: Arc::clone(&error),
                in_a_row,
            });
            locked.state.counters.create_failed += 1;
            locked.end_replacement();
        });
        log::create_failed(core.name(), &error);
        // Not reported to the breaker: the old resources still serve.
        core.emit(&Event::CreateFailed {
            error,
            delivered: false,
        });
        drop_contained(failure);
    }
}

impl<M: Manager> Drop for Replacement<M> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The creation was cut off: the next attempt is due.
        self.core.locked(|locked| {
            locked.state.replacing = Replacing::No;
            if locked.state.outdated {
                locked.replace_later();
            }
        });
    }
}

impl<M: Manager> Core<M> {
    /// Puts the spare into a slot in hand whose resource is outdated.
    #[cold]
    pub(crate) fn replace_in_hand(
        self: &Arc<Self>,
        locked: &mut LockedPool<'_, M>,
        index: usize,
    ) -> Option<Destroying<M>> {
        if !locked.state.is_outdated(index, locked.slots) {
            return None;
        }
        let mut spare = self.spare.lock();
        if spare.is_none() {
            return None;
        }
        let slot = locked.slots.at(index);
        // SAFETY: the caller owns the slot: it is leased, but not to a lease.
        let old = unsafe { slot.take_out() }?;
        let spare = spare.take()?;
        let filled = Filled {
            resource: spare.resource,
            origin: Origin::new(&spare.meta, slot, &self.runtime),
            core: Some(Arc::clone(self)),
        };
        // SAFETY: as above.
        unsafe { slot.put(filled) };
        let meta = &mut locked.state.metas[index];
        let before = std::mem::replace(meta, spare.meta);
        meta.returned = before.returned;
        meta.reserved_for = before.reserved_for;
        meta.seen = (slot.word().mark_when_idle(), locked.clock.now());
        let counters = &mut locked.state.counters;
        // Counted when it gets a slot, as every resource (I7).
        counters.created += 1;
        counters.destroyed += 1;
        counters.by_reason[DestroyReason::Replaced as usize] += 1;
        locked.end_replacement();
        let known_as = Some((before.id, DestroyReason::Replaced));
        Some(Destroying::without_slot(self, old.resource, known_as))
    }

    /// Puts the spare, if there is one, into the slot of an idle outdated resource. Destroys the spare if
    /// no resource is outdated.
    pub(crate) fn place_spare(self: &Arc<Self>) {
        let replaced = self.locked(|locked| {
            if locked.state.replacing != Replacing::Ready {
                return None;
            }
            for index in locked.idle_oldest_first() {
                if locked.state.is_outdated(index, locked.slots) && locked.take_this(index) {
                    let replaced = self.replace_in_hand(locked, index);
                    locked.release_unused(index);
                    return replaced;
                }
            }
            let mut slots = locked.slots.iter();
            if slots.any(|(index, _)| locked.state.is_outdated(index, locked.slots)) {
                return None;
            }
            self.take_spare(locked, DestroyReason::Replaced)
        });
        if let Some(replaced) = replaced {
            replaced.destroy_in_background();
        }
    }

    /// Destroys the spare, if `which` selects it.
    pub(crate) fn discard_spare(
        self: &Arc<Self>,
        reason: DestroyReason,
        which: impl Fn(&Meta) -> bool,
    ) {
        let spare = self.locked(|locked| {
            let is_it = self
                .spare
                .lock()
                .as_ref()
                .is_some_and(|spare| which(&spare.meta));
            is_it.then(|| self.take_spare(locked, reason)).flatten()
        });
        if let Some(spare) = spare {
            spare.destroy_in_background();
        }
    }

    fn take_spare(
        self: &Arc<Self>,
        locked: &mut LockedPool<'_, M>,
        reason: DestroyReason,
    ) -> Option<Destroying<M>> {
        let spare = self.spare.lock().take()?;
        locked.end_replacement();
        let known_as = Some((spare.meta.id, reason));
        Some(Destroying::without_slot(self, spare.resource, known_as))
    }
}
