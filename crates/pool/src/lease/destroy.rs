//! Destroying a resource: one guard for all reasons.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::core::{Core, signal};
use crate::error::{DestroyError, chain};
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Event};
use crate::observe::log;
use crate::observe::status::ResourceId;
use crate::runtime::Task;
use crate::user_code::{drop_caught, drop_contained};

/// A resource that is being destroyed. Dropping this drops what is left of it, reports the end, and
/// frees the slot.
pub(crate) struct Destroying<M: Manager> {
    core: Arc<Core<M>>,
    resource: Option<M::Resource>,
    /// The slot of the resource, which counts until the end.
    slot: Option<usize>,
    /// The number of the resource, and why it is destroyed. A resource that was never in the pool causes
    /// no event.
    known_as: Option<(ResourceId, DestroyReason)>,
    error: Option<Arc<str>>,
}

impl<M: Manager> Destroying<M> {
    /// Takes the resource out of a slot that the caller owns and has marked as being destroyed.
    pub(crate) fn new(core: &Arc<Core<M>>, index: usize, reason: DestroyReason) -> Self {
        // SAFETY: the caller owns the slot: it is leased, and not to a lease.
        let mut filled = unsafe { core.slots.at(index).take_out() };
        if core.is_inherited() {
            // A destructor, or even a drop, would end the parent's resource.
            std::mem::forget(filled.take());
        }
        let id = core.state().metas[index].id;
        Destroying {
            core: Arc::clone(core),
            resource: filled.map(|filled| filled.resource),
            slot: Some(index),
            known_as: Some((id, reason)),
            error: None,
        }
    }

    /// Destroys a resource that has lost its slot to another, or never had one.
    pub(crate) fn without_slot(
        core: &Arc<Core<M>>,
        resource: M::Resource,
        known_as: Option<(ResourceId, DestroyReason)>,
    ) -> Self {
        Destroying {
            core: Arc::clone(core),
            resource: Some(resource),
            slot: None,
            known_as,
            error: None,
        }
    }

    /// Runs the destructor, within the cleanup timeout.
    pub(crate) async fn destroy(mut self) -> Result<(), DestroyError<M::Error>> {
        let Some(resource) = self.resource.take() else {
            return Ok(());
        };
        // A cancel here drops the destructor with the resource in it; `self` then frees the slot.
        let result = self.core.call_destroy(resource).await;
        self.error = result.as_ref().err().map(|error| chain(error));
        result
    }

    /// Runs the destructor. Only the events and the log report its error.
    pub(crate) async fn destroy_quietly(self) {
        drop_contained(self.destroy().await);
    }

    /// Destroys at once if the destructor does not wait, otherwise on the runtime. If the runtime drops
    /// the destructor, the resource is dropped.
    pub(crate) fn destroy_in_background(self) {
        let core = Arc::clone(&self.core);
        run_in_background(&core, self.destroy_quietly());
    }
}

/// Polls a task once, and leaves the rest to the runtime, which may drop it. If the runtime cannot be
/// entered here, it gets the whole task.
pub(crate) fn run_in_background<M: Manager>(
    core: &Core<M>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let mut task: Task = Box::pin(task);
    let mut polled = Poll::Pending;
    core.enter(|| {
        polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    });
    if polled.is_pending() {
        core.spawn(task);
    }
}

impl<M: Manager> Drop for Destroying<M> {
    fn drop(&mut self) {
        if self.core.is_inherited() {
            std::mem::forget(self.resource.take());
            return;
        }
        if let Some(resource) = self.resource.take()
            && let Err(panic) = drop_caught(resource)
        {
            self.error = Some(panic);
        }
        let core = &self.core;
        let error = self.error.take();
        let Some((resource, reason)) = self.known_as else {
            return;
        };
        if let Some(error) = &error {
            log::destroy_failed(core.name(), resource, error);
        }
        core.emit(&Event::Destroyed {
            resource,
            reason,
            error,
        });
        let Some(index) = self.slot else { return };
        core.locked(|locked| {
            let probe = locked.state.metas[index].probe.take();
            locked.end_probe(probe, None);
            locked.vacate(index, reason);
        });
        if core.signals() & signal::JUDGING != 0 {
            core.forget_predicates();
        }
    }
}
