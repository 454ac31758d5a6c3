//! [`Core`]: what all handles, leases and tasks of one pool share.

pub(crate) mod backoff;
pub(crate) mod claims;
pub(crate) mod grants;
pub(crate) mod slot;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod waiters;

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::acquire::wait::Wait;
use crate::breaker::PoolId;
use crate::config::Config;
use crate::core::grants::Grants;
use crate::core::slot::{Slot, SlotState, Slots};
use crate::core::state::{Clock, Deferred, Locked, MaintenanceCall, State};
use crate::core::waiters::WaiterKey;
use crate::error::{AcquireError, chain};
use crate::hooks::Hooks;
use crate::info::{Info, Origin};
use crate::lease::destroy::Destroying;
use crate::manager::Manager;
use crate::observe::console::Console;
use crate::observe::events::{DestroyReason, Event, Hook, Listeners, Source};
use crate::observe::histogram::Histograms;
use crate::observe::log;
use crate::observe::status::Holder;
use crate::runtime::Runtime;
use crate::runtime::fork;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard};
use crate::upkeep::alarm::Alarm;
use crate::upkeep::maintenance::{self, Wakeup};
use crate::upkeep::replace::{Replacing, Spare};
use crate::upkeep::retain::Predicates;
use crate::user_code::{Contained, contained, drop_contained};

/// The contents of a slot: the resource, and a reference to the core, which moves into an owned
/// lease and back, so that leases count no references.
pub(crate) struct Filled<M: Manager> {
    pub(crate) resource: M::Resource,
    pub(crate) origin: Origin,
    pub(crate) core: Option<Arc<Core<M>>>,
}

/// Why a creation failed.
#[derive(Debug)]
pub(crate) enum CreateFailure<E> {
    Error(E),
    /// It panicked or took too long; the text says which.
    Broken(Arc<str>),
}

impl<E: std::error::Error + 'static> CreateFailure<E> {
    pub(crate) fn message(&self) -> Arc<str> {
        match self {
            CreateFailure::Error(error) => chain(error),
            CreateFailure::Broken(why) => Arc::clone(why),
        }
    }

    pub(crate) fn into_error(self) -> AcquireError<E> {
        match self {
            CreateFailure::Error(error) => AcquireError::Create(error),
            CreateFailure::Broken(why) => AcquireError::CreateFailed(why),
        }
    }
}

pub(crate) type PoolState<M> = State<CreateFailure<<M as Manager>::Error>>;
pub(crate) type LockedPool<'a, M> = Locked<'a, Filled<M>, CreateFailure<<M as Manager>::Error>>;

/// A value on cache lines of its own, so that writes to it do not slow reads of its neighbours.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

pub(crate) struct Core<M: Manager> {
    pub(crate) id: PoolId,
    pub(crate) slots: Slots<Filled<M>>,
    /// The grants of waiters, which they read without the lock.
    grants: Arc<Grants>,
    state: CachePadded<Mutex<PoolState<M>>>,
    /// Bits that mirror the locked state, to be read without the lock; see [`signal`].
    signals: AtomicU64,
    /// A new resource that waits to replace an outdated one. Locked under the state's lock only.
    pub(crate) spare: Mutex<Option<Spare<M>>>,
    /// The predicates of `retain` that some resources have not passed. Locked likewise.
    pub(crate) predicates: Mutex<Predicates<M>>,
    /// The number of handles. Leases and tasks keep the core alive, but only handles keep the pool
    /// open.
    pub(crate) handles: CachePadded<AtomicUsize>,
    pub(crate) manager: Contained<M>,
    pub(crate) hooks: Hooks<M>,
    pub(crate) config: Config,
    pub(crate) runtime: Contained<Arc<dyn Runtime>>,
    pub(crate) listeners: Listeners,
    pub(crate) histograms: Box<Histograms>,
    pub(crate) wakeup: Arc<Wakeup>,
    /// Enforces deadlines while nobody drives the runtime.
    pub(crate) alarm: Alarm,
    /// Shows the pool in tokio-console.
    console: Option<Console>,
}

/// Wakes a waker, which is its executor's code, and contains its panic, so that the other wakers and
/// everything else that was deferred follow.
#[inline]
pub(crate) fn wake(waker: Waker) {
    contained(|| waker.wake());
}

