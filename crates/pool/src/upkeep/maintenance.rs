//! The maintenance task: the one background task of a pool, for all timed work. It holds the pool
//! weakly. The first acquire that needs it starts it.
//!
//! Health checks, refills and replacements are tasks of their own, so that a slow one delays no deadline.
//! The maintenance task itself calls only what must not block: the first poll of a destructor,
//! `should_recover` and event callbacks. If the runtime drops the task, the slots are flagged, and the next
//! acquire starts another one. While nobody drives the runtime, `alarm.rs` stands in.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::acquire::create::{self, Creation};
use crate::config::Config;
use crate::core::claims::ClaimKey;
use crate::core::slot::SlotState;
use crate::core::state::Locked;
use crate::core::{Core, Held, wake};
use crate::manager::Manager;
use crate::observe::events::{DestroyReason, Event, Hook};
use crate::observe::log;
use crate::observe::status::ResourceId;
use crate::runtime::{Runtime, within};
use crate::sync::Mutex;
use crate::upkeep::replace::Replacement;
use crate::user_code::{Contained, drop_contained};

/// Wakes the maintenance task of a pool when something is due, and its runtime watches when the pool is
/// dropped.
#[derive(Debug)]
pub(crate) struct Wakeup {
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    rung: u64,
    maintenance: Option<Waker>,
    /// The wakers of the runtime watches, one for each executor.
    runtime_watches: HashMap<u64, Waker>,
}

impl Default for Wakeup {
    fn default() -> Self {
        Wakeup {
            sleepers: Mutex::new(Sleepers::default()),
        }
    }
}

impl Wakeup {
    /// Wakes the maintenance task.
    pub(crate) fn ring(&self) {
        let maintenance = {
            let mut sleepers = self.sleepers.lock();
            sleepers.rung += 1;
            sleepers.maintenance.take()
        };
        maintenance.into_iter().for_each(wake);
    }

    /// Wakes all, because the pool is dropped.
    pub(crate) fn end(&self) {
        self.ring();
        let runtime_watches = std::mem::take(&mut self.sleepers.lock().runtime_watches);
        runtime_watches.into_values().for_each(wake);
    }

    /// Returns ready if `ring` was called since `seen`.
    fn poll(&self, seen: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        // Cloned before the lock, and the old one dropped after it: both run the executor's code.
        let waker = Contained::new(cx.waker().clone());
        let mut sleepers = self.sleepers.lock();
        if sleepers.rung != *seen {
            *seen = sleepers.rung;
            return Poll::Ready(());
        }
        let old = sleepers.maintenance.replace(waker.into_inner());
        drop(sleepers);
        drop_contained(old);
        Poll::Pending
    }

    /// Drops the waker of a runtime watch.
    fn forget(&self, domain: u64) {
        let old = self.sleepers.lock().runtime_watches.remove(&domain);
        drop_contained(old);
    }

    /// Stores the waker of the runtime watch of this executor.
    fn watch(&self, domain: u64, cx: &mut Context<'_>) {
        let waker = cx.waker().clone();
        let old = self.sleepers.lock().runtime_watches.insert(domain, waker);
        drop_contained(old);
    }
}

/// Starts the maintenance task, which the state has noted already.
pub(crate) fn start<M: Manager>(core: &Arc<Core<M>>) {
    let maintenance = Maintenance {
        core: Arc::downgrade(core),
        ran: false,
    };
    let runtime = Arc::clone(&core.runtime);
    let wakeup = Arc::clone(&core.wakeup);
    core.spawn(Box::pin(maintenance.run(runtime, wakeup)));
}

struct Maintenance<M: Manager> {
    core: Weak<Core<M>>,
    ran: bool,
}

impl<M: Manager> Maintenance<M> {
    async fn run(mut self, runtime: Arc<dyn Runtime>, wakeup: Arc<Wakeup>) {
        self.ran = true;
        let mut seen = 0;
        // The first run finds whatever rang before it.
        let _ = poll_fn(|cx| Poll::Ready(wakeup.poll(&mut seen, cx))).await;
        while let Some(next) = self.run_due_work() {
            // Nothing is held here: a cancel ends only the maintenance task.
            let mut sleep = next.map(|until| runtime.sleep_aside(until));
            poll_fn(|cx| {
                let slept = match &mut sleep {
                    Some(sleep) => sleep.as_mut().poll(cx),
                    None => Poll::Pending,
                };
                if slept.is_ready() {
                    return slept;
                }
                wakeup.poll(&mut seen, cx)
            })
            .await;
        }
    }

