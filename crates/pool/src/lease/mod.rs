//! Leases: guards that release their resource when they are dropped.

pub(crate) mod destroy;
pub(crate) mod release;

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::core::slot::Slot;
use crate::core::state::AcquireMode;
use crate::core::{Core, Filled, Held};
use crate::hooks::Refusal;
use crate::info::Origin;
use crate::lease::release::{ASKED_AND_KEPT, Next, Return, may_return_unlocked};
use crate::manager::{Manager, Verdict};
use crate::observe::events::DestroyReason;
use crate::observe::status::ResourceId;

/// A leased resource, from a pool that is borrowed meanwhile.
///
/// It derefs to the resource. Dropping it releases the resource, on any thread, with or without a
/// runtime. [`into_owned`](Lease::into_owned) ends the borrow.
#[must_use = "a lease that is dropped at once releases its resource at once"]
pub struct Lease<'p, M: Manager> {
    core: &'p Arc<Core<M>>,
    slot: &'p Slot<Filled<M>>,
    /// A lease is `Sync` if its resource is.
    _of: PhantomData<M::Resource>,
}

impl<'p, M: Manager> Lease<'p, M> {
    /// Takes over a leased slot from the caller.
    #[inline]
    pub(crate) fn new(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        Lease {
            core,
            slot,
            _of: PhantomData,
        }
    }

    /// Releases the slot without the lock; after an `Err` this lease still owns it.
    #[inline]
    fn return_unlocked(&self) -> Result<(), Option<Result<Verdict, Refusal>>> {
        may_return_unlocked(self.core, self.slot)?;
        if self.slot.give() {
            Ok(())
        } else {
            Err(ASKED_AND_KEPT)
        }
    }

    /// Returns an owned lease, which borrows nothing. It keeps the pool working but not open, and costs
    /// no reference count.
    pub fn into_owned(this: Self) -> OwnedLease<M> {
        let this = ManuallyDrop::new(this);
        // SAFETY: the lease owns the slot, and is gone after this.
        let filled = unsafe { this.slot.value_mut() };
        // The slot's own reference to the pool; cloned if it was lost.
        let core = filled.and_then(|filled| filled.core.take());
        OwnedLease {
            core: ManuallyDrop::new(core.unwrap_or_else(|| Arc::clone(this.core))),
            slot: NonNull::from(this.slot),
            _of: PhantomData,
        }
    }

    /// Releases the resource and waits for the async half of the release hook.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the async half runs destroys the resource. Its slot becomes free in any
    /// case.
    pub async fn release(this: Self) {
        let this = ManuallyDrop::new(this);
        if let Err(verdict) = this.return_unlocked() {
            let back = Return::new(this.core, this.slot);
            if let Next::Recycle(back) = back.settle(verdict) {
                back.recycle().await;
            }
        }
    }

    /// Destroys the resource instead of releasing it. For a resource that is known to be broken. The
    /// release hook does not run, and nothing is reported to the breaker.
    pub fn discard(this: Self) {
        let this = ManuallyDrop::new(this);
        discard(this.core, this.slot.index());
    }

    /// Takes the resource out of the lease. Its [`Place`] still counts in the pool, until it is dropped or
    /// the resource is attached again.
    pub fn detach(this: Self) -> (M::Resource, Place<M>) {
        OwnedLease::detach(Lease::into_owned(this))
    }

    /// Returns the number of the resource.
    pub fn id(this: &Self) -> ResourceId {
        // SAFETY: the lease owns the slot and is borrowed.
        let filled = unsafe { this.slot.value() };
        filled.expect("a lease has a resource").origin.id
    }
}

impl<M: Manager> Deref for Lease<'_, M> {
    type Target = M::Resource;

    #[inline]
    fn deref(&self) -> &M::Resource {
        // SAFETY: the lease owns the slot and is borrowed.
        let filled = unsafe { self.slot.value() };
        &filled.expect("a lease has a resource").resource
    }
}

impl<M: Manager> DerefMut for Lease<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Resource {
        // SAFETY: the lease owns the slot and is borrowed mutably.
        let filled = unsafe { self.slot.value_mut() };
        &mut filled.expect("a lease has a resource").resource
    }
}

impl<M: Manager> Drop for Lease<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Err(verdict) = self.return_unlocked() {
            Return::new(self.core, self.slot).settle_in_background(verdict);
        }
    }
}

impl<M: Manager> fmt::Debug for Lease<'_, M>
where
    M::Resource: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&**self).finish()
    }
}