/// Bits of [`Core::signals`], written under the lock.
pub(crate) mod signal {
    /// The pool is closed.
    pub(crate) const CLOSED: u64 = 1;
    /// The breaker has a strategy, which receives reports.
    pub(crate) const REPORTS: u64 = 2;
    /// Somebody is in the queue, so nothing is idle.
    pub(crate) const QUEUED: u64 = 4;
    /// Somebody listens to all events.
    pub(crate) const OBSERVED: u64 = 8;
    /// A spare waits to replace an outdated resource.
    pub(crate) const SPARE: u64 = 16;
    /// Some resource has not passed every predicate of `retain`.
    pub(crate) const JUDGING: u64 = 32;
    /// The pool belongs to the process that forked this one; see `fork.rs`.
    pub(crate) const INHERITED: u64 = 64;
    /// Somebody listens to rare events, or to all.
    pub(crate) const HEARD: u64 = 128;
}

impl<M: Manager> Core<M> {
    pub(crate) fn new(
        manager: M,
        hooks: Hooks<M>,
        config: Config,
        runtime: Arc<dyn Runtime>,
        place: &'static Location<'static>,
    ) -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        // Relaxed: only has to be unique.
        let id = PoolId(NEXT.fetch_add(1, Ordering::Relaxed));
        let console = Console::new(config.name.as_deref(), place);
        let mut state = State::new(&config);
        state.observed = console.is_some();
        Core {
            id,
            slots: Slots::new(),
            grants: state.waiters.grants(),
            state: CachePadded(Mutex::new(state)),
            signals: AtomicU64::new(0),
            spare: Mutex::new(None),
            predicates: Mutex::new(Vec::new()),
            handles: CachePadded(AtomicUsize::new(1)),
            manager: Contained::new(manager),
            hooks,
            histograms: Box::new(Histograms::new(runtime.now())),
            config,
            runtime: Contained::new(runtime),
            listeners: Listeners::default(),
            wakeup: Arc::default(),
            alarm: Alarm::default(),
            console,
        }
    }

    /// Changes the state under the lock, then does what was deferred.
    pub(crate) fn locked<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut LockedPool<'_, M>) -> T,
    ) -> T {
        let mut deferred = Deferred::default();
        let mut guard = self.state.0.lock();
        let mut locked = Locked {
            state: &mut guard,
            slots: &self.slots,
            clock: Clock::new(&**self.runtime),
            deferred: &mut deferred,
        };
        let result = change(&mut locked);
        self.publish_signals(&mut guard);
        drop(guard);
        self.run_deferred(&mut deferred);
        self.update_console();
        result
    }

    /// Returns whether a leased resource should come back: see [`State::wants`].
    pub(crate) fn wants(&self, index: usize, expected: usize) -> bool {
        let clock = Clock::new(&**self.runtime);
        self.state().wants(index, expected, &self.slots, &clock)
    }

    /// Shows the current status in tokio-console, if the pool is shown there.
    #[inline]
    pub(crate) fn update_console(&self) {
        if let Some(console) = &self.console {
            console.update(|| self.state().status(&self.slots));
        }
    }

    /// Locks the state, to read it or to change what nobody waits for.
    #[inline]
    pub(crate) fn state(&self) -> MutexGuard<'_, PoolState<M>> {
        self.state.0.lock()
    }

    /// Joins the queue by the short path, which stores the waker. `None`: enter by
    /// [`Core::locked`].
    #[inline]
    pub(crate) fn join_queue(&self, wait: &Wait, waker: &mut Option<Waker>) -> Option<WaiterKey> {
        let mut state = self.state();
        let key = state.join(wait, waker)?;
        state.check(&self.slots);
        Some(key)
    }

    /// Hands a slot in hand to the oldest waiter by the short path. `false`: release by
    /// [`Core::locked`].
    #[inline]
    pub(crate) fn hand_off(&self, slot: &Slot<Filled<M>>) -> bool {
        // Read before the lock, which others wait for.
        let now = self.runtime.coarse_now();
        let mut state = self.state();
        let Some(waker) = state.hand_off(slot, now) else {
            return false;
        };
        state.check(&self.slots);
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
        true
    }

    /// Does what a change has deferred, without the lock. It must not panic: the result of the change
    /// may own a slot that no guard protects yet.
    #[inline]
    fn run_deferred(self: &Arc<Self>, deferred: &mut Deferred<CreateFailure<M::Error>>) {
        if let Some(waker) = deferred.waker.take() {
            wake(waker);
        }
        if deferred.maintenance != MaintenanceCall::Nothing || deferred.rare.is_some() {
            self.run_rare(deferred);
        }
        // The caller drops the spent wakers.
    }

    #[cold]
    fn run_rare(self: &Arc<Self>, deferred: &mut Deferred<CreateFailure<M::Error>>) {
        if deferred.maintenance != MaintenanceCall::Nothing {
            // Read first: a runtime that is gone drops the maintenance task at once.
            let due = self.state().maintenance.flatten();
            match deferred.maintenance {
                MaintenanceCall::Start => maintenance::start(self),
                _ => self.wakeup.ring(),
            }
            self.set_alarm(due);
        }
        let Some(rare) = deferred.rare.take() else {
            return;
        };
        let rare = *rare;
        rare.wakers.into_iter().for_each(wake);
        for event in &rare.events {
            self.listeners.emit(event);
        }
        self.warn_of_slow_acquires(&rare.slow_acquires);
        for (index, reason) in rare.retiring {
            Destroying::new(self, index, reason).destroy_in_background();
        }
        for index in rare.unjudged {
            self.judge(index);
        }
        for outcome in rare.uncollected {
            drop_contained(outcome);
        }
    }

    /// Collects a waiter's reservation without the lock. `None`: there is none, or it has to be
    /// collected under the lock.
    #[inline]
    pub(crate) fn collect(&self, key: WaiterKey) -> Option<&Slot<Filled<M>>> {
        let grant = self.grants.take(key)?;
        let slot = self.slots.at(grant.slot as usize);
        slot.collect(grant.ticket).then_some(slot)
    }

    /// Drops the entry of a waiter whose resource is still in the acquire hook: the time of the hook
    /// is not part of the time from wake to poll.
    #[cold]
    pub(crate) fn note_collected(&self, slot: &Slot<Filled<M>>) {
        slot.stamp(self.runtime.coarse_now());
        self.state().forget_collected(slot);
    }

    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
    }

    #[inline]
    pub(crate) fn signals(&self) -> u64 {
        // Acquire pairs with the release in `publish_signals`. A signal set at the same moment may
        // be missed, as if this call had come before it.
        self.signals.load(Ordering::Acquire)
    }

    /// Returns whether this process inherited the pool by `fork`.
    pub(crate) fn is_inherited(&self) -> bool {
        self.signals() & signal::INHERITED != 0
    }

    /// Notes that this process inherited the pool; the lock is held.
    pub(crate) fn note_inherited(&self, state: &mut PoolState<M>) {
        self.signals.fetch_or(signal::INHERITED, Ordering::Release);
        self.publish_signals(state);
    }

    /// Publishes the signals of the locked state; the lock is held.
    pub(crate) fn publish_signals(&self, state: &mut PoolState<M>) {
        state.short_paths = state.allows_short_paths();
        let mut signals = 0;
        for (signal, on) in [
            (signal::CLOSED, state.closed),
            (signal::REPORTS, state.breaker.strategy().is_some()),
            (signal::QUEUED, state.waiters.waiting() > 0),
            (signal::OBSERVED, state.observed),
            (signal::HEARD, state.heard),
            (signal::SPARE, state.replacing == Replacing::Ready),
            (signal::JUDGING, state.judging),
        ] {
            signals |= if on { signal } else { 0 };
        }
        // Relaxed: written under the lock only.
        let before = self.signals.load(Ordering::Relaxed);
        signals |= before & signal::INHERITED;
        // Written only when it changes, so that readers keep their cache line.
        if before != signals {
            self.signals.store(signals, Ordering::Release);
        }
    }

    /// Emits an event that happened outside the lock.
    pub(crate) fn emit(&self, event: &Event) {
        if self.signals() & signal::HEARD != 0 {
            self.listeners.emit(event);
        }
    }

    /// Reports to the log and the events that a hook failed with an error.
    pub(crate) fn hook_failed(&self, index: usize, hook: Hook, error: Arc<str>) {
        let resource = self.state().metas[index].id;
        log::hook_failed(self.name(), resource, &error);
        self.emit(&Event::HookFailed {
            resource,
            hook,
            error,
        });
    }

    /// Returns the current leases, longest first, `most` at most.
    pub(crate) fn holders(&self, most: usize) -> Vec<Holder> {
        let mut leased: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.word().state() == SlotState::Leased)
            .filter_map(|(index, slot)| Some((slot.since(), index, slot.caller()?)))
            .collect();
        let by_age = |lease: &(u64, usize, _)| lease.0;
        if leased.len() > most {
            leased.select_nth_unstable_by_key(most, by_age);
            leased.truncate(most);
        }
        leased.sort_by_key(by_age);
        let now = self.runtime.coarse_now();
        // Only the resources' numbers need the lock.
        let state = self.state();
        let numbered = leased.into_iter().filter_map(|(since, index, caller)| {
            Some(Holder {
                resource: state.metas.get(index)?.id,
                caller,
                held_for: Duration::from_nanos(now.saturating_sub(since)),
            })
        });
        numbered.collect()
    }

    /// Notes whether anybody listens to events.
    pub(crate) fn note_listeners(&self) {
        let mut state = self.state();
        state.observed = self.listeners.any_wants_all() || self.console.is_some();
        state.heard = !self.listeners.is_empty();
        state.update_watch_flags(&self.slots);
        self.publish_signals(&mut state);
    }

    /// Returns the number of leases since the pool was built.
    pub(crate) fn leases(&self) -> u64 {
        self.slots.iter().map(|(_, slot)| slot.uses()).sum()
    }

    /// Returns the name of the pool in messages.
    pub(crate) fn name(&self) -> &str {
        self.config.name.as_deref().unwrap_or("unnamed")
    }
}

