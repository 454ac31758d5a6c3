//! A resource on its way through the acquire hook, and what guards it meanwhile.

use std::sync::Arc;
use std::time::Instant;

use crate::core::slot::Slot;
use crate::core::waiters::WaiterKey;
use crate::core::{Core, Filled, Held};
use crate::info::Info;
use crate::manager::Manager;
use crate::runtime::Limit;

/// A resource in its acquire hook. The hook borrows the resource, so it is first:
/// fields are dropped in order.
pub(crate) struct Checking<'p, M: Manager, H> {
    pub(crate) hook: H,
    pub(crate) unchecked: Unchecked<'p, M>,
    /// Its entry, once the hook waits and there is a deadline to mind.
    pub(crate) key: Option<WaiterKey>,
    /// What few checks need.
    pub(crate) extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub(crate) struct Extra {
    /// When the check began, for the histogram.
    began: Option<Instant>,
    /// The time limit of the hook.
    pub(crate) limit: Limit,
}

impl<'p, M: Manager, H> Checking<'p, M, H> {
    /// Takes out what is in it besides the hook.
    pub(crate) fn take(&mut self) -> (Unchecked<'p, M>, Option<WaiterKey>, Option<Instant>) {
        let extra = self.extra.take();
        let began = extra.and_then(|extra| extra.began);
        (self.unchecked.take_over(), self.key, began)
    }
}

impl Extra {
    #[inline]
    pub(crate) fn new(began: Option<Instant>) -> Option<Box<Extra>> {
        began.map(|began| {
            Box::new(Extra {
                began: Some(began),
                limit: Limit::default(),
            })
        })
    }
}

/// A resource that the acquire hook has not passed. Dropping it destroys the
/// resource: the hook was cut off, so its state is unknown.
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

    /// The resource, and what the pool knows of it.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&'p mut M::Resource, Info<'p>) {
        let slot = self.slot.expect("a guard has a slot");
        // SAFETY: this guard owns the slot, and is asked once, for the hook,
        // which is gone before the guard is.
        let filled = unsafe { slot.value_mut() };
        let filled = filled.expect("a taken slot has a resource");
        let info = Info::new(&filled.born, slot);
        (&mut filled.resource, info)
    }

    /// Notes that nobody holds the resource yet.
    pub(crate) fn note_pool(&self) {
        if let Some(slot) = self.slot {
            slot.note_pool();
        }
    }

    /// Moves the guard's duty to another one.
    pub(crate) fn take_over(&mut self) -> Self {
        let (core, slot) = (self.core, self.slot.take());
        Unchecked { core, slot }
    }

    pub(crate) fn slot(&self) -> Option<&'p Slot<Filled<M>>> {
        self.slot
    }

    /// Takes the slot out of the guard, which does nothing any more.
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