    /// Does what is due. Returns when something is due next, if anything; `None` ends the task, because
    /// the pool is closed or dropped.
    fn run_due_work(&self) -> Option<Option<Instant>> {
        let core = self.core.upgrade()?;
        core.consider_recovery();
        create::end_overdue(&core);
        let plan = core.locked(|locked| {
            if locked.state.closed {
                return None;
            }
            locked.pass_time();
            let now = locked.clock.now();
            let mut plan = Plan::default();
            if let Some(interval) = core.config.healthcheck_interval {
                let state = &mut *locked.state;
                match state.next_healthcheck {
                    Some(due) if due <= now => {
                        plan.healthcheck = !std::mem::replace(&mut state.healthcheck_runs, true);
                        state.next_healthcheck = now.checked_add(interval);
                    }
                    Some(_) => {}
                    None => state.next_healthcheck = now.checked_add(interval),
                }
            }
            if let Some(interval) = core.config.sweep_interval()
                && locked.state.next_sweep.is_none_or(|due| due <= now)
            {
                sweep(&core.config, locked, &mut plan);
                locked.state.next_sweep = now.checked_add(interval);
            }
            plan.replaces = locked.begin_replacement();
            while locked.state.total() < locked.state.min && locked.state.may_refill(now) {
                plan.refills.push(locked.begin_own_creation());
            }
            plan.next = locked.state.next_due(now);
            locked.state.maintenance = Some(plan.next);
            Some(plan)
        })?;
        core.set_alarm(plan.next);
        for claim in plan.refills {
            let creation = Creation::new(&core, claim, None);
            core.spawn(Box::pin(async move {
                // The creation itself reports an error.
                drop_contained(creation.run().await);
            }));
        }
        for (claim, old) in plan.replacements {
            let creation = Creation::new(&core, claim, None);
            let limit = core.config.max_lifetime.map(|lifetime| {
                // Enough time for a slow server, even if the lifetime is short.
                (lifetime / 4).max(core.config.cleanup_timeout)
            });
            let runtime = Arc::clone(&core.runtime);
            let replace = replace(creation, Arc::downgrade(&core), old, runtime, limit);
            core.spawn(Box::pin(replace));
        }
        if plan.replaces {
            core.spawn(Box::pin(Replacement::new(&core).run()));
        }
        core.place_spare();
        for leak in plan.leaks {
            if let Event::LeakSuspected {
                resource,
                caller,
                held_for,
            } = &leak
            {
                log::leak_suspected(core.name(), *resource, *held_for, caller);
            }
            core.emit(&leak);
        }
        if plan.healthcheck {
            let run = HealthRun {
                core: Arc::downgrade(&core),
            };
            core.spawn(Box::pin(run.check_all()));
        }
        Some(plan.next)
    }
}

impl<M: Manager> Drop for Maintenance<M> {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        core.locked(|locked| {
            let state = &mut *locked.state;
            state.maintenance = None;
            if state.closed {
                return;
            }
            // Its runtime is gone. The next acquire starts another task; the waiters are woken to do
            // so themselves.
            state.maintenance_lost = core.config.needs_maintenance() || state.min > 0;
            state.next_healthcheck = None;
            state.next_sweep = None;
            for meta in &mut state.metas {
                // The replacements were dropped with the runtime.
                meta.replaced = false;
            }
            state.update_watch_flags(locked.slots);
            if self.ran {
                for key in state.waiters.keys() {
                    let waker = state.waiters.get_mut(key).and_then(|w| w.waker.take());
                    locked.deferred.wake(waker);
                }
            }
        });
    }
}

/// What there is to do after the unlock.
#[derive(Default)]
struct Plan {
    next: Option<Instant>,
    healthcheck: bool,
    /// Claimed slots to refill.
    refills: Vec<ClaimKey>,
    /// Claimed slots for replacements, and the resource that each replaces.
    replacements: Vec<(ClaimKey, ResourceId)>,
    leaks: Vec<Event>,
    /// A resource is to be created that replaces an outdated one.
    replaces: bool,
}

/// Checks every resource against `idle_timeout`, `max_lifetime` and `leak_warning`.
fn sweep<T, F>(config: &Config, locked: &mut Locked<'_, T, F>, plan: &mut Plan) {
    let now = locked.clock.now();
    // The idle ones first, oldest first; then the others.
    let mut order = locked.idle_oldest_first();
    let mut listed = vec![false; locked.slots.len()];
    for &index in &order {
        listed[index] = true;
    }
    order.extend((0..listed.len()).filter(|&index| !listed[index]));
    for index in order {
        let slot = locked.slots.at(index);
        let word = slot.word();
        let Some(meta) = locked.state.metas.get_mut(index) else {
            continue;
        };
        // Also for reserved slots: under contention a slot is reserved as often as it is leased.
        let expired = meta.expires.is_some_and(|expires| expires <= now);
        meta.is_expired = expired;
        if !matches!(word.state(), SlotState::Idle | SlotState::Leased) {
            continue;
        }
        if meta.seen.0 != word.mark() {
            meta.seen = (word.mark(), now);
        }
        let unchanged_for = now.saturating_duration_since(meta.seen.1);
        if word.state() == SlotState::Leased
            && meta.warned != Some(word.mark())
            && config
                .leak_warning
                .is_some_and(|limit| unchanged_for >= limit)
            && let Some(caller) = slot.caller()
        {
            meta.warned = Some(word.mark());
            plan.leaks.push(Event::LeakSuspected {
                resource: meta.id,
                caller,
                held_for: unchanged_for,
            });
        }
        if expired && !meta.replaced {
            if !locked.state.has_room() {
                // No room for a replacement. A leased resource is destroyed when it comes back.
                slot.set_must_lock();
                locked.retire(index, DestroyReason::Lifetime);
            } else if locked.state.may_refill(now) {
                // The old resource serves until its replacement exists.
                let old = &mut locked.state.metas[index];
                old.replaced = true;
                let old = old.id;
                plan.replacements.push((locked.begin_own_creation(), old));
            }
        } else if word.state() == SlotState::Idle
            && config
                .idle_timeout
                .is_some_and(|limit| unchanged_for >= limit)
            && locked.state.above_min()
        {
            locked.retire(index, DestroyReason::IdleTimeout);
        }
    }
}

