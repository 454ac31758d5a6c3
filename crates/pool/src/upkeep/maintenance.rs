//! The maintenance task: the one background task of a pool, for everything that is due
//! at some time. It holds the pool weakly, and is started by the first acquire
//! that needs it.
//!
//! Health checks, refills and replacements are tasks of their own, so that a slow
//! one delays no deadline. What the maintenance task calls itself is what must not block:
//! the first poll of a destructor, `should_recover`, event callbacks. If the runtime drops the maintenance task, the slots are flagged, and the
//! next acquire starts another one. While nobody drives the runtime, `alarm.rs` serves those who wait.

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
use crate::upkeep::replace::Making;
use crate::user_code::{Contained, drop_contained};

/// Wakes the maintenance task of one pool when something is due, and its runtime_watches when the pool is gone.
#[derive(Debug)]
pub(crate) struct Wakeup {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    rung: u64,
    maintenance: Option<Waker>,
    /// By the executor that each watches: however many there are, each has one entry.
    runtime_watches: HashMap<u64, Waker>,
}

impl Default for Wakeup {
    fn default() -> Self {
        Wakeup {
            listeners: Mutex::new(Listeners::default()),
        }
    }
}

impl Wakeup {
    /// Wakes the maintenance task.
    pub(crate) fn ring(&self) {
        let maintenance = {
            let mut listeners = self.listeners.lock();
            listeners.rung += 1;
            listeners.maintenance.take()
        };
        maintenance.into_iter().for_each(wake);
    }

    /// Wakes everybody: the pool is gone.
    pub(crate) fn end(&self) {
        self.ring();
        let runtime_watches = std::mem::take(&mut self.listeners.lock().runtime_watches);
        runtime_watches.into_values().for_each(wake);
    }

    /// Ready when the wake-up has rung since `seen`.
    fn poll(&self, seen: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        // Cloned before the lock, and an old one dropped after: both are an executor's code.
        let waker = Contained::new(cx.waker().clone());
        let mut listeners = self.listeners.lock();
        if listeners.rung != *seen {
            *seen = listeners.rung;
            return Poll::Ready(());
        }
        let old = listeners.maintenance.replace(waker.into_inner());
        drop(listeners);
        drop_contained(old);
        Poll::Pending
    }

    /// Drops the waker of a runtime_watch that is gone.
    fn forget(&self, domain: u64) {
        let old = self.listeners.lock().runtime_watches.remove(&domain);
        drop_contained(old);
    }

    /// Leaves the waker of the runtime_watch of this executor.
    fn watch(&self, domain: u64, cx: &mut Context<'_>) {
        let waker = cx.waker().clone();
        let old = self.listeners.lock().runtime_watches.insert(domain, waker);
        drop_contained(old);
    }
}

/// Starts the maintenance task. The state has noted that there is one.
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
        // Whatever rang before the first look is seen by that look.
        let _ = poll_fn(|cx| Poll::Ready(wakeup.poll(&mut seen, cx))).await;
        while let Some(next) = self.look() {
            // Nothing is held here: a cancel loses only the maintenance task.
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

    /// Does what is due. `None`: the pool is closed or gone; otherwise when to
    /// look next, if ever.
    fn look(&self) -> Option<Option<Instant>> {
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
                // The creation itself tells of an error.
                drop_contained(creation.run().await);
            }));
        }
        for (claim, old) in plan.replacements {
            let creation = Creation::new(&core, claim, None);
            let limit = core.config.max_lifetime.map(|lifetime| {
                // Time enough for a slow server, however short the lifetime.
                (lifetime / 4).max(core.config.cleanup_timeout)
            });
            let runtime = Arc::clone(&core.runtime);
            let replace = replace(creation, Arc::downgrade(&core), old, runtime, limit);
            core.spawn(Box::pin(replace));
        }
        if plan.replaces {
            core.spawn(Box::pin(Making::new(&core).run()));
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
            // Its runtime is gone. The next acquire starts another one; those
            // who wait with a deadline are woken to do it themselves.
            state.maintenance_lost = core.config.needs_maintenance() || state.min > 0;
            state.next_healthcheck = None;
            state.next_sweep = None;
            for meta in &mut state.metas {
                // Replacements went with the runtime.
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

/// What a look found to do.
#[derive(Default)]
struct Plan {
    next: Option<Instant>,
    healthcheck: bool,
    /// Claimed places to be filled.
    refills: Vec<ClaimKey>,
    /// Claimed places to be filled, and the resource each replaces.
    replacements: Vec<(ClaimKey, ResourceId)>,
    leaks: Vec<Event>,
    /// A resource is to be made that replaces an outdated one.
    replaces: bool,
}

/// Looks at every resource: idle too long, lived too long, out too long.
fn sweep<T, F>(config: &Config, locked: &mut Locked<'_, T, F>, plan: &mut Plan) {
    let now = locked.clock.now();
    // Idle ones first, oldest first; then whatever else there is.
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
        // One that goes from hand to hand in a crowd is reserved as often as it is leased.
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
                // Break first. A leased one goes when it comes back.
                slot.set_must_lock();
                locked.retire(index, DestroyReason::Lifetime);
            } else if locked.state.may_refill(now) {
                // Make before break: the old one serves until the new one is
                // there. Where a creation has to wait, so does this.
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

/// Makes a resource, then dooms the one it replaces. If it cannot be made, the
/// old one stays, and the next sweep tries again.
async fn replace<M: Manager>(
    creation: Creation<M>,
    core: Weak<Core<M>>,
    old: ResourceId,
    runtime: Arc<dyn Runtime>,
    limit: Option<Duration>,
) {
    // A cancel here gives the new place back; the old resource stays. So does
    // running out of time: one that hangs must not keep the old one for ever.
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

/// One round of health checks. While it exists no other one starts.
struct HealthRun<M: Manager> {
    core: Weak<Core<M>>,
}

impl<M: Manager> HealthRun<M> {
    /// Checks every idle resource, one after the other, oldest first.
    async fn check_all(self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let idle = core.locked(|locked| locked.idle_oldest_first());
        drop(core);
        for index in idle {
            // The pool is held only while a check runs.
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
                    // A check is no use: the resource has been idle all along.
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

/// Makes sure that a runtime_watch watches this executor: a task that does nothing,
/// and whose drop tells that the executor is gone, and all I/O with it.
/// `false` if it is gone already.
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
        // Progress at last: a handle that is gone by now has not seen the waker.
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