/// A leased resource that borrows nothing; see [`Pool::acquire_owned`](crate::Pool::acquire_owned)
/// and [`Lease::into_owned`].
///
/// It keeps the pool working but not open: when the last handle is dropped the pool closes, and the
/// resource is destroyed when it is released.
#[must_use = "a lease that is dropped at once releases its resource at once"]
pub struct OwnedLease<M: Manager> {
    /// The slot's own reference to the pool; see [`Filled`].
    core: ManuallyDrop<Arc<Core<M>>>,
    slot: NonNull<Slot<Filled<M>>>,
    /// A lease is `Sync` if its resource is.
    _of: PhantomData<M::Resource>,
}

// SAFETY: the pointer is to a slot of `core`, which is kept alive and is `Sync`;
// what it gives access to is the resource, whose own bounds `_of` and these state.
unsafe impl<M: Manager> Send for OwnedLease<M> {}
// SAFETY: as above; a shared lease gives shared access to the resource only.
unsafe impl<M: Manager> Sync for OwnedLease<M> where M::Resource: Sync {}

impl<M: Manager> OwnedLease<M> {
    #[inline]
    fn slot(&self) -> &Slot<Filled<M>> {
        // SAFETY: slots never move, and live as long as `core` does.
        unsafe { self.slot.as_ref() }
    }

    /// Ends the lease without a release; the caller owns the slot, which has its reference to the pool
    /// again.
    fn into_parts(self) -> (Arc<Core<M>>, usize) {
        let mut this = ManuallyDrop::new(self);
        let index = this.slot().index();
        // SAFETY: `this` is never dropped or used again.
        let core = unsafe { ManuallyDrop::take(&mut this.core) };
        put_core(core.slots.at(index), Arc::clone(&core));
        (core, index)
    }

    /// Returns the same lease as one that borrows its pool.
    pub(crate) fn into_borrowed(this: Self, core: &Arc<Core<M>>) -> Lease<'_, M> {
        let (_, index) = this.into_parts();
        Lease::new(core, core.slots.at(index))
    }

    /// Releases the resource and waits for the async half of the release hook.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while the async half runs destroys the resource. Its slot becomes free in any
    /// case.
    pub async fn release(this: Self) {
        let back = {
            let (core, index) = this.into_parts();
            Return::new(Arc::clone(&core), core.slots.at(index))
        };
        if let Next::Recycle(back) = back.settle(None) {
            back.recycle().await;
        }
    }

    /// Destroys the resource instead of releasing it. For a resource that is known to be broken. The
    /// release hook does not run, and nothing is reported to the breaker.
    pub fn discard(this: Self) {
        let (core, index) = this.into_parts();
        discard(&core, index);
    }

    /// Takes the resource out of the lease. Its [`Place`] still counts in the pool, until it is dropped or
    /// the resource is attached again.
    pub fn detach(this: Self) -> (M::Resource, Place<M>) {
        let (core, index) = this.into_parts();
        // SAFETY: the lease owned the slot, and `Place` owns it from here on.
        let filled = unsafe { core.slots.at(index).take_out() };
        let filled = filled.expect("a lease has a resource");
        let origin = filled.origin;
        (
            filled.resource,
            Place {
                core,
                index,
                origin,
            },
        )
    }

    /// Returns whether the holder should release the resource soon: more than `expected` acquires wait, or the pool
    /// would destroy or replace the resource if it were released now. Costs one load while neither can be.
    pub fn is_wanted(this: &Self, expected: usize) -> bool {
        this.slot().word().must_lock() && this.core.wants(this.slot().index(), expected)
    }

    /// Returns the number of the resource.
    pub fn id(this: &Self) -> ResourceId {
        // SAFETY: the lease owns the slot and is borrowed.
        let filled = unsafe { this.slot().value() };
        filled.expect("a lease has a resource").origin.id
    }
}

impl<M: Manager> Deref for OwnedLease<M> {
    type Target = M::Resource;

    #[inline]
    fn deref(&self) -> &M::Resource {
        // SAFETY: the lease owns the slot and is borrowed.
        let filled = unsafe { self.slot().value() };
        &filled.expect("a lease has a resource").resource
    }
}

impl<M: Manager> DerefMut for OwnedLease<M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M::Resource {
        // SAFETY: the lease owns the slot and is borrowed mutably.
        let filled = unsafe { self.slot().value_mut() };
        &mut filled.expect("a lease has a resource").resource
    }
}