/// Creates a resource, then retires the one that it replaces. If the creation fails, the old one stays,
/// and the next sweep tries again.
async fn replace<M: Manager>(
    creation: Creation<M>,
    core: Weak<Core<M>>,
    old: ResourceId,
    runtime: Arc<dyn Runtime>,
    limit: Option<Duration>,
) {
    // A cancel here frees the new slot; the old resource stays. So does the time limit, because a
    // creation that hangs must not block the next attempt.
    let made = within(&*runtime, limit, creation.run()).await;
    let is_made = matches!(made, Some(Ok(())));
    drop_contained(made);
    let Some(core) = core.upgrade() else { return };
    core.locked(|locked| {
        for meta in locked.state.metas.iter_mut().filter(|meta| meta.id == old) {
            meta.replaced = false;
        }
        if is_made {
            locked.retire_where(|meta| (meta.id == old).then_some(DestroyReason::Lifetime));
        }
    });
}

/// One round of health checks. While it exists no other round starts.
struct HealthRun<M: Manager> {
    core: Weak<Core<M>>,
}

impl<M: Manager> HealthRun<M> {
    /// Checks every idle resource, one after another, oldest first.
    async fn check_all(self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let idle = core.locked(|locked| locked.idle_oldest_first());
        drop(core);
        for index in idle {
            // The pool is kept alive only while a check runs.
            let Some(core) = self.core.upgrade() else {
                return;
            };
            let (taken, idle_since) = core.locked(|locked| {
                let mark = locked.slots.at(index).word().mark();
                let (seen, since) = locked.state.metas[index].seen;
                let taken = locked.take_this(index);
                (taken, (seen == mark).then_some(since))
            });
            if !taken {
                continue;
            }
            let mut held = Held::new(Arc::clone(&core), index);
            // A cancel here drops `held`, which destroys the resource.
            let (pool, resource, info) = held.parts();
            match pool.call_healthcheck(resource, info).await {
                Ok(()) => {
                    // A check does not end the time that the resource has been idle.
                    if let Some(since) = idle_since {
                        let mark = core.slots.at(index).word().mark_when_idle();
                        core.state().metas[index].seen = (mark, since);
                    }
                    held.give_back();
                }
                Err(refusal) => {
                    let destroying = held.into_destroying(DestroyReason::Unhealthy);
                    if let Some(error) = refusal {
                        core.hook_failed(index, Hook::Healthcheck, error);
                    }
                    destroying.destroy_quietly().await;
                }
            }
        }
    }
}

impl<M: Manager> Drop for HealthRun<M> {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.state().healthcheck_runs = false;
        }
    }
}

/// Starts a runtime watch for this executor, if there is none: a task that does nothing, and whose drop
/// means that the executor has shut down, and all I/O with it. Returns `false` if it has shut down already.
pub(crate) fn watch_domain<M: Manager>(core: &Arc<Core<M>>, domain: u64) -> bool {
    {
        let mut state = core.state();
        if state.domains.contains(&domain) {
            return true;
        }
        state.domains.push(domain);
    }
    let runtime_watch = RuntimeWatch {
        core: Arc::downgrade(core),
        domain,
    };
    let wakeup = Arc::clone(&core.wakeup);
    core.spawn(Box::pin(poll_fn(move |cx| {
        wakeup.watch(runtime_watch.domain, cx);
        // Read last: a pool that was dropped before has not found the waker.
        match runtime_watch.core.strong_count() {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })));
    core.state().domains.contains(&domain)
}

struct RuntimeWatch<M: Manager> {
    core: Weak<Core<M>>,
    domain: u64,
}

impl<M: Manager> Drop for RuntimeWatch<M> {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        core.wakeup.forget(self.domain);
        core.locked(|locked| {
            locked.state.domains.retain(|&domain| domain != self.domain);
            locked.retire_where(|meta| {
                (meta.domain == Some(self.domain)).then_some(DestroyReason::RuntimeGone)
            });
        });
        let reason = DestroyReason::RuntimeGone;
        core.discard_spare(reason, |meta| meta.domain == Some(self.domain));
    }
}
