//! A creation is a task of the pool: it continues when the acquire that caused it is dropped, and its
//! resource goes to the oldest waiter.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::breaker::Failure;
use crate::core::backoff::random;
use crate::core::claims::ClaimKey;
use crate::core::state::Meta;
use crate::core::waiters::WaiterKey;
use crate::core::{Core, CreateFailure, Filled, LockedPool};
use crate::info::Origin;
use crate::lease::destroy::{Destroying, run_in_background};
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Event};
use crate::observe::log;
use crate::observe::status::CreationError;
use crate::upkeep::maintenance;
use crate::user_code::drop_contained;

/// A claimed slot in which a resource is being created. Dropping it frees the slot and fails the
/// creation. A creation that exceeds the create timeout loses its slot even if its executor does not
/// run it ([`end_overdue`]); its resource is destroyed then.
pub(crate) struct Creation<M: Manager> {
    core: Arc<Core<M>>,
    claim: ClaimKey,
    /// The acquire that receives the error.
    starter: Option<WaiterKey>,
    began: Instant,
    /// The pool's generation when the creation began.
    generation: u64,
    done: bool,
}

impl<M: Manager> Creation<M> {
    /// Takes responsibility for a slot that the caller has claimed.
    pub(crate) fn new(core: &Arc<Core<M>>, claim: ClaimKey, starter: Option<WaiterKey>) -> Self {
        Creation {
            core: Arc::clone(core),
            claim,
            starter,
            began: core.now(),
            generation: core.state().generation,
            done: false,
        }
    }

    /// Starts the creation: the first poll happens here, the others on the runtime. A `create` that does
    /// not wait is done when this returns.
    pub(crate) fn start(self) {
        let core = Arc::clone(&self.core);
        run_in_background(&core, async move {
            // An error that nobody waits for has been reported.
            drop_contained(self.run().await);
        });
    }

    /// Runs `create` and stores the resource. Returns the failure if no acquire waits for it.
    pub(crate) async fn run(mut self) -> Result<(), CreateFailure<M::Error>> {
        // A cancel here drops the future of `create`; `self` frees the slot.
        let result = self.core.call_create().await;
        self.done = true;
        match result {
            Ok(resource) => match self.succeeded(resource) {
                Some(failure) => Err(failure),
                None => Ok(()),
            },
            Err(failure) => match self.failed(failure) {
                Some(failure) => Err(failure),
                None => Ok(()),
            },
        }
    }

    /// Puts a new resource into its slot. Returns a failure, as `failed` does, if the resource is of no
    /// use.
    fn succeeded(&self, resource: M::Resource) -> Option<CreateFailure<M::Error>> {
        let core = &self.core;
        let made = match NewResource::new(core, resource, self.began, self.generation) {
            Ok(made) => made,
            Err(failure) => return self.failed(failure),
        };
        let slot = core.slots.at(self.claim.slot());
        let now = core.runtime.coarse_now();
        let mut made = Some(made);
        core.locked(|locked| {
            if !locked.state.claims.stands(self.claim) {
                return;
            }
            let Some(made) = made.take() else { return };
            slot.stamp(now);
            slot.note_pool();
            let (resource, mut meta) = made.into_parts(locked);
            let filled = Filled {
                resource,
                origin: Origin::new(&meta, slot, &core.runtime),
                core: Some(Arc::clone(core)),
            };
            // SAFETY: a creation owns its slot.
            unsafe { slot.put(filled) };
            meta.seen.0 = slot.word().mark_when_idle();
            let is_outdated = meta.generation != locked.state.generation;
            locked.created(self.claim.slot(), self.starter, meta);
            if is_outdated {
                locked.replace_later();
            }
        });
        // Too late: the slot has gone to another, and the failure was reported then.
        let late = made?;
        Destroying::without_slot(core, late.resource, None).destroy_in_background();
        Some(core.creation_is_late())
    }

    fn failed(&self, failure: CreateFailure<M::Error>) -> Option<CreateFailure<M::Error>> {
        failed(&self.core, self.claim, self.starter, self.began, failure)
    }
}