impl<M: Manager> Drop for OwnedLease<M> {
    #[inline]
    fn drop(&mut self) {
        let asked = may_return_unlocked(&self.core, self.slot());
        // SAFETY: `self.core` is not used again.
        let core = unsafe { ManuallyDrop::take(&mut self.core) };
        let slot = self.slot;
        let verdict = match asked {
            Err(verdict) => {
                // SAFETY: `core` keeps the slot alive, and this lease owns it.
                let slot = unsafe { slot.as_ref() };
                put_core(slot, Arc::clone(&core));
                return Return::new(core, slot).settle_in_background(verdict);
            }
            Ok(()) => ASKED_AND_KEPT,
        };
        // SAFETY: `core` keeps the slot alive, and this lease owns it.
        put_core(unsafe { slot.as_ref() }, core);
        // SAFETY: the slot keeps the pool alive, and so itself, until it is idle. Then another thread
        // may free it at once: nothing is touched after that.
        if unsafe { Slot::give_through(slot) } {
            return;
        }
        // SAFETY: it is not idle, so the pool is alive and the lease owns the slot.
        let slot = unsafe { slot.as_ref() };
        // SAFETY: as above.
        let filled = unsafe { slot.value() };
        let core = filled.and_then(|filled| filled.core.clone());
        let core = core.expect("put_core has just put it there");
        Return::new(core, slot).settle_in_background(verdict);
    }
}

/// Gives a slot that the caller owns its reference to the pool back.
#[inline]
fn put_core<M: Manager>(slot: &Slot<Filled<M>>, core: Arc<Core<M>>) {
    // SAFETY: the caller owns the slot.
    if let Some(filled) = unsafe { slot.value_mut() } {
        filled.core = Some(core);
    }
}

impl<M: Manager> fmt::Debug for OwnedLease<M>
where
    M::Resource: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedLease").field(&**self).finish()
    }
}

/// A kind of lease that an acquire can hand out.
pub(crate) trait Handout<'p, M: Manager>: Sized {
    /// Where the acquire may get its resource from.
    const MODE: AcquireMode;

    /// Takes over a leased slot.
    fn of(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self;

    /// Returns the result if nothing is available; `None` if that is an error.
    fn nothing() -> Option<Self>;
}

impl<'p, M: Manager> Handout<'p, M> for Lease<'p, M> {
    const MODE: AcquireMode = AcquireMode::Queue;

    #[inline]
    fn of(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        Lease::new(core, slot)
    }

    fn nothing() -> Option<Self> {
        None
    }
}

impl<'p, M: Manager> Handout<'p, M> for OwnedLease<M> {
    const MODE: AcquireMode = AcquireMode::Queue;

    #[inline]
    fn of(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        Lease::into_owned(Lease::new(core, slot))
    }

    fn nothing() -> Option<Self> {
        None
    }
}

impl<'p, M: Manager> Handout<'p, M> for Option<Lease<'p, M>> {
    const MODE: AcquireMode = AcquireMode::Create;

    #[inline]
    fn of(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        Some(Lease::new(core, slot))
    }

    fn nothing() -> Option<Self> {
        Some(None)
    }
}

/// The lease of a resource that was idle, if there was one.
pub(crate) struct IfIdle<M: Manager>(pub(crate) Option<OwnedLease<M>>);

impl<'p, M: Manager> Handout<'p, M> for IfIdle<M> {
    const MODE: AcquireMode = AcquireMode::Idle;

    fn of(core: &'p Arc<Core<M>>, slot: &'p Slot<Filled<M>>) -> Self {
        IfIdle(Some(OwnedLease::of(core, slot)))
    }

    fn nothing() -> Option<Self> {
        Some(IfIdle(None))
    }
}

/// The slot of a resource that `detach` has taken out of its lease.
///
/// It counts as active. [`attach`](Place::attach) puts the resource back. Dropping the place frees the
/// slot, and the resource no longer belongs to the pool.
#[must_use = "dropping a place frees its slot for another resource"]
pub struct Place<M: Manager> {
    /// Dropped before the core, which contains a panic of the runtime's drop.
    origin: Origin,
    core: Arc<Core<M>>,
    index: usize,
}

impl<M: Manager> Place<M> {
    /// Puts a resource back into its slot. The lease continues, and releases the resource when it is
    /// dropped.
    pub fn attach(self, resource: M::Resource) -> OwnedLease<M> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so this moves the field.
        let core = unsafe { std::ptr::read(&raw const this.core) };
        // SAFETY: likewise.
        let origin = unsafe { std::ptr::read(&raw const this.origin) };
        let slot = core.slots.at(this.index);
        let filled = Filled {
            resource,
            origin,
            core: None,
        };
        // SAFETY: the place owned the slot, and the lease owns it from here on.
        unsafe { slot.put(filled) };
        OwnedLease {
            slot: NonNull::from(slot),
            core: ManuallyDrop::new(core),
            _of: PhantomData,
        }
    }
}

impl<M: Manager> Drop for Place<M> {
    fn drop(&mut self) {
        let held = Held::new(&self.core, self.index);
        drop(held.into_destroying(DestroyReason::Detached));
    }
}

impl<M: Manager> fmt::Debug for Place<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

fn discard<M: Manager>(core: &Arc<Core<M>>, index: usize) {
    if core.is_inherited() {
        // Not ours to destroy.
        return;
    }
    let held = Held::new(core, index);
    held.into_destroying(DestroyReason::Discarded)
        .destroy_in_background();
}
