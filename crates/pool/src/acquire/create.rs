//! A creation is a job of the pool: it goes on when the acquire that caused it
//! is gone, and what it makes serves whoever is first in the queue.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::breaker::Failure;
use crate::core::backoff::random;
use crate::core::claims::ClaimKey;
use crate::core::state::Meta;
use crate::core::waiters::WaiterKey;
use crate::core::{Core, CreateFailure, Filled, LockedPool};
use crate::info::Born;
use crate::lease::destroy::{Destroying, run_in_background};
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Event};
use crate::observe::log;
use crate::observe::status::CreationError;
use crate::upkeep::maintenance;
use crate::user_code::drop_contained;

/// A claimed place in which a resource is being made. Dropping it gives the
/// place back and fails the creation. A creation that takes longer than the create
/// timeout loses its place even if its executor does not run it
/// ([`end_overdue`]): then what it makes is destroyed.
pub(crate) struct Creation<M: Manager> {
    core: Arc<Core<M>>,
    claim: ClaimKey,
    /// The acquire that gets the error.
    starter: Option<WaiterKey>,
    began: Instant,
    /// The pool's generation when it began.
    generation: u64,
    done: bool,
}

impl<M: Manager> Creation<M> {
    /// Takes responsibility for a place that the caller has claimed.
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

    /// Starts the job: the first poll happens here, the rest on the runtime.
    /// A factory that does not wait is done when this returns.
    pub(crate) fn start(self) {
        let core = Arc::clone(&self.core);
        run_in_background(&core, async move {
            // An error that nobody waits for has been told.
            drop_contained(self.run().await);
        });
    }

    /// Runs the factory and puts its result where it belongs. `Err` has the
    /// failure if no acquire waits for it.
    pub(crate) async fn run(mut self) -> Result<(), CreateFailure<M::Error>> {
        // A cancel here drops the factory's future; `self` gives the place back.
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

    /// Puts a new resource into its slot. Gives a failure back as `failed` does,
    /// if the resource is of no use.
    fn succeeded(&self, resource: M::Resource) -> Option<CreateFailure<M::Error>> {
        let core = &self.core;
        let made = match Made::new(core, resource, self.began, self.generation) {
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
                born: Born::new(&meta, slot, &core.runtime),
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
        // Too late: the place has gone to another, and the failure was reported then.
        let late = made?;
        Destroying::without_place(core, late.resource, None).destroy_in_background();
        Some(core.creation_is_late())
    }

    fn failed(&self, failure: CreateFailure<M::Error>) -> Option<CreateFailure<M::Error>> {
        failed(&self.core, self.claim, self.starter, self.began, failure)
    }
}

/// Ends a creation without a resource. Gives the failure back if no acquire waits for it.
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
        // First the error to whom it is due: the probe's end may open the
        // breaker, which fails everybody who still waits.
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

/// Ends the creations that have taken too long. Their own timers do the same, where
/// their executor runs them.
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
        let why = "the runtime dropped the creation before it was done";
        drop_contained(self.failed(CreateFailure::Broken(why.into())));
    }
}

/// A resource that was just made.
pub(crate) struct Made<M: Manager> {
    pub(crate) resource: M::Resource,
    domain: Option<u64>,
    made: Instant,
    took: Duration,
    expires: Option<Instant>,
    generation: u64,
}

impl<M: Manager> Made<M> {
    /// # Errors
    ///
    /// The resource is of no use: its runtime is gone.
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
            Destroying::without_place(core, resource, None).destroy_in_background();
            let why = "the runtime it was made on is shutting down";
            return Err(CreateFailure::Broken(why.into()));
        }
        let made = core.now();
        let took = made.saturating_duration_since(began);
        if let Some(histograms) = &core.histograms {
            histograms.create.record(took);
        }
        Ok(Made {
            resource,
            domain,
            made,
            took,
            expires: lifetime(core, made),
            generation,
        })
    }

    /// The resource, and what is known of it from now on.
    pub(crate) fn into_parts(self, locked: &mut LockedPool<'_, M>) -> (M::Resource, Meta) {
        let id = locked.state.next_id();
        let took = self.took;
        locked.note(|| Event::Created { resource: id, took });
        // Gone since the resource was made.
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
            leased: None,
            seen: (0, self.made),
            warned: None,
            reserved_for: None,
        };
        (self.resource, meta)
    }
}

/// When a resource made now has lived long enough, spread by the jitter so that
/// resources made together do not expire together.
fn lifetime<M: Manager>(core: &Core<M>, now: Instant) -> Option<Instant> {
    let lifetime = core.config.max_lifetime?;
    let jitter = core.config.lifetime_jitter * (random() * 2.0 - 1.0);
    // Longer than a duration can be is for ever.
    let lifetime = Duration::try_from_secs_f64(lifetime.as_secs_f64() * (1.0 + jitter)).ok()?;
    now.checked_add(lifetime)
}