/// Ends a creation without a resource. Returns the failure if no acquire waits for it.
fn failed<M: Manager>(
    core: &Arc<Core<M>>,
    claim: ClaimKey,
    starter: Option<WaiterKey>,
    began: Instant,
    failure: CreateFailure<M::Error>,
) -> Option<CreateFailure<M::Error>> {
    let error = failure.message();
    let may_retry = core.may_retry(&failure);
    let mut failure = Some(Box::new(failure));
    let ended = core.locked(|locked| {
        if !locked.state.claims.stands(claim) {
            return false;
        }
        let now = locked.clock.now();
        let in_a_row = locked.state.backoff.failed(began, now, random());
        locked.state.last_creation_error = Some(CreationError {
            message: Arc::clone(&error),
            in_a_row,
        });
        let probe = starter.and_then(|key| {
            let waiter = locked.state.waiters.get_mut(key)?;
            waiter.probe.take().map(NonZeroU64::get)
        });
        // The starter receives its error first: the end of the probe may open the breaker, which
        // fails all waiters.
        if let Some(due) = failure.take() {
            let may_retry = may_retry && probe.is_none();
            failure = locked.create_failed(claim.slot(), starter, due, may_retry);
        }
        locked.end_probe(probe, Some(false));
        true
    });
    if ended {
        let delivered = failure.is_none();
        if !delivered {
            log::create_failed(core.name(), &error);
        }
        core.emit(&Event::CreateFailed {
            error: Arc::clone(&error),
            delivered,
        });
        core.report(Some(&Failure::Create(error)));
    }
    failure.map(|failure| *failure)
}

/// Ends the creations that exceed the create timeout. Their own timers do the same, if their executor
/// runs them.
pub(crate) fn end_overdue<M: Manager>(core: &Arc<Core<M>>) {
    let now = core.now();
    loop {
        let overdue = core.state().claims.overdue(now);
        let Some(overdue) = overdue else { return };
        let failure = core.creation_is_late();
        drop_contained(failed(
            core,
            overdue.key,
            overdue.starter,
            overdue.began,
            failure,
        ));
    }
}

impl<M: Manager> Drop for Creation<M> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let why = "the runtime dropped the creation";
        drop_contained(self.failed(CreateFailure::Broken(why.into())));
    }
}

/// A resource that was just created.
pub(crate) struct NewResource<M: Manager> {
    pub(crate) resource: M::Resource,
    domain: Option<u64>,
    made: Instant,
    took: Duration,
    expires: Option<Instant>,
    generation: u64,
}

impl<M: Manager> NewResource<M> {
    /// # Errors
    ///
    /// The resource is of no use, because its runtime is shutting down.
    pub(crate) fn new(
        core: &Arc<Core<M>>,
        resource: M::Resource,
        began: Instant,
        generation: u64,
    ) -> Result<Self, CreateFailure<M::Error>> {
        let domain = core.domain();
        if let Some(domain) = domain
            && !maintenance::watch_domain(core, domain)
        {
            Destroying::without_slot(core, resource, None).destroy_in_background();
            let why = "its runtime is shutting down";
            return Err(CreateFailure::Broken(why.into()));
        }
        let made = core.now();
        let took = made.saturating_duration_since(began);
        core.histograms.create.record(took);
        Ok(NewResource {
            resource,
            domain,
            made,
            took,
            expires: lifetime(core, made),
            generation,
        })
    }

    /// Returns the resource, and what the pool knows about it from now on.
    pub(crate) fn into_parts(self, locked: &mut LockedPool<'_, M>) -> (M::Resource, Meta) {
        let id = locked.state.next_id();
        let took = self.took;
        locked.note(|| Event::Created { resource: id, took });
        // The runtime may have shut down since the resource was created.
        let is_gone = |domain| !locked.state.domains.contains(&domain);
        let gone = self.domain.is_some_and(is_gone);
        let meta = Meta {
            id,
            expires: self.expires,
            is_expired: false,
            retiring: gone.then_some(DestroyReason::RuntimeGone),
            returned: 0,
            replaced: false,
            generation: self.generation,
            judged: locked.state.retains,
            domain: self.domain,
            probe: None,
            seen: (0, self.made),
            warned: None,
            reserved_for: None,
        };
        (self.resource, meta)
    }
}

/// Returns when a resource that is created now expires, spread by the jitter so that resources created
/// together do not expire together.
fn lifetime<M: Manager>(core: &Core<M>, now: Instant) -> Option<Instant> {
    let lifetime = core.config.max_lifetime?;
    let jitter = core.config.lifetime_jitter * (random() * 2.0 - 1.0);
    // What no duration can express is for ever.
    let lifetime = Duration::try_from_secs_f64(lifetime.as_secs_f64() * (1.0 + jitter)).ok()?;
    now.checked_add(lifetime)
}
