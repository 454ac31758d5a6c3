//! The end of a resource: one guard, whatever the reason.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::core::Core;
use crate::error::{DestroyError, chain};
use crate::events::{DestroyReason, Event};
use crate::log;
use crate::manager::Manager;
use crate::user_code::drop_caught;

/// A resource on its way out, with its place. Its place counts until this is
/// dropped, which destroys what is still there by dropping it.
pub(crate) struct Condemned<M: Manager> {
    core: Arc<Core<M>>,
    index: usize,
    resource: Option<M::Resource>,
    reason: DestroyReason,
    error: Option<Arc<str>>,
}

impl<M: Manager> Condemned<M> {
    /// Takes the resource out of a slot that the caller owns and has sentenced.
    pub(crate) fn new(core: &Arc<Core<M>>, index: usize, reason: DestroyReason) -> Self {
        // SAFETY: the caller owns the slot: it is leased, and not to a lease.
        let mut filled = unsafe { core.slots.at(index).take_out() };
        if core.is_inherited() {
            // The parent's: a destructor, or a mere drop, would end it there.
            std::mem::forget(filled.take());
        }
        Condemned {
            core: Arc::clone(core),
            index,
            resource: filled.map(|filled| filled.resource),
            reason,
            error: None,
        }
    }

    /// Runs the destructor to its end, or to that of the cleanup time.
    pub(crate) async fn destroy(mut self) -> Result<(), DestroyError<M::Error>> {
        let Some(resource) = self.resource.take() else {
            return Ok(());
        };
        // A cancel here drops the destructor with the resource in it; `self`
        // then frees the place.
        let result = self.core.call_destroy(resource).await;
        self.error = result.as_ref().err().map(|error| chain(error));
        result
    }

    /// Destroys without anybody waiting: at once if the destructor does not
    /// wait, else on the runtime; if that drops it, the resource is dropped.
    pub(crate) fn destroy_in_background(self) {
        let core = Arc::clone(&self.core);
        run_in_background(&core, async move {
            // The error is told by `drop`, which is the only address here.
            let _ = self.destroy().await;
        });
    }
}

/// Destroys a resource that never got a place, without anybody waiting.
pub(crate) fn destroy_unused<M: Manager>(core: &Arc<Core<M>>, resource: M::Resource) {
    let owner = Arc::clone(core);
    run_in_background(core, async move {
        // It never was anybody's: its creation is reported as failed instead.
        let _ = owner.call_destroy(resource).await;
    });
}

/// Polls once; what is not done then goes on the runtime, or is dropped by it.
pub(crate) fn run_in_background<M: Manager>(
    core: &Core<M>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let mut task = Box::pin(task);
    let mut context = Context::from_waker(Waker::noop());
    let mut polled = Poll::Pending;
    core.runtime
        .enter(&mut || polled = task.as_mut().poll(&mut context));
    if polled.is_pending() {
        core.runtime.spawn(task);
    }
}

impl<M: Manager> Drop for Condemned<M> {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take()
            && let Err(panic) = drop_caught(resource)
        {
            self.error = Some(panic);
        }
        let core = &self.core;
        let (index, reason) = (self.index, self.reason);
        let error = self.error.take();
        let resource = core.state().metas[index].id;
        if let Some(error) = &error {
            log::destroy_failed(core.name(), resource, error);
        }
        core.tell(&Event::Destroyed {
            resource,
            reason,
            error,
        });
        core.turn(|turn| {
            let probe = turn.state.metas[index].probe.take();
            turn.end_probe(probe, None);
            turn.vacate(index, reason);
        });
    }
}