impl<M: Manager> Source for Core<M> {
    fn unsubscribe(&self, id: u64) {
        if self.is_inherited() {
            // A thread of the parent may have held the lock.
            return;
        }
        self.listeners.remove(id);
        self.note_listeners();
    }
}

impl<M: Manager> Drop for Core<M> {
    fn drop(&mut self) {
        fork::unregister(self.id);
        // The maintenance task and the runtime watches hold the pool weakly: this ends them.
        self.wakeup.end();
        // What the user gave the pool may panic when it is dropped.
        let strategy = self.state().breaker.set_strategy(None, 1, Duration::ZERO);
        drop_contained(strategy);
        let predicates = std::mem::take(&mut *self.predicates.lock());
        predicates.into_iter().for_each(drop_contained);
    }
}

/// A guard of a leased slot that the pool itself holds, with its resource. Dropping the guard
/// destroys the resource, whose state is unknown then, and frees the slot.
pub(crate) struct Held<M: Manager, C: Borrow<Arc<Core<M>>>> {
    core: C,
    index: usize,
    armed: bool,
    _of: PhantomData<fn() -> M>,
}

impl<M: Manager, C: Borrow<Arc<Core<M>>>> Held<M, C> {
    /// Takes responsibility for a slot that the caller owns.
    pub(crate) fn new(core: C, index: usize) -> Self {
        Held {
            core,
            index,
            armed: true,
            _of: PhantomData,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core<M>> {
        self.core.borrow()
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns the pool, the resource in the slot, and what the pool knows about it.
    pub(crate) fn parts(&mut self) -> (&Arc<Core<M>>, &mut M::Resource, Info<'_>) {
        let core = self.core.borrow();
        let slot = core.slots.at(self.index);
        // SAFETY: this guard owns the slot, and is borrowed mutably.
        let filled = unsafe { slot.value_mut() };
        let filled = filled.expect("a held slot has a resource");
        let info = Info::new(&filled.origin, slot);
        (core, &mut filled.resource, info)
    }

    /// Ends the guard's responsibility; the caller owns the slot from here on.
    pub(crate) fn disarm(&mut self) -> usize {
        self.armed = false;
        self.index
    }

    /// Gives the resource back to the pool, unused.
    pub(crate) fn give_back(mut self) {
        self.armed = false;
        let core = self.core();
        let replaced = core.locked(|locked| {
            let replaced = match locked.state.replacing {
                Replacing::Ready => core.replace_in_hand(locked, self.index),
                _ => None,
            };
            locked.release_unused(self.index);
            replaced
        });
        if let Some(replaced) = replaced {
            replaced.destroy_in_background();
        }
    }

    /// Marks the resource as being destroyed.
    pub(crate) fn into_destroying(mut self, reason: DestroyReason) -> Destroying<M> {
        self.armed = false;
        let core = self.core();
        core.locked(|locked| locked.mark_destroying(self.index));
        Destroying::new(core, self.index, reason)
    }
}

impl<M: Manager, C: Borrow<Arc<Core<M>>>> Drop for Held<M, C> {
    #[inline]
    fn drop(&mut self) {
        if self.armed {
            self.abandon();
        }
    }
}

impl<M: Manager, C: Borrow<Arc<Core<M>>>> Held<M, C> {
    #[cold]
    fn abandon(&self) {
        let core = self.core();
        core.locked(|locked| locked.mark_destroying(self.index));
        Destroying::new(core, self.index, DestroyReason::Abandoned).destroy_in_background();
    }
}
